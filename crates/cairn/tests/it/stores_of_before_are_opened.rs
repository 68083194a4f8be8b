//! `before/store.txt` is a data directory as a former version left it.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Server, cairn, directory, run, server_command};

/// The credentials that the store was made with.
const KEY: &str = "CAIRNTESTROOTKEY0001";
const SECRET: &str = "cairn-test-root-secret-that-is-long-enough";

/// Makes the files again that a text describes.
fn unpack(text: &str, directory: &Path) {
    let mut file: Option<File> = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("file ") {
            Some(head) => file = Some(make(head, directory)),
            None => write(line, file.as_mut().unwrap()),
        }
    }
}

fn make(head: &str, directory: &Path) -> File {
    let (name, length) = head.split_once(' ').unwrap();
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = File::create(&path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.set_len(length.parse().unwrap()).unwrap();
    file
}

fn write(line: &str, file: &mut File) {
    let (offset, digits) = line.split_once(' ').unwrap();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    file.seek(SeekFrom::Start(u64::from_str_radix(offset, 16).unwrap())).unwrap();
    file.write_all(&bytes).unwrap();
}

fn ok(server: &Server, args: &[&str]) -> Vec<u8> {
    let mut command = server.anonymous(args);
    let output = command.env("CAIRN_KEY", KEY).env("CAIRN_SECRET", SECRET).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn is_sound(store: &Path) {
    let (code, stdout, stderr) = run(&mut cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn with_all_that_is_in_them() {
    let (_directory, store) = directory();
    unpack(include_str!("before/store.txt"), &store);
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    is_sound(&store);
    let mut command = server_command(&store, &[]);
    command.env("CAIRN_ROOT_KEY", KEY).env("CAIRN_ROOT_SECRET", SECRET);
    let server = Server::spawn(command);
    let blocks = [&b"head"[..], &[0; 50_000], b"tail"].concat();
    assert_eq!(ok(&server, &["get", "photos/a/small.txt", "-"]), b"small and inline");
    assert!(ok(&server, &["get", "photos/a/blocks.bin", "-"]) == blocks);
    assert_eq!(ok(&server, &["get", "files/dir/file", "-"]), b"of a bucket for files");
    let shown = |args: &[&str]| String::from_utf8(ok(&server, args)).unwrap();
    let stat = shown(&["stat", "photos/a/small.txt"]);
    assert!(stat.contains("text/plain") && stat.contains("blue"), "{stat}");
    let buckets = shown(&["bucket", "ls"]);
    assert!(buckets.contains("public") && buckets.contains("48.85 KiB"), "{buckets}");
    assert!(shown(&["user", "ls"]).contains("anna"));
    assert!(shown(&["export", "ls"]).contains("10.0.0.0/8"));
    // The changes of this version, and what it keeps.
    ok(&server, &["rm", "photos/a/blocks.bin"]);
    ok(&server, &["key", "create", "anna"]);
    ok(&server, &["bucket", "create", "further"]);
    assert_eq!(ok(&server, &["get", "photos/a/small.txt", "-"]), b"small and inline");
    assert_eq!(server.stop(), 0);
    is_sound(&store);
}
