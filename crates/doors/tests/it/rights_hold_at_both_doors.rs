//! Every operation of both doors, for every sort of caller: no reply has anything of what the
//! caller may not read. The statuses are in `s3_rights` and `http_only_the_right_callers_may`.

use cairn_auth::{Caller, Rights, Visibility};
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::credentials::RemoveCredential;

use crate::{http_harness, s3_harness};

/// The contents of the bucket: content, metadata, a tag, a key, the name of the bucket's owner.
const MARKERS: [&str; 5] = ["MARK-BYTES", "MARK-META", "MARK-TAG", "MARK-KEY", "mark-owner"];

/// A sort of caller and what it may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    Anonymous,
    NoGrant,
    Reader,
    Writer,
    Both,
    Administrator,
    Owner,
    Root,
    /// Everything was granted and is withdrawn.
    Revoked,
    /// Its credentials hold no longer.
    Expired,
}

pub const ALL: [Who; 10] = [
    Who::Anonymous,
    Who::NoGrant,
    Who::Reader,
    Who::Writer,
    Who::Both,
    Who::Administrator,
    Who::Owner,
    Who::Root,
    Who::Revoked,
    Who::Expired,
];

impl Who {
    /// The grants, at first and then.
    pub fn grants(self) -> Vec<Rights> {
        match self {
            Who::Anonymous | Who::NoGrant | Who::Owner | Who::Root => Vec::new(),
            Who::Reader => vec![Rights::READ],
            Who::Writer => vec![Rights::WRITE],
            Who::Both => vec![Rights::READ.union(Rights::WRITE)],
            Who::Administrator => vec![Rights::ADMIN],
            Who::Revoked => vec![Rights::ALL, Rights::NONE],
            Who::Expired => vec![Rights::ALL],
        }
    }

    fn reads(self, visibility: Visibility) -> bool {
        match self {
            Who::Reader | Who::Both | Who::Owner | Who::Root => true,
            // A caller with wrong credentials is nobody, not even anybody.
            Who::Expired => false,
            _ => visibility == Visibility::Public,
        }
    }

    pub fn name(self) -> String {
        match self {
            Who::Owner => "mark-owner".to_owned(),
            _ => format!("{self:?}").to_lowercase(),
        }
    }
}

const TAGS: &str = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
const DELETE: &str = "<Delete><Object><Key>none</Key></Object></Delete>";
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
    <AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>";
const SHARE: &str = "{\"bucket\":\"marked\",\"prefix\":\"\"}";
const WEBSITE: &str = "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument>\
    </WebsiteConfiguration>";
/// Hides nothing: who reads is the same after it.
const BLOCK: &str = "<PublicAccessBlockConfiguration><BlockPublicAcls>false</BlockPublicAcls>\
    </PublicAccessBlockConfiguration>";
const OWNERSHIP: &str = "<OwnershipControls><Rule>\
    <ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
const SUSPENDED: &str =
    "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
const SLOW: &str = "<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>";
const PAYMENT: &str =
    "<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>";
const PREFLIGHT: &[(&str, &str)] =
    &[("origin", "https://a.example"), ("access-control-request-method", "GET")];
const COPY: (&str, &str) = ("x-amz-copy-source", "/marked/dir/MARK-KEY");

