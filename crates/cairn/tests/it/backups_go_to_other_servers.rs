//! Backups at another Cairn, through its S3 door and its HTTP door.

use std::process::Command;

use crate::support::{KEY, SECRET, Server, bytes, cairn, directory, run};

struct Places {
    directory: tempfile::TempDir,
    source: Server,
    target: Server,
}

fn places() -> Places {
    let (directory, store) = directory();
    let source = Server::start(&store, &[]);
    source.ok(&["bucket", "create", "photos"]);
    assert!(source.put("photos/small", b"hello"));
    assert!(source.put("photos/large", &bytes(1, 9 << 20)));
    let target = Server::start(&directory.path().join("target"), &[]);
    target.ok(&["bucket", "create", "backups"]);
    Places { directory, source, target }
}

impl Places {
    /// A command with the credentials of both.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.source.client(args);
        command.env("CAIRN_TARGET_KEY", KEY).env("CAIRN_TARGET_SECRET", SECRET);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env(
            "AWS_ENDPOINT_URL_S3",
            format!("http://{}", self.target.s3.trim_start_matches("http://")),
        );
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = run(&mut self.command(args));
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    }

    /// Two states, a check, what is removed, and a restore.
    fn all_of_it(&self, place: &str) {
        let first = self.ok(&["backup", "create", place]);
        assert!(self.source.put("photos/more", &bytes(2, 1 << 20)));
        self.source.ok(&["rm", "photos/large"]);
        self.ok(&["backup", "create", place]);
        let listed = self.ok(&["backup", "list", place]);
        assert!(listed.contains(first.trim()) && listed.lines().count() == 3, "{listed}");
        self.ok(&["backup", "check", place]);
        let whole = self.listing().len();
        let would = self.ok(&["backup", "prune", place, "--keep-last", "1", "--dry-run"]);
        assert_eq!(would, format!("would remove {first}"));
        assert_eq!(self.listing().len(), whole, "a dry run removes nothing");
        let removed = self.ok(&["backup", "prune", place, "--keep-last", "1"]);
        assert_eq!(removed, format!("removed {first}"));
        self.ok(&["backup", "check", place]);
        assert!(!self.listing().contains("/locks/"), "{}", self.listing());
        let new = self.directory.path().join("new");
        let key = self.directory.path().join("store/secret.key");
        let new = new.to_str().unwrap();
        self.ok(&["restore", place, new, "--secret-key", key.to_str().unwrap()]);
        let (code, stdout, _) = run(&mut cairn(&["fsck", new]));
        assert_eq!(code, 0, "{stdout}");
        let restored = Server::start(new.as_ref(), &[]);
        assert_eq!(restored.get("photos/small").unwrap(), b"hello");
        assert_eq!(restored.get("photos/more").unwrap(), bytes(2, 1 << 20));
        assert!(restored.get("photos/large").is_err());
    }

    fn listing(&self) -> String {
        self.target.ok(&["ls", "-r", "backups/"])
    }
}

#[test]
fn through_s3() {
    places().all_of_it("s3://backups/of/cairn");
}

#[test]
fn through_http() {
    let places = places();
    places.all_of_it(&format!("{}/storage/backups/of/cairn", places.target.http));
}

#[test]
fn one_that_is_full_or_refuses_says_so() {
    let places = places();
    let in_http = format!("{}/storage/backups/of/cairn", places.target.http);
    places.target.ok(&["bucket", "set", "backups", "--quota", "1m"]);
    for place in ["s3://backups/cairn", &in_http] {
        let (code, _, stderr) = run(&mut places.command(&["backup", "create", place]));
        assert!(code == 1 && stderr.contains("the target is full"), "{stderr}");
        let (code, stdout, _) = run(&mut places.command(&["backup", "list", place, "--json"]));
        assert_eq!((code, stdout.as_str()), (0, ""), "it is not complete");
    }
    places.target.ok(&["bucket", "set", "backups", "--quota", "0"]);
    places.ok(&["backup", "create", &in_http]);
    for (place, said) in [("s3://backups/cairn", "403"), (&in_http, "CAIRN_TARGET_SECRET")] {
        let mut command = places.command(&["backup", "create", place]);
        command.env("CAIRN_TARGET_SECRET", "wrong").env("AWS_SECRET_ACCESS_KEY", "wrong");
        let (code, _, stderr) = run(&mut command);
        assert!(code == 1 && stderr.contains(said), "{stderr}");
        assert!(!stderr.contains("trying again"), "{stderr}");
    }
    let missing = format!("{}/storage/nothing/cairn", places.target.http);
    for place in ["s3://nothing/cairn", &missing] {
        let (code, _, stderr) = run(&mut places.command(&["backup", "create", place]));
        assert!(code == 1 && stderr.contains("bucket"), "{stderr}");
    }
}
