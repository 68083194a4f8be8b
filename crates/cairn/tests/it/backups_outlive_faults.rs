//! Faults while a backup runs: each stops it at a point that is known.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::gate::{Act, Gate};
use crate::support::{KEY, SECRET, Server, bytes, cairn, directory, free_ports, run};

const OBJECTS: u64 = 6;
const LENGTH: usize = 4 << 20;

/// A store with objects, another one for backups, and a gate before that.
struct Places {
    directory: tempfile::TempDir,
    source: Server,
    port: String,
    target: Server,
    gate: Gate,
}

impl Places {
    fn new(text: &str, act: Act, stopped: (usize, usize)) -> Places {
        let (directory, store) = directory();
        let [port] = free_ports::<1>();
        let port = format!("127.0.0.1:{port}");
        let source = Server::start(&store, &["--http", &port]);
        source.ok(&["bucket", "create", "photos"]);
        for seed in 0..OBJECTS {
            assert!(source.put(&format!("photos/{seed}"), &bytes(seed + 1, LENGTH)));
        }
        let target = Server::start(&directory.path().join("target"), &[]);
        target.ok(&["bucket", "create", "backups"]);
        let gate = Gate::before(&target.http, text, act, stopped);
        Places { directory, source, port, target, gate }
    }

    fn command(&self, base: &str, args: &[&str]) -> Command {
        let place = format!("{base}/storage/backups/cairn");
        let mut command = self.source.client(&["backup"]);
        command.args(args).arg(place);
        command.env("CAIRN_TARGET_KEY", KEY).env("CAIRN_TARGET_SECRET", SECRET);
        command
    }

    /// Through the gate.
    fn create(&self) -> Command {
        self.command(&self.gate.url, &["create", "--pack-mib", "1", "--jobs", "1"])
    }

