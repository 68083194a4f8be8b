//! A PostgreSQL server that lives as long as the test does, and no longer.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cairn_base::{Result, Secret};
use cairn_meta::engine::Postgres;
use cairn_meta::engine::postgres::Config;
use tempfile::TempDir;
use tokio_postgres::NoTls;

pub const PASSWORD: &str = "hunter2";
/// Runs a server until it ends or standard input does, that is until the test has ended.
const KEEPER: &str = "\"$@\" </dev/null & cat >/dev/null; \
     while kill -QUIT $! 2>/dev/null; do sleep 0.1; done";
/// Removes a directory in the same way.
const SWEEPER: &str = "cat >/dev/null; while ! rm -rf \"$1\"; do sleep 0.1; done";

/// Returns a free port below those that the kernel gives to connections: one of these might be
/// taken before it is used.
fn free_port() -> u16 {
    loop {
        let drawn = RandomState::new().build_hasher().finish();
        let port = 22_000 + (drawn % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub struct Server {
    bin: PathBuf,
    data: PathBuf,
    port: u16,
    options: Vec<String>,
    keeper: Mutex<Option<Child>>,
    sweeper: Child,
}

/// A server that all tests share, or `None`, loudly, where PostgreSQL is not installed.
pub fn shared() -> Option<&'static Server> {
    static SHARED: OnceLock<Option<Server>> = OnceLock::new();
    SHARED.get_or_init(|| Server::start(&[])).as_ref()
}

/// A name for a schema that no other test uses.
pub fn schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Server {
    /// A server of this test's own.
    pub fn start(options: &[&str]) -> Option<Server> {
        let Some(bin) = bin() else {
            let mut stderr = std::io::stderr();
            let text =
                "\n*** POSTGRESQL IS NOT INSTALLED: ITS TESTS DO NOT RUN; run tests/install ***\n";
            let _ = stderr.write_all(text.as_bytes());
            return None;
        };
        let (data, sweeper) = directory();
        let words = data.with_file_name("password");
        fs::write(&words, PASSWORD).unwrap();
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--username=cairn", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
        initdb.arg("--no-sync").arg("--pwfile").arg(&words).arg("--pgdata").arg(&data);
        fs::set_permissions(&words, fs::Permissions::from_mode(0o644)).unwrap();
        run(initdb);
        let server = Server::over(bin, data, sweeper, options);
        server.run();
        Some(server)
    }

    fn over(bin: PathBuf, data: PathBuf, sweeper: Child, options: &[&str]) -> Server {
        let port = free_port();
        let options = options.iter().map(|option| option.to_string()).collect();
        Server { bin, data, port, options, keeper: Mutex::new(None), sweeper }
    }

    /// A standby of this server that streams from it.
    pub fn standby(&self, name: &str) -> Server {
        let (data, sweeper) = directory();
        let mut backup = Command::new(self.bin.join("pg_basebackup"));
        backup.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--pgdata"]);
        let from = format!("{} application_name={name}", self.words());
        backup.arg(&data).arg("--dbname").arg(from);
        run(backup);
        let standby = Server::over(self.bin.clone(), data, sweeper, &[]);
        standby.run();
        standby
    }

    fn words(&self) -> String {
        format!("host=127.0.0.1 port={} user=cairn password={PASSWORD} dbname=postgres", self.port)
    }

    /// Starts it (again) and waits until it answers.
    pub fn run(&self) {
        let directory = self.data.parent().unwrap();
        let log = fs::File::options().append(true).create(true).open(directory.join("log"));
        let log = log.unwrap();
        for _ in 0..100 {
            let said = self.log().len();
            let mut keeper = unprivileged(Command::new("sh"));
            keeper.args(["-c", KEEPER, "sh"]).arg(self.bin.join("postgres"));
            keeper.arg("-D").arg(&self.data).arg("-k").arg(directory);
            keeper.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
            keeper.args(["-c", "max_connections=300", "-c", "shared_buffers=32MB"]);
            keeper.args(self.options.iter().flat_map(|option| ["-c", option]));
            keeper.stdin(Stdio::piped()).stdout(log.try_clone().unwrap());
            keeper.stderr(log.try_clone().unwrap());
            let mut child = keeper.spawn().unwrap();
            for _ in 0..6_000 {
                if self.answers() {
                    *self.keeper.lock().unwrap() = Some(child);
                    return;
                }
                if !self.data.join("postmaster.pid").exists() && self.has_ended(said) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            // Processes of one that was killed may still hold its memory.
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        panic!("PostgreSQL does not start: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.data.with_file_name("log")).unwrap_or_default()
    }

    /// Returns whether the log has reported the end after its first `said` bytes.
    fn has_ended(&self, said: usize) -> bool {
        let log = self.log();
        ["FATAL", "is shut down"].iter().any(|word| log[said..].contains(word))
    }

    fn answers(&self) -> bool {
        runtime().block_on(async { tokio_postgres::connect(&self.words(), NoTls).await.is_ok() })
    }

    /// Kills the first process of the server, as a machine that fails would.
    pub fn kill(&self) {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap();
        let pid: i32 = file.lines().next().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        self.forget_keeper();
    }

    /// Stops it, breaking connections off.
    pub fn stop(&self) {
        let mut stop = Command::new(self.bin.join("pg_ctl"));
        stop.args(["stop", "--mode=fast", "--pgdata"]).arg(&self.data);
        run(stop);
        self.forget_keeper();
    }

    fn forget_keeper(&self) {
        if let Some(mut keeper) = self.keeper.lock().unwrap().take() {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns a config for its use through `port`, which may be a proxy's.
    pub fn config_at(&self, port: u16, schema: &str, query: &str) -> Config {
        let url = format!("postgres://cairn:{PASSWORD}@127.0.0.1:{port}/postgres?{query}");
        Config { schema: schema.into(), ..Config::new(Secret::new(url)) }
    }

    pub fn config(&self, schema: &str) -> Config {
        self.config_at(self.port, schema, "sslmode=disable")
    }

    pub fn open(&self, schema: &str) -> Result<Postgres> {
        Postgres::open(&self.config(schema))
    }

    /// Opens it like [`Server::open`], for tests that end or kill the server: on a machine with a
    /// busy disk, it takes minutes until the server is back.
    pub fn open_patiently(&self, schema: &str) -> Result<Postgres> {
        let patience = Duration::from_secs(300);
        Postgres::open(&Config { patience, ..self.config(schema) })
    }

    /// Runs statements and returns the first column of the last row.
    pub fn sql(&self, text: &str) -> String {
        runtime().block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.words(), NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            let mut value = String::new();
            for message in client.simple_query(text).await.unwrap() {
                if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                    value = row.get(0).unwrap_or_default().to_owned();
                }
            }
            drop(client);
            connection.await.unwrap().unwrap();
            value
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.forget_keeper();
        drop(self.sweeper.stdin.take());
        let _ = self.sweeper.wait();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn bin() -> Option<PathBuf> {
    let programs = ["initdb", "postgres", "pg_ctl", "pg_basebackup"];
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()))
        .filter(|bin| programs.iter().all(|program| bin.join(program).exists()))
        .collect();
    found.sort();
    found.pop()
}

/// The server refuses to be run by root.
fn unprivileged(mut command: Command) -> Command {
    if rustix::process::getuid().is_root() {
        let (uid, gid) = nobody();
        command.uid(uid).gid(gid);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command
}

fn nobody() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let fields = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    fields("postgres").or_else(|| fields("nobody")).expect("a user who is not root")
}

/// Returns the path of the data, and a process that removes its directory when this process has
/// ended.
fn directory() -> (PathBuf, Child) {
    let directory = TempDir::with_prefix("cairn-postgres-").unwrap().keep();
    if rustix::process::getuid().is_root() {
        let (uid, gid) = nobody();
        chown(&directory, Some(uid), Some(gid)).unwrap();
    }
    let mut sweeper = unprivileged(Command::new("sh"));
    sweeper.args(["-c", SWEEPER, "sh"]).arg(&directory).stdin(Stdio::piped());
    let sweeper = sweeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    (directory.join("data"), sweeper)
}

fn run(command: Command) {
    let output = unprivileged(command).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", String::from_utf8_lossy(&output.stdout));
}
