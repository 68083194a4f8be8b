use cairn_fs::ops::buckets::ListBuckets;

use crate::harness::{Rig, exchange};

#[test]
fn another_name_of_this_machine_is_refused() {
    let rig = Rig::start();
    let mut browser = rig.root();
    for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9001"] {
        browser.host = host.to_owned();
        let reply = browser.get("/");
        assert_eq!(reply.status, 421, "{host}");
        assert!(!reply.body.contains("Buckets</h1>"));
    }
    browser.host = format!("LOCALHOST:{}", rig.console.port());
    assert_eq!(browser.get("/").status, 200);
    assert_eq!(exchange(rig.console, "GET / HTTP/1.1\r\nconnection: close\r\n\r\n").status, 421);
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let rig = Rig::start();
    let mut browser = rig.root();
    let own = format!("http://{}", browser.host);
    let foreign: [&[(&str, &str)]; 6] = [
        &[],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", &own)],
        &[("sec-fetch-site", "none")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:1")],
    ];
    for headers in foreign {
        for (target, form) in [("/buckets", "name=forged"), ("/logout", "x=1"), ("/login", "key=a")]
        {
            let reply = browser.send("POST", target, headers, form);
            assert_eq!(reply.status, 403, "{target} {headers:?}");
        }
    }
    let caller = cairn_auth::Caller::system();
    let verb = ListBuckets { prefix: String::new(), after: String::new(), limit: 10 };
    assert!(rig.runtime.block_on(rig.fs().read(&caller, verb)).unwrap().0.is_empty());
    assert!(browser.is_logged_in());
    let made = browser.send("POST", "/buckets", &[("origin", &own)], "name=mine");
    assert_eq!(made.status, 303, "a browser without Sec-Fetch-Site");
    assert!(rig.audited("another site").contains(r#""outcome":"refused""#));
}

#[test]
fn replies_say_what_pages_may_do() {
    let rig = Rig::start();
    let (mut root, mut nobody) = (rig.root(), rig.browser());
    let replies = [
        root.get("/"),
        nobody.get("/"),
        nobody.get("/login"),
        root.get("/b/none"),
        root.get("/nothing"),
        nobody.get("/assets/0/console.js"),
    ];
    for reply in replies {
        let policy = reply.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "style-src 'self';",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(
            policy.contains(&format!("connect-src 'self' http://127.0.0.1:{};", rig.s3.port()))
        );
        assert!(!policy.contains("unsafe") && !policy.contains('*'));
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("referrer-policy"), "no-referrer");
        assert_eq!(reply.header("x-frame-options"), "DENY");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert!(!reply.body.contains("<style") && !reply.body.contains(" style="));
        assert!(!reply.body.contains(" onclick=") && !reply.body.contains("<script>"));
    }
}

#[test]
fn files_of_the_console_are_kept_by_browsers() {
    let rig = Rig::start();
    let mut browser = rig.root();
    let page = browser.get("/").body;
    let paths: Vec<&str> = page.split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    for path in paths {
        let reply = rig.browser().get(path);
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.header("cache-control").contains("immutable"));
    }
    let mut sizes = 0;
    for path in page.split('"').filter(|text| text.starts_with("/assets/")) {
        let zipped = rig.browser().send("GET", path, &[("accept-encoding", "gzip")], "");
        assert!(zipped.body.len() < 1024 || zipped.header("content-encoding") == "gzip");
        sizes += zipped.header("content-length").parse::<usize>().unwrap();
    }
    assert!(sizes < 100 << 10, "{sizes}");
}

#[test]
fn whoever_comes_from_another_site_comes_again_from_here() {
    let rig = Rig::start();
    let mut browser = rig.browser();
    let reply = browser.send("GET", "/b/photos", &[("sec-fetch-site", "cross-site")], "");
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("0;url=/b/photos"));
    let reply = browser.send("GET", "/b/photos", &[("sec-fetch-site", "same-origin")], "");
    assert_eq!(reply.status, 303);
}

#[test]
fn pages_of_other_origins_are_not_led_to_bytes() {
    let rig = Rig::start();
    let mut browser = rig.root();
    for target in ["/b/photos/preview?key=a", "/b/photos/download?key=a"] {
        for site in ["same-site", "cross-site"] {
            let reply = browser.send("GET", target, &[("sec-fetch-site", site)], "");
            assert_eq!(reply.status, 200, "{target} {site}");
            assert!(reply.body.contains(&format!("0;url={target}")), "{}", reply.body);
            assert_eq!(reply.header("location"), "");
            assert_eq!(reply.header("x-frame-options"), "DENY");
        }
        for site in ["same-origin", "none"] {
            let reply = browser.send("GET", target, &[("sec-fetch-site", site)], "");
            assert_eq!(reply.status, 404, "{target} {site}: there is no such bucket");
        }
    }
}

#[test]
fn bodies_and_methods_are_bounded() {
    let rig = Rig::start();
    let mut browser = rig.root();
    let long = "x".repeat(cairn_console::limits::FORM_BYTES + 1);
    assert_eq!(browser.post("/buckets", &long).status, 413);
    let same = [("sec-fetch-site", "same-origin")];
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        assert_eq!(browser.send(method, "/", &same, "").status, 404, "{method}");
    }
    let head = browser.send("HEAD", "/", &[], "");
    assert!(head.status == 200 && head.body.is_empty());
    for target in ["/b/", "/b/..", "/b/a/b/c", "/assets/../login", "/%00", "/b/x?in=%00"] {
        let status = browser.get(target).status;
        assert!((400..500).contains(&status), "{target} {status}");
    }
}

/// Every form of the console.
const FORMS: [&str; 20] = [
    "/buckets",
    "/b/x/folders",
    "/b/x/delete",
    "/b/x/remove",
    "/b/x/uploads",
    "/b/x/transfer",
    "/b/x/tags",
    "/b/x/zip",
    "/b/x/settings",
    "/b/x/rights",
    "/b/x/share",
    "/end-share",
    "/keys",
    "/end-own-key",
    "/people",
    "/end-key",
    "/disable",
    "/grant",
    "/logout",
    "/logout-everywhere",
];

#[test]
fn no_form_is_taken_from_elsewhere_or_from_nobody() {
    let rig = Rig::start();
    let mut root = rig.root();
    for target in FORMS {
        let foreign = root.send("POST", target, &[("sec-fetch-site", "same-site")], "confirm=yes");
        assert_eq!(foreign.status, 403, "{target}");
        let nobody = rig.browser().post(target, "confirm=yes");
        let location = nobody.header("location").to_owned();
        let is_to_login = nobody.status == 303 && location.starts_with("/login");
        assert!(is_to_login || nobody.status == 401, "{target} {}", nobody.status);
        let read = root.get(target);
        assert!(!matches!(read.status, 303), "{target}: a visit does nothing");
    }
    assert!(root.is_logged_in());
}
