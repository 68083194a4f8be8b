use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Server, bytes, directory, run};

/// All files below a directory, by their names there.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn of_all_lengths() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let lengths = [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, (4 << 20) + 1, (9 << 20) + 12345];
    for (seed, len) in lengths.into_iter().enumerate() {
        let expected = bytes(seed as u64, len);
        let (source, target) = (directory.path().join("in"), directory.path().join("out"));
        fs::write(&source, &expected).unwrap();
        let object = format!("photos/länge {len}?.bin");
        server.ok(&["put", source.to_str().unwrap(), &object]);
        server.ok(&["get", &object, target.to_str().unwrap()]);
        assert_eq!(fs::read(&target).unwrap(), expected);
        assert_eq!(server.get(&object).unwrap(), expected);
        let stat: serde_json::Value =
            serde_json::from_str(&server.ok(&["stat", "--json", &object])).unwrap();
        assert_eq!(stat["size"], len);
    }
    assert_eq!(server.ok(&["ls", "photos"]).lines().count(), lengths.len());
    let json = server.ok(&["ls", "--json", "photos/l"]);
    for line in json.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object["key"].as_str().unwrap().starts_with("länge"));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3, "no parts are left behind");
}

#[test]
fn whole_directories() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "www"]);
    let source = directory.path().join("site");
    for at in 0..120u64 {
        let file = source.join(format!("d{}/e{}/file {at}.txt", at % 3, at % 5));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes(at, (at * 397) as usize)).unwrap();
    }
    server.ok(&["put", "-r", source.to_str().unwrap(), "www/new/"]);
    let target = directory.path().join("got");
    server.ok(&["get", "-r", "www/new/", target.to_str().unwrap()]);
    assert_eq!(tree(&target), tree(&source));
    let listed = server.ok(&["ls", "www/new/"]);
    assert_eq!(
        listed.lines().map(|line| line.trim_start_matches([' ', '-'])).collect::<Vec<_>>(),
        ["new/d0/", "new/d1/", "new/d2/"]
    );
    assert_eq!(server.ok(&["ls", "-r", "www"]).lines().count(), 120);
    let (code, _, stderr) = run(&mut server.client(&["put", source.to_str().unwrap(), "www/x"]));
    assert_eq!(code, 2, "{stderr}");
    server.ok(&["rm", "www/new/d0/e0/file 0.txt"]);
    server.ok(&["rm", "-r", "--yes", "www/new/d1"]);
    assert_eq!(server.ok(&["ls", "-r", "www"]).lines().count(), 79);
    assert!(server.fails(&["bucket", "rm", "www"]).contains("not empty"));
    server.ok(&["rm", "-r", "--yes", "www/"]);
    server.ok(&["bucket", "rm", "www"]);
    assert_eq!(server.ok(&["ls"]), "");
}

/// `get -r` fetches the files again that `put -r` stored. Both print what they did.
#[test]
fn directories_come_back_as_they_went() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "www"]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let source = directory.path().join("site");
    for name in ["a", "sub/b", "sub/deep/c"] {
        let file = source.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes(1, 1000)).unwrap();
    }
    let copied = |args: &[&str]| {
        let (code, stdout, stderr) = run(&mut server.client(args));
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout + &stderr
    };
    for (to, from, got) in [
        ("www/one", "www/one/", "got1"),
        ("www/two/", "www/two/", "got2"),
        ("www", "www/one/", "got3"),
    ] {
        copied(&["put", "-r", &path("site"), to]);
        let said = copied(&["get", "-r", from, &path(got)]);
        assert!(said.starts_with("3 files, 2.93 KiB, to "), "{said}");
        assert_eq!(tree(&directory.path().join(got)), tree(&source));
    }
    // Without / at the end the last part of the name comes along.
    copied(&["get", "-r", "www/one", &path("got4")]);
    assert_eq!(tree(&directory.path().join("got4/one")), tree(&source));
    copied(&["put", "-r", &path("got4/one"), "www/three"]);
    copied(&["get", "-r", "www/three", &path("got5")]);
    assert_eq!(tree(&directory.path().join("got5/three")), tree(&source));
    // A prefix that nothing has is a wrong name, and makes nothing.
    for none in ["www/nosuch/", "www/nosuch"] {
        let said = server.fails(&["get", "-r", none, &path("none")]);
        assert!(said.contains(&format!("{none}: there is no such object or prefix")), "{said}");
        assert!(!directory.path().join("none").exists());
    }
    let said = copied(&["rm", "-r", "--yes", "www/one/"]);
    assert_eq!(said, "deleted 3 objects, 2.93 KiB, below www/one/\n");
    assert_eq!(copied(&["rm", "-r", "--yes", "www/one/"]), "nothing is below www/one/\n");
    server.ok(&["rm", "-r", "--yes", "www/"]);
    assert!(copied(&["get", "-r", "www", &path("empty")]).starts_with("0 files"));
}

