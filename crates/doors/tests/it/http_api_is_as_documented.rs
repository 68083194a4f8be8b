//! `docs/http.md` and the door say the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::http_harness::{Client, Server};

const DOCS: &str = include_str!("../../../../docs/http.md");

/// The rows of the table below a heading, as cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let (_, section) = DOCS.split_once(&format!("## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// The words between backticks.
fn words(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn store() -> (Server, Client) {
    let server = Server::start();
    let root = server.root();
    root.put("/storage/bucket", b"").expect(201);
    root.put("/storage/bucket/key", b"x").expect(201);
    (server, root)
}

/// A path of the table for a request. It names nothing that a request that should be refused could
/// harm without being noticed.
fn path(documented: &str) -> String {
    documented
        .replace("BUCKET", "bucket")
        .replace("DIR", "dir")
        .replace("KEY", "key")
        .replace("ID", "none")
        .replace("NAME", "none")
}

#[test]
fn requests_take_the_query_parameters_that_the_table_has() {
    let (server, root) = store();
    let rows = table("Requests and their query parameters");
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        let request = words(&row[0]).into_iter().next().unwrap();
        let (method, documented) = request.split_once(' ').unwrap();
        let path = path(documented);
        let refused = root.call(method, &format!("{path}?unheard=1"), &[], b"").expect(400);
        if method == "HEAD" {
            // It says no more.
            continue;
        }
        let refused = refused.json();
        let message = refused["message"].as_str().unwrap().to_owned();
        assert!(message.contains("\"unheard\""), "{request}: {message}");
        let (_, taken) = message.split_once(" of this path takes ").expect("what is taken");
        let taken: BTreeSet<String> =
            taken.split(", ").filter(|name| *name != "none").map(str::to_owned).collect();
        assert_eq!(taken, words(&row[1]), "{request}");
        for name in taken {
            let reply =
                root.call(method, &format!("{path}?{name}&unheard=1"), &[], b"").expect(400);
            assert!(reply.text().contains("unheard"), "{request} {name}");
        }
    }
    assert_eq!(root.get("/storage/bucket/key").expect(200).body, b"x");
    // A typo in a switch hands out nothing.
    root.get("/storage/bucket/key?redirekt").expect(400);
    root.get("/storage/bucket/key?share=1").expect(400);
    drop(server);
}

#[test]
fn settings_have_the_fields_that_the_table_has() {
    let (_server, root) = store();
    let documented: BTreeSet<String> =
        table("Settings of a bucket").iter().flat_map(|row| words(&row[0])).collect();
    let patch = |json: &str| root.call("PATCH", "/storage/bucket", &[], json.as_bytes());
    let refused = patch(r#"{"nonsense":1}"#).expect(400).text();
    let (_, expected) = refused.split_once("expected one of ").expect("what is taken");
    let taken: BTreeSet<String> =
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(taken, documented);
    patch(r#"{"visibility":"public","cache_control":"no-cache","quota_objects":9}"#).expect(204);
    let both =
        root.call("PATCH", "/storage/bucket?visibility=public", &[], br#"{"quota_bytes":1}"#);
    both.expect(400);
    let shown = root.get("/storage/bucket").expect(200).json();
    assert_eq!((&shown["quota_objects"], &shown["quota_bytes"]), (&9.into(), &0.into()));
}

#[test]
fn administration_takes_the_fields_that_the_table_has() {
    let (_server, root) = store();
    let rows: BTreeMap<String, Vec<String>> =
        table("Administration").into_iter().map(|row| (row[0].clone(), row)).collect();
    assert_eq!(rows.len(), 13, "{rows:?}");
    let key = r#"{"user":"alice","id":"KEY-OF-ALICE","secret":"secret-of-alice-0123456789"}"#;
    let key = root.call("POST", "/admin/keys", &[], key.as_bytes()).expect(201).json();
    assert_eq!(key["id"], "KEY-OF-ALICE");
    let token = root.call("POST", "/admin/tokens", &[], br#"{"user":"alice","expires_s":60}"#);
    assert!(token.expect(201).json()["token"].is_string());
    root.call("PATCH", "/admin/users/alice", &[], br#"{"disabled":true}"#).expect(204);
    let export = br#"{"bucket":"bucket","user":"alice","clients":["10.0.0.0/8"],"read_only":true}"#;
    root.call("POST", "/admin/exports", &[], export).expect(204);
    let owner = br#"{"owner":{"uid":1000,"gid":1000}}"#;
    root.call("PATCH", "/admin/exports/bucket", &[], owner).expect(204);
    root.call("PATCH", "/admin/exports/none", &[], owner).expect(404);
    let hold = root.call("POST", "/admin/holds", &[], br#"{"owner":"me","seconds":60}"#);
    let hold = hold.expect(201).json()["id"].as_str().unwrap().to_owned();
    let renewed =
        |id: &str| root.call("PATCH", &format!("/admin/holds/{id}"), &[], br#"{"seconds":90}"#);
    renewed(&hold).expect(200);
    renewed("0000000000000000").expect(404);
    let lists = ["keys", "users", "exports", "holds"].map(|list| (format!("/admin/{list}"), list));
    for (path, list) in lists {
        let listed = root.get(&path).expect(200).json();
        let fields: BTreeSet<String> =
            listed[list][0].as_object().unwrap().keys().cloned().collect();
        let documented = words(&rows[&format!("`GET {path}`")][2]);
        assert!(fields.is_subset(&documented), "{fields:?} {documented:?}");
    }
}

/// One row for each kind of error that a request can be answered with.
#[test]
fn errors_have_the_statuses_that_the_table_has() {
    let (server, root) = store();
    let rows: BTreeMap<String, String> = table("Errors")
        .into_iter()
        .map(|row| (words(&row[0]).into_iter().next().unwrap(), row[1].clone()))
        .collect();
    let anonymous = server.anonymous();
    let wrong = server.client("nobody", "wrong-secret-0123456789");
    let seen = [
        root.get("/storage/bucket/none"),
        root.get("/storage/bucket/key?unheard"),
        root.call("PUT", "/storage/bucket", &[], b""),
        root.call("DELETE", "/storage/bucket", &[], b""),
        root.call("PUT", "/storage/bucket/key", &[("If-None-Match", "*")], b"y"),
        root.call("PUT", "/storage/bucket/k", &[("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==")], b"y"),
        root.get_with("/storage/bucket/key", &[("Range", "bytes=9-")]),
        root.call("PATCH", "/storage/bucket/key", &[], b""),
        root.call("POST", "/storage/bucket/key", &[("If-Match", "\"x\"")], b"x"),
        wrong.get("/storage/bucket/key"),
        server.user("stranger").get("/storage/bucket/key"),
    ];
    for reply in seen {
        let error = reply.error();
        assert_eq!(rows.get(&error), Some(&reply.status.to_string()), "{error}");
        let id = reply.header("x-request-id");
        assert_eq!(id.as_deref(), reply.json()["request_id"].as_str());
    }
    assert_eq!(anonymous.get("/storage/bucket/key").expect(401).error(), "denied");
}
