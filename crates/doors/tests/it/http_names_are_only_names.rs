//! Paths that try to be more than names, and headers that try to be more than headers.

use crate::http_harness::{Server, Setup};

#[test]
fn no_path_leaves_its_bucket() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/public?visibility=public", b"").expect(201);
    root.put("/storage/private", b"").expect(201);
    root.put("/storage/private/secret", b"hidden").expect(201);
    root.put("/storage/public/file", b"shown").expect(201);
    let anonymous = server.anonymous();
    let paths = [
        "/storage/public/../private/secret",
        "/storage/public/%2e%2e/private/secret",
        "/storage/public/%2E%2E%2Fprivate%2Fsecret",
        "/storage/public/..%2fprivate%2fsecret",
        "/storage/public%2f..%2fprivate/secret",
        "/storage/public/%252e%252e/private/secret",
        "/storage/./private/secret",
        "/storage//private/secret",
        "/storage/public/..%5cprivate%5csecret",
        "/storage/public/../../etc/passwd",
        "/storage/public//etc/passwd",
        "/storage/..%2f..%2f..%2fetc/passwd",
        "/storage/%2fetc/passwd",
        "//storage/private/secret",
        "/../storage/private/secret",
        "/storage/private",
        "/storage/private/",
        "/storage/private/secret",
    ];
    for path in paths {
        for client in [&anonymous, &server.anonymous()] {
            let got = client.get(path);
            assert!(matches!(got.status, 400 | 401 | 404), "{path}: {}", got.status);
            assert!(!got.text().contains("hidden") && !got.text().contains("root:"), "{path}");
        }
        // Nor for root, but by its own name.
        if path != "/storage/private/secret" {
            let got = root.get(path);
            assert!(!got.text().contains("hidden"), "{path}");
        }
    }
    for path in ["../private/x", "%2e%2e/x", "..%2fx", "a/.", "a/%2E/b", "..", "%2e"] {
        for method in ["PUT", "POST"] {
            let path = format!("/storage/public/{path}");
            let got = root.call(method, &path, &[], b"x").expect(400);
            assert_eq!(got.error(), "invalid", "{method} {path}");
            root.get(&path).expect(404);
        }
    }
    root.get("/storage/private/x").expect(404);
    root.get("/storage/x").expect(404);
    let listing = root.get("/storage/public/?recursive").expect(200).json();
    assert_eq!(listing["objects"].as_array().unwrap().len(), 1, "{listing}");
}

#[test]
fn names_are_decoded_once() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    for (sent, key) in [
        ("a%20b", "a b"),
        ("a+b", "a+b"),
        ("a%2Bb", "a+b"),
        ("%2541", "%41"),
        ("%C3%BC/%E2%82%AC", "ü/€"),
        ("q%3Fx%3D1", "q?x=1"),
        ("a%26b%23c", "a&b#c"),
        ("%22%3Cscript%3E", "\"<script>"),
    ] {
        let status = root.put(&format!("/storage/bucket/{sent}"), key.as_bytes()).status;
        assert!(matches!(status, 201 | 204), "{sent}");
        assert_eq!(root.get(&format!("/storage/bucket/{sent}")).expect(200).text(), key);
        let listing = root.get("/storage/bucket/?recursive").expect(200).json();
        let keys = listing["objects"].as_array().unwrap();
        assert!(keys.iter().any(|object| object["key"] == key), "{key}: {listing}");
    }
    for bad in ["%", "a%2", "a%zz", "a%00b", "%ff", "%c0%ae", "%ED%A0%80"] {
        let got = root.put(&format!("/storage/bucket/{bad}"), b"x").expect(400);
        assert_eq!(got.error(), "invalid", "{bad}");
        root.get(&format!("/storage/bucket/{bad}")).expect(400);
    }
    root.put(&format!("/storage/bucket/{}", "a".repeat(255)), b"x").expect(201);
    for long in ["a".repeat(1025), format!("{}/x", "d/".repeat(600))] {
        let path = format!("/storage/bucket/{long}");
        root.put(&path, b"x").expect(400);
        root.get(&path).expect(400);
        root.call("DELETE", &path, &[], b"").expect(400);
    }
    root.put("/storage/bucket/dir/", b"x").expect(400);
    root.call("POST", "/storage/bucket/dir/", &[], b"x").expect(400);
}

