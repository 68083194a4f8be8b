//! Failures, present or near, are reported in words that help.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{KEY, Server, bytes, cairn, directory, run};

/// A command fails with this exit code and says all of these.
fn says(command: &mut std::process::Command, code: i32, words: &[&str]) {
    let (got, stdout, stderr) = run(command);
    assert_eq!(got, code, "{stdout}{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr}");
    }
}

#[test]
fn what_to_ask_for_instead() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    assert!(server.put("photos/doc/a", b"x"));
    let client = |args: &[&str], code, words: &[&str]| says(&mut server.client(args), code, words);
    let source = directory.path().join("file");
    fs::write(&source, "x").unwrap();
    let source = source.to_str().unwrap();
    client(&["stat", "photos/nope"], 1, &["photos/nope", "not found"]);
    client(&["get", "photos/doc"], 1, &["photos/doc", "it is a folder: use -r"]);
    client(&["rm", "photos/doc"], 1, &["photos/doc", "it is a folder: use -r"]);
    client(&["rm", "--dry-run", "photos/doc"], 1, &["photos/doc", "it is a folder: use -r"]);
    client(&["stat", "photos/doc"], 1, &["it is a folder: cairn ls photos/doc/"]);
    client(&["share", "add", "photos/doc"], 1, &["it is a folder: ", "photos/doc/"]);
    client(&["user", "create", "bob"], 2, &["cairn key create bob"]);
    client(&["user", "disable", "bob"], 1, &["user bob: `cairn key create bob` makes one"]);
    client(&["key", "rm", KEY], 1, &["last access key of root", "cairn key create --own"]);
    client(&["get", "photos/nope"], 1, &["photos/nope", "not found"]);
    client(&["ls", "photos/nope"], 1, &["photos/nope: there is no such object or prefix"]);
    client(&["stat", "photos"], 2, &["cairn bucket stat"]);
    client(&["rm", "photos"], 2, &["cairn bucket rm"]);
    client(&["rm", "photos/doc/"], 2, &["-r"]);
    client(&["bucket", "set", "photos"], 2, &["nothing to set"]);
    server.ok(&["bucket", "create", "empty"]);
    assert_eq!(server.ok(&["ls", "empty"]), "");
    let buckets = server.ok(&["ls"]);
    assert_eq!((buckets.lines().count(), buckets.contains("SIZE")), (2, false), "{buckets}");
    // At the door of S3, and with TLS where there is none.
    let at = |url: &str| {
        let mut command = cairn(&["ls", "photos", "--server", url]);
        command.env("CAIRN_KEY", KEY).env("CAIRN_SECRET", "some-secret-0123456789");
        command
    };
    says(&mut at(&server.s3), 1, &["this is an S3 door"]);
    says(&mut at(&server.http.replace("http:", "https:")), 1, &["begin the address with http://"]);
    // Which credentials were refused, and where they came from.
    says(&mut at(&server.http), 1, &["unknown", KEY, "CAIRN_KEY and CAIRN_SECRET"]);
    let mut anonymous = server.anonymous(&["ls"]);
    says(&mut anonymous, 1, &["set CAIRN_KEY and CAIRN_SECRET"]);
    client(&["put", source, "nosuch/x"], 1, &["nosuch", "cairn bucket create nosuch"]);
    client(&["ls", "s3://photos/x"], 2, &["without s3://", "photos/x"]);
    // A value of the environment is no part of the command line.
    let (code, _, stderr) = run(&mut server.client(&["put"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("<SOURCE> <TARGET>") && !stderr.contains("--server"), "{stderr}");
}

#[test]
fn an_address_that_is_taken_is_said_with_the_option() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    let taken = server.s3.strip_prefix("http://").unwrap().to_owned();
    let other = directory.path().join("other");
    let other = other.to_str().unwrap();
    let mut command = cairn(&["server", other, "--s3", &taken, "--http", "127.0.0.1:0"]);
    says(&mut command, 1, &["S3 door", &taken, "choose another by --s3 127.0.0.1:"]);
    // With other ports it would still be the same directory.
    let mut command = cairn(&["server", store.to_str().unwrap(), "--s3", &taken]);
    says(&mut command, 1, &["in use by another cairn"]);
    let mut command = cairn(&["server", other, "--s3", "35001"]);
    let (code, _, stderr) = run(&mut command);
    assert!(code == 2 && stderr.contains("127.0.0.1:35001"), "{stderr}");
}

