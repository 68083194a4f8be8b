//! Share links: what they open, and everything that ends them.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cairn_auth::Caller;
use cairn_base::{Timestamp, UserId};
use cairn_fs::ops::credentials::{AddAccessKey, RemoveCredential};

use crate::http_harness::{Client, Connection, PATIENCE, Reply, Server, Setup};

const HTML: (&str, &str) = ("Accept", "text/html");
const JSON: (&str, &str) = ("Content-Type", "application/json");

fn add(client: &Client, new: &str) -> Reply {
    client.call("POST", "/shares", &[JSON], new.as_bytes())
}

/// The id and the path of a new link.
#[track_caller]
fn made(client: &Client, new: &str) -> (String, String) {
    let made = add(client, new).expect(201).json();
    (made["id"].as_str().unwrap().to_owned(), made["path"].as_str().unwrap().to_owned())
}

/// A private bucket with some objects, of a user.
fn store() -> (Server, Client) {
    let server = Server::start();
    let maker = server.user("maker");
    maker.put("/storage/private", b"").expect(201);
    for key in ["a/b/1.txt", "a/b/c/2.txt", "a/other", "z"] {
        maker.put(&format!("/storage/private/{key}"), key.as_bytes()).expect(201);
    }
    (server, maker)
}

const OBJECT: &str = r#"{"bucket":"private","key":"a/b/1.txt"}"#;
const PREFIX: &str = r#"{"bucket":"private","prefix":"a/b/"}"#;

#[test]
fn a_link_opens_one_object_or_a_prefix_and_nothing_else() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    let (_, object) = made(&maker, OBJECT);
    let reply = anyone.get(&object).expect(200);
    assert_eq!(reply.body, b"a/b/1.txt");
    for (name, value) in [
        ("referrer-policy", "same-origin"),
        ("cache-control", "private, no-cache"),
        ("x-robots-tag", "noindex"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(reply.header(name).as_deref(), Some(value));
    }
    anyone.get_with(&object, &[("Range", "bytes=2-3")]).expect(206);
    let saved = anyone.get(&format!("{object}?download")).expect(200);
    assert_eq!(saved.header("content-disposition").unwrap(), "attachment; filename=\"1.txt\"");
    for path in ["/", "/x", "?zip", "/../z", "/c/2.txt"] {
        anyone.get(&format!("{object}{path}")).expect(404);
    }
    let dead = anyone.get_with(&format!("{}A", object), &[HTML]).expect(404);
    assert!(dead.text().contains("<h1>This link leads to nothing</h1>"), "{}", dead.text());
    let (_, prefix) = made(&maker, PREFIX);
    let without_slash = prefix.trim_end_matches('/');
    let moved = anyone.get(without_slash).expect(308);
    let token = without_slash.strip_prefix("/s/").unwrap();
    assert_eq!(moved.header("location").unwrap(), format!("{token}/"));
    let listed = anyone.get(&prefix).expect(200).json();
    assert_eq!(listed["objects"][0]["key"], "1.txt");
    assert_eq!(listed["prefixes"][0], "c/");
    let page = anyone.get_with(&prefix, &[HTML]).expect(200).text();
    assert!(page.contains("./1.txt") && page.contains("./c/") && page.contains("?zip"), "{page}");
    // Neither the bucket nor what is above is named.
    assert!(!page.contains("private") && !page.contains("a/b"), "{page}");
    let below = anyone.get_with(&format!("{prefix}c/"), &[HTML]).expect(200).text();
    assert!(below.contains("href=\"../\"") && below.contains("./2.txt"), "{below}");
    assert_eq!(anyone.get(&format!("{prefix}c/2.txt")).expect(200).body, b"a/b/c/2.txt");
    for path in ["../other", "%2E%2E/other", "/z", "none"] {
        anyone.get(&format!("{prefix}{path}")).expect(404);
    }
    for (method, body) in [("PUT", "x"), ("POST", "x"), ("DELETE", ""), ("PATCH", "")] {
        anyone.call(method, &format!("{prefix}1.txt"), &[], body.as_bytes()).expect(405);
    }
    assert_eq!(maker.get("/storage/private/a/b/1.txt").expect(200).body, b"a/b/1.txt");
}