pub type Operation = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// `K` is the object, `T` another one that the caller may replace.
pub const S3: &[Operation] = &[
    ("GET", "/", &[]),
    ("GET", "/?max-buckets=1", &[]),
    ("HEAD", "/marked", &[]),
    ("GET", "/marked", &[]),
    ("GET", "/marked?list-type=2", &[]),
    ("GET", "/marked?list-type=2&delimiter=/", &[]),
    ("GET", "/marked?uploads", &[]),
    ("GET", "/marked?versions", &[]),
    ("GET", "/marked?location", &[]),
    ("GET", "/marked?versioning", &[]),
    ("GET", "/marked?acl", &[]),
    ("GET", "/marked?policyStatus", &[]),
    ("GET", "/marked?tagging", &[]),
    ("GET", "/marked?cors", &[]),
    ("GET", "/marked?policy", &[]),
    ("GET", "/marked?lifecycle", &[]),
    ("GET", "/marked?website", &[]),
    ("GET", "/marked?publicAccessBlock", &[]),
    ("GET", "/marked?object-lock", &[]),
    ("GET", "/marked?replication", &[]),
    ("GET", "/marked?encryption", &[]),
    ("GET", "/marked?ownershipControls", &[]),
    ("GET", "/marked?logging", &[]),
    ("GET", "/marked?notification", &[]),
    ("GET", "/marked?accelerate", &[]),
    ("GET", "/marked?requestPayment", &[]),
    ("PUT", "/marked?acl", &[("x-amz-acl", "private")]),
    ("PUT", "/marked?tagging", &[("body", TAGS)]),
    ("DELETE", "/marked?tagging", &[]),
    ("PUT", "/marked?cors", &[("body", CORS)]),
    ("DELETE", "/marked?cors", &[]),
    ("PUT", "/marked?website", &[("body", WEBSITE)]),
    ("DELETE", "/marked?website", &[]),
    ("PUT", "/marked?publicAccessBlock", &[("body", BLOCK)]),
    ("DELETE", "/marked?publicAccessBlock", &[]),
    ("PUT", "/marked?ownershipControls", &[("body", OWNERSHIP)]),
    ("DELETE", "/marked?ownershipControls", &[]),
    ("PUT", "/marked?versioning", &[("body", SUSPENDED)]),
    ("PUT", "/marked?logging", &[("body", "<BucketLoggingStatus/>")]),
    ("PUT", "/marked?notification", &[("body", "<NotificationConfiguration/>")]),
    ("PUT", "/marked?accelerate", &[("body", SLOW)]),
    ("PUT", "/marked?requestPayment", &[("body", PAYMENT)]),
    ("DELETE", "/marked?policy", &[]),
    ("DELETE", "/marked?lifecycle", &[]),
    ("DELETE", "/marked?encryption", &[]),
    ("DELETE", "/marked?replication", &[]),
    ("OPTIONS", "/marked/K", PREFLIGHT),
    ("POST", "/marked?delete", &[("body", DELETE)]),
    ("PUT", "/marked", &[]),
    ("GET", "/marked/K", &[]),
    ("GET", "/marked/K?partNumber=1", &[]),
    ("GET", "/marked/K", &[("range", "bytes=0-3")]),
    ("GET", "/marked/K", &[("if-none-match", "\"x\"")]),
    ("HEAD", "/marked/K", &[]),
    ("GET", "/marked/K?acl", &[]),
    ("GET", "/marked/K?tagging", &[]),
    ("GET", "/marked/K?retention", &[]),
    ("GET", "/marked/K?legal-hold", &[]),
    ("GET", "/marked/K?attributes", &[("x-amz-object-attributes", "ETag,ObjectSize")]),
    ("PUT", "/marked/T", &[]),
    ("PUT", "/marked/T", &[COPY]),
    ("PUT", "/marked/T", &[COPY, ("x-amz-tagging-directive", "COPY")]),
    ("PUT", "/marked/T?acl", &[("x-amz-acl", "private")]),
    ("PUT", "/marked/T?tagging", &[("body", TAGS)]),
    ("PUT", "/marked/T?retention", &[("body", "<Retention/>")]),
    ("PUT", "/marked/T?legal-hold", &[("body", "<LegalHold><Status>OFF</Status></LegalHold>")]),
    ("DELETE", "/marked/T?tagging", &[]),
    ("POST", "/marked/T?uploads", &[]),
    ("GET", "/marked/T?uploadId=x", &[]),
    ("PUT", "/marked/T?partNumber=1&uploadId=x", &[]),
    ("PUT", "/marked/T?partNumber=1&uploadId=x", &[COPY]),
    ("POST", "/marked/T?uploadId=x", &[("body", "<CompleteMultipartUpload/>")]),
    ("DELETE", "/marked/T?uploadId=x", &[]),
    ("DELETE", "/marked/T", &[]),
    ("DELETE", "/marked", &[]),
    ("GET", "/marked/none", &[]),
];

