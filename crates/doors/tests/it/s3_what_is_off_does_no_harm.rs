//! Features that do not exist: what asks for nothing is taken, and the rest is refused by its name.

use crate::s3_harness::{Client, Server};

fn store(server: &Server) -> Client {
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    root
}

const BYPASS: &str = "x-amz-bypass-governance-retention";

#[test]
fn nothing_is_under_retention_that_could_be_bypassed() {
    let server = Server::start();
    let root = store(&server);
    root.put("/photos/b", b"b").ok();
    root.ask("DELETE", "/photos/a").header(BYPASS, "true").send().ok();
    let body = b"<Delete><Object><Key>b</Key></Object></Delete>";
    root.ask("POST", "/photos?delete").header(BYPASS, "true").body(body).send().ok();
    assert!(root.get("/photos").ok().all("Key").is_empty());
    root.ask("PUT", "/photos/a").header(BYPASS, "true").send().fails(501, "NotImplemented");
}

#[test]
fn metadata_of_requests_without_a_body_is_ignored() {
    let server = Server::start();
    let root = store(&server);
    for (method, path) in
        [("GET", "/photos/a"), ("HEAD", "/photos/a"), ("GET", "/photos"), ("DELETE", "/photos/a")]
    {
        root.ask(method, path).header("x-amz-meta-sp", "1").send().ok();
    }
    let body = root.ask("POST", "/photos?delete").header("x-amz-meta-sp", "1");
    body.body(b"<Delete/>").send().fails(501, "NotImplemented");
}

#[test]
fn what_is_not_there_can_be_deleted() {
    let server = Server::start();
    let (root, stranger) = (store(&server), server.user("stranger"));
    for setting in ["policy", "lifecycle", "encryption", "replication", "publicAccessBlock"] {
        let path = format!("/photos?{setting}");
        assert_eq!(root.delete(&path).ok().status, 204, "{setting}");
        stranger.delete(&path).fails(403, "AccessDenied");
        server.anonymous().delete(&path).fails(403, "AccessDenied");
        root.delete(&format!("/nosuch?{setting}")).fails(404, "NoSuchBucket");
    }
    assert_eq!(root.get("/photos/a").ok().text(), "before");
}

#[test]
fn no_object_is_locked_nor_can_be() {
    let server = Server::start();
    let (root, stranger) = (store(&server), server.user("stranger"));
    for (lock, body) in [
        ("retention", "<Retention><Mode>GOVERNANCE</Mode></Retention>"),
        ("legal-hold", "<LegalHold><Status>ON</Status></LegalHold>"),
    ] {
        let path = format!("/photos/a?{lock}");
        root.get(&path).fails(400, "InvalidRequest");
        root.put(&path, body.as_bytes()).fails(400, "InvalidRequest");
        stranger.get(&path).fails(403, "AccessDenied");
        stranger.put(&path, body.as_bytes()).fails(403, "AccessDenied");
    }
    assert_eq!(root.get("/photos/a").ok().text(), "before");
}

/// A parameter, a neutral document, one that asks for the feature, and words of its name.
const NEUTRAL: [(&str, &str, &str, &str); 6] = [
    (
        "versioning",
        "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>",
        "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
        "versions of objects",
    ),
    (
        "accelerate",
        "<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>",
        "<AccelerateConfiguration><Status>Enabled</Status></AccelerateConfiguration>",
        "acceleration",
    ),
    (
        "logging",
        "<BucketLoggingStatus/>",
        "<BucketLoggingStatus><LoggingEnabled><TargetBucket>photos</TargetBucket>\
         <TargetPrefix>l</TargetPrefix></LoggingEnabled></BucketLoggingStatus>",
        "access logs",
    ),
    (
        "notification",
        "<NotificationConfiguration/>",
        "<NotificationConfiguration><EventBridgeConfiguration/></NotificationConfiguration>",
        "notifications",
    ),
    (
        "requestPayment",
        "<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>",
        "<RequestPaymentConfiguration><Payer>Requester</Payer></RequestPaymentConfiguration>",
        "requesters who pay",
    ),
    (
        "ownershipControls",
        "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule>\
         </OwnershipControls>",
        "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule>\
         </OwnershipControls>",
        "BucketOwnerEnforced",
    ),
];