#[test]
fn pages_of_a_link_follow_each_other() {
    let (server, maker) = store();
    let (_, prefix) = made(&maker, PREFIX);
    let anyone = server.anonymous();
    let first = anyone.get(&format!("{prefix}?limit=1")).expect(200).json();
    let next = first["next"].as_str().unwrap();
    assert!(!next.contains("a/b"), "{next}");
    let second = anyone.get(&format!("{prefix}?limit=1&after={next}")).expect(200).json();
    assert_eq!(
        (&first["objects"][0]["key"], &second["prefixes"][0]),
        (&"1.txt".into(), &"c/".into())
    );
}

/// Another secret of the access key of the reader.
fn another_secret() -> AddAccessKey {
    let (id, user) = ("KEY-reader".to_owned(), "reader".to_owned());
    AddAccessKey { id, sealed: vec![1; 40], user, replace: true }
}

#[test]
fn a_link_ends_with_everything_that_it_hangs_on() {
    let (server, owner) = store();
    let root = server.root();
    let anyone = server.anonymous();
    let run = |verb: RemoveCredential| {
        server.runtime.block_on(server.fs().run(&Caller::system(), verb)).unwrap();
    };
    // The right of the maker.
    let reader = server.user("reader");
    add(&reader, OBJECT).expect(403);
    let grant = |rights: &str| {
        let path = format!("/storage/private?grant=reader:{rights}");
        owner.call("PATCH", &path, &[], b"").expect(204);
    };
    grant("read");
    let (_, link) = made(&reader, OBJECT);
    let (_, prefix) = made(&reader, PREFIX);
    anyone.get(&link).expect(200);
    anyone.get(&prefix).expect(200);
    grant("none");
    for path in [&link, &prefix, &format!("{prefix}1.txt"), &format!("{prefix}?zip")] {
        let refused = anyone.get(path).expect(404);
        assert!(!refused.text().contains("private"), "{}", refused.text());
    }
    grant("read");
    anyone.get(&link).expect(200);
    // The maker.
    let disable = |disabled: bool| {
        let json = format!("{{\"disabled\":{disabled}}}");
        root.call("PATCH", "/admin/users/reader", &[], json.as_bytes()).expect(204);
    };
    disable(true);
    anyone.get(&link).expect(404);
    disable(false);
    anyone.get(&link).expect(200);
    // The credential.
    let token = root.call("POST", "/admin/tokens", &[], br#"{"user":"reader","expires_s":100}"#);
    let token = token.expect(201).json();
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let by_token = Client { authorization: Some(bearer), ..anyone.clone() };
    let new = r#"{"bucket":"private","key":"z","expires_s":86400}"#;
    let (_, short) = made(&by_token, new);
    let (_, other) = made(&by_token, new);
    anyone.get(&short).expect(200);
    server.clock.advance(101);
    anyone.get(&short).expect(404);
    run(RemoveCredential { id: token["id"].as_str().unwrap().to_owned() });
    anyone.get(&other).expect(404);
    server.clock.advance(1);
    server.runtime.block_on(server.fs().run(&Caller::system(), another_secret())).unwrap();
    anyone.get(&link).expect(404);
    run(RemoveCredential { id: "KEY-reader".into() });
    anyone.get(&link).expect(404);
    // Time, and its maker's will.
    let (id, link) = made(&owner, OBJECT);
    let (_, other) = made(&owner, PREFIX);
    anyone.get(&link).expect(200);
    server.user("stranger").call("DELETE", &format!("/shares/{id}"), &[], b"").expect(403);
    owner.call("DELETE", &format!("/shares/{id}"), &[], b"").expect(204);
    owner.call("DELETE", &format!("/shares/{id}"), &[], b"").expect(404);
    anyone.get(&link).expect(404);
    server.clock.advance(7 * 86_400);
    anyone.get(&other).expect(404);
}

#[test]
fn a_link_is_not_for_another_bucket_of_the_same_name() {
    let (server, owner) = store();
    let anyone = server.anonymous();
    let (_, link) = made(&owner, OBJECT);
    for key in ["a/b/1.txt", "a/b/c/2.txt", "a/other", "z"] {
        owner.call("DELETE", &format!("/storage/private/{key}"), &[], b"").expect(204);
    }
    owner.call("DELETE", "/storage/private", &[], b"").expect(204);
    owner.put("/storage/private", b"").expect(201);
    owner.put("/storage/private/a/b/1.txt", b"new").expect(201);
    anyone.get(&link).expect(404);
}

#[test]
fn a_password_is_asked_for_and_is_that_of_the_link() {
    let (server, maker) = store();
    let new = r#"{"bucket":"private","key":"z","password":"correct horse"}"#;
    let (id, link) = made(&maker, new);
    let asked = server.anonymous().get(&link).expect(401);
    let challenge = asked.header("www-authenticate").unwrap();
    assert_eq!(challenge, format!("Basic realm=\"share link {id}\", charset=\"UTF-8\""));
    for (name, password, status) in
        [("", "correct horse", 200), ("anybody", "correct horse", 200), ("", "wrong", 401)]
    {
        server.client(name, password).get(&link).expect(status);
    }
    // Credentials of users are no passwords, and do no harm where there is no password.
    maker.get(&link).expect(401);
    let (_, open) = made(&maker, OBJECT);
    server.client("nobody", "wrong-secret").get(&open).expect(200);
    add(&maker, r#"{"bucket":"private","key":"z","password":""}"#).expect(400);
    let log = server.log.text();
    for secret in ["correct horse", link.rsplit('-').next().unwrap()] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(log.contains(&format!("/s/{id}-...")), "the log names the link");
}

#[test]
fn downloads_are_counted_before_they_begin() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    let (_, link) = made(&maker, r#"{"bucket":"private","prefix":"a/","downloads":3}"#);
    let object = format!("{link}b/1.txt");
    // Neither a look nor a part is a download.
    anyone.get(&link).expect(200);
    anyone.call("HEAD", &object, &[], b"").expect(200);
    let whole = anyone.get_with(&object, &[("Range", "bytes=0-0")]).expect(200);
    assert_eq!(
        (whole.body.clone(), whole.header("cache-control").unwrap()),
        (b"a/b/1.txt".to_vec(), "no-store".into())
    );
    // Of many at once no more begin than may.
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (anyone, object, barrier) = (anyone.clone(), object.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                anyone.get(&object).status
            })
        })
        .collect();
    let mut statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 404, 404, 404, 404, 404, 404]);
    let listed = maker.get("/shares").expect(200).json();
    let shown = &listed["shares"][0];
    assert_eq!((&shown["downloads"], &shown["downloaded"]), (&3.into(), &3.into()));
    assert_eq!((&shown["prefix"], &shown["live"]), (&"a/".into(), &true.into()));
}