pub const HTTP: &[Operation] = &[
    ("GET", "/storage/", &[]),
    ("GET", "/storage/?limit=1", &[]),
    ("GET", "/storage/marked", &[]),
    ("GET", "/storage/marked?list", &[]),
    ("GET", "/storage/marked?cors", &[]),
    ("PUT", "/storage/marked?cors", &[("body", "{\"rules\":[]}")]),
    ("DELETE", "/storage/marked?cors", &[]),
    ("GET", "/storage/marked?website", &[]),
    ("PUT", "/storage/marked?website", &[("body", "{\"index\":\"i\"}")]),
    ("DELETE", "/storage/marked?website", &[]),
    ("OPTIONS", "/storage/marked/K", PREFLIGHT),
    ("HEAD", "/storage/marked", &[]),
    ("PATCH", "/storage/marked?cache_control=x", &[]),
    ("GET", "/storage/marked/", &[]),
    ("GET", "/storage/marked/?recursive", &[]),
    ("GET", "/storage/marked/dir/", &[]),
    ("GET", "/storage/marked/dir/?zip", &[]),
    ("GET", "/storage/marked/dir?list", &[]),
    ("DELETE", "/storage/marked/dir/", &[]),
    ("PUT", "/storage/marked", &[]),
    ("DELETE", "/storage/marked", &[]),
    ("GET", "/storage/marked/K", &[]),
    ("HEAD", "/storage/marked/K", &[]),
    ("GET", "/storage/marked/K", &[("range", "bytes=0-3")]),
    ("GET", "/storage/marked/K", &[("range", "bytes=0-1,3-4")]),
    ("GET", "/storage/marked/K?redirect", &[]),
    ("GET", "/storage/marked/K?follow&offset=0", &[]),
    ("GET", "/storage/marked/K?lines=1", &[]),
    ("GET", "/storage/marked/dir/?follow", &[]),
    ("GET", "/storage/marked/dir/?lines=1", &[]),
    ("GET", "/storage/marked/K?download", &[]),
    ("GET", "/storage/marked/K?download-info", &[]),
    ("OPTIONS", "/storage/marked/K", &[]),
    ("PUT", "/storage/marked/T", &[]),
    ("POST", "/storage/marked/T", &[]),
    ("POST", "/storage/marked/T?append", &[("body", "x")]),
    ("POST", "/storage/marked/T?append", &[("body", "x"), ("idempotency-key", "1")]),
    ("POST", "/storage/marked/T?move-to=U", &[]),
    ("GET", "/", &[]),
    ("GET", "/_license", &[]),
    ("POST", "/_bulk", &[("body", "{\"index\":{\"_index\":\"marked\"}}\n{}\n")]),
    ("POST", "/marked/_bulk", &[]),
    ("POST", "/loki/api/v1/push", &[("content-type", "application/json")]),
    ("POST", "/v1/logs", &[("content-type", "application/json")]),
    ("POST", "/upload", &[("content-type", "application/vnd.fdo.journal")]),
    ("DELETE", "/storage/marked/T", &[]),
    ("GET", "/storage/marked/none", &[]),
    ("POST", "/tus/marked/T", &[("tus-resumable", "1.0.0"), ("upload-length", "1")]),
    ("HEAD", "/tus/marked/K?upload=1", &[("tus-resumable", "1.0.0")]),
    ("PATCH", "/tus/marked/T?upload=1", &[("tus-resumable", "1.0.0")]),
    ("DELETE", "/tus/marked/T?upload=1", &[("tus-resumable", "1.0.0")]),
    ("GET", "/shares", &[]),
    ("GET", "/shares?all", &[]),
    ("POST", "/shares", &[("content-type", "application/json"), ("body", SHARE)]),
    ("DELETE", "/shares/none", &[]),
    ("GET", "/s/TOKEN", &[]),
    ("GET", "/s/TOKEN/K", &[]),
    ("PUT", "/s/TOKEN/T", &[]),
    ("POST", "/s/TOKEN/", &[]),
    ("GET", "/s/1-AAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/K", &[]),
    ("GET", "/keys", &[]),
    ("POST", "/keys", &[("content-type", "application/json"), ("body", "{}")]),
    ("DELETE", "/keys/none", &[]),
    ("GET", "/admin/keys", &[]),
    ("POST", "/admin/keys", &[]),
    ("DELETE", "/admin/keys/none", &[]),
    ("POST", "/admin/tokens", &[]),
    ("GET", "/admin/users", &[]),
    ("PATCH", "/admin/users/none", &[]),
    ("GET", "/admin/read-only", &[]),
    ("PUT", "/admin/read-only", &[]),
    ("GET", "/admin/holds", &[]),
    ("POST", "/admin/holds", &[]),
    ("PATCH", "/admin/holds/none", &[]),
    ("DELETE", "/admin/holds/none", &[]),
    ("GET", "/admin/blocks/GROUP/BLOCK/LENGTH", &[]),
    ("GET", "/admin/exports", &[]),
    ("POST", "/admin/exports", &[]),
    ("PATCH", "/admin/exports/marked", &[]),
    ("DELETE", "/admin/exports/marked", &[]),
    ("GET", "/admin/status", &[]),
    ("GET", "/admin/traffic", &[]),
    ("GET", "/admin/meta/dump", &[]),
    ("POST", "/admin/gc?dry_run", &[]),
    ("GET", "/healthz", &[]),
    ("GET", "/readyz", &[]),
    ("GET", "/metrics", &[]),
];

