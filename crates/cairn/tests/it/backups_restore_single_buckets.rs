//! Parts of a backup, and all of it, into a server that runs. `tests/mount/test_restores.py` has
//! what only mounts make.

use std::path::PathBuf;

use crate::support::{Server, bytes, directory, run};

struct Backed {
    directory: tempfile::TempDir,
    server: Server,
    place: PathBuf,
}

const LARGE: usize = 9 << 20;

fn backed() -> Backed {
    let (directory, store) = directory();
    let place = directory.path().join("backup");
    let server = Server::start(&store, &[]);
    for bucket in ["photos", "others"] {
        server.ok(&["bucket", "create", bucket]);
    }
    assert!(server.put("photos/2024/large", &bytes(1, LARGE)));
    assert!(server.put("photos/2024/page.html", b"<p>"));
    assert!(server.put("photos/2025/empty", b""));
    assert!(server.put("others/2024/x", b"other"));
    // Of more objects than a page has.
    let many = directory.path().join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..1100 {
        std::fs::write(many.join(n.to_string()), format!("{n}")).unwrap();
    }
    server.ok(&["put", "-r", many.to_str().unwrap(), "photos/many/"]);
    server.ok(&["backup", "create", place.to_str().unwrap()]);
    Backed { directory, server, place }
}

impl Backed {
    fn restore(&self, server: &Server, args: &[&str]) -> (i32, String) {
        let place = self.place.to_str().unwrap();
        let scratch = self.directory.path().to_str().unwrap();
        let always = ["restore", place, "--to-server", "--scratch", scratch];
        let (code, _, stderr) = run(&mut server.client(&[&always[..], args].concat()));
        let left = std::fs::read_dir(self.directory.path()).unwrap();
        let left = left.filter(|one| {
            one.as_ref().unwrap().file_name().to_string_lossy().starts_with("cairn-restore-")
        });
        assert_eq!(left.count(), 0, "scratch is removed");
        (code, stderr)
    }
}

#[test]
fn what_is_there_stays_and_what_is_gone_comes_back() {
    let backed = backed();
    let server = &backed.server;
    server.ok(&["rm", "photos/2024/large"]);
    server.ok(&["rm", "photos/2025/empty"]);
    assert!(server.put("photos/2024/page.html", b"newer"));
    let part = ["--bucket", "photos", "--prefix", "2024/"];
    let (code, said) = backed.restore(server, &[&part[..], &["--check"]].concat());
    assert!(code == 1 && said.contains("2 are not"), "{said}");
    assert!(server.get("photos/2024/large").is_err(), "a comparison changes nothing");
    let (code, said) = backed.restore(server, &part);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 files") && said.contains("1 were there, differ and stay"), "{said}");
    assert_eq!(server.get("photos/2024/large").unwrap(), bytes(1, LARGE));
    assert_eq!(server.get("photos/2024/page.html").unwrap(), b"newer");
    assert!(server.get("photos/2025/empty").is_err(), "it has another prefix");
    let one = ["--bucket", "photos", "--path", "2024/page.html", "--as", "photos/old.html"];
    let (code, said) = backed.restore(server, &one);
    assert!(code == 0 && said.contains("1 files"), "{said}");
    assert_eq!(server.get("photos/old.html").unwrap(), b"<p>");
    let all = ["--bucket", "photos", "--replace"];
    let (code, said) = backed.restore(server, &all);
    assert!(code == 0 && said.contains("2 files"), "{said}");
    assert_eq!(server.get("photos/2024/page.html").unwrap(), b"<p>");
    assert_eq!(server.get("photos/2025/empty").unwrap(), b"");
    assert_eq!(server.get("photos/old.html").unwrap(), b"<p>", "what is new stays");
    let stat = server.ok(&["stat", "photos/2024/page.html"]);
    assert!(stat.contains("text/html"), "{stat}");
    let (code, said) = backed.restore(server, &all);
    assert!(code == 0 && said.contains("0 files") && !said.contains("directories"), "{said}");
    let (code, said) = backed.restore(server, &["--bucket", "photos", "--check"]);
    assert!(code == 0 && said.contains("0 are not"), "{said}");
}

#[test]
fn into_another_bucket_of_another_server_from_a_state_of_before() {
    let backed = backed();
    let place = backed.place.to_str().unwrap();
    let listed = backed.server.ok(&["backup", "list", place, "--json"]);
    let first: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    backed.server.ok(&["rm", "-r", "--yes", "photos/"]);
    backed.server.ok(&["backup", "create", place]);
    let other = Server::start(&backed.directory.path().join("other"), &[]);
    let (code, said) = backed.restore(&other, &["--bucket", "photos", "--as", "copy"]);
    assert!(code == 0 && said.contains("0 files"), "{said}");
    let id = first["id"].as_str().unwrap();
    let wanted = ["--bucket", "photos", "--as", "copy", "--state", id];
    let (code, said) = backed.restore(&other, &wanted);
    assert!(code == 0 && said.contains("1103 files"), "{said}");
    assert_eq!(other.get("copy/2024/large").unwrap(), bytes(1, LARGE));
    assert_eq!(other.get("copy/many/1099").unwrap(), b"1099");
    assert!(other.ok(&["bucket", "stat", "copy"]).contains("private"));
    let (code, said) = backed.restore(&other, &["--bucket", "nothing"]);
    assert!(code == 1 && said.contains("nothing"), "{said}");
    let (code, said) = backed.restore(&other, &["--bucket", "photos", "--path", "nothing"]);
    assert!(code == 1 && said.contains("1 are not"), "{said}");
    let (code, _, said) = run(&mut other.client(&["restore", place, "--to-server", "--as", "x"]));
    assert!(code == 2 && said.contains("--bucket"), "{said}");
}

#[test]
fn a_whole_store_comes_back_and_only_root_brings_it() {
    let backed = backed();
    let other = Server::start(&backed.directory.path().join("other"), &[]);
    let (code, said) = backed.restore(&other, &[]);
    assert!(code == 0 && said.contains("1104 files"), "{said}");
    assert_eq!(other.get("others/2024/x").unwrap(), b"other");
    assert_eq!(other.get("photos/2024/large").unwrap(), bytes(1, LARGE));
    let (code, said) = backed.restore(&other, &[]);
    assert!(code == 0 && said.contains("0 files") && !said.contains("users, keys"), "{said}");
    let made = other.ok(&["key", "create", "eve", "--json"]);
    let made: serde_json::Value = serde_json::from_str(made.trim()).unwrap();
    let place = backed.place.to_str().unwrap();
    let mut command = other.anonymous(&["restore", place, "--to-server"]);
    let [key, secret] = ["id", "secret"].map(|name| made[name].as_str().unwrap());
    command.env("CAIRN_KEY", key).env("CAIRN_SECRET", secret);
    let (code, _, said) = run(&mut command);
    assert!(code == 1 && said.contains("only root"), "{said}");
}
