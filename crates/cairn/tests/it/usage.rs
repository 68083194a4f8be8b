use crate::support::{cairn, directory, run};

#[test]
fn what_makes_no_sense_ends_with_2() {
    let (_directory, store) = directory();
    let store = store.to_str().unwrap();
    let table: [&[&str]; 22] = [
        &[],
        &["nonsense"],
        &["server"],
        &["server", store, "--nonsense"],
        &["server", store, "--s3", "nonsense"],
        &["server", store, "--durability", "maybe"],
        &["server", store, "--cache-mib", "0"],
        &["server", store, "--cache-mib", "-1"],
        &["server", store, "--cache-mib", "16000000"],
        &["server", store, "--memtable-mib", "65"],
        &["server", store, "--meta", "postgres://localhost/x", "--page-cache-mib", "16"],
        &["server", store, "--tls-cert", "x"],
        &["server", store, "--tls-key", "x"],
        &["server", store, "--log", "a=b=c"],
        &["server", store, "--log-format", "xml"],
        &["put", "/etc/hostname", "/x"],
        &["put", "/etc", "bucket/x"],
        &["get", "bucket"],
        &["rm", "bucket"],
        &["ls", "--server", "ftp://x", "bucket"],
        &["key", "token", "alice", "--expires", "soon"],
        &["bucket", "set", "photos", "--grant", "alice"],
    ];
    for args in table {
        let (code, stdout, stderr) = run(&mut cairn(args));
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(!stderr.is_empty(), "{args:?}");
    }
    assert!(!std::path::Path::new(store).exists());
}

#[test]
fn what_cannot_be_done_ends_with_1_and_a_remedy() {
    let table: [(&[&str], &str); 4] = [
        (&["ls", "--server", "http://127.0.0.1:1"], "is the server running?"),
        (&["put", "/nonexistent", "b/x", "--server", "http://127.0.0.1:1"], "/nonexistent"),
        (&["fsck", "/nonexistent"], "not a Cairn data directory"),
        (&["scrub", "/nonexistent"], "not a Cairn data directory"),
    ];
    for (args, text) in table {
        let (code, stdout, stderr) = run(&mut cairn(args));
        assert_eq!((code, stdout.as_str()), (1, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with("cairn: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains(text), "{args:?}: {stderr}");
    }
}

#[test]
fn completions_and_pages_for_man_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, stdout, stderr) = run(&mut cairn(&["completions", shell]));
        assert_eq!((code, stderr.as_str()), (0, ""));
        assert!(stdout.contains("backup") && stdout.contains("inflight"), "{shell}");
    }
    let (directory, _) = directory();
    let pages = directory.path().to_str().unwrap();
    let (code, _, stderr) = run(&mut cairn(&["man", pages]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    for page in ["cairn.1", "cairn-backup-create.1", "cairn-server.1"] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
}
