use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::gate::{Act, Gate};
use crate::support::{PATIENCE, Server, bytes, cairn, directory, run};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn restore(args: &[&str]) -> (i32, String) {
    let (code, _, stderr) = run(&mut cairn(&[&["restore"], args].concat()));
    (code, stderr)
}

/// Bytes of all files below.
fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let of = |entry: fs::DirEntry| {
        if entry.file_type().unwrap().is_dir() {
            size(&entry.path())
        } else {
            entry.metadata().unwrap().len()
        }
    };
    entries.map(of).sum()
}

fn store() -> (tempfile::TempDir, PathBuf, PathBuf, Server) {
    let (directory, store) = directory();
    let backup = directory.path().join("backup");
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/small", b"hello"));
    assert!(server.put("photos/large", &bytes(1, 9 << 20)));
    (directory, store, backup, server)
}

#[test]
fn byte_for_byte_with_the_keys_if_it_is_encrypted() {
    let (directory, store, backup, server) = store();
    let pass = directory.path().join("pass");
    fs::write(&pass, "correct horse\n").unwrap();
    let with_pass = ["--passphrase-file", text(&pass)];
    let create = ["backup", "create", text(&backup), "--keys", text(&store)];
    let id = server.ok(&[&create[..], &with_pass].concat());
    // It is not needed for what comes later.
    assert!(server.put("photos/later", b"later"));
    assert_eq!(server.stop(), 0);
    let new = directory.path().join("new");
    let (code, said) = restore(&[text(&backup), text(&new)]);
    assert!(code == 2 && said.contains("is encrypted"), "{said}");
    let (code, said) = restore(&[&[text(&backup), text(&new)], &with_pass[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(id.trim()), "{said}");
    let (code, stdout, _) = run(&mut cairn(&["fsck", text(&new)]));
    assert_eq!(code, 0, "{stdout}");
    let server = Server::start(&new, &[]);
    assert_eq!(server.get("photos/small").unwrap(), b"hello");
    assert_eq!(server.get("photos/large").unwrap(), bytes(1, 9 << 20));
    assert!(server.get("photos/later").is_err());
    let (code, said) = restore(&[&[text(&backup), text(&store)], &with_pass[..]].concat());
    assert!(code == 1 && said.contains("a store already"), "{said}");
}

#[test]
fn and_the_next_one_costs_what_changed() {
    let (directory, store, backup, server) = store();
    let said = run(&mut server.client(&["backup", "create", text(&backup)])).2;
    assert!(said.contains("secret.key is not in this backup"), "{said}");
    let first = size(&backup);
    assert!(server.put("photos/more", &bytes(2, 1 << 20)));
    server.ok(&["rm", "photos/small"]);
    server.ok(&["backup", "create", text(&backup)]);
    let cost = size(&backup) - first;
    assert!((1 << 20..2 << 20).contains(&cost), "{cost} of {first}");
    let listed = server.ok(&["backup", "list", text(&backup), "--json"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    server.ok(&["backup", "check", text(&backup), "--newest-within", "1h"]);
    assert_eq!(server.ok(&["backup", "holds"]), "");
    // An older state, onto the blocks of a newer one: none of them is deleted.
    let first_state: serde_json::Value =
        serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let dump = directory.path().join("newest.dump");
    server.ok(&["meta", "dump", text(&dump)]);
    assert_eq!(server.stop(), 0);
    fs::rename(store.join("meta"), directory.path().join("meta-1")).unwrap();
    let state = first_state["id"].as_str().unwrap();
    let (code, said) = restore(&[text(&backup), text(&store), "--state", state]);
    assert_eq!(code, 0, "{said}");
    let server = Server::start(&store, &[]);
    assert_eq!(server.get("photos/small").unwrap(), b"hello");
    server.ok(&["gc"]);
    assert_eq!(server.stop(), 0);
    fs::rename(store.join("meta"), directory.path().join("meta-2")).unwrap();
    let (code, _, said) = run(&mut cairn(&["meta", "load", text(&dump), text(&store)]));
    assert_eq!(code, 0, "{said}");
    let server = Server::start(&store, &[]);
    assert_eq!(server.get("photos/more").unwrap(), bytes(2, 1 << 20));
}

/// The packs of a backup that an index names. A backup that was killed may have left others, and
/// parts of files.
fn named_packs(backup: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(backup.join("index")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let whole = names.filter(|name| !name.ends_with(".part"));
    whole.map(|name| backup.join("packs").join(name)).collect()
}

fn flip_in_the_middle(path: &Path) {
    let mut all = fs::read(path).unwrap();
    let middle = all.len() / 2;
    all[middle] ^= 1;
    fs::write(path, all).unwrap();
}

#[test]
fn one_that_was_killed_goes_on_and_damage_is_found() {
    let (_directory, _store, backup, server) = store();
    for seed in 3..9 {
        assert!(server.put(&format!("photos/{seed}"), &bytes(seed, 4 << 20)));
    }
    let create = ["backup", "create", text(&backup), "--pack-mib", "1", "--jobs", "1"];
    // It gets some blocks, and is killed while it waits for the next.
    let gate = Gate::before(&server.http, "GET /admin/blocks/", Act::Wait, (4, 1));
    let mut command = server.client(&create);
    command.env("CAIRN_SERVER", &gate.url).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    gate.reached(1);
    let start = Instant::now();
    while named_packs(&backup).len() < 2 {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    gate.open();
    // It may have been killed between a pack and its index: that pack is not a part of the backup.
    fs::write(backup.join("packs/00"), b"unfinished").unwrap();
    let (code, stdout, stderr) = run(&mut server.client(&create));
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.is_empty());
    server.ok(&["backup", "check", text(&backup)]);
    let pack = named_packs(&backup).into_iter().min().unwrap();
    flip_in_the_middle(&pack);
    let name = pack.file_name().unwrap().to_str().unwrap();
    let check = ["backup", "check", text(&backup)];
    let (code, stdout, stderr) = run(&mut server.client(&check));
    let is_found = stdout.contains("damaged") && stdout.contains(name);
    assert!(code == 1 && is_found, "{code}: {stdout}{stderr}");
    let repair = [&check[..], &["--repair"]].concat();
    // The backup that was killed left a lock.
    let (code, _, stderr) = run(&mut server.client(&repair));
    assert!(code == 1 && stderr.contains("cairn backup locks"), "{stderr}");
    let locks = server.ok(&["backup", "locks", text(&backup), "--json"]);
    for lock in locks.lines() {
        let lock: serde_json::Value = serde_json::from_str(lock).unwrap();
        server.ok(&["backup", "locks", text(&backup), "--end", lock["id"].as_str().unwrap()]);
    }
    let (code, stdout, _) = run(&mut server.client(&repair));
    assert!(code == 1 && stdout.contains("damaged"), "{stdout}");
    server.ok(&create);
    server.ok(&check);
}

/// Flips a bit of the object `photos/large` in the segment that has it.
fn damage(store: &Path) {
    let wanted = &bytes(1, 9 << 20)[5 << 20..][..64];
    for entry in fs::read_dir(store.join("blocks")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let mut all = fs::read(&path).unwrap();
            if let Some(at) = all.windows(64).position(|window| window == wanted) {
                all[at] ^= 1;
                return fs::write(&path, all).unwrap();
            }
        }
    }
    panic!("the bytes are in no segment");
}

#[test]
fn a_block_that_is_damaged_in_the_directory_is_replaced() {
    let (directory, store, backup, server) = store();
    server.ok(&["backup", "create", text(&backup)]);
    assert_eq!(server.stop(), 0);
    damage(&store);
    fs::rename(store.join("meta"), directory.path().join("meta-1")).unwrap();
    let (code, said) = restore(&[text(&backup), text(&store)]);
    assert!(code == 0 && said.contains("1 blocks that are there are damaged"), "{said}");
    let (code, stdout, _) = run(&mut cairn(&["fsck", text(&store)]));
    assert_eq!(code, 0, "{stdout}");
    let server = Server::start(&store, &[]);
    assert_eq!(server.get("photos/large").unwrap(), bytes(1, 9 << 20));
}
