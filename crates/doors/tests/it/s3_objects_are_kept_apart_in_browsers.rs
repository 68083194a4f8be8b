//! A browser shows objects of a user at the origin of this door.

use crate::s3_harness::Server;

const APART: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

#[test]
fn types_are_not_guessed_and_pages_have_an_origin_of_their_own() {
    let server = Server::start();
    let root = server.root();
    root.put("/pages", b"").ok();
    for (kind, policy) in [
        ("text/html", Some(APART)),
        ("text/HTML; charset=utf-8", Some(APART)),
        ("image/svg+xml", Some(APART)),
        ("application/xhtml+xml", Some(APART)),
        ("multipart/x-mixed-replace; boundary=x", Some(APART)),
        ("text/plain", None),
        ("application/pdf", None),
        ("image/png", None),
        ("text/javascript", None),
        ("application/octet-stream", None),
    ] {
        root.ask("PUT", "/pages/a").header("content-type", kind).body(b"<p>").send().ok();
        for method in ["GET", "HEAD"] {
            for _ in 0..2 {
                let got = root.ask(method, "/pages/a").send().ok();
                assert_eq!(got.header("x-content-type-options"), Some("nosniff"), "{kind}");
                assert_eq!(got.header("content-security-policy"), policy, "{method} {kind}");
            }
        }
    }
    // It is the type that is sent that counts.
    let shown = root.get("/pages/a?response-content-type=text%2Fhtml").ok();
    assert_eq!(shown.header("content-security-policy"), Some(APART));
    root.ask("PUT", "/pages/a").header("content-type", "text/html").body(b"<p>").send().ok();
    let shown = root.get("/pages/a?response-content-type=text%2Fplain").ok();
    assert_eq!(shown.header("content-security-policy"), None);
}

#[test]
fn no_object_becomes_a_service_worker() {
    let server = Server::start();
    let root = server.root();
    root.ask("PUT", "/open").header("x-amz-acl", "public-read").send().ok();
    root.ask("PUT", "/open/sw.js").header("content-type", "text/javascript").send().ok();
    for client in [root, server.anonymous()] {
        let ask = || client.ask("GET", "/open/sw.js");
        ask().send().ok();
        let refused = ask().header("service-worker", "script").send().fails(403, "AccessDenied");
        assert!(refused.text().contains("website"), "{}", refused.text());
        ask().send().ok();
    }
}
