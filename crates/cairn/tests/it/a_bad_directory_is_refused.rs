use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Server, cairn, directory, run, server_command};

/// The server does not start there, says `text`, and leaves all as it is.
fn refused(store: &Path, text: &str) {
    let names = || {
        let mut names: Vec<_> = fs::read_dir(store)
            .map(|entries| entries.map(|entry| entry.unwrap().file_name()).collect())
            .unwrap_or_default();
        names.sort();
        names
    };
    let before = names();
    let (code, stdout, stderr) = run(&mut server_command(store, &["--log", "error"]));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("cairn: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(text), "{text:?} is not in {stderr}");
    assert_eq!(names(), before);
}

#[test]
fn of_somebody_else() {
    let (_directory, store) = directory();
    fs::create_dir(&store).unwrap();
    fs::write(store.join("thesis.txt"), "").unwrap();
    refused(&store, "holds thesis.txt and is not a Cairn data directory");
    let (code, _, stderr) = run(&mut cairn(&["fsck", store.to_str().unwrap()]));
    assert_eq!(code, 1);
    assert!(stderr.contains("not a Cairn data directory"), "{stderr}");
}

#[test]
fn that_is_a_file() {
    let (_directory, store) = directory();
    fs::write(&store, "").unwrap();
    refused(&store, "Not a directory");
}

#[test]
fn of_an_unknown_format() {
    let (_directory, store) = directory();
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let format = store.join("format");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace("cairn 1", "cairn 99")).unwrap();
    refused(&store, "format version 99, this cairn knows 1");
    fs::write(&format, "hello").unwrap();
    refused(&store, "not the format file of a Cairn store");
    fs::write(&format, &text[..text.len() - 9]).unwrap();
    refused(&store, "no disk id");
    fs::write(&format, text).unwrap();
    assert_eq!(Server::start(&store, &[]).stop(), 0);
}

#[test]
fn without_its_secret_key_or_with_one_that_others_read() {
    let (_directory, store) = directory();
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let key = store.join("secret.key");
    let bytes = fs::read(&key).unwrap();
    for mode in [0o640, 0o604] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        refused(&store, "chmod 600");
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, &bytes[..31]).unwrap();
    refused(&store, "cut off, or damaged");
    fs::write(&key, &bytes[..12]).unwrap();
    refused(&store, "not a key");
    fs::remove_file(&key).unwrap();
    refused(&store, "secret.key: missing");
}

/// With a key that is damaged, or of another store, in either version of the file: the server says
/// so at once, not when somebody comes; and so does fsck.
#[test]
fn with_a_secret_key_that_opens_nothing() {
    let (_directory, store) = directory();
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let path = store.to_str().unwrap();
    let key = store.join("secret.key");
    let whole = fs::read_to_string(&key).unwrap();
    let digits = whole.lines().nth(1).unwrap().strip_prefix("key ").unwrap();
    let raw: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).unwrap()).collect();
    let finds = |text: &str| {
        let (code, stdout, stderr) = run(&mut cairn(&["fsck", path]));
        assert_eq!(code, 1, "{stdout}{stderr}");
        assert!(stdout.contains(text) && stdout.ends_with("DAMAGED\n"), "{text}: {stdout}");
        refused(&store, text);
    };
    let other = if digits.starts_with('0') { "1" } else { "0" };
    fs::write(&key, whole.replace(digits, &format!("{other}{}", &digits[1..]))).unwrap();
    finds("its checksum does not match");
    // The former version has no checksum, and is good as long as it opens what it sealed.
    fs::write(&key, &raw).unwrap();
    assert_eq!(run(&mut cairn(&["fsck", path])).0, 0);
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let mut flipped = raw.clone();
    flipped[7] ^= 1;
    fs::write(&key, &flipped).unwrap();
    finds("opens none of the 1 sealed secrets");
    let second = store.with_file_name("second");
    assert_eq!(Server::start(&second, &[]).stop(), 0);
    fs::copy(second.join("secret.key"), &key).unwrap();
    finds("opens none of the 1 sealed secrets");
    fs::remove_file(&key).unwrap();
    finds("secret.key: missing");
    fs::write(&key, whole).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, stdout, stderr) = run(&mut cairn(&["fsck", path]));
    assert_eq!(code, 0, "{stdout}{stderr}");
}

#[test]
fn with_the_parts_of_two_stores() {
    let (_directory, store) = directory();
    let other = store.with_file_name("other");
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    assert_eq!(Server::start(&other, &[]).stop(), 0);
    fs::remove_dir_all(store.join("meta")).unwrap();
    fs::rename(other.join("meta"), store.join("meta")).unwrap();
    refused(&store, "holds the metadata of another store");
}