#[test]
fn settings_that_ask_for_nothing_are_taken() {
    let server = Server::start();
    let (root, stranger) = (store(&server), server.user("stranger"));
    for (setting, neutral, other, words) in NEUTRAL {
        let path = format!("/photos?{setting}");
        assert_eq!(root.put(&path, neutral.as_bytes()).ok().status, 200, "{setting}");
        let refused = root.put(&path, other.as_bytes()).fails(501, "NotImplemented").text();
        let place = "docs/s3.md#features-that-are-off";
        assert!(refused.contains(words) && refused.contains(place), "{refused}");
        stranger.put(&path, neutral.as_bytes()).fails(403, "AccessDenied");
        stranger.put(&path, other.as_bytes()).fails(403, "AccessDenied");
        server.anonymous().put(&path, neutral.as_bytes()).fails(403, "AccessDenied");
        root.put(&path, b"<Nonsense/>").fails(400, "MalformedXML");
        let missing = format!("/nosuch?{setting}");
        root.put(&missing, neutral.as_bytes()).fails(404, "NoSuchBucket");
    }
    for setting in ["versioning", "accelerate"] {
        let shown = root.get(&format!("/photos?{setting}")).ok();
        assert_eq!(shown.one("Status"), "Suspended", "{setting}");
    }
}

#[test]
fn the_rule_of_ownership_is_there_until_it_is_deleted() {
    let server = Server::start();
    let root = store(&server);
    let path = "/photos?ownershipControls";
    assert_eq!(root.get(path).ok().one("ObjectOwnership"), "BucketOwnerEnforced");
    assert_eq!(root.delete(path).ok().status, 204);
    root.get(path).fails(404, "OwnershipControlsNotFoundError");
    root.delete(path).ok();
    root.put(path, NEUTRAL[5].1.as_bytes()).ok();
    assert_eq!(root.get(path).ok().one("ObjectOwnership"), "BucketOwnerEnforced");
}

#[test]
fn what_is_refused_is_named() {
    let server = Server::start();
    let root = store(&server);
    for (method, path, words) in [
        ("PUT", "/photos?policy", "bucket policies"),
        ("PUT", "/photos?lifecycle", "lifecycle rules"),
        ("PUT", "/photos?encryption", "server-side encryption"),
        ("PUT", "/photos?replication", "replication rules"),
        ("PUT", "/photos?object-lock", "Object Lock"),
        ("GET", "/photos?inventory", "inventories"),
        ("POST", "/photos/a?restore", "archives"),
    ] {
        let text = root.ask(method, path).body(b"<x/>").send().fails(501, "NotImplemented").text();
        assert!(text.contains(words) && text.contains("docs/s3.md#"), "{path}: {text}");
    }
    for (name, words) in [
        ("x-amz-server-side-encryption", "server-side encryption"),
        ("x-amz-object-lock-mode", "Object Lock"),
        ("x-amz-grant-read", "ACLs with grants"),
    ] {
        let put = root.ask("PUT", "/photos/a").header(name, "x").body(b"x").send();
        let text = put.fails(501, "NotImplemented").text();
        assert!(text.contains(words) && text.contains(name), "{name}: {text}");
    }
}

#[test]
fn calls_of_iam_and_sts_are_refused_in_their_form() {
    let server = Server::start();
    let (root, anonymous) = (store(&server), server.anonymous());
    let form = b"Action=CreateUser&UserName=a&Version=2010-05-08";
    let kind = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    for service in ["iam", "sts"] {
        let ask = root.ask("POST", "/").header(kind.0, kind.1).body(form);
        let reply = ask.lie(|lie| lie.service = Some(if service == "iam" { "iam" } else { "sts" }));
        let reply = reply.send();
        let text = reply.text();
        assert_eq!(reply.status, 501, "{text}");
        assert!(text.contains(&format!("<ErrorResponse xmlns=\"https://{service}.")), "{text}");
        assert!(text.contains("<Type>Sender</Type><Code>NotImplemented</Code>"), "{text}");
    }
    let alone = anonymous.ask("POST", "/").header(kind.0, kind.1).body(form).send();
    assert!(alone.text().contains("https://sts."), "{}", alone.text());
    let asked = anonymous.get("/?Action=ListUsers&Version=2010-05-08");
    assert!(asked.text().contains("https://iam."), "{}", asked.text());
    root.post("/", "").fails(405, "MethodNotAllowed");
    // Elsewhere such a credential is a wrong one.
    let wrong = root.ask("GET", "/photos").lie(|lie| lie.service = Some("iam")).send();
    wrong.fails(400, "AuthorizationHeaderMalformed");
}

