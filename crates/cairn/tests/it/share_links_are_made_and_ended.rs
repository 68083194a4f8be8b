use std::fs;

use crate::support::{Server, directory, run};

#[test]
fn a_share_link_is_made_used_and_ended() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let file = directory.path().join("cat.jpg");
    fs::write(&file, b"a cat").unwrap();
    server.ok(&["put", file.to_str().unwrap(), "photos/2026/cat.jpg"]);
    let url = server.ok(&["share", "add", "photos/2026/cat.jpg"]).trim().to_owned();
    assert!(url.starts_with(&format!("{}/s/", server.http)), "{url}");
    let curl =
        |arguments: &[&str]| run(std::process::Command::new("curl").arg("-sf").args(arguments));
    assert_eq!(curl(&[&url]).1, "a cat");
    let password = directory.path().join("password");
    fs::write(&password, "correct horse\n").unwrap();
    let locked = ["share", "add", "photos/2026/", "--password-file", password.to_str().unwrap()];
    let locked = server.ok(&locked).trim().to_owned();
    assert_eq!(curl(&[&locked]).0, 22);
    assert_eq!(curl(&["-u", ":correct horse", &format!("{locked}cat.jpg")]).1, "a cat");
    let listed = server.ok(&["share", "ls"]);
    assert!(listed.contains("photos/2026/cat.jpg") && listed.contains("password"), "{listed}");
    let ids: Vec<String> = server
        .ok(&["share", "ls", "--json"])
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        server.ok(&["share", "rm", &id]);
    }
    assert_eq!(curl(&[&url]).0, 22);
    assert!(server.fails(&["share", "add", "photos/none"]).contains("photos"));
    assert!(server.fails(&["share", "rm", "none"]).contains("share link none"));
}
