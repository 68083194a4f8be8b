use std::fs;
use std::process::Stdio;

use crate::support::{KEY, SECRET, Server, cairn, directory, run, server_command, wait_for};

/// The word behind a label on a line of its own.
fn word(text: &str, label: &str) -> String {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(label));
    found.unwrap_or_else(|| panic!("no {label} in {text}")).trim().to_owned()
}

#[test]
fn generated_credentials_are_printed_at_the_first_start_only() {
    let (_directory, store) = directory();
    let server = Server::spawn(server_command(&store, &["--log", "trace"]));
    wait_for(&server.stdout, "s3 ls");
    let shown = server.stdout.lock().unwrap().clone();
    let (id, secret) = (word(&shown, "access key"), word(&shown, "secret key"));
    let mut list = server.anonymous(&["bucket", "create", "photos"]);
    let (code, _, stderr) = run(list.env("CAIRN_KEY", &id).env("CAIRN_SECRET", &secret));
    assert_eq!(code, 0, "{stderr}");
    let stderr = server.stderr.clone();
    assert_eq!(server.stop(), 0);
    assert!(!stderr.lock().unwrap().contains(&secret), "the log has the secret");
    let server = Server::spawn(server_command(&store, &["--log", "trace"]));
    wait_for(&server.stderr, "serving");
    let (stdout, stderr) = (server.stdout.clone(), server.stderr.clone());
    assert_eq!(server.stop(), 0);
    let all = [stdout.lock().unwrap().clone(), stderr.lock().unwrap().clone()].concat();
    assert!(!all.contains(&secret) && !all.contains("access key"), "{all}");
    assert!(all.contains("cairn key create"), "{all}");
}

#[test]
fn planted_secrets_are_in_no_output_and_not_in_the_clear_on_disk() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &["--log", "trace", "--log-format", "json"]);
    let made = server.ok(&["key", "create", "alice", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let token = server.ok(&["key", "token", "alice"]);
    let mut secrets = vec![SECRET.to_owned(), token.trim().to_owned()];
    secrets.push(made["secret"].as_str().unwrap().to_owned());
    // Wrong credentials are secrets, too: most often of something else.
    secrets.push("wrong-secret-0123456789".to_owned());
    let mut wrong = server.anonymous(&["ls"]);
    wrong.env("CAIRN_KEY", KEY).env("CAIRN_SECRET", "wrong-secret-0123456789");
    let (code, stdout, stderr) = run(&mut wrong);
    assert_eq!(code, 1);
    assert!(stderr.contains("access key test-key of CAIRN_KEY"), "{stderr}");
    let listed = server.ok(&["key", "ls"]);
    let (log, printed) = (server.stderr.clone(), server.stdout.clone());
    assert_eq!(server.stop(), 0);
    let (log, printed) = (log.lock().unwrap().clone(), printed.lock().unwrap().clone());
    assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    let mut disk = Vec::new();
    for part in ["meta", "blocks"] {
        for entry in fs::read_dir(store.join(part)).unwrap() {
            disk.extend(fs::read(entry.unwrap().path()).unwrap());
        }
    }
    let disk = String::from_utf8_lossy(&disk);
    for secret in &secrets {
        for text in [&log, &printed, &listed, &stdout, &stderr] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert!(!disk.contains(secret), "{secret} is on the disk");
    }
}

#[test]
fn a_preset_is_both_or_neither_and_valid() {
    let (_directory, store) = directory();
    let pairs = [
        (Some("admin"), None, "CAIRN_ROOT_SECRET is not"),
        (None, Some(SECRET), "CAIRN_ROOT_KEY is not"),
        (Some("a b"), Some(SECRET), "access key id"),
        (Some("admin"), Some("short"), "secret key"),
    ];
    for (key, secret, text) in pairs {
        let mut command = server_command(&store, &[]);
        if let Some(key) = key {
            command.env("CAIRN_ROOT_KEY", key);
        }
        if let Some(secret) = secret {
            command.env("CAIRN_ROOT_SECRET", secret);
        }
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains(text) && !stderr.contains("short"), "{stderr}");
        assert!(!store.exists());
    }
}

#[test]
fn lost_keys_of_root_are_replaced_offline() {
    let (_directory, store) = directory();
    assert_eq!(Server::start(&store, &[]).stop(), 0);
    let path = store.to_str().unwrap();
    let (code, stdout, stderr) = run(&mut cairn(&["key", "create", "root", "--dir", path]));
    assert_eq!(code, 0, "{stderr}");
    let server = Server::spawn(server_command(&store, &[]));
    let mut list = server.anonymous(&["key", "ls"]);
    list.env("CAIRN_KEY", word(&stdout, "access key"));
    let (code, listed, stderr) = run(list.env("CAIRN_SECRET", word(&stdout, "secret key")));
    assert_eq!(code, 0, "{stderr}");
    assert!(listed.contains(KEY), "{listed}");
}

#[test]
fn a_profile_that_others_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    let config = directory.path().join("cairn");
    fs::create_dir(&config).unwrap();
    let file = config.join("config.toml");
    let http = &server.http;
    let text = format!(
        "[default]\nserver = '{http}'\nkey = '{KEY}'\nsecret = '{SECRET}'\n[bad]\nkey = 'x'\n"
    );
    fs::write(&file, text).unwrap();
    let client = |args: &[&str]| {
        let mut command = cairn(args);
        run(command.env("XDG_CONFIG_HOME", directory.path()).stdin(Stdio::null()))
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, _, stderr) = client(&["bucket", "create", "photos"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("chmod 600"), "{stderr}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(client(&["bucket", "create", "photos"]).0, 0);
    assert_eq!(client(&["ls", "--profile", "bad"]).0, 2);
    assert_eq!(client(&["ls", "--profile", "none"]).0, 2);
    fs::write(&file, format!("[default]\nsecret = {SECRET}\n")).unwrap();
    let (code, _, stderr) = client(&["ls"]);
    assert_eq!(code, 1);
    assert!(!stderr.contains(SECRET), "{stderr}");
}
