//! A gateway that reaches no master takes no connections, and answers as soon as there is one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{KEY, PATIENCE, SECRET, cairn, directory, free_ports, run};

/// A process that is killed when this is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn node(args: &[&str], log: &Path) -> Node {
    let mut command = cairn(args);
    let log = File::create(log).unwrap();
    Node(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

fn eventually<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn while_no_master_serves() {
    let (directory, _) = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [master_at, s3, http] = free_ports().map(|port| format!("127.0.0.1:{port}"));
    let (master, gateway) = (path("m"), path("g"));
    let mut init = cairn(&["cluster", "init", &master, "--address", &master_at]);
    init.env("CAIRN_ROOT_KEY", KEY).env("CAIRN_ROOT_SECRET", SECRET);
    assert_eq!(run(&mut init).0, 0);
    let serve = ["master", &master, "--listen", &master_at];
    let serving = node(&serve, &directory.path().join("m.log"));
    let token = eventually(|| {
        let (code, token, _) = run(&mut cairn(&["cluster", "token", &master, "--role", "gateway"]));
        (code == 0).then(|| token.trim().to_owned())
    });
    let (code, _, stderr) = run(&mut cairn(&["cluster", "join", &gateway, &token]));
    assert_eq!(code, 0, "{stderr}");
    // Where the metadata are is said as long as they are there once.
    for dir in [&master, &gateway] {
        let (_, status, _) = run(&mut cairn(&["cluster", "status", dir]));
        assert!(status.contains("WARNING: one copy of the metadata"), "{status}");
    }
    drop(serving);

    let log = directory.path().join("g.log");
    let _gateway = node(&["gateway", &gateway, "--s3", &s3, "--http", &http], &log);
    // It has its addresses by then.
    eventually(|| fs::read_to_string(&log).unwrap().contains("no master serves yet").then_some(()));
    let url = format!("http://{http}");
    let ask = |args: &[&str]| {
        let mut command = cairn(args);
        command.env("CAIRN_SERVER", &url).env("CAIRN_KEY", KEY).env("CAIRN_SECRET", SECRET);
        run(&mut command)
    };
    let (code, _, stderr) = ask(&["get", "bucket/key", "-"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("connection refused"), "{stderr}");
    let _serving = node(&serve, &directory.path().join("m2.log"));
    eventually(|| (ask(&["ls"]).0 == 0).then_some(()));
}