#[test]
fn bad_requests_get_errors() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let table = [
        ("GET", "/storages", 404),
        ("GET", "/nothing", 404),
        ("GET", "/storage/none/a", 404),
        ("GET", "/storage/none/", 404),
        ("GET", "/storage/bucket/none", 404),
        ("PUT", "/storage/Bad_Name", 400),
        ("PUT", "/storage/ab", 400),
        ("PUT", "/storage/1.2.3.4", 400),
        ("PUT", "/storage/bucket", 409),
        ("PUT", "/storage/other?visibility=some", 400),
        ("GET", "/storage/bucket/?limit=0", 400),
        ("GET", "/storage/bucket/?limit=x", 400),
        ("GET", "/storage/bucket/?a=1&a=2", 400),
        ("GET", "/storage/bucket/?prefix=%ff", 400),
        ("POST", "/storage/bucket", 405),
        ("POST", "/storage/", 405),
        ("DELETE", "/storage/", 405),
        ("PATCH", "/storage/bucket/a", 405),
        ("TRACE", "/storage/bucket/a", 405),
        ("BREW", "/storage/bucket/a", 405),
        ("POST", "/healthz", 405),
        ("PATCH", "/storage/none", 404),
        ("DELETE", "/storage/none", 404),
        ("OPTIONS", "/storage/bucket/a", 204),
        ("OPTIONS", "/storage/bucket", 204),
        ("OPTIONS", "/storage/", 204),
    ];
    for (method, path, status) in table {
        let got = root.call(method, path, &[], b"");
        assert_eq!(got.status, status, "{method} {path}: {}", got.text());
        if matches!(status, 405 | 204) {
            assert!(got.header("allow").unwrap().contains("GET"), "{method} {path}");
        }
        if status >= 400 {
            assert!(!got.error().is_empty());
            assert_eq!(got.header("content-type").as_deref(), Some("application/json"));
            assert_eq!(got.header("x-content-type-options").as_deref(), Some("nosniff"));
        }
    }
}

#[test]
fn headers_stay_headers() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    let mut long = "x".repeat(2000);
    let bad: [(&str, &str); 5] = [
        ("Content-Type", "text/plain\tx"),
        ("Content-Type", &long),
        ("Cache-Control", "\u{1}"),
        ("X-Cairn-Meta-A", "a\u{7f}b"),
        ("Content-Disposition", "a\0b"),
    ];
    for (name, value) in bad {
        let got = root.call("PUT", "/storage/bucket/a", &[(name, value)], b"x").status;
        assert!(matches!(got, 400 | 413), "{name}: {got}");
    }
    long = "x".repeat(5000);
    let two = [("X-Cairn-Meta-A", long.as_str()), ("X-Cairn-Meta-B", long.as_str())];
    root.call("PUT", "/storage/bucket/a", &two, b"x").expect(413);
    root.get("/storage/bucket/a").expect(404);
    // The reflected parts of a request are JSON, and no markup gets out of that.
    let got = root.get("/storage/bucket/%3Cscript%3E").expect(404);
    assert_eq!(got.header("content-type").as_deref(), Some("application/json"));
    // A change that another site's page asks for.
    for (site, status) in [("cross-site", 403), ("same-origin", 201), ("none", 204)] {
        let headers = [("Sec-Fetch-Site", site)];
        root.call("PUT", "/storage/bucket/a", &headers, b"x").expect(status);
    }
    for (site, status) in [("cross-site", 403), ("same-origin", 403), ("none", 200)] {
        root.get_with("/admin/keys", &[("Sec-Fetch-Site", site)]).expect(status);
    }
}

