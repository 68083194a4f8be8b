//! Every operation for every sort of caller; and the conflicts of a bucket with POSIX rules.

use cairn_auth::{Caller, Rights, Visibility};
use cairn_base::UserId;
use cairn_fs::ops::buckets::{CreateBucket, UpdateBucket};
use cairn_fs::rows::BucketKind;

use crate::s3_harness::{Client, Connection, Mode, Server};

/// The callers with the right: nobody but root and the owner, readers too, writers too, or
/// everybody with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Read,
    /// As `Read`; in a public bucket everybody.
    PublicRead,
    Write,
    WriteAndRead,
    Administer,
    AnyKey,
}

type Operation = (&'static str, &'static str, &'static [(&'static str, &'static str)], Needs);

const TAGS: &str = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
const COMPLETE: &str = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>\
    <ETag>c4ca4238a0b923820dcc509a6f75849b</ETag></Part></CompleteMultipartUpload>";
const COPY: &[(&str, &str)] = &[("x-amz-copy-source", "/matrix/a")];

const OPERATIONS: &[Operation] = &[
    ("GET", "/", &[], Needs::AnyKey),
    ("HEAD", "/matrix", &[], Needs::PublicRead),
    ("GET", "/matrix", &[], Needs::PublicRead),
    ("GET", "/matrix?list-type=2", &[], Needs::PublicRead),
    ("GET", "/matrix?uploads", &[], Needs::Write),
    ("GET", "/matrix?location", &[], Needs::Read),
    ("GET", "/matrix?versioning", &[], Needs::Read),
    ("GET", "/matrix?acl", &[], Needs::Read),
    ("GET", "/matrix?policyStatus", &[], Needs::Read),
    ("GET", "/matrix/a?acl", &[], Needs::Read),
    ("PUT", "/matrix?acl", &[("x-amz-acl", "same")], Needs::Administer),
    ("PUT", "/matrix?tagging", &[("body", TAGS)], Needs::Administer),
    ("GET", "/matrix?tagging", &[], Needs::Read),
    ("DELETE", "/matrix?tagging", &[], Needs::Administer),
    ("GET", "/matrix/a", &[], Needs::PublicRead),
    ("HEAD", "/matrix/a", &[], Needs::PublicRead),
    ("GET", "/matrix/a?partNumber=1", &[], Needs::PublicRead),
    ("GET", "/matrix/a?tagging", &[], Needs::PublicRead),
    ("GET", "/matrix/a?attributes", &[("x-amz-object-attributes", "ETag")], Needs::PublicRead),
    ("PUT", "/matrix/b", &[], Needs::Write),
    ("PUT", "/matrix/c", COPY, Needs::Write),
    ("PUT", "/matrix/a?tagging", &[("body", TAGS)], Needs::Write),
    ("DELETE", "/matrix/a?tagging", &[], Needs::Write),
    ("POST", "/matrix/u?uploads", &[], Needs::Write),
    ("PUT", "/matrix/u?partNumber=1&uploadId=UPLOAD", &[], Needs::Write),
    ("PUT", "/matrix/u?partNumber=2&uploadId=UPLOAD", COPY, Needs::Write),
    ("GET", "/matrix/u?uploadId=UPLOAD", &[], Needs::Write),
    ("DELETE", "/matrix/b", &[], Needs::Write),
    (
        "POST",
        "/matrix?delete",
        &[("body", "<Delete><Object><Key>b</Key></Object></Delete>")],
        Needs::Write,
    ),
    ("POST", "/matrix/u?uploadId=UPLOAD", &[("body", COMPLETE)], Needs::Write),
    ("PUT", "/matrix/a?acl", &[("x-amz-acl", "private")], Needs::WriteAndRead),
    ("PUT", "/fresh", &[], Needs::AnyKey),
    ("DELETE", "/matrix/u?uploadId=UPLOAD", &[], Needs::Write),
    ("DELETE", "/matrix", &[], Needs::Administer),
];

struct Who {
    name: &'static str,
    client: Client,
    rights: Rights,
    has_key: bool,
}

fn may(who: &Who, needs: Needs, copies: bool, is_public: bool) -> bool {
    let rights = who.rights;
    match needs {
        Needs::AnyKey => who.has_key,
        Needs::PublicRead => is_public || rights.contains(Rights::READ),
        Needs::Read => rights.contains(Rights::READ),
        Needs::Write => {
            rights.contains(Rights::WRITE)
                && (!copies || is_public || rights.contains(Rights::READ))
        }
        Needs::WriteAndRead => {
            rights.contains(Rights::WRITE) && (is_public || rights.contains(Rights::READ))
        }
        Needs::Administer => rights.contains(Rights::ADMIN),
    }
}

#[test]
fn matrix() {
    let server = Server::start();
    let user = |name: &'static str, rights: Rights| Who {
        name,
        client: server.user(name),
        rights,
        has_key: true,
    };
    let everybody = [
        user("owner", Rights::ALL),
        user("reader", Rights::READ),
        user("writer", Rights::WRITE),
        user("both", Rights::READ.union(Rights::WRITE)),
        user("stranger", Rights::NONE),
        Who { name: "anonymous", client: server.anonymous(), rights: Rights::NONE, has_key: false },
        Who { name: "root", client: server.root(), rights: Rights::ALL, has_key: true },
    ];
    let owner = &everybody[0].client;
    for is_public in [false, true] {
        for who in &everybody {
            for (method, path, headers, needs) in OPERATIONS {
                let upload = prepare(&server, owner, &everybody, is_public);
                let path = path.replace("UPLOAD", &upload);
                let mut ask = who.client.ask(method, &path);
                let mut copies = false;
                for (name, value) in *headers {
                    copies |= *name == "x-amz-copy-source";
                    ask = match (*name, *value) {
                        ("body", text) => ask.body(text.as_bytes()),
                        (name, "same") if is_public => ask.header(name, "public-read"),
                        (name, "same") => ask.header(name, "private"),
                        (name, value) => ask.header(name, value),
                    };
                }
                let allowed = may(who, *needs, copies, is_public);
                let modes: &[Mode] = if who.has_key {
                    &[Mode::Hashed, Mode::Presigned(60)]
                } else {
                    &[Mode::Hashed]
                };
                for mode in modes {
                    let reply = ask.clone().mode(*mode).send();
                    let what = format!("{} {method} {path} {mode:?} public {is_public}", who.name);
                    let refused = reply.status == 403;
                    if allowed && *mode == modes[0] {
                        let fine = reply.status < 300
                            || (*method, &*path) == ("DELETE", "/matrix")
                            || (is_public && path == "/matrix/a?acl" && reply.status == 501);
                        assert!(fine, "{what}: {}", reply.text());
                    }
                    assert_eq!(refused, !allowed, "{what}: {} {}", reply.status, reply.text());
                    if refused && *method != "HEAD" {
                        reply.fails(403, "AccessDenied");
                    }
                }
            }
        }
    }
}