/// Of a reply to what was asked: what it has that the request had not.
fn found(asked: &str, got: &str) -> Vec<&'static str> {
    MARKERS.into_iter().filter(|marker| got.contains(marker) && !asked.contains(marker)).collect()
}

/// Markers that callers were shown.
#[derive(Default)]
struct Findings {
    rows: usize,
    open: Vec<String>,
    seen: std::collections::BTreeSet<&'static str>,
}

impl Findings {
    fn look(&mut self, who: Who, reads: bool, what: &str, found: Vec<&'static str>) {
        self.rows += 1;
        // Root is shown all users, and everybody the own name.
        let is_own =
            |marker: &&str| *marker == "mark-owner" && matches!(who, Who::Owner | Who::Root);
        if !reads && found.iter().any(|marker| !is_own(marker)) {
            self.open.push(format!("{who:?}: {what}: {found:?}"));
        }
        self.seen.extend(found);
    }

    #[track_caller]
    fn check(&self, rows: usize) {
        assert!(self.open.is_empty(), "{} open: {:#?}", self.open.len(), self.open);
        assert!(self.rows >= rows, "{} rows", self.rows);
        for marker in ["MARK-BYTES", "MARK-META", "MARK-KEY"] {
            assert!(self.seen.contains(marker), "nobody has seen {marker}");
        }
    }
}

fn grant(run: &dyn Fn(UpdateBucket), who: Who) {
    for rights in who.grants() {
        let grant = Some((who.name(), rights));
        run(UpdateBucket { name: "marked".into(), grant, ..UpdateBucket::default() });
    }
}

fn show(run: &dyn Fn(UpdateBucket), visibility: Visibility) {
    let visibility = Some(visibility);
    run(UpdateBucket { name: "marked".into(), visibility, ..UpdateBucket::default() });
}

pub fn named(path: &str) -> String {
    path.replace("/K", "/dir/MARK-KEY").replace("/T", "/target")
}

#[test]
fn of_s3() {
    let server = s3_harness::Server::start();
    let run = |verb: UpdateBucket| {
        server.run(&Caller::system(), verb);
    };
    let clients = ALL.map(|who| match who {
        Who::Anonymous => server.anonymous(),
        Who::Root => server.root(),
        _ => server.user(&who.name()),
    });
    let owner = &clients[6];
    owner.put("/marked", b"").ok();
    let put = owner.ask("PUT", "/marked/dir/MARK-KEY").header("x-amz-meta-a", "MARK-META");
    put.header("x-amz-tagging", "a=MARK-TAG").body(b"MARK-BYTES").send().ok();
    ALL.into_iter().for_each(|who| grant(&run, who));
    remove(|verb| server.run(&Caller::system(), verb), Who::Expired);
    let mut findings = Findings::default();
    for visibility in [Visibility::Private, Visibility::Public] {
        show(&run, visibility);
        for (who, client) in ALL.into_iter().zip(&clients) {
            for (method, path, headers) in S3 {
                owner.put("/marked/target", b"x").ok();
                let mut ask = client.ask(method, &named(path));
                let mut asked = named(path);
                for (name, value) in *headers {
                    asked.push_str(value);
                    ask = match *name {
                        "body" => ask.body(value.as_bytes()),
                        name => ask.header(name, value),
                    };
                }
                let reply = ask.send();
                let got = format!("{:?} {}", reply.headers, reply.text());
                let reads = who.reads(visibility);
                findings.look(who, reads, &format!("{method} {path}"), found(&asked, &got));
                if (*method, *path) == ("PUT", "/marked?acl") {
                    show(&run, visibility);
                }
            }
        }
    }
    findings.check(1000);
    assert!(findings.seen.contains("MARK-TAG"));
}

