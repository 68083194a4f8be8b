use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use cairn_base::{RealDisk, UserId};
use cairn_meta::engine::{EmbeddedEngine, Engine, embedded};
use cairn_meta::keys;

use crate::support::{Server, bytes, cairn, directory, run, server_command};

/// A store with two objects, one of them in blocks; its directory, and a dump made while it ran.
fn store() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let (directory, store) = directory();
    let dump = directory.path().join("dump");
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/small", b"hello") && server.put("photos/large", &bytes(1, 3 << 20)));
    server.ok(&["meta", "dump", text(&dump)]);
    let refused = run(server.anonymous(&["meta", "dump", "/nonexistent/x"]).env("CAIRN_KEY", ""));
    assert_eq!(refused.0, 1, "{}", refused.2);
    assert_eq!(server.stop(), 0);
    (directory, store, dump)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// It fails, and says so.
fn fails(args: &[&str], wanted: &str) {
    let (code, stdout, stderr) = run(&mut cairn(args));
    assert_eq!((code, stdout.as_str()), (1, ""), "{args:?}: {stderr}");
    assert!(stderr.starts_with("cairn: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(wanted), "{wanted:?} is not in {stderr}");
}

#[test]
fn of_a_server_that_runs_or_of_a_directory() {
    let (_directory, store, dump) = store();
    assert_eq!(fs::metadata(&dump).unwrap().permissions().mode() & 0o777, 0o600);
    let offline = dump.with_file_name("offline");
    let args = ["meta", "dump", text(&store), text(&offline)];
    let (code, _, stderr) = run(&mut cairn(&args));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("dumped: "), "{stderr}");
    let piped = cairn(&["meta", "dump", text(&store), "-"]).stderr(Stdio::null()).output();
    assert_eq!(piped.unwrap().stdout, fs::read(&offline).unwrap());
    let server = Server::start(&store, &[]);
    fails(&args, "in use by another cairn");
    fails(&["meta", "load", text(&dump), text(&store)], "in use by another cairn");
    drop(server);

    fs::rename(store.join("meta"), store.join("lost")).unwrap();
    for file in [&dump, &offline] {
        let _ = fs::remove_dir_all(store.join("meta"));
        let (code, _, stderr) = run(&mut cairn(&["meta", "load", text(file), text(&store)]));
        assert_eq!(code, 0, "{stderr}");
        let server = Server::start(&store, &[]);
        assert_eq!(server.get("photos/small").unwrap(), b"hello");
        assert_eq!(server.get("photos/large").unwrap(), bytes(1, 3 << 20));
        assert!(server.put("photos/new", b"new"));
        assert_eq!(server.stop(), 0);
        let (code, stdout, _) = run(&mut cairn(&["fsck", text(&store)]));
        assert_eq!(code, 0, "{stdout}");
    }
}

#[test]
fn but_not_into_what_is_not_empty_or_of_another_store() {
    let (_directory, store, dump) = store();
    let load = ["meta", "load", text(&dump), text(&store)];
    fails(&load, "the metadata of a store already");
    let (_other, other) = directory();
    assert_eq!(Server::start(&other, &[]).stop(), 0);
    fails(&["meta", "load", text(&dump), text(&other)], "another store");
    let server = Server::start(&store, &[]);
    assert_eq!(server.get("photos/small").unwrap(), b"hello");
}

#[test]
fn but_not_from_what_is_not_whole() {
    let (_directory, store, dump) = store();
    fs::remove_dir_all(store.join("meta")).unwrap();
    let whole = fs::read(&dump).unwrap();
    let load = ["meta", "load", text(&dump), text(&store)];
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, wanted) in [
        (&whole[..whole.len() - 1], "cut off"),
        (&whole[..40], "cut off"),
        (&flipped, "do not check out"),
        (b"hello", "not a dump"),
    ] {
        fs::write(&dump, bytes).unwrap();
        fails(&load, wanted);
        assert!(!store.join("meta").exists());
    }
    fs::write(&dump, &whole).unwrap();
    let (code, _, stderr) = run(&mut cairn(&load));
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn a_part_of_it_is_no_store() {
    let (_directory, store, dump) = store();
    fs::remove_dir_all(store.join("meta")).unwrap();
    // The remains of a load that is killed.
    let disk = Arc::new(RealDisk::open(&store.join("meta")).unwrap());
    let engine = EmbeddedEngine::open(disk, embedded::Config::default()).unwrap();
    let fence = engine.take_over_at(5).unwrap();
    engine.commit(fence, vec![("b".into(), Some("row".into()))]).unwrap();
    drop(engine);
    let load = ["meta", "load", text(&dump), text(&store)];
    fails(&load, "a load was interrupted");
    let (code, _, stderr) = run(&mut server_command(&store, &["--log", "error"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("a load was interrupted"), "{stderr}");
    fs::remove_dir_all(store.join("meta")).unwrap();
    let (code, _, stderr) = run(&mut cairn(&load));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(Server::start(&store, &[]).get("photos/small").unwrap(), b"hello");
}

#[test]
fn only_root_may_dump() {
    let (_directory, store, _) = store();
    let server = Server::start(&store, &[]);
    let target = store.with_file_name("mine");
    let (code, _, stderr) = run(&mut server.anonymous(&["meta", "dump", text(&target)]));
    assert_eq!(code, 1, "{stderr}");
    assert!(!target.exists());
    let (code, _, _) = run(&mut cairn(&["meta", "dump", "--meta", "postgres://x", "dir", "file"]));
    assert_eq!(code, 2);
}

/// Takes rows out of the metadata in a directory, as no master does.
fn remove(store: &Path, keys: &[bytes::Bytes]) {
    let disk = Arc::new(RealDisk::open(&store.join("meta")).unwrap());
    let engine = EmbeddedEngine::open(disk, embedded::Config::default()).unwrap();
    let changes = keys.iter().map(|key| (key.clone(), None)).collect();
    engine.commit(engine.fence().unwrap(), changes).unwrap();
}

#[test]
fn what_belongs_to_users_is_checked_and_counted_anew_after_a_load() {
    let (_directory, store, dump) = store();
    // The next master notes that it counts.
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let fsck = || run(&mut cairn(&["fsck", text(&store)]));
    assert_eq!(fsck().0, 0, "{}", fsck().1);
    let root = UserId::ROOT;
    remove(&store, &[keys::owned(root), keys::bucket_of(root, b"photos")]);
    let (code, stdout, _) = fsck();
    assert_eq!(code, 1, "{stdout}");
    for found in ["for user 1 0 buckets", "photos is not in the index of the buckets of user 1"] {
        assert!(stdout.contains(found), "{found}: {stdout}");
    }
    let (code, _, stderr) = run(&mut cairn(&["meta", "dump", text(&store), text(&dump)]));
    assert_eq!(code, 0, "{stderr}");
    fs::remove_dir_all(store.join("meta")).unwrap();
    let (code, _, stderr) = run(&mut cairn(&["meta", "load", text(&dump), text(&store)]));
    assert_eq!(code, 0, "{stderr}");
    // It is not compared before it is counted.
    assert_eq!(fsck().0, 0, "{}", fsck().1);
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    assert_eq!(fsck().0, 0, "{}", fsck().1);
    remove(&store, &[keys::owned(root)]);
    assert_eq!(fsck().0, 1, "{}", fsck().1);
}
