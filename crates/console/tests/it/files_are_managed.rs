use crate::harness::{Browser, Rig};

/// Makes a bucket, and folders in it.
fn bucket(browser: &mut Browser, name: &str, folders: &[&str]) {
    let made = browser.post("/buckets", &format!("name={name}"));
    assert_eq!(made.header("location"), format!("/b/{name}"), "{}", made.body);
    for folder in folders {
        let (prefix, name_of) =
            folder.rsplit_once('/').map_or(("", *folder), |(up, name)| (up, name));
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let made =
            browser.post(&format!("/b/{name}/folders"), &format!("in={prefix}&name={name_of}"));
        assert_eq!(made.status, 303, "{}", made.body);
    }
}

#[test]
fn buckets_and_folders_are_made_shown_and_deleted() {
    let rig = Rig::start();
    let mut root = rig.root();
    assert!(root.get("/").body.contains("There are no buckets yet"));
    bucket(&mut root, "photos", &["2025", "2026", "2026/summer", "<b>"]);
    assert!(root.get("/").body.contains(">photos</a>"));
    let page = root.get("/b/photos").body;
    assert!(page.contains("?in=2025/") && page.contains("?in=2026/") && !page.contains("summer"));
    assert!(page.contains("&lt;b&gt;/") && !page.contains("<b>"), "names are no markup");
    assert!(root.get("/b/photos?in=2026/").body.contains("summer/"));
    let filtered = root.get("/b/photos?in=&filter=2025").body;
    assert!(filtered.contains("?in=2025/") && !filtered.contains("?in=2026/"));
    assert_eq!(root.post("/b/photos/folders", "in=&name=2025").status, 409, "it exists");
    for bad in ["", "..", ".", "a%2Fb"] {
        assert_eq!(root.post("/b/photos/folders", &format!("in=&name={bad}")).status, 400, "{bad}");
    }

    let asked = root.post("/b/photos/delete", "in=&key=2026%2F");
    assert!(asked.status == 200 && asked.body.contains("all that is in it"));
    assert!(root.get("/b/photos").body.contains("?in=2026/"), "nothing before it is confirmed");
    let done = root.post("/b/photos/delete", "in=&key=2026%2F&confirm=yes");
    assert_eq!(done.header("location"), "/b/photos", "{}", done.body);
    let page = root.get("/b/photos").body;
    assert!(!page.contains("?in=2026/") && page.contains("?in=2025/"));
    let record = rig.audited(r#""operation":"DeleteFiles","outcome":"done""#);
    assert!(record.contains(r#""bucket":"photos""#) && record.contains(r#""door":"console""#));

    assert!(root.post("/b/photos/remove", "").body.contains("It is not empty"));
    assert_eq!(root.post("/b/photos/remove", "confirm=yes").status, 409);
    root.post("/b/photos/delete", "in=&key=2025%2F&key=%3Cb%3E%2F&confirm=yes");
    assert_eq!(root.post("/b/photos/remove", "confirm=yes").header("location"), "/");
    assert!(root.get("/").body.contains("There are no buckets yet"));
}

#[test]
fn the_kind_of_a_bucket_is_chosen_and_shown() {
    let rig = Rig::start();
    let mut root = rig.root();
    for (form, shown) in [
        ("name=plain", "files: keys are names of files"),
        ("name=people&kind=files", "files: keys are names of files"),
        ("name=programs&kind=objects", "objects: every key of S3"),
    ] {
        let made = root.post("/buckets", form);
        let settings = root.get(&format!("{}/settings", made.header("location"))).body;
        assert!(settings.contains(shown), "{form}: {settings}");
    }
    assert_eq!(root.post("/buckets", "name=tables&kind=tables").status, 400);
    assert!(!root.get("/").body.contains(">tables</a>"));
}

#[test]
fn long_folders_come_in_pages_without_a_script() {
    let rig = Rig::start();
    let mut root = rig.root();
    let rows = cairn_console::limits::ROWS;
    let names: Vec<String> = (0..rows + 5).map(|number| format!("f{number:04}")).collect();
    bucket(&mut root, "many", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = root.get("/b/many").body;
    let next =
        first.split('"').find(|text| text.contains("after=f")).unwrap().replace("&amp;", "&");
    let second = root.get(&next).body;
    for (at, name) in names.iter().enumerate() {
        let page = if at < rows { &first } else { &second };
        assert!(page.contains(&format!("?in={name}/")), "{name}");
    }
    assert!(!second.contains("Next page"));
    let reply = root.get("/b/many/rows?in=&filter=&after=f0100%2F&rows=3");
    assert!(reply.body.starts_with(r#"{"rows":[{"key":"f0101/"},"#), "{}", reply.body);
    assert!(reply.body.contains(r#""next":"f0103/""#));
}

#[test]
fn rights_are_those_of_the_user() {
    let rig = Rig::start();
    let (mut root, mut alice) = (rig.root(), rig.user("alice"));
    bucket(&mut root, "secret", &["inner"]);
    assert!(!alice.get("/").body.contains("secret"));
    for target in ["/b/secret", "/b/secret?in=inner%2F", "/b/secret/object?key=inner%2F"] {
        let reply = alice.get(target);
        assert_eq!(reply.status, 403, "{target}");
        assert!(!reply.body.contains("inner/<"));
    }
    assert_eq!(alice.get("/b/secret/rows?in=").status, 403);
    for (target, form) in [
        ("/b/secret/folders", "in=&name=x"),
        ("/b/secret/delete", "in=&key=inner%2F&confirm=yes"),
        ("/b/secret/remove", "confirm=yes"),
    ] {
        let reply = alice.post(target, form);
        assert_eq!(reply.status, 403, "{target}");
    }
    assert!(root.get("/b/secret").body.contains("inner/"));
    let record = rig.audited(r#""operation":"DeleteBucket","outcome":"refused""#);
    assert!(record.contains(r#""credential":"KEY-alice""#));
    bucket(&mut alice, "mine", &[]);
    assert!(root.get("/").body.contains(">mine</a>"), "root sees all");
}
