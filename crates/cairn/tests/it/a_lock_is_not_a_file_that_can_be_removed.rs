use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Server, bytes, cairn, directory, run, server_command};

/// A second server does not start there, nor does a tool that needs the store for itself.
fn in_use(store: &Path) {
    let (code, _, stderr) = run(&mut server_command(store, &["--log", "error"]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("in use by another cairn"), "{stderr}");
    let (code, _, stderr) = run(&mut cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("in use by another cairn"), "{stderr}");
}

fn wait_for_file(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < PATIENCE, "{} is not put back", path.display());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn removed_or_replaced_it_lets_no_second_server_in() {
    let (_directory, store) = directory();
    let mut server = Server::start(&store, &["--log", "error"]);
    server.ok(&["bucket", "create", "photos"]);
    let lock = store.join("lock");
    in_use(&store);
    fs::remove_file(&lock).unwrap();
    in_use(&store);
    wait_for_file(&lock);
    assert!(server.put("photos/a", &bytes(1, 50_000)));
    // In one step: the server never sees that there is none.
    let other = store.with_file_name("other");
    File::create(&other).unwrap();
    fs::rename(&other, &lock).unwrap();
    let start = Instant::now();
    assert_eq!(server.wait(), 1, "it went on after {:?}", start.elapsed());
    let said = server.stderr.clone();
    crate::support::wait_for(&said, "was replaced");
    let (code, stdout, stderr) = run(&mut cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn a_store_that_is_moved_stays_locked() {
    let (_directory, store) = directory();
    let mut server = Server::start(&store, &["--log", "error"]);
    let moved = store.with_file_name("moved");
    fs::rename(&store, &moved).unwrap();
    // Until it has noticed, the store is in use; then the server has ended.
    assert_eq!(server.wait(), 1);
    crate::support::wait_for(&server.stderr.clone(), "not the directory that was locked");
    assert_eq!(Server::start(&moved, &[]).stop(), 0);
}