#[test]
fn users_see_and_end_their_own_links_and_root_all() {
    let (server, maker) = store();
    let root = server.root();
    let (id, _) = made(&maker, OBJECT);
    let of = |client: &Client, query: &str| {
        client.get(&format!("/shares{query}")).expect(200).json()["shares"]
            .as_array()
            .unwrap()
            .len()
    };
    let stranger = server.user("stranger");
    assert_eq!((of(&maker, ""), of(&stranger, ""), of(&root, "")), (1, 0, 0));
    assert_eq!(of(&root, "?all"), 1);
    stranger.get("/shares?all").expect(403);
    server.anonymous().get("/shares").expect(401);
    let shown = maker.get("/shares").expect(200).text();
    assert!(shown.contains(&id) && shown.contains("a/b/1.txt"), "{shown}");
    made(&maker, PREFIX);
    let first = maker.get("/shares?limit=1").expect(200).json();
    let next = first["next"].as_str().unwrap();
    let second = maker.get(&format!("/shares?limit=1&after={next}")).expect(200).json();
    assert_ne!(first["shares"][0]["id"], second["shares"][0]["id"]);
    root.call("DELETE", &format!("/shares/{id}"), &[], b"").expect(204);
    assert_eq!(of(&maker, ""), 1);
    for bad in [
        "{}",
        r#"{"bucket":"private"}"#,
        r#"{"bucket":"private","key":"z","prefix":""}"#,
        r#"{"bucket":"private","key":"a/"}"#,
        r#"{"bucket":"private","prefix":"a"}"#,
        r#"{"bucket":"private","key":"z","expires_s":0}"#,
        r#"{"bucket":"private","key":"z","expires_s":99999999}"#,
        r#"{"bucket":"private","key":"z","nonsense":1}"#,
    ] {
        add(&maker, bad).expect(400);
    }
    add(&maker, r#"{"bucket":"private","key":"none"}"#).expect(404);
    add(&maker, r#"{"bucket":"none","key":"z"}"#).expect(404);
    // No page makes one.
    let by_page = [JSON, ("Origin", "http://evil.example")];
    maker.call("POST", "/shares", &by_page, OBJECT.as_bytes()).expect(403);
    maker.call("POST", "/shares", &[("Content-Type", "text/plain")], OBJECT.as_bytes()).expect(400);
    // A maker without a credential has nothing that the link could end with.
    let verb = cairn_fs::ops::share_links::AddShareLink {
        id: "AAAAAAAAAAAA".into(),
        hash: [1; 32],
        bucket: "private".into(),
        key: "z".into(),
        expires: Timestamp(i64::MAX),
        password: Vec::new(),
        downloads: 0,
        uploads: None,
    };
    let caller = Caller::verified(UserId::ROOT);
    let run = server.fs().run(&caller, verb);
    assert_eq!(server.runtime.block_on(run).unwrap_err().kind(), "denied");
}

const INTO: &str = r#"{"bucket":"private","prefix":"in/","uploads":{"files":3,"bytes":100}}"#;

#[test]
fn files_are_added_and_nothing_is_shown() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    maker.put("/storage/private/in/old.txt", b"old").expect(201);
    let (_, link) = made(&maker, INTO);
    let to = |path: &str| format!("{link}{path}");
    let page = anyone.get_with(&link, &[HTML]).expect(200);
    assert!(page.text().contains("<form") && !page.text().contains("old"), "{}", page.text());
    let left = anyone.get(&link).expect(200).json();
    assert_eq!((&left["files"], &left["bytes"]), (&3.into(), &100.into()));
    for path in ["?zip", "old.txt", "../z", "in/"] {
        let status = anyone.get(&to(path)).status;
        assert_eq!(status, 404, "{path}");
        assert!(!anyone.get_with(&to(path), &[HTML]).text().contains("old"));
    }
    anyone.call("DELETE", &to("old.txt"), &[], b"").expect(405);
    let typed = [("Content-Type", "text/x-new")];
    anyone.call("PUT", &to("new.txt"), &typed, b"new").expect(201);
    let new = maker.get("/storage/private/in/new.txt").expect(200);
    assert_eq!(
        (new.text().as_str(), new.header("content-type").unwrap().as_str()),
        ("new", "text/x-new")
    );
    let digest = [("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==")];
    anyone.call("PUT", &to("refused"), &digest, b"x").expect(501);
    anyone.call("PUT", &to("refused"), &[("If-None-Match", "\"a\"")], b"x").expect(501);
    // What is there stays, and the sender is not told of it.
    let again = anyone.put(&to("old.txt"), b"other").expect(201);
    assert!(again.body.is_empty() && again.header("location").is_none());
    assert_eq!(maker.get("/storage/private/in/old.txt").expect(200).body, b"old");
    let listed = maker.get("/storage/private/in/").expect(200).json();
    let keys: Vec<&str> =
        listed["objects"].as_array().unwrap().iter().map(|o| o["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys.iter().any(|key| key.starts_with("in/old-") && key.ends_with(".txt")), "{keys:?}");
    for name in ["a/b", "..", "%0A", ""] {
        let status = anyone.put(&to(name), b"x").status;
        assert!(matches!(status, 400 | 404), "{name:?}: {status}");
    }
    // The limits: bytes, and then files.
    anyone.put(&to("big"), &[b'x'; 93]).expect(413);
    anyone.put(&to("fits"), &[b'x'; 92]).expect(201);
    anyone.put(&to("more"), b"").expect(413);
    let shown = maker.get("/shares").expect(200).json();
    assert_eq!(shown["shares"][0]["uploaded"], serde_json::json!({"files": 3, "bytes": 100}));
}

#[test]
fn a_form_adds_files_with_the_right_of_the_maker() {
    let (server, owner) = store();
    let anyone = server.anonymous();
    let writer = server.user("writer");
    add(&writer, INTO).expect(403);
    let grant = |rights: &str| {
        let path = format!("/storage/private?grant=writer:{rights}");
        owner.call("PATCH", &path, &[], b"").expect(204);
    };
    grant("write");
    let (_, link) = made(&writer, INTO);
    let kind = ("Content-Type", "multipart/form-data; boundary=xyz");
    let part = |name: &str, bytes: &str| {
        format!(
            "--xyz\r\nContent-Disposition: form-data; name=\"files\"; filename=\"{name}\"\r\n\r\n\
             {bytes}\r\n"
        )
    };
    let form = format!("{}{}--xyz--\r\n", part("1.txt", "one"), part("C:\\2.txt", "two"));
    let thanks = anyone.call("POST", &link, &[kind, HTML], form.as_bytes()).expect(201);
    assert!(thanks.text().contains("2 files were received"), "{}", thanks.text());
    for (name, bytes) in [("1.txt", "one"), ("2.txt", "two")] {
        assert_eq!(owner.get(&format!("/storage/private/in/{name}")).expect(200).text(), bytes);
    }
    anyone.call("POST", &link, &[kind], b"--xyz--\r\n").expect(400);
    // A form of another site, and one that ends in the middle.
    let foreign = [kind, ("Origin", "http://evil.example")];
    anyone.call("POST", &link, &foreign, form.as_bytes()).expect(403);
    anyone.call("POST", &link, &[kind], &form.as_bytes()[..60]).expect(400);
    grant("none");
    anyone.call("POST", &link, &[kind], form.as_bytes()).expect(404);
    anyone.put(&format!("{link}x"), b"x").expect(404);
    owner.get("/storage/private/in/x").expect(404);
    // A link for uploads is of a prefix, and counts no downloads.
    add(&owner, r#"{"bucket":"private","key":"z","uploads":{}}"#).expect(400);
    add(&owner, r#"{"bucket":"private","prefix":"","uploads":{},"downloads":1}"#).expect(400);
}

/// A PUT of which so many bytes come, and no more.
fn begin(client: &Client, path: &str, announced: usize, sent: usize) -> Connection {
    let mut connection = client.connect();
    connection.send(&client.head("PUT", path, &[], Some(announced)));
    connection.send(&vec![b'x'; sent]);
    connection
}

#[track_caller]
fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < PATIENCE, "it becomes so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Files and bytes that a link still takes.
fn left(client: &Client, link: &str) -> (u64, u64) {
    let left = client.get(link).expect(200).json();
    (left["files"].as_u64().unwrap(), left["bytes"].as_u64().unwrap())
}

#[test]
fn a_sender_that_hangs_up_neither_evades_the_limits_nor_uses_them_up() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    let limits = r#"{"bucket":"private","prefix":"in/","uploads":{"files":3,"bytes":100000}}"#;
    let (_, link) = made(&maker, limits);
    let put = |name: &str, bytes: usize| anyone.put(&format!("{link}{name}"), &vec![b'x'; bytes]);
    // What comes counts before it is stored.
    let first = begin(&anyone, &format!("{link}first"), 60_000, 59_999);
    until(|| left(&anyone, &link) == (2, 40_001));
    let busy = put("too-much", 40_002).expect(503);
    assert_eq!(busy.header("retry-after").as_deref(), Some("1"));
    put("never", 100_001).expect(413);
    put("second", 30_000).expect(201);
    let third = begin(&anyone, &format!("{link}third"), 10, 9);
    until(|| left(&anyone, &link) == (0, 9_992));
    put("a-fourth-file", 1).expect(503);
    // What did not come whole counts no longer.
    drop((first, third));
    until(|| left(&anyone, &link) == (2, 70_000));
    put("third-again", 69_999).expect(201);
    put("fourth", 2).expect(413);
    put("fifth", 1).expect(201);
    put("sixth", 0).expect(413);
    let shown = maker.get("/shares").expect(200).json();
    let uploaded = serde_json::json!({"files": 3, "bytes": 100_000});
    assert_eq!(shown["shares"][0]["uploaded"], uploaded);
    let listed = maker.get("/storage/private/in/").expect(200).json();
    assert_eq!(listed["objects"].as_array().unwrap().len(), 3);
}

#[test]
fn a_file_that_cannot_be_stored_is_not_counted() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    let (_, link) = made(&maker, INTO);
    let full = |quota: &str| {
        let path = format!("/storage/private?quota_objects={quota}");
        server.root().call("PATCH", &path, &[], b"").expect(204);
    };
    full("1");
    for number in 0..4 {
        let refused = anyone.put(&format!("{link}{number}"), b"x");
        assert!(refused.status >= 400, "{}", refused.status);
        assert_eq!(left(&anyone, &link), (3, 100));
    }
    full("100");
    anyone.put(&format!("{link}last"), b"x").expect(201);
    assert_eq!(left(&anyone, &link), (2, 99));
}

#[test]
fn senders_take_no_memory_of_the_maker() {
    let server = Server::with(Setup { upload_bytes: Some(256 << 10), ..Setup::default() });
    let (maker, anyone) = (server.user("maker"), server.anonymous());
    maker.put("/storage/private", b"").expect(201);
    let (_, link) = made(&maker, r#"{"bucket":"private","prefix":"in/","uploads":{}}"#);
    let held: Vec<Connection> =
        (0..16).map(|at| begin(&anyone, &format!("{link}{at}"), 1_000_000, 1)).collect();
    // As much as one party may have.
    until(|| server.fs().upload_memory().taken() == 192 << 10);
    maker.put("/storage/private/own", &[7; 40_000]).expect(201);
    drop(held);
}

#[test]
fn a_form_does_not_pass_over_conditions_and_digests() {
    let (server, maker) = store();
    let anyone = server.anonymous();
    let (_, link) = made(&maker, INTO);
    let kind = ("Content-Type", "multipart/form-data; boundary=xyz");
    let form = "--xyz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"1\"\r\n\r\n1\r\n--xyz--\r\n";
    for (name, value) in [
        ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ("If-Match", "*"),
        ("If-None-Match", "\"a\""),
        ("If-Unmodified-Since", "Thu, 26 Nov 2026 00:00:00 GMT"),
    ] {
        anyone.call("POST", &link, &[kind, (name, value)], form.as_bytes()).expect(501);
    }
    assert_eq!(left(&anyone, &link), (3, 100));
    let never_replaced = [kind, ("If-None-Match", "*")];
    anyone.call("POST", &link, &never_replaced, form.as_bytes()).expect(201);
}
