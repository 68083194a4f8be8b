use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::{Server, bytes, cairn, directory, run};

/// Where `wanted` is in the segments.
fn find(store: &Path, wanted: &[u8]) -> (PathBuf, u64) {
    for entry in fs::read_dir(store.join("blocks")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let all = fs::read(&path).unwrap();
            if let Some(at) = all.windows(wanted.len()).position(|window| window == wanted) {
                return (path, at as u64);
            }
        }
    }
    panic!("the bytes are in no segment");
}

fn flip(store: &Path, wanted: &[u8]) {
    let (path, at) = find(store, wanted);
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn json(args: &[&str]) -> (i32, serde_json::Value) {
    let (code, stdout, stderr) = run(&mut cairn(args));
    (code, serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}")))
}

/// All files below, with their bytes.
fn everything(store: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for part in ["", "meta", "blocks"] {
        for entry in fs::read_dir(store.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && !path.ends_with("lock") {
                found.push((path.clone(), fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn by_fsck_and_by_scrub_and_all_else_is_intact() {
    let (_directory, store) = directory();
    let path = store.to_str().unwrap();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let lengths = [100, 50_000, 100_000, 5 << 20, 200_000];
    for (seed, len) in lengths.into_iter().enumerate() {
        assert!(server.put(&format!("photos/dir/{seed}"), &bytes(seed as u64, len)));
    }
    // Killed: what is on the disk is as a crash leaves it, and fsck must not change that either.
    server.kill();
    let before = everything(&store);
    let (code, report) = json(&["fsck", "--json", path]);
    assert_eq!((code, &report["sound"]), (0, &true.into()), "{report}");
    assert_eq!(report["files"], 5);
    assert!(everything(&store) == before, "fsck changed something");

    flip(&store, &bytes(3, 5 << 20)[(4 << 20) + 777..][..64]);
    for command in ["fsck", "scrub"] {
        let (code, report) = json(&[command, "--json", path]);
        assert_eq!((code, &report["sound"]), (1, &false.into()), "{report}");
        let damaged = report["damaged"].as_array().unwrap();
        assert_eq!(damaged.len(), 1, "{report}");
        assert_eq!(damaged[0]["object"], "photos/dir/3");
        assert_eq!(
            (&damaged[0]["start"], &damaged[0]["end"]),
            (&(4 << 20).into(), &(5 << 20).into())
        );
    }
    let (code, report) = json(&["fsck", "--quick", "--json", path]);
    assert_eq!((code, &report["sound"]), (0, &true.into()), "{report}");
    let (code, stdout, _) = run(&mut cairn(&["fsck", path]));
    assert_eq!(code, 1);
    assert!(stdout.contains("damaged: photos/dir/3: bytes") && stdout.ends_with("DAMAGED\n"));

    let server = Server::start(&store, &[]);
    for (seed, len) in lengths.into_iter().enumerate() {
        let got = server.get(&format!("photos/dir/{seed}"));
        match seed {
            3 => assert!(got.is_err(), "damaged bytes were served"),
            _ => assert!(got.unwrap() == bytes(seed as u64, len), "object {seed}"),
        }
    }
    server.ok(&["rm", "photos/dir/3"]);
    server.kill();
    let (code, report) = json(&["fsck", "--json", path]);
    assert_eq!(code, 0, "{report}");
    // The server may have collected it by then.
    assert!(report["damaged_garbage"].as_u64().unwrap() <= 1, "{report}");
}

#[test]
fn in_the_metadata() {
    let (_directory, store) = directory();
    let path = store.to_str().unwrap();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    for number in 0..50 {
        assert!(server.put(&format!("photos/{number}"), &bytes(number, 3000)));
    }
    assert_eq!(server.stop(), 0);
    let rows = store.join("meta/rows.redb");
    let all = fs::read(&rows).unwrap();
    let wanted = &bytes(17, 3000)[100..164];
    let at = (0..all.len() - 64).rev().find(|at| &all[*at..at + 64] == wanted).unwrap() as u64;
    let file = OpenOptions::new().write(true).open(&rows).unwrap();
    file.write_all_at(&[all[at as usize] ^ 1], at).unwrap();
    let (code, stdout, _) = run(&mut cairn(&["fsck", path]));
    assert_eq!(code, 1);
    assert!(stdout.contains("corrupt"), "{stdout}");
}