/// The bucket as it should be before each case; an upload in progress.
fn prepare(server: &Server, owner: &Client, everybody: &[Who], is_public: bool) -> String {
    let made = owner.put("/matrix", b"");
    if made.status == 200 {
        for who in everybody.iter().filter(|who| who.has_key && who.name != "owner") {
            if who.rights == Rights::NONE || who.name == "root" {
                continue;
            }
            let grant = Some((who.name.to_owned(), who.rights));
            let verb = UpdateBucket { name: "matrix".into(), grant, ..UpdateBucket::default() };
            server.run(&Caller::system(), verb);
        }
    }
    let visibility = if is_public { Visibility::Public } else { Visibility::Private };
    let verb = UpdateBucket {
        name: "matrix".into(),
        visibility: Some(visibility),
        tags: Some(vec![("a".into(), "b".into())]),
        ..UpdateBucket::default()
    };
    server.run(&Caller::system(), verb);
    owner.put("/matrix/a", b"1").ok();
    let _ = server.root().delete("/fresh");
    let upload = owner.post("/matrix/u?uploads", "").ok().one("UploadId");
    owner.put(&format!("/matrix/u?partNumber=1&uploadId={upload}"), b"1").ok();
    upload
}

#[test]
fn nothing_is_told_to_who_may_not_read() {
    let server = Server::start();
    let (owner, stranger, anonymous) = (server.user("owner"), server.user("x"), server.anonymous());
    owner.put("/secret", b"").ok();
    owner.put("/secret/a", b"1").ok();
    for client in [stranger, anonymous] {
        client.get("/secret/a").fails(403, "AccessDenied");
        client.get("/secret/nosuch").fails(403, "AccessDenied");
        let copy = client.ask("PUT", "/secret/b").header("x-amz-copy-source", "/secret/a");
        copy.send().fails(403, "AccessDenied");
        assert_eq!(client.head("/secret/nosuch").status, 403);
        assert_eq!(client.head("/secret").status, 403);
    }
}

