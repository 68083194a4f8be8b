//! A master, chunkservers and a gateway.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use crate::support::{KEY, PATIENCE, SECRET, Server, cairn, free_ports, run};

const NODES: usize = 4;

/// A process that is killed when this is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ok(args: &[&str]) -> String {
    let mut command = cairn(args);
    command.env("CAIRN_ROOT_KEY", KEY).env("CAIRN_ROOT_SECRET", SECRET);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 0, "{args:?}: {stderr}");
    stdout.trim().to_owned()
}

fn node(args: &[&str]) -> Node {
    let mut command = cairn(args);
    Node(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

pub struct Cluster {
    pub gateway: Server,
    pub doors: Vec<String>,
    /// Of the master.
    pub master: PathBuf,
    _nodes: Vec<Node>,
}

impl Cluster {
    pub fn start(dir: &Path) -> Cluster {
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let [port] = free_ports::<1>();
        let (master, address) = (path("m"), format!("127.0.0.1:{port}"));
        ok(&["cluster", "init", &master, "--address", &address, "--replicas", "2"]);
        let mut nodes = vec![node(&["master", &master, "--listen", &address])];
        let join = |name: &str, role: &str| {
            let token = eventually(|| {
                let (code, token, _) =
                    run(&mut cairn(&["cluster", "token", &master, "--role", role]));
                (code == 0).then(|| token.trim().to_owned())
            });
            ok(&["cluster", "join", &path(name), &token]);
            path(name)
        };
        let mut doors = Vec::new();
        for (at, port) in free_ports::<NODES>().into_iter().enumerate() {
            let directory = join(&format!("c{at}"), "chunkserver");
            let http = format!("127.0.0.1:{port}");
            doors.push(format!("http://{http}"));
            let args = ["chunkserver", &directory, "--listen", "127.0.0.1:0", "--http", &http];
            nodes.push(node(&args));
        }
        let directory = join("g", "gateway");
        let doors_of = ["--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let gateway =
            Server::spawn(cairn(&[&["gateway", directory.as_str()], &doors_of[..]].concat()));
        let master = PathBuf::from(master);
        Cluster { gateway, doors, master, _nodes: nodes }
    }
}

pub fn eventually<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