#[test]
fn a_page_of_buckets_that_is_announced_has_something_in_it() {
    let server = Server::start();
    let (anna, zoe) = (server.user("anna"), server.user("zoe"));
    for (client, name) in [(&anna, "lb-a"), (&zoe, "lb-b"), (&anna, "lb-c"), (&zoe, "lb-d")] {
        client.put(&format!("/{name}"), b"").ok();
    }
    let first = anna.get("/?max-buckets=1").ok();
    assert_eq!(first.all("Name"), ["lb-a"]);
    let token = first.one("ContinuationToken");
    let last = anna.get(&format!("/?max-buckets=1&continuation-token={token}")).ok();
    assert_eq!(last.all("Name"), ["lb-c"]);
    assert!(last.all("ContinuationToken").is_empty());
    let both = anna.get("/?max-buckets=2").ok();
    assert_eq!(both.all("Name"), ["lb-a", "lb-c"]);
    assert!(both.all("ContinuationToken").is_empty());
    let root = server.root().get("/?max-buckets=4&prefix=lb-").ok();
    assert_eq!(root.all("Name").len(), 4);
    assert!(root.all("ContinuationToken").is_empty());
}

#[test]
fn values_of_tags_have_the_characters_of_s3() {
    let server = Server::start();
    let root = store(&server);
    let tags = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>k</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    for path in ["/photos?tagging", "/photos/a?tagging"] {
        root.put(path, tags("name?x`,").as_bytes()).fails(400, "InvalidTag");
        root.put(path, tags("a b+-=._:/@\u{e9}1").as_bytes()).ok();
    }
    let put = |tagging: &str| {
        root.ask("PUT", "/photos/t").header("x-amz-tagging", tagging).body(b"t").send()
    };
    put("k=%60path").fails(400, "InvalidTag");
    put("k=path").ok();
}

#[test]
fn a_clock_that_is_off_hears_both_times() {
    let server = Server::start();
    let root = store(&server);
    let reply = root.ask("GET", "/photos/a").lie(|lie| lie.ahead = 960).send();
    let reply = reply.fails(403, "RequestTimeTooSkewed");
    assert_eq!(reply.one("RequestTime"), "20260101T001600Z");
    assert_eq!(reply.one("ServerTime"), "2026-01-01T00:00:00Z");
    assert_eq!(reply.one("MaxAllowedSkewMilliseconds"), "900000");
}

#[test]
fn codes_are_those_that_suites_expect() {
    let server = Server::start();
    let root = store(&server);
    root.put("/nosuch?acl", b"").fails(404, "NoSuchBucket");
    root.put("/photos?acl", b"").fails(400, "InvalidRequest");
    let upload = root.ask("POST", "/photos/m?uploads").send().ok().one("UploadId");
    let part = root.ask("PUT", &format!("/photos/m?partNumber=1&uploadId={upload}"));
    let part = part.header("x-amz-copy-source", "/photos/a");
    part.header("x-amz-copy-source-range", "bytes=0-99").send().fails(400, "InvalidArgument");
    let cors = b"<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>\
        <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";
    for (md5, code) in [("uU0nuZNNPgilLlLX2n2r+s==", "BadDigest"), ("invalid", "InvalidDigest")] {
        let put = root.ask("PUT", "/photos?cors").header("content-md5", md5);
        put.body(cors).send().fails(400, code);
    }
}

