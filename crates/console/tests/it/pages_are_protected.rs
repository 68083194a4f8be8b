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
        assert_eq!(reply.header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(reply.header("x-cairn-console"), "1");
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

/// What scripts ask for.
const OF_SCRIPTS: [&str; 5] = [
    "/changes?filter=",
    "/b/lists/changes?in=",
    "/b/lists/rows?in=",
    "/store/live?screen=store",
    "/store/tail?bucket=lists&key=a.log",
];

#[test]
fn pages_of_other_origins_are_given_neither_events_nor_rows() {
    let rig = Rig::start();
    let mut root = rig.root();
    root.post("/buckets", "name=lists");
    let own = format!("http://{}", root.host);
    let foreign: [&[(&str, &str)]; 5] = [
        &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
        &[("sec-fetch-site", "same-site"), ("origin", &own)],
        &[("origin", "http://127.0.0.1:1")],
    ];
    for target in OF_SCRIPTS {
        for headers in foreign {
            let reply = root.send("GET", target, headers, "");
            assert_eq!(reply.status, 403, "{target} {headers:?}");
            assert_eq!(reply.header("cross-origin-resource-policy"), "same-origin");
            assert!(reply.body.contains("another site"), "{}", reply.body);
        }
    }
    assert!(rig.audited("another site").contains(r#""outcome":"refused""#));
    let rows = "/b/lists/rows?in=";
    for headers in [&[][..], &[("sec-fetch-site", "same-origin")], &[("origin", &own)]] {
        assert_eq!(root.send("GET", rows, headers, "").status, 200, "{headers:?}");
    }
}

#[test]
fn pages_of_other_origins_lead_to_pages_and_load_none() {
    let rig = Rig::start();
    let mut root = rig.root();
    let loads = [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")];
    let leads = [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate")];
    let types = [("sec-fetch-site", "none"), ("sec-fetch-mode", "no-cors")];
    for target in ["/", "/audit", "/login"] {
        assert_eq!(root.send("GET", target, &loads, "").status, 403, "{target}");
        assert_eq!(root.send("HEAD", target, &loads, "").status, 403, "{target}");
        assert_eq!(root.send("GET", target, &leads, "").status, 200, "{target}");
        assert_eq!(root.send("GET", target, &types, "").status, 200, "{target}");
    }
}

#[test]
fn forms_have_few_fields() {
    use cairn_console::limits::{FIELDS, LOGIN_FIELDS, SHORT_FORM_BYTES};
    let rig = Rig::start();
    let mut nobody = rig.browser();
    let credentials = format!("key={}&secret={}", rig.root.id, rig.root.secret.expose());
    let more = |count: usize| format!("{credentials}{}", "&a".repeat(count));
    for count in [LOGIN_FIELDS, SHORT_FORM_BYTES / 4] {
        let reply = nobody.post("/login", &more(count));
        assert_eq!(reply.status, 413, "{count}");
        assert!(reply.body.contains("send at most 16 at a time"), "{}", reply.body);
    }
    assert_eq!(nobody.post("/login", &more(SHORT_FORM_BYTES / 2)).status, 413);
    assert!(!nobody.is_logged_in());
    assert_eq!(nobody.post("/login", &more(LOGIN_FIELDS - 2)).status, 303);
    let mut root = rig.root();
    let form = |count: usize| format!("name=many{}", "&a=".repeat(count));
    assert_eq!(root.post("/buckets", &form(FIELDS)).status, 413);
    assert_eq!(root.post("/buckets", &form(FIELDS - 1)).status, 303);
    let query = format!("/b/many?in={}", "&a".repeat(FIELDS));
    assert_eq!(root.get(&query).status, 413);
    // JSON has no fields, and is short.
    let long = "x".repeat(SHORT_FORM_BYTES + 1);
    assert_eq!(root.post("/b/many/uploads", &long).status, 413);
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

/// Every form of the console but that to log in: the lines of its routes say which there are.
fn forms() -> Vec<String> {
    let routes = include_str!("../../src/route.rs");
    let of_line = |line: &str| {
        let (names, _) = line.trim().strip_prefix("(\"")?.split_once("\") if is_post => ")?;
        let (first, second) = names.split_once("\", \"")?;
        let bucket = if first == "b" { "/x" } else { "" };
        let slash = if second.is_empty() { "" } else { "/" };
        Some(format!("/{first}{bucket}{slash}{second}"))
    };
    let mut forms: Vec<String> = routes.lines().filter_map(of_line).collect();
    assert_eq!(forms.len(), routes.matches(" if is_post").count(), "{forms:?}");
    forms.retain(|form| form != "/login");
    for known in ["/b/x/metadata", "/b/x/read-only", "/keys", "/store/drain", "/buckets"] {
        assert!(forms.iter().any(|form| form == known), "{known}");
    }
    forms
}

#[test]
fn no_form_is_taken_from_elsewhere_or_from_nobody() {
    let rig = Rig::start();
    let mut root = rig.root();
    for target in &forms() {
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