/// Every request that changes something, as a page of another site makes it with the credentials
/// that the browser knows: those of root. Nothing is changed, and nothing administered.
#[test]
fn pages_of_other_sites_change_nothing() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", b"kept").expect(201);
    let key = br#"{"user":"root","id":"CSRFKEY","secret":"secret-of-another-site"}"#;
    let changes: [(&str, &str, &[u8]); 11] = [
        ("PUT", "/storage/other", b""),
        ("PATCH", "/storage/bucket?visibility=public", b""),
        ("DELETE", "/storage/bucket", b""),
        ("PUT", "/storage/bucket/b", b"x"),
        ("POST", "/storage/bucket/a", b"x"),
        ("POST", "/storage/bucket/a?move-to=b", b""),
        ("DELETE", "/storage/bucket/a", b""),
        ("POST", "/admin/keys", key),
        ("POST", "/admin/tokens", br#"{"user":"root"}"#),
        ("POST", "/admin/gc", b""),
        ("DELETE", "/admin/keys/none", b""),
    ];
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://test.evil"] {
        for kind in ["text/plain;charset=UTF-8", "application/json"] {
            let headers = [("Origin", origin), ("Content-Type", kind)];
            for (method, path, body) in changes {
                root.call(method, path, &headers, body).expect(403);
            }
        }
        root.get_with("/admin/keys", &[("Origin", origin)]).expect(403);
        root.get_with("/storage/bucket/a", &[("Origin", origin)]).expect(200);
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        for path in ["/admin/keys", "/admin/tokens", "/admin/gc"] {
            root.call("POST", path, &[("Content-Type", kind)], key).expect(400);
        }
    }
    let keys = root.get("/admin/keys").expect(200).json();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1), "{keys}");
    assert_eq!(root.get("/storage/bucket/a").expect(200).body, b"kept");
    root.get("/storage/bucket/b").expect(404);
    root.get("/storage/other").expect(404);
    // Pages of this very host may change objects, as their readers may.
    let own = format!("http://{}", server.address);
    root.call("PUT", "/storage/bucket/b", &[("Origin", &own)], b"x").expect(201);
}

/// That holds for every content type, however it is read, and at the door for links too.
#[test]
fn content_of_users_is_no_program() {
    let server = Server::with(Setup { redirects: true, ..Setup::default() });
    let root = server.root();
    for (bucket, policy, vary) in
        [("private", "same-origin", Some("authorization")), ("public", "cross-origin", None)]
    {
        root.put(&format!("/storage/{bucket}?visibility={bucket}"), b"").expect(201);
        let path = format!("/storage/{bucket}/page");
        for kind in ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "x/y"] {
            let page = [b"<script>alert(1)</script>".as_slice(), &[b' '; 40_000]].concat();
            root.call("PUT", &path, &[("Content-Type", kind)], &page);
            let etag = root.get(&path).header("etag").unwrap();
            let link =
                root.get(&format!("{path}?redirect")).expect(307).header("location").unwrap();
            let link = link.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap();
            let replies = [
                root.get(&path).expect(200),
                root.call("HEAD", &path, &[], b"").expect(200),
                root.get_with(&path, &[("Range", "bytes=0-9")]).expect(206),
                root.get_with(&path, &[("Range", "bytes=0-1,5-9")]).expect(206),
                root.get(&format!("{path}?download")).expect(200),
                server.linked().get(&link).expect(200),
            ];
            for reply in &replies {
                let security = reply.header("content-security-policy").unwrap_or_default();
                assert!(security.starts_with("sandbox; default-src 'none';"), "{reply:?}");
                assert_eq!(reply.header("x-content-type-options").unwrap(), "nosniff");
                let disposition = reply.header("content-disposition").unwrap_or_default();
                let is_active = kind != "x/y";
                let name = "attachment; filename=\"page\"";
                assert!(disposition == name || !is_active, "{kind}: {disposition}");
            }
            let same = root.get_with(&path, &[("If-None-Match", &etag)]).expect(304);
            for reply in replies[..5].iter().chain([&same]) {
                let said = reply.header("cross-origin-resource-policy");
                assert_eq!(said.as_deref(), Some(policy));
                assert_eq!(reply.header("vary").as_deref(), vary);
            }
        }
    }
}
