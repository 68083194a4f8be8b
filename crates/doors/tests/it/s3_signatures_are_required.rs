//! The caller's identity: every way a signature can be wrong is refused, and nothing wrong is taken
//! for an anonymous request.

use std::time::Instant;

use cairn_doors::limits::{FAILURES, FAILURES_DELAY};

use crate::s3_harness::{Ask, Lie, Mode, Reply, Server};

/// One case: what is wrong, how, and the answer.
type Case = (&'static str, fn(Ask) -> Ask, u16, &'static str);

fn lie(ask: Ask, change: fn(&mut Lie)) -> Ask {
    ask.lie(change)
}

const HEADER_CASES: &[Case] = &[
    (
        "region",
        |ask| lie(ask, |l| l.region = Some("us-east-1")),
        400,
        "AuthorizationHeaderMalformed",
    ),
    ("service", |ask| lie(ask, |l| l.service = Some("ec2")), 400, "AuthorizationHeaderMalformed"),
    (
        "terminal",
        |ask| lie(ask, |l| l.terminal = Some("aws4")),
        400,
        "AuthorizationHeaderMalformed",
    ),
    ("day", |ask| lie(ask, |l| l.day = Some("20251231")), 400, "AuthorizationHeaderMalformed"),
    (
        "no day at all",
        |ask| lie(ask, |l| l.day = Some("nonsense")),
        400,
        "AuthorizationHeaderMalformed",
    ),
    ("past", |ask| lie(ask, |l| l.ahead = -901), 403, "RequestTimeTooSkewed"),
    ("future", |ask| lie(ask, |l| l.ahead = 901), 403, "RequestTimeTooSkewed"),
    ("no date", |ask| lie(ask, |l| l.no_date = true), 403, "AccessDenied"),
    ("algorithm", |ask| lie(ask, |l| l.algorithm = Some("AWS4-HMAC-SHA1")), 400, "InvalidArgument"),
    (
        "ecdsa",
        |ask| lie(ask, |l| l.algorithm = Some("AWS4-ECDSA-P256-SHA256")),
        501,
        "NotImplemented",
    ),
    ("no hash", |ask| lie(ask, |l| l.no_content_sha256 = true), 400, "InvalidRequest"),
    ("bad hash", |ask| lie(ask, |l| l.content_sha256 = Some("zz".into())), 400, "InvalidArgument"),
    (
        "other hash",
        |ask| lie(ask, |l| l.content_sha256 = Some("0".repeat(64))),
        400,
        "XAmzContentSHA256Mismatch",
    ),
    (
        "short signature",
        |ask| lie(ask, |l| l.signature = Some("00")),
        400,
        "AuthorizationHeaderMalformed",
    ),
    (
        "wrong signature",
        |ask| {
            lie(ask, |l| {
                l.signature =
                    Some("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    ("host not signed", |ask| lie(ask, |l| l.unsigned = vec!["host"]), 403, "AccessDenied"),
    ("date not signed", |ask| lie(ask, |l| l.unsigned = vec!["x-amz-date"]), 403, "AccessDenied"),
    ("metadata not signed", |ask| ask.late_header("x-amz-meta-role", "admin"), 403, "AccessDenied"),
    ("tagging not signed", |ask| ask.late_header("x-amz-tagging", "a=b"), 403, "AccessDenied"),
    (
        "signed but absent",
        |ask| lie(ask, |l| l.phantom = vec!["range"]),
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "second value of a signed header",
        |ask| ask.header("x-amz-meta-a", "1").late_header("x-amz-meta-a", "2"),
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "two authorizations",
        |ask| ask.late_header("authorization", "AWS4-HMAC-SHA256 Credential=a"),
        400,
        "AuthorizationHeaderMalformed",
    ),
    ("session token", |ask| ask.header("x-amz-security-token", "abc"), 400, "InvalidToken"),
    (
        "query besides",
        |mut ask| {
            ask.query.push(("X-Amz-Signature".into(), "0".repeat(64)));
            ask
        },
        400,
        "InvalidArgument",
    ),
    (
        "version 2 in the query",
        |mut ask| {
            ask.query.push(("Signature".into(), "abc".into()));
            ask.query.push(("AWSAccessKeyId".into(), "abc".into()));
            ask
        },
        400,
        "InvalidRequest",
    ),
];

#[test]
fn in_the_header() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    for (what, change, status, code) in HEADER_CASES {
        println!("{what}");
        let put = root.ask("PUT", "/photos/a").body(b"after");
        change(put).send().fails(*status, code);
        if !what.contains("hash") {
            change(root.ask("GET", "/photos/a")).send().fails(*status, code);
            change(root.ask("DELETE", "/photos/a")).send().fails(*status, code);
            change(root.ask("GET", "/")).send().fails(*status, code);
        }
        assert_eq!(root.get("/photos/a").text(), "before", "{what}");
    }
}

#[test]
fn within_the_window_and_with_a_date_header() {
    let server = Server::start();
    let root = server.root();
    for ahead in [-900, 0, 900] {
        let mut ask = root.ask("GET", "/");
        ask.lie.ahead = ahead;
        ask.send().ok();
    }
    let dated = |date: &str| {
        let mut ask = root.ask("GET", "/").header("date", date);
        ask.lie.no_date = true;
        ask.send()
    };
    dated("Thu, 01 Jan 2026 00:00:00 GMT").ok();
    dated("Thu, 01 Jan 2026 00:00:01 GMT").fails(403, "SignatureDoesNotMatch");
    dated("Wed, 31 Dec 2025 00:00:00 GMT").fails(400, "AuthorizationHeaderMalformed");
    dated("nonsense").fails(403, "AccessDenied");
    // x-amz-date is the one that counts.
    root.ask("GET", "/").header("date", "Thu, 01 Jan 1970 00:00:00 GMT").send().ok();
}

#[test]
fn spaces_and_doubles_in_headers_are_canonical() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.ask("PUT", "/photos/a")
        .header("x-amz-meta-a", "  one   two  ")
        .header("x-amz-meta-b", "1")
        .header("x-amz-meta-b", "2")
        .header("x-amz-meta-empty", "")
        .send()
        .ok();
    let got = root.head("/photos/a").ok();
    assert_eq!(got.header("x-amz-meta-b"), Some("1,2"));
}

const QUERY_CASES: &[Case] = &[
    ("region", |ask| lie(ask, |l| l.region = Some("x")), 400, "AuthorizationQueryParametersError"),
    (
        "service",
        |ask| lie(ask, |l| l.service = Some("x")),
        400,
        "AuthorizationQueryParametersError",
    ),
    (
        "terminal",
        |ask| lie(ask, |l| l.terminal = Some("x")),
        400,
        "AuthorizationQueryParametersError",
    ),
    ("day", |ask| lie(ask, |l| l.day = Some("20251231")), 400, "AuthorizationQueryParametersError"),
    ("future", |ask| lie(ask, |l| l.ahead = 901), 403, "RequestTimeTooSkewed"),
    ("expired", |ask| lie(ask, |l| l.ahead = -61), 403, "AccessDenied"),
    ("host not signed", |ask| lie(ask, |l| l.unsigned = vec!["host"]), 403, "AccessDenied"),
    ("late metadata", |ask| ask.late_header("x-amz-meta-a", "b"), 403, "AccessDenied"),
    ("late acl", |ask| ask.late_header("x-amz-acl", "private"), 403, "AccessDenied"),
    (
        "authorization besides",
        |ask| ask.late_header("authorization", "AWS4-HMAC-SHA256 Credential=a"),
        400,
        "InvalidArgument",
    ),
    (
        "wrong signature",
        |ask| {
            lie(ask, |l| {
                l.signature =
                    Some("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
            })
        },
        403,
        "SignatureDoesNotMatch",
    ),
    (
        "another parameter",
        |ask| lie(ask, |l| l.parameters = vec![("X-Amz-SignedHeaders", Some("host;range"))]),
        403,
        "SignatureDoesNotMatch",
    ),
];

#[test]
fn in_the_query() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"before").ok();
    for (what, change, status, code) in QUERY_CASES {
        println!("{what}");
        let presigned = |method: &str| root.ask(method, "/photos/a").mode(Mode::Presigned(60));
        for method in ["GET", "DELETE", "PUT"] {
            change(presigned(method)).send().fails(*status, code);
        }
        assert_eq!(root.get("/photos/a").text(), "before", "{what}");
    }
    for name in ["Algorithm", "Credential", "Date", "Expires", "SignedHeaders"] {
        let name: &'static str = format!("X-Amz-{name}").leak();
        for value in [None, Some("nonsense"), Some("")] {
            let mut ask = root.ask("GET", "/photos/a").mode(Mode::Presigned(60));
            ask.lie.parameters = vec![(name, value)];
            let reply = ask.send();
            assert!(matches!(reply.status, 400 | 403), "{name} {value:?} {}", reply.text());
        }
    }
    for (secs, status, code) in [
        (-1, 400, "AuthorizationQueryParametersError"),
        (604_801, 400, "AuthorizationQueryParametersError"),
    ] {
        let ask = root.ask("GET", "/photos/a").mode(Mode::Presigned(secs));
        ask.send().fails(status, code);
    }
    for secs in [0, 1, 604_800] {
        root.ask("GET", "/photos/a").mode(Mode::Presigned(secs)).send().ok();
    }
}

#[test]
fn a_presigned_url_is_for_one_method_and_path() {
    let server = Server::start();
    let root = server.root();
    root.put("/photos", b"").ok();
    root.put("/photos/a", b"1").ok();
    root.put("/photos/b", b"2").ok();
    let wire = root.ask("GET", "/photos/a").mode(Mode::Presigned(60)).wire();
    let text = String::from_utf8(wire).unwrap();
    let send = |text: &str| -> Reply {
        let mut connection = crate::s3_harness::Connection::open(server.address);
        connection.send(text.as_bytes());
        connection.reply(text.split(' ').next().unwrap())
    };
    assert_eq!(send(&text).ok().text(), "1");
    send(&text.replace("/photos/a", "/photos/b")).fails(403, "SignatureDoesNotMatch");
    send(&text.replace("GET ", "DELETE ")).fails(403, "SignatureDoesNotMatch");
    send(&text.replace("/photos/a?", "/photos/a?acl&")).fails(403, "SignatureDoesNotMatch");
    send(&text.replace("X-Amz-Expires=60", "X-Amz-Expires=61")).fails(403, "SignatureDoesNotMatch");
    send(&text.replace("X-Amz-Signature", "x-amz-signature"))
        .fails(400, "AuthorizationQueryParametersError");
    server.advance(61);
    send(&text).fails(403, "AccessDenied");
}

#[test]
fn keys_that_are_not_there_or_were_replaced() {
    let server = Server::start();
    let stranger = server.client(Some(("NOSUCHKEY".into(), "x".repeat(40))));
    stranger.get("/").fails(403, "InvalidAccessKeyId");
    stranger.ask("GET", "/").mode(Mode::Presigned(60)).send().fails(403, "InvalidAccessKeyId");
    let wrong = server.client(Some((server.root.id.clone(), "x".repeat(40))));
    wrong.get("/").fails(403, "SignatureDoesNotMatch");
    let odd = server.client(Some(("no/such key".into(), "x".repeat(40))));
    assert!(odd.get("/").status >= 400);
    let user = server.user("alice");
    user.get("/").ok();
    let verb = cairn_fs::ops::credentials::RemoveCredential { id: "KEY-alice".into() };
    server.run(&cairn_auth::Caller::system(), verb);
    user.get("/").fails(403, "InvalidAccessKeyId");
}

#[test]
fn other_schemes_are_refused() {
    let server = Server::start();
    let anonymous = server.anonymous();
    for (authorization, status, code) in [
        ("AWS AKIA:abc", 400, "InvalidRequest"),
        ("Basic cm9vdDpyb290", 400, "InvalidArgument"),
        ("Bearer cairn_a_b", 400, "InvalidArgument"),
        ("AWS4-HMAC-SHA256", 400, "InvalidArgument"),
        ("", 400, "InvalidArgument"),
        ("AWS4-HMAC-SHA256 a=b", 400, "AuthorizationHeaderMalformed"),
        ("AWS4-HMAC-SHA256 Credential=a, Credential=b", 400, "AuthorizationHeaderMalformed"),
    ] {
        let reply = anonymous.ask("GET", "/photos/a").header("authorization", authorization).send();
        assert_eq!(reply.status, status, "{authorization} {}", reply.text());
        let _ = code;
    }
}

/// Wrong signatures are answered later and later, and right ones at once, of the same key too.
#[test]
fn right_signatures_are_never_held_off() {
    let server = Server::start();
    let root = server.root();
    let wrong = server.client(Some((server.root.id.clone(), "x".repeat(40))));
    for _ in 0..FAILURES {
        wrong.get("/").fails(403, "SignatureDoesNotMatch");
    }
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let begun = Instant::now();
            wrong.get("/").fails(403, "SignatureDoesNotMatch");
            begun.elapsed()
        });
        for _ in 0..10 {
            root.get("/").ok();
            root.ask("GET", "/").mode(Mode::Presigned(60)).send().ok();
        }
        assert!(late.join().unwrap() >= FAILURES_DELAY);
    });
}