#[test]
fn a_copy_needs_to_read_its_source() {
    let server = Server::start();
    let (owner, thief) = (server.user("owner"), server.user("thief"));
    owner.put("/secret", b"").ok();
    owner.put("/secret/a", b"1").ok();
    thief.put("/thiefs", b"").ok();
    let copy = thief.ask("PUT", "/thiefs/a").header("x-amz-copy-source", "/secret/a");
    copy.send().fails(403, "AccessDenied");
    let upload = thief.post("/thiefs/a?uploads", "").ok().one("UploadId");
    let path = format!("/thiefs/a?partNumber=1&uploadId={upload}");
    let copy = thief.ask("PUT", &path).header("x-amz-copy-source", "/secret/a");
    copy.send().fails(403, "AccessDenied");
    // An upload of another bucket is out of reach by its id.
    let theirs = owner.post("/secret/a?uploads", "").ok().one("UploadId");
    thief.put(&format!("/secret/a?partNumber=1&uploadId={theirs}"), b"").fails(403, "AccessDenied");
    thief.put(&format!("/thiefs/a?partNumber=1&uploadId={theirs}"), b"").fails(404, "NoSuchUpload");
}

#[test]
fn only_the_holder_of_a_key_says_what_a_link_shows() {
    let server = Server::start();
    let root = server.root();
    root.ask("PUT", "/public").header("x-amz-acl", "public-read").send().ok();
    root.put("/public/a", b"<script>").ok();
    let anonymous = server.anonymous();
    assert_eq!(anonymous.get("/public/a").ok().text(), "<script>");
    let shown = anonymous.get("/public/a?response-content-type=text%2Fhtml");
    shown.fails(400, "InvalidRequest");
    let grants = root.get("/public?acl").ok();
    assert_eq!(grants.all("Permission"), ["FULL_CONTROL", "READ"]);
    root.ask("PUT", "/public?acl").header("x-amz-acl", "private").send().ok();
    anonymous.get("/public/a").fails(403, "AccessDenied");
    for acl in ["public-read-write", "authenticated-read", "nonsense"] {
        root.ask("PUT", "/public?acl").header("x-amz-acl", acl).send().fails(501, "NotImplemented");
        root.ask("PUT", "/other").header("x-amz-acl", acl).send().fails(501, "NotImplemented");
    }
    lists_of_grants(&root);
    root.get("/other").fails(404, "NoSuchBucket");
}

/// Only what a canned ACL could say is taken.
fn lists_of_grants(root: &Client) {
    let put = |grants: &[(&str, &str)]| {
        let grants: String = grants
            .iter()
            .map(|(who, what)| {
                let (kind, name) = if who.starts_with("http") {
                    ("Group", "URI")
                } else {
                    ("CanonicalUser", "ID")
                };
                format!(
                    "<Grant><Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
                     xsi:type=\"{kind}\"><{name}>{who}</{name}></Grantee>\
                     <Permission>{what}</Permission></Grant>"
                )
            })
            .collect();
        let body = format!(
            "<AccessControlPolicy><AccessControlList>{grants}</AccessControlList>\
             </AccessControlPolicy>"
        );
        root.put("/public?acl", body.as_bytes())
    };
    let status = || root.get("/public?policyStatus").ok().one("IsPublic");
    let owner = format!("{:064x}", 1);
    let all = "http://acs.amazonaws.com/groups/global/AllUsers";
    put(&[(&owner, "FULL_CONTROL"), (all, "READ")]).ok();
    assert_eq!(status(), "true");
    put(&[(&owner, "FULL_CONTROL")]).ok();
    assert_eq!(status(), "false");
    for grants in [
        &[][..],
        &[(all, "READ")],
        &[(&owner, "READ")],
        &[(&owner, "FULL_CONTROL"), (all, "WRITE")],
        &[(&owner, "FULL_CONTROL"), ("12", "READ")],
        &[(&owner, "FULL_CONTROL"), ("http://acs.amazonaws.com/groups/s3/LogDelivery", "READ")],
    ] {
        put(grants).fails(501, "NotImplemented");
        assert_eq!(status(), "false");
    }
}