fn block(flags: [bool; 4]) -> String {
    let [acls, ignore, policy, restrict] = flags;
    format!(
        "<PublicAccessBlockConfiguration><BlockPublicAcls>{acls}</BlockPublicAcls>\
         <IgnorePublicAcls>{ignore}</IgnorePublicAcls>\
         <BlockPublicPolicy>{policy}</BlockPublicPolicy>\
         <RestrictPublicBuckets>{restrict}</RestrictPublicBuckets></PublicAccessBlockConfiguration>"
    )
}

const PATH: &str = "/photos?publicAccessBlock";

#[test]
fn a_public_access_block_is_what_was_put() {
    let server = Server::start();
    let (root, stranger) = (store(&server), server.user("stranger"));
    root.get(PATH).fails(404, "NoSuchPublicAccessBlockConfiguration");
    for bits in 0..16 {
        let flags = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        root.put(PATH, block(flags).as_bytes()).ok();
        let shown = root.get(PATH).ok();
        let names =
            ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];
        assert_eq!(names.map(|name| shown.one(name)), flags.map(|flag| flag.to_string()));
    }
    for client in [stranger, server.anonymous()] {
        client.put(PATH, block([false; 4]).as_bytes()).fails(403, "AccessDenied");
        client.get(PATH).fails(403, "AccessDenied");
        client.delete(PATH).fails(403, "AccessDenied");
    }
    root.put(
        PATH,
        b"<PublicAccessBlockConfiguration><All>true</All></PublicAccessBlockConfiguration>",
    )
    .fails(400, "MalformedXML");
    root.put("/nosuch?publicAccessBlock", block([true; 4]).as_bytes()).fails(404, "NoSuchBucket");
    assert_eq!(root.delete(PATH).ok().status, 204);
    root.get(PATH).fails(404, "NoSuchPublicAccessBlockConfiguration");
}

#[test]
fn a_block_refuses_to_make_a_bucket_public() {
    let server = Server::start();
    let (root, anonymous) = (store(&server), server.anonymous());
    let open = |path: &str| root.ask("PUT", path).header("x-amz-acl", "public-read").send();
    for flags in [[true, false, false, false], [false, false, true, false]] {
        root.put(PATH, block(flags).as_bytes()).ok();
        open("/photos?acl").fails(403, "AccessDenied");
        open("/photos/b").fails(403, "AccessDenied");
        root.ask("PUT", "/photos?acl").header("x-amz-acl", "private").send().ok();
        anonymous.get("/photos/a").fails(403, "AccessDenied");
        root.delete(PATH).ok();
    }
    // What is public already stays so.
    open("/photos?acl").ok();
    root.put(PATH, block([true, false, true, false]).as_bytes()).ok();
    assert_eq!(anonymous.get("/photos/a").ok().text(), "before");
}

#[test]
fn a_block_hides_a_public_bucket_until_it_ends() {
    let server = Server::start();
    let (root, anonymous) = (store(&server), server.anonymous());
    let acl = |acl: &str| root.ask("PUT", "/photos?acl").header("x-amz-acl", acl).send();
    acl("public-read").ok();
    for flags in [[false, true, false, false], [false, false, false, true]] {
        assert_eq!(anonymous.get("/photos/a").ok().text(), "before");
        root.put(PATH, block(flags).as_bytes()).ok();
        for path in ["/photos/a", "/photos", "/photos/a?tagging"] {
            anonymous.get(path).fails(403, "AccessDenied");
        }
        assert_eq!(root.get("/photos?policyStatus").ok().one("IsPublic"), "false");
        assert!(root.get("/photos?acl").ok().text().contains("AllUsers"));
        root.delete(PATH).ok();
    }
    // It may be chosen meanwhile, and then holds afterwards.
    root.put(PATH, block([false, true, false, false]).as_bytes()).ok();
    acl("private").ok();
    root.delete(PATH).ok();
    anonymous.get("/photos/a").fails(403, "AccessDenied");
    root.put(PATH, block([false, true, false, false]).as_bytes()).ok();
    acl("public-read").ok();
    anonymous.get("/photos/a").fails(403, "AccessDenied");
    root.put(PATH, block([false; 4]).as_bytes()).ok();
    assert_eq!(anonymous.get("/photos/a").ok().text(), "before");
}