#[test]
fn of_http() {
    let server = http_harness::Server::start();
    let run = |verb: UpdateBucket| {
        let fs = server.fs();
        server.runtime.block_on(fs.run(&Caller::system(), verb)).unwrap();
    };
    let clients = ALL.map(|who| match who {
        Who::Anonymous => server.anonymous(),
        Who::Root => server.root(),
        _ => server.user(&who.name()),
    });
    let owner = &clients[6];
    owner.put("/storage/marked", b"").expect(201);
    let path = "/storage/marked/dir/MARK-KEY";
    owner.call("PUT", path, &[("cache-control", "MARK-META")], b"MARK-BYTES").expect(201);
    ALL.into_iter().for_each(|who| grant(&run, who));
    remove(
        |verb| server.runtime.block_on(server.fs().run(&Caller::system(), verb)).unwrap(),
        Who::Expired,
    );
    let mut findings = Findings::default();
    for visibility in [Visibility::Private, Visibility::Public] {
        show(&run, visibility);
        for (who, client) in ALL.into_iter().zip(&clients) {
            for (method, path, headers) in HTTP {
                owner.put("/storage/marked/target", b"x");
                let asked = named(path);
                let (body, headers): (Vec<_>, Vec<_>) =
                    headers.iter().copied().partition(|(name, _)| *name == "body");
                let body = body.first().map_or("", |(_, body)| body);
                let reply = client.call(method, &asked, &headers, body.as_bytes());
                let got = format!("{:?} {}", reply.headers, reply.text());
                let reads = who.reads(visibility);
                findings.look(who, reads, &format!("{method} {path}"), found(&asked, &got));
            }
        }
    }
    findings.check(700);
}

fn remove(run: impl Fn(RemoveCredential), who: Who) {
    run(RemoveCredential { id: format!("KEY-{}", who.name()) });
}

/// It finds what it looks for.
#[test]
fn markers_are_found() {
    assert_eq!(found("/marked/none", "a MARK-KEY and MARK-BYTES"), ["MARK-BYTES", "MARK-KEY"]);
    assert_eq!(found("/marked/MARK-KEY", "no MARK-KEY"), Vec::<&str>::new());
}

/// The requests in tables of a document: each line, its method and its path.
fn documented(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let (method, path) = line.split('`').nth(1)?.split_once(' ')?;
        path.starts_with('/').then_some((line, method, path))
    })
}

/// How many names a path has, and its parameters.
fn shape(path: &str) -> (usize, Vec<&str>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let level = path.split('/').filter(|name| !name.is_empty()).count();
    let names = query.split('&').filter(|pair| !pair.is_empty());
    (level, names.map(|pair| pair.split('=').next().unwrap()).collect())
}

#[test]
fn every_operation_is_asked_for() {
    let mut count = 0;
    for (line, method, path) in documented(include_str!("../../../../docs/s3.md")) {
        let (level, wanted) = shape(path);
        let copies = line.contains("x-amz-copy-source ");
        let is_it = |(asked, path, headers): &Operation| {
            let (at, names) = shape(path);
            let has_all = wanted.iter().all(|name| names.contains(name));
            let is_plain = !wanted.is_empty() || names.is_empty();
            let is_at = *asked == method && at == level && headers.contains(&COPY) == copies;
            is_at && has_all && is_plain
        };
        assert!(S3.iter().any(is_it), "{line}");
        count += 1;
    }
    for (line, method, path) in documented(include_str!("../../../../docs/http.md")) {
        let path = path.replace("BUCKET", "marked").replace("DIR", "dir");
        let path = path.replace("ID", "none").replace("NAME", "none");
        let paths = ["K", "T"].map(|key| path.replace("KEY", key));
        let is_it = |(asked, path, _): &Operation| {
            *asked == method && paths.iter().any(|one| one == path.split('?').next().unwrap())
        };
        assert!(HTTP.iter().any(is_it), "{line}");
        count += 1;
    }
    assert!(count > 70, "{count}");
}