#[test]
fn keys_conflict_only_where_posix_rules_hold() {
    let server = Server::start();
    let root = server.root();
    let caller = Caller::verified(UserId::ROOT);
    let name = "shared".to_owned();
    let verb = CreateBucket { name, kind: BucketKind::Posix, visibility: Visibility::Private };
    server.run(&caller, verb);
    root.put("/free", b"").ok();
    for (bucket, status) in [("shared", 409), ("free", 200)] {
        root.put(&format!("/{bucket}/a/b"), b"1").ok();
        let put = root.put(&format!("/{bucket}/a"), b"2");
        assert_eq!(put.status, status, "{}", put.text());
        root.put(&format!("/{bucket}/f"), b"1").ok();
        let put = root.put(&format!("/{bucket}/f/g"), b"2");
        assert_eq!(put.status, status, "{}", put.text());
        let copy = root.ask("PUT", &format!("/{bucket}/f/h"));
        let copy = copy.header("x-amz-copy-source", &format!("/{bucket}/a/b")).send();
        assert_eq!(copy.status, status, "{}", copy.text());
        if status == 409 {
            assert_eq!(put.code(), "KeyConflict");
            assert_eq!(root.get("/shared/f").text(), "1");
        }
    }
}

#[test]
fn a_bucket_of_files_takes_only_names_of_files() {
    let server = Server::start();
    let root = server.root();
    let caller = Caller::verified(UserId::ROOT);
    let name = "files".to_owned();
    let verb = CreateBucket { name, kind: BucketKind::Posix, visibility: Visibility::Private };
    server.run(&caller, verb);
    root.put("/files/source", b"1").ok();
    root.put("/free", b"").ok();
    let long = "n".repeat(256);
    for key in ["a//b", "/a", "a/", "d/./x", "d/..", ".", "..", &long, &format!("{long}/x")] {
        for (bucket, is_taken) in [("files", false), ("free", true)] {
            let path = format!("/{bucket}/{key}");
            let copy = root.ask("PUT", &path).header("x-amz-copy-source", "/files/source");
            let replies =
                [root.put(&path, b"x"), copy.send(), root.post(&format!("{path}?uploads"), "")];
            for reply in replies {
                if is_taken {
                    drop(reply.ok())
                } else {
                    assert_eq!(reply.status, 400, "{key}: {}", reply.text())
                }
            }
        }
    }
    assert_eq!(root.get("/files?list-type=2").ok().all("Key"), ["source"]);
    assert!(root.get("/files?uploads").ok().all("Key").is_empty());
    root.put(&format!("/files/{}/...", &long[1..]), b"x").ok();
}

#[test]
fn a_key_that_takes_no_bytes_is_refused_before_they_come() {
    let server = Server::start();
    let root = server.root();
    let caller = Caller::verified(UserId::ROOT);
    let name = "files".to_owned();
    let verb = CreateBucket { name, kind: BucketKind::Posix, visibility: Visibility::Private };
    server.run(&caller, verb);
    root.put("/files/there/", b"").ok();
    let body = vec![b'x'; 1 << 20];
    for key in ["there/", "new/", "a//b", "d/.."] {
        let wire = root.ask("PUT", &format!("/files/{key}")).body(&body).wire();
        let mut connection = Connection::open(server.address);
        // No byte of the body is sent.
        connection.send(&wire[..wire.len() - body.len()]);
        let refused = connection.reply("PUT").fails(400, "InvalidArgument").text();
        assert!(refused.contains("is of kind files"), "{key}: {refused}");
    }
    assert_eq!(root.get("/files?list-type=2").ok().all("Key"), ["there/"]);
}