#[test]
fn sizes_and_times_are_shown_alike() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/cat", &bytes(1, 1_572_864)));
    let listed = server.ok(&["ls", "photos"]);
    assert!(listed.trim_start().starts_with("1572864  20"), "no header in a pipe: {listed}");
    assert!(server.ok(&["ls", "-h", "photos"]).trim_start().starts_with("1.50 MiB  20"));
    assert!(server.ok(&["ls", "--help"]).contains("--human-readable"));
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&server.ok(args)).unwrap() };
    let (listed, shown) =
        (json(&["ls", "--json", "photos"]), json(&["stat", "--json", "photos/cat"]));
    let (listed, shown) = (listed["modified"].as_str(), shown["modified"].as_str());
    let seconds = |text: Option<&str>| text.unwrap().get(..19).unwrap().to_owned();
    assert_eq!(seconds(listed), seconds(shown));
    assert!(shown.unwrap().len() == 20 && shown.unwrap().ends_with('Z'), "{shown:?}");
}

#[test]
fn only_for_those_who_may() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    server.ok(&["bucket", "create", "www", "--visibility", "public"]);
    assert!(server.put("photos/cat", b"meow") && server.put("www/index.html", b"hello"));
    let new: serde_json::Value =
        serde_json::from_str(&server.ok(&["key", "create", "alice", "--json"])).unwrap();
    let alice = |args: &[&str]| {
        let mut command = server.anonymous(args);
        command.env("CAIRN_KEY", new["id"].as_str().unwrap());
        run(command.env("CAIRN_SECRET", new["secret"].as_str().unwrap()))
    };
    let token = server.ok(&["key", "token", "alice", "--expires", "1h"]);
    let with_token = |args: &[&str]| run(server.anonymous(args).env("CAIRN_TOKEN", token.trim()));
    let nobody = |args: &[&str]| run(&mut server.anonymous(args));
    assert_eq!(nobody(&["get", "www/index.html", "-"]).1, "hello");
    for args in [["get", "photos/cat", "-"].as_slice(), &["key", "ls"], &["gc"]] {
        assert_eq!(nobody(args).0, 1, "{args:?}");
        assert_eq!(alice(args).0, 1, "{args:?}");
        assert_eq!(with_token(args).0, 1, "{args:?}");
    }
    server.ok(&["bucket", "set", "photos", "--grant", "alice:read"]);
    assert_eq!(alice(&["get", "photos/cat", "-"]).1, "meow");
    assert_eq!(with_token(&["get", "photos/cat", "-"]).1, "meow");
    assert_eq!(alice(&["rm", "photos/cat"]).0, 1);
    server.ok(&["key", "rm", new["id"].as_str().unwrap()]);
    assert_eq!(alice(&["get", "photos/cat", "-"]).0, 1);
    assert_eq!(with_token(&["get", "photos/cat", "-"]).1, "meow");
    assert!(server.fails(&["key", "rm", "nonsense"]).contains("not found"));
    let listed = server.ok(&["key", "ls"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let stat: serde_json::Value =
        serde_json::from_str(&server.ok(&["bucket", "stat", "www", "--json"])).unwrap();
    assert_eq!((&stat["visibility"], &stat["bytes"]), (&"public".into(), &5.into()));
}
