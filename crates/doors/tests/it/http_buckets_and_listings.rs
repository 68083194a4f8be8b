//! Buckets, and listings of what is in them.

use serde_json::json;

use crate::http_harness::{Client, Server};

fn names(value: &serde_json::Value, field: &str) -> Vec<String> {
    let name = |object: &serde_json::Value| object[field].as_str().unwrap().to_owned();
    value.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn buckets_live_and_die() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/one", b"").expect(201);
    root.put("/storage/two/?visibility=public", b"").expect(201);
    assert_eq!(root.put("/storage/one", b"").expect(409).error(), "exists");
    let listed = root.get("/storage/").expect(200).json();
    assert_eq!(names(&listed["buckets"], "name"), ["one", "two"]);
    assert_eq!(listed["next"], json!(null));
    assert_eq!(root.get("/storage").json(), listed);
    root.put("/storage/one/a", b"12345").expect(201);
    let one = root.get("/storage/one").expect(200).json();
    assert_eq!(one["owner"], "root");
    assert_eq!(one["kind"], "files");
    assert_eq!((&one["objects"], &one["bytes"]), (&json!(1), &json!(5)));
    assert_eq!(root.call("HEAD", "/storage/one", &[], b"").expect(200).body, b"");
    root.call("HEAD", "/storage/none", &[], b"").expect(404);
    let full = root.call("DELETE", "/storage/one", &[], b"").expect(409);
    assert_eq!(full.error(), "not_empty");
    root.call("DELETE", "/storage/one/a", &[], b"").expect(204);
    root.call("DELETE", "/storage/one", &[], b"").expect(204);
    root.get("/storage/one").expect(404);
}

#[test]
fn settings_change_by_json_and_by_query() {
    let server = Server::start();
    let (root, friend) = (server.root(), server.user("friend"));
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/a", b"x").expect(201);
    let patch = |query: &str, json: &str| {
        root.call("PATCH", &format!("/storage/bucket{query}"), &[], json.as_bytes())
    };
    friend.get("/storage/bucket/a").expect(403);
    patch("", r#"{"grant": {"user": "friend", "rights": "read"}}"#).expect(204);
    friend.get("/storage/bucket/a").expect(200);
    friend.put("/storage/bucket/b", b"").expect(403);
    patch("?grant=friend:read,write", "").expect(204);
    friend.put("/storage/bucket/b", b"").expect(201);
    friend.call("PATCH", "/storage/bucket?visibility=public", &[], b"").expect(403);
    patch("?grant=friend:none", "").expect(204);
    friend.get("/storage/bucket/a").expect(403);
    server.anonymous().get("/storage/bucket/a").expect(401);
    patch("?visibility=public", "").expect(204);
    server.anonymous().get("/storage/bucket/a").expect(200);
    for bad in ["{", "[]", r#"{"visibilty": "public"}"#, r#"{"visibility": "x"}"#] {
        patch("", bad).expect(400);
    }
    for bad in ["?grant=friend", "?grant=friend:all,x", "?cache_control=a%0d%0aX:y"] {
        patch(bad, "").expect(400);
    }
    patch("?grant=nobody:read", "").expect(404);
}

#[test]
fn quotas_hold_until_something_is_deleted() {
    let server = Server::start();
    let (root, owner) = (server.root(), server.user("owner"));
    owner.put("/storage/bucket", b"").expect(201);
    let patch = |client: &Client, query: &str, json: &str| {
        client.call("PATCH", &format!("/storage/bucket{query}"), &[], json.as_bytes())
    };
    patch(&owner, "?quota_bytes=1", "").expect(403);
    patch(&root, "", r#"{"quota_bytes": 100000, "quota_objects": 2}"#).expect(204);
    let shown = owner.get("/storage/bucket").expect(200).json();
    assert_eq!((&shown["quota_bytes"], &shown["quota_objects"]), (&100_000.into(), &2.into()));
    owner.put("/storage/bucket/a", &[1; 60_000]).expect(201);
    let refused = owner.put("/storage/bucket/b", &[2; 60_000]).expect(507);
    assert!(refused.text().contains("quota of bucket bucket, 100000 bytes"), "{}", refused.text());
    owner.get("/storage/bucket/b").expect(404);
    owner.put("/storage/bucket/b", &[2; 30_000]).expect(201);
    owner.put("/storage/bucket/c", b"").expect(507);
    owner.put("/storage/bucket/a", &[3; 70_000]).expect(204);
    owner.put("/storage/bucket/a", &[3; 70_001]).expect(507);
    assert!(owner.get("/storage/bucket/a").expect(200).body == [3; 70_000]);
    owner.call("DELETE", "/storage/bucket/b", &[], b"").expect(204);
    owner.put("/storage/bucket/c", &[4; 30_000]).expect(201);
    for bad in ["?quota_bytes=x", "?quota_objects=-1", "?quota_bytes=99999999999999999999"] {
        patch(&root, bad, "").expect(400);
    }
    patch(&root, "?quota_bytes=0&quota_objects=0", "").expect(204);
    owner.put("/storage/bucket/d", &[5; 200_000]).expect(201);
}

/// All pages of a listing, of `limit` entries each.
fn pages(client: &Client, path: &str, limit: usize) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    let mut after = String::new();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = client.get(&format!("{path}{separator}limit={limit}{after}")).expect(200).json();
        keys.extend(names(&page["objects"], "key"));
        let found = page["prefixes"].as_array().unwrap().iter();
        prefixes.extend(found.map(|prefix| prefix.as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => return (keys, prefixes),
        }
    }
}

#[test]
fn listings_come_in_pages() {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    for key in ["a", "b/1", "b/2", "b/c/3", "d", "e/f/g"] {
        root.put(&format!("/storage/bucket/{key}"), b"x").expect(201);
    }
    for limit in [1, 2, 3, 1000] {
        let check = |path: &str, keys: &[&str], prefixes: &[&str]| {
            let found = pages(&root, path, limit);
            assert_eq!(found.0, keys, "{path}");
            assert_eq!(found.1, prefixes, "{path}");
        };
        check("/storage/bucket/", &["a", "d"], &["b/", "e/"]);
        check("/storage/bucket?list", &["a", "d"], &["b/", "e/"]);
        check("/storage/bucket/b/", &["b/1", "b/2"], &["b/c/"]);
        check("/storage/bucket/b?list", &["b/1", "b/2"], &["b/c/"]);
        check("/storage/bucket/b/?prefix=c", &[], &["b/c/"]);
        check("/storage/bucket/?prefix=e/", &[], &["e/f/"]);
        let all = ["a", "b/1", "b/2", "b/c/3", "d", "e/f/g"];
        check("/storage/bucket/?recursive", &all, &[]);
        check("/storage/bucket/?delimiter=", &all, &[]);
        check("/storage/bucket/none/", &[], &[]);
    }
    let object = &root.get("/storage/bucket/?prefix=a").json()["objects"][0];
    assert_eq!(object["size"], 1);
    assert_eq!(
        format!("\"{}\"", object["etag"].as_str().unwrap()),
        root.get("/storage/bucket/a").header("etag").unwrap()
    );
    assert_eq!(object["content_type"], "application/octet-stream");
    assert!(object["modified"].as_str().unwrap().ends_with('Z'));
    let head = root.call("HEAD", "/storage/bucket/", &[], b"").expect(200);
    let length: usize = head.header("content-length").unwrap().parse().unwrap();
    assert_eq!(root.get("/storage/bucket/").body.len(), length);
}
