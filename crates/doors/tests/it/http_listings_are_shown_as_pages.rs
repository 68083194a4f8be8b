//! Listings as pages: only of buckets that want it, only for browsers, and nothing in a name is
//! more than a name.

use crate::http_harness::{Client, Reply, Server};

const BROWSER: (&str, &str) =
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

fn page(client: &Client, path: &str) -> Reply {
    let reply = client.get_with(path, &[BROWSER]).expect(200);
    assert_eq!(reply.header("content-type").as_deref(), Some("text/html; charset=utf-8"));
    let policy = reply.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'; base-uri 'none'"), "{policy}");
    assert_eq!(reply.header("x-content-type-options").as_deref(), Some("nosniff"));
    assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    assert!(!reply.text().contains("<script"), "{}", reply.text());
    reply
}

/// The addresses of links, in their order.
fn links(page: &Reply) -> Vec<String> {
    let text = page.text();
    let parts = text.split("href=\"").skip(1);
    parts.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

fn store() -> (Server, Client) {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/open?visibility=public", b"").expect(201);
    for key in ["b.txt", "a%20b/c.txt", "z/1", "z/2"] {
        root.put(&format!("/storage/open/{key}"), b"12345").expect(201);
    }
    (server, root)
}

#[test]
fn a_bucket_shows_pages_to_browsers_only_if_it_wants() {
    let (server, root) = store();
    let anonymous = server.anonymous();
    let json = |client: &Client, path: &str| {
        let reply = client.get_with(path, &[BROWSER]).expect(200);
        assert_eq!(reply.header("content-type").as_deref(), Some("application/json"), "{path}");
        reply.json()
    };
    assert_eq!(json(&anonymous, "/storage/open/")["objects"][0]["key"], "b.txt");
    assert_eq!(root.get("/storage/open").json()["html_listing"], "off");
    let set = |query: &str| root.call("PATCH", &format!("/storage/open?{query}"), &[], b"");
    set("html_listing=yes").expect(400);
    set("html_listing=on&cache_control=no-cache").expect(204);
    let shown = root.get("/storage/open").json();
    assert_eq!(
        (&shown["html_listing"], &shown["cache_control"]),
        (&"on".into(), &"no-cache".into())
    );
    let top = page(&anonymous, "/storage/open/");
    assert_eq!(links(&top), ["./a%20b/", "./z/", "./b.txt", "?zip"]);
    assert!(top.text().contains("5 B"), "{}", top.text());
    // What is not asked for by a person stays as it was.
    for path in ["/storage/open/?list", "/storage/open/?recursive", "/storage/open?list"] {
        json(&anonymous, path);
    }
    for accept in [&[][..], &[("Accept", "*/*")], &[("Accept", "application/json")]] {
        let reply = anonymous.get_with("/storage/open/", accept).expect(200);
        assert!(reply.json()["objects"].is_array());
    }
    let empty = page(&anonymous, "/storage/open/none/");
    assert!(empty.text().contains("Nothing is here."));
    set("visibility=private").expect(204);
    anonymous.get_with("/storage/open/", &[BROWSER]).expect(401);
    page(&root, "/storage/open/");
    // Only who may change settings changes this one.
    let other = server.user("other");
    other.call("PATCH", "/storage/open?html_listing=off", &[], b"").expect(403);
    set("html_listing=off").expect(204);
    json(&root, "/storage/open/");
}

#[test]
fn pages_follow_each_other_and_lead_up() {
    let (server, root) = store();
    root.call("PATCH", "/storage/open?html_listing=on", &[], b"").expect(204);
    let anonymous = server.anonymous();
    let below = page(&anonymous, "/storage/open/z/");
    assert_eq!(links(&below), ["../", "./1", "./2", "?zip"]);
    root.put("/storage/open/z/y/x/w", b"").expect(201);
    let deep = page(&anonymous, "/storage/open/z/y/x/");
    assert_eq!(links(&deep)[..3], ["../../../", "../../", "../"]);
    let (mut path, mut seen) = ("/storage/open/?limit=1".to_owned(), Vec::new());
    loop {
        let shown = page(&anonymous, &path);
        let found = links(&shown);
        seen.extend(found.iter().filter(|href| href.starts_with("./") && *href != "./").cloned());
        let next = found.iter().find(|href| href.starts_with("?after="));
        match next {
            Some(next) => path = format!("/storage/open/{}", next.replace("&amp;", "&")),
            None => break,
        }
        assert!(seen.len() < 9, "{seen:?}");
    }
    assert_eq!(seen, ["./a%20b/", "./b.txt", "./z/"]);
}

#[test]
fn nothing_in_a_name_is_more_than_a_name() {
    let (server, root) = store();
    root.call("PATCH", "/storage/open?html_listing=on", &[], b"").expect(204);
    let nasty =
        ["%3Cscript%3Ealert(1)%3C%2Fscript%3E", "%22onmouseover=%22x", "javascript:x", "%26lt;b"];
    for name in nasty {
        root.put(&format!("/storage/open/evil/{name}"), b"").expect(201);
    }
    let shown = page(&server.anonymous(), "/storage/open/evil/");
    for href in links(&shown) {
        assert!(matches!(&*href, "../" | "?zip") || href.starts_with("./"), "{href}");
    }
    let text = shown.text();
    assert!(
        text.contains("&lt;script&gt;alert(1)&lt;") || text.contains("&lt;script&gt;"),
        "{text}"
    );
    assert!(text.contains("&amp;lt;b") && !text.contains("\"onmouseover"), "{text}");
    // A directory of such a name is shown by its own page, too.
    page(&server.anonymous(), "/storage/open/%3Cscript%3E/");
}
