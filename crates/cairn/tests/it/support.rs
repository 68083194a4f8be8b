//! Servers and commands in directories of their own.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");
pub const KEY: &str = "test-key";
pub const SECRET: &str = "test-secret-0123456789";
/// A step that takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Ports that nobody listens on. Below those that the kernel gives to connections, as one of them
/// might be taken when it is used; and above those of tests in Python.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let probe = || {
        let drawn = RandomState::new().build_hasher().finish();
        TcpListener::bind(("127.0.0.1", 22_000 + (drawn % 10_000) as u16)).ok()
    };
    // All are held until the last is found, so that none comes twice.
    let probes = [(); N].map(|()| std::iter::repeat_with(probe).flatten().next().unwrap());
    probes.map(|probe| probe.local_addr().unwrap().port())
}

/// A `cairn` that knows nothing of the environment of the test.
pub fn cairn(args: &[&str]) -> Command {
    let mut command = Command::new(CAIRN);
    command.args(args).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

/// Runs a command to its end: exit code, stdout, stderr.
pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (status.code().unwrap_or(-1), text(&stdout), text(&stderr))
}

/// A server that runs. Killed when it is dropped.
pub struct Server {
    child: Child,
    pub s3: String,
    pub http: String,
    pub stdout: Arc<Mutex<String>>,
    pub stderr: Arc<Mutex<String>>,
}

impl Server {
    /// Starts one with the credentials of the tests, and waits until it answers.
    pub fn start(directory: &Path, args: &[&str]) -> Server {
        let mut command = server_command(directory, args);
        command.env("CAIRN_ROOT_KEY", KEY).env("CAIRN_ROOT_SECRET", SECRET);
        Server::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = collect(child.stderr.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        for _ in 0..2 {
            if lines.read_line(&mut first).unwrap() == 0 {
                let _ = child.wait();
                panic!("the server ended: {}", stderr.lock().unwrap());
            }
        }
        let address = |door: &str| {
            let line = first.lines().find_map(|line| line.strip_prefix(door));
            line.unwrap().trim().to_owned()
        };
        let (s3, http) = (address("s3 "), address("http "));
        let stdout = collect(lines);
        stdout.lock().unwrap().insert_str(0, &first);
        Server { child, s3, http, stdout, stderr }
    }

    /// A command that speaks to this server as root.
    pub fn client(&self, args: &[&str]) -> Command {
        let mut command = self.anonymous(args);
        command.env("CAIRN_KEY", KEY).env("CAIRN_SECRET", SECRET);
        command
    }

    pub fn anonymous(&self, args: &[&str]) -> Command {
        let mut command = cairn(args);
        command.env("CAIRN_SERVER", &self.http);
        command
    }

    /// Runs a command of the client that must succeed; its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = run(&mut self.client(args));
        assert_eq!(code, 0, "{args:?}: {stderr}");
        stdout
    }

    /// Runs a command of the client that must fail; its stderr.
    pub fn fails(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = run(&mut self.client(args));
        assert_eq!(code, 1, "{args:?}: {stdout}");
        assert!(stderr.starts_with("cairn: ") && stderr.lines().count() == 1, "{stderr}");
        stderr
    }

    /// Stores bytes as an object.
    pub fn put(&self, target: &str, bytes: &[u8]) -> bool {
        let mut command = self.client(&["put", "-", target]);
        let child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        // It may fail while it is fed: then its exit code says so.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        child.wait().unwrap().success()
    }

    pub fn get(&self, source: &str) -> Result<Vec<u8>, String> {
        let output = self.client(&["get", source, "-"]).output().unwrap();
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Stops it in order; its exit code.
    pub fn stop(mut self) -> i32 {
        self.signal("TERM");
        self.wait()
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(start.elapsed() < PATIENCE, "the server does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn server_command(directory: &Path, args: &[&str]) -> Command {
    let mut command = cairn(&["server"]);
    command.arg(directory).args(["--s3", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    // One address would be for all servers of all tests.
    command.args(["--console", "off"]).args(args);
    command
}

/// Everything that comes out of a pipe.
fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let target = Arc::clone(&text);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            target.lock().unwrap().push_str(&format!("{line}\n"));
        }
    });
    text
}

/// Waits until a text holds something.
pub fn wait_for(text: &Mutex<String>, wanted: &str) {
    let start = Instant::now();
    while !text.lock().unwrap().contains(wanted) {
        assert!(start.elapsed() < PATIENCE, "no {wanted:?} in {}", text.lock().unwrap());
        thread::sleep(Duration::from_millis(10));
    }
}

/// A directory and, in it, the path of a store to be.
pub fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    (directory, store)
}

/// Bytes that say which they are: of length `len`, different for each `seed`.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