    fn spawn(&self) -> Child {
        self.create().stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Around the gate: exit code, stdout, stderr.
    fn direct(&self, args: &[&str]) -> (i32, String, String) {
        run(&mut self.command(&self.target.http, args))
    }

    /// What of the store is collected now: blocks deleted, and blocks that are kept.
    fn collect(&self) -> (u64, u64) {
        let (mut deleted, mut waiting) = (0, 0);
        for _ in 0..3 {
            let report = self.source.ok(&["gc", "--json"]);
            let report: serde_json::Value = serde_json::from_str(&report).unwrap();
            deleted += report["blocks_deleted"].as_u64().unwrap();
            waiting = report["blocks_waiting"].as_u64().unwrap();
        }
        (deleted, waiting)
    }

    /// The bytes of all objects are in the last state.
    fn is_whole(&self) {
        let new = self.directory.path().join("new");
        let place = format!("{}/storage/backups/cairn", self.target.http);
        let mut command = cairn(&["restore", &place, text(&new), "--secret-key"]);
        command.arg(self.directory.path().join("store/secret.key"));
        command.env("CAIRN_TARGET_KEY", KEY).env("CAIRN_TARGET_SECRET", SECRET);
        let (code, _, stderr) = run(&mut command);
        assert_eq!(code, 0, "{stderr}");
        let restored = Server::start(&new, &[]);
        for seed in 0..OBJECTS {
            let got = restored.get(&format!("photos/{seed}")).unwrap();
            assert!(got == bytes(seed + 1, LENGTH), "{seed}");
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ended(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_deleted_meanwhile_is_kept_for_it() {
    let places = Places::new("PUT /storage/backups/cairn/packs/", Act::Wait, (0, 1));
    let child = places.spawn();
    places.gate.reached(1);
    for seed in 0..OBJECTS {
        places.source.ok(&["rm", &format!("photos/{seed}")]);
    }
    let (deleted, waiting) = places.collect();
    assert_eq!(deleted, 0);
    assert!(waiting >= OBJECTS, "{waiting}");
    places.gate.open();
    let (code, stderr) = ended(child);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(places.collect().1, 0);
    places.is_whole();
}

#[test]
fn one_whose_hold_was_ended_fails_and_is_no_state() {
    let places = Places::new("PUT /storage/backups/cairn/packs/", Act::Wait, (0, 1));
    let child = places.spawn();
    places.gate.reached(1);
    let holds = places.source.ok(&["backup", "holds", "--json"]);
    let hold: serde_json::Value = serde_json::from_str(&holds).unwrap();
    places.source.ok(&["backup", "holds", "--end", hold["id"].as_str().unwrap()]);
    places.gate.open();
    let (code, stderr) = ended(child);
    assert!(code == 1 && stderr.contains("the hold on deleted blocks has ended"), "{stderr}");
    assert_eq!(places.direct(&["list", "--json"]), (0, String::new(), String::new()));
    let (code, _, stderr) = places.direct(&["create"]);
    assert!(code == 0 && stderr.contains("0 of 6 blocks were new"), "{stderr}");
    places.is_whole();
}

#[test]
fn one_that_was_killed_leaves_nothing_that_stops_the_next() {
    let places = Places::new("PUT /storage/backups/cairn/packs/", Act::Wait, (2, 1));
    let mut child = places.spawn();
    places.gate.reached(1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(places.source.ok(&["backup", "holds"]).contains("backup to cairn"));
    assert_eq!(places.direct(&["list", "--json"]).1, "");
    places.gate.open();
    let (code, _, stderr) = places.direct(&["create", "--jobs", "1"]);
    assert_eq!(code, 0, "{stderr}");
    // Packs of the first one are used.
    let new = stderr.lines().find_map(|line| line.split_once(" of 6 blocks were new"));
    let new = new.unwrap().0.trim_start_matches("cairn: ").parse::<u64>().unwrap();
    assert!((1..OBJECTS).contains(&new), "{stderr}");
    places.is_whole();
}

#[test]
fn a_server_that_is_killed_and_started_again_goes_on_being_copied() {
    let mut places = Places::new("PUT /storage/backups/cairn/packs/", Act::Wait, (0, 1));
    let child = places.spawn();
    places.gate.reached(1);
    let store = places.directory.path().join("store");
    places.source.signal("KILL");
    places.source.wait();
    places.source = Server::start(&store, &["--http", &places.port]);
    for seed in 0..OBJECTS {
        places.source.ok(&["rm", &format!("photos/{seed}")]);
    }
    assert_eq!(places.collect().0, 0, "the hold is a row");
    places.gate.open();
    let (code, stderr) = ended(child);
    assert_eq!(code, 0, "{stderr}");
    places.is_whole();
}

#[test]
fn requests_that_were_cut_are_sent_again() {
    let places = Places::new("PUT /storage/backups/cairn/", Act::Cut, (3, 3));
    let (code, _, stderr) = run(&mut places.create());
    assert!(code == 0 && stderr.contains("trying again"), "{stderr}");
    places.gate.reached(3);
    places.is_whole();
}

#[test]
fn two_that_begin_at_the_same_moment_share_the_place() {
    let places = Places::new("PUT /storage/backups/cairn/head", Act::Wait, (0, 2));
    let pass = places.directory.path().join("pass");
    fs::write(&pass, "correct horse\n").unwrap();
    let spawn = || {
        let mut command = places.create();
        command.arg("--passphrase-file").arg(&pass);
        command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let both = [spawn(), spawn()];
    places.gate.reached(2);
    places.gate.open();
    for child in both {
        let (code, stderr) = ended(child);
        assert_eq!(code, 0, "{stderr}");
    }
    let pass = ["--passphrase-file", text(&pass)];
    let (code, stdout, stderr) = places.direct(&[&["check"], &pass[..]].concat());
    assert!(code == 0 && stderr.contains("2 states"), "{stdout}{stderr}");
}

#[test]
fn nothing_is_removed_while_it_runs() {
    let places = Places::new("/states/2", Act::Wait, (0, 1));
    assert_eq!(places.direct(&["create"]).0, 0);
    places.source.ok(&["rm", "photos/0"]);
    let child = places.spawn();
    places.gate.reached(1);
    let prune = ["prune", "--keep-last", "1"];
    let (code, _, stderr) = places.direct(&prune);
    assert!(code == 1 && stderr.contains("a backup to this place runs (backup to"), "{stderr}");
    places.gate.open();
    assert_eq!(ended(child).0, 0);
    let (code, stdout, stderr) = places.direct(&prune);
    assert!(code == 0 && stdout.lines().count() == 1, "{stdout}{stderr}");
    let (code, stdout, stderr) = places.direct(&["check"]);
    assert!(code == 0 && stderr.contains("1 states"), "{stdout}{stderr}");
}
