//! Objects of one bucket, out of a backup, into a server that runs.

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
    let (code, said) = backed.restore(server, &["--bucket", "photos", "--prefix", "2024/"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 objects") && said.contains("1 were there and stay"), "{said}");
    assert_eq!(server.get("photos/2024/large").unwrap(), bytes(1, LARGE));
    assert_eq!(server.get("photos/2024/page.html").unwrap(), b"newer");
    assert!(server.get("photos/2025/empty").is_err(), "it has another prefix");
    let all = ["--bucket", "photos", "--overwrite"];
    let (code, said) = backed.restore(server, &all);
    assert!(code == 0 && said.contains("1103 objects"), "{said}");
    assert_eq!(server.get("photos/2024/page.html").unwrap(), b"<p>");
    assert_eq!(server.get("photos/2025/empty").unwrap(), b"");
    let stat = server.ok(&["stat", "photos/2024/page.html"]);
    assert!(stat.contains("text/html"), "{stat}");
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
    assert!(code == 0 && said.contains("0 objects"), "{said}");
    let id = first["id"].as_str().unwrap();
    let wanted = ["--bucket", "photos", "--as", "copy", "--state", id];
    let (code, said) = backed.restore(&other, &wanted);
    assert!(code == 0 && said.contains("1103 objects"), "{said}");
    assert_eq!(other.get("copy/2024/large").unwrap(), bytes(1, LARGE));
    assert_eq!(other.get("copy/many/1099").unwrap(), b"1099");
    assert!(other.ok(&["bucket", "stat", "copy"]).contains("private"));
    let (code, said) = backed.restore(&other, &["--bucket", "nothing"]);
    assert!(code == 1 && said.contains("nothing"), "{said}");
    let (code, _, said) = run(&mut other.client(&["restore", place, "--to-server"]));
    assert!(code == 2 && said.contains("--bucket"), "{said}");
}
