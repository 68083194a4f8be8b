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
    refused(&store, "not 32 bytes");
    fs::remove_file(&key).unwrap();
    refused(&store, "secret.key: missing");
}

#[test]
fn with_the_parts_of_two_stores() {
    let (_directory, store) = directory();
    let other = store.with_file_name("other");
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    assert_eq!(Server::start(&other, &[]).stop(), 0);
    fs::remove_dir_all(store.join("meta")).unwrap();
    fs::rename(other.join("meta"), store.join("meta")).unwrap();
    refused(&store, "is the metadata of another store");
}