#[test]
fn what_is_wrong_with_a_certificate() {
    let (directory, store) = directory();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let make = |name: &str, is_ca: bool| {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        if is_ca {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(file(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    };
    make("ca", true);
    make("plain", false);
    for (name, code, word) in [("plain", 0, ""), ("ca", 0, "")] {
        let (pem, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        let server = Server::start(&store, &["--tls-cert", &pem, "--tls-key", &key]);
        let (_, port) = server.http.rsplit_once(':').unwrap();
        let url = format!("https://localhost:{port}");
        let mut list = server.client(&["ls", "--server", &url, "--ca", &pem]);
        says(&mut list, code, &[word]);
        let other = file(if name == "ca" { "plain.pem" } else { "ca.pem" });
        let mut untrusted = server.client(&["ls", "--server", &url, "--ca", &other]);
        assert_eq!(run(&mut untrusted).0, 1);
        let mut plain = server.client(&["ls", "--server", &format!("http://localhost:{port}")]);
        says(&mut plain, 1, &["begin the address with https://"]);
        assert_eq!(server.stop(), 0);
    }
    let (pem, none) = (file("plain.pem"), file("none.key"));
    let mut server =
        crate::support::server_command(&store, &["--tls-cert", &pem, "--tls-key", &none]);
    let (code, _, stderr) = run(&mut server);
    assert_eq!(code, 1);
    assert!(stderr.contains("none.key") && !stderr.contains("plain.pem"), "{stderr}");
}

#[test]
fn how_much_goes_before_it_goes() {
    let (directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let source = directory.path().join("in");
    fs::create_dir(&source).unwrap();
    for at in 0..3 {
        fs::write(source.join(format!("{at}")), bytes(at, 1000)).unwrap();
    }
    for at in 0..2 {
        symlink("/nonexistent", source.join(format!("link{at}"))).unwrap();
    }
    let said = server.ok(&["put", "-r", source.to_str().unwrap(), "photos"]);
    assert!(said.starts_with("3 files, ") && said.contains("; 2 left out"), "{said}");
    // Nobody is there to be asked.
    says(&mut server.client(&["rm", "-r", "photos"]), 2, &["--yes", "--dry-run"]);
    let told = server.ok(&["rm", "-r", "photos", "--dry-run"]);
    assert_eq!(told.lines().count(), 4, "{told}");
    assert!(told.contains("3 objects, 2.93 KiB, below photos/"), "{told}");
    server.ok(&["rm", "photos/0", "--dry-run"]);
    assert_eq!(server.ok(&["ls", "photos"]).lines().count(), 3);
    server.ok(&["rm", "-r", "photos", "--yes"]);
    assert_eq!(server.ok(&["ls", "photos"]), "");
}

#[test]
fn who_there_is_and_who_may_what() {
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    server.ok(&["bucket", "create", "photos"]);
    let made = server.ok(&["key", "create", "alice", "--json"]);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    server.ok(&["bucket", "set", "photos", "--grant", "alice:read"]);
    assert!(server.ok(&["bucket", "stat", "photos"]).contains("alice:read"));
    let stat = server.ok(&["bucket", "stat", "photos", "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat["grants"][0]["user"], "alice");
    let as_alice = |args: &[&str]| {
        let mut command = server.anonymous(args);
        command.env("CAIRN_KEY", made["id"].as_str().unwrap());
        run(command.env("CAIRN_SECRET", made["secret"].as_str().unwrap())).0
    };
    assert_eq!(as_alice(&["ls", "photos"]), 0);
    server.ok(&["user", "disable", "alice"]);
    assert_eq!(as_alice(&["ls", "photos"]), 1);
    let listed = server.ok(&["user", "ls"]);
    assert!(listed.lines().any(|line| line.starts_with("alice") && line.contains("disabled")));
    server.ok(&["user", "enable", "alice"]);
    assert_eq!(as_alice(&["ls", "photos"]), 0);
    assert!(server.fails(&["user", "disable", "root"]).contains("root cannot be disabled"));
}

#[test]
fn that_nothing_could_be_looked_at() {
    let mut command = cairn(&["doctor", "http://127.0.0.1:1", "--seconds", "1"]);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("watching http://127.0.0.1:1 for 1 s"), "{stderr}");
    assert!(stdout.starts_with("NO SERVER COULD BE LOOKED AT"), "{stdout}");
    assert!(stdout.contains("not seen: http://127.0.0.1:1") && !stdout.contains("-0"), "{stdout}");
    assert!(!stdout.contains("nothing is wrong"), "{stdout}");
    // The same goes for a server that refuses the credentials.
    let (_directory, store) = directory();
    let server = Server::start(&store, &[]);
    let mut command = cairn(&["doctor", &server.http, "--seconds", "1"]);
    command.env("CAIRN_KEY", "CKNOBODYKNOWSIT00000").env("CAIRN_SECRET", "x".repeat(40));
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 1, "{stderr}");
    assert!(stdout.starts_with("NO SERVER COULD BE LOOKED AT"), "{stdout}");
    assert!(stdout.contains("credentials") && !stdout.contains("nothing is wrong"), "{stdout}");
}

#[test]
fn that_help_is_what_was_written() {
    let (code, stdout, _) = run(&mut cairn(&["bench", "http", "--help"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("put-{number}'") && stdout.contains("`{number}`"), "{stdout}");
}

/// Where metadata are in one copy, and no second master can come.
#[test]
fn how_many_copies_there_are() {
    let (directory, _) = directory();
    let master = directory.path().join("m").to_str().unwrap().to_owned();
    let init = ["cluster", "init", &master, "--address", "127.0.0.1:7400", "--engine", "embedded"];
    let (code, _, stderr) = run(&mut cairn(&init));
    assert_eq!(code, 0, "{stderr}");
    let mut token = cairn(&["cluster", "token", &master, "--role", "master"]);
    says(&mut token, 1, &["there is no second master"]);
}

/// The helper of mount(8) takes what `cairn mount` takes, and refuses the rest.
#[test]
fn options_in_fstab() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, _) = directory();
    let fake = directory.path().join("cairn");
    fs::write(&fake, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let helper = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/mount.cairn");
    let mount = |options: &str| {
        let mut command = std::process::Command::new("sh");
        command.args([helper, "http://h:8080", "/mnt/x", "-o", options]);
        command.env("PATH", format!("{}:/usr/bin:/bin", directory.path().display()));
        run(&mut command)
    };
    let table = [
        ("rw,noatime,_netdev,nofail,x-systemd.automount", ""),
        ("ro,local_locks", "--read-only --local-locks "),
        ("low_latency,private", "--low-latency --private "),
        ("disk_cache=/ssd,disk_cache_mib=500", "--disk-cache /ssd --disk-cache-mib 500 "),
        (
            "cache_mib=1,meta_cache_mib=2,dirty_mib=8",
            "--cache-mib 1 --meta-cache-mib 2 --dirty-mib 8 ",
        ),
        (
            "threads=3,profile=nas,ca=/c,log_file=/l",
            "--threads 3 --profile nas --ca /c --log-file /l ",
        ),
    ];
    let (_, help, _) = run(&mut cairn(&["mount", "--help"]));
    for (options, expected) in table {
        let (code, stdout, stderr) = mount(options);
        assert_eq!(code, 0, "{options}: {stderr}");
        assert_eq!(stdout.trim(), format!("mount {expected}http://h:8080 /mnt/x"), "{options}");
        for option in expected.split(' ').filter(|word| word.starts_with("--")) {
            assert!(help.contains(&format!("{option} ")) || help.contains(&format!("{option}\n")));
        }
    }
    let (code, _, stderr) = mount("nonsense");
    assert_eq!(code, 1);
    assert!(stderr.contains("option nonsense is not known"), "{stderr}");
}
