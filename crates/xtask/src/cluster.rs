//! `cargo xtask cluster-up`: a whole cluster on this machine, to try out.

use std::fs::{self, File};
use std::io::{self, Error, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const MASTERS: [u16; 2] = [7400, 7401];
const CHUNKSERVERS: [u16; 3] = [7410, 7411, 7412];
/// Ports of the S3 and the HTTP door.
const GATEWAYS: [(u16, u16); 2] = [(9000, 8080), (9001, 8081)];
const DATABASE_PORT: u16 = 7432;

/// Running processes, which are killed in the end.
struct Running {
    cairn: PathBuf,
    dir: PathBuf,
    children: Vec<Child>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let pid = child.id().to_string();
            let _ = Command::new("kill").arg(&pid).status();
            let _ = child.wait();
        }
    }
}

/// Runs PostgreSQL, two masters, three chunkservers and two gateways until its input ends.
pub fn up(root: &Path, dir: &Path) -> io::Result<()> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--package", "cairn"]).current_dir(root);
    // Cargo's variables for the package of this process would cause other packages to be built
    // again.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            build.env_remove(name);
        }
    }
    if !build.status()?.success() {
        return Err(Error::other("cargo build failed"));
    }
    if dir.exists() {
        return Err(Error::other(format!("{}: exists: remove it first", dir.display())));
    }
    fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let cairn = root.join("target/release/cairn");
    let mut running = Running { cairn, dir, children: Vec::new() };
    let meta = running.database()?;
    let master = running.path("master-0");
    let address = format!("127.0.0.1:{}", MASTERS[0]);
    let init = ["cluster", "init", &master, "--address", &address, "--meta", &meta];
    print!("{}", running.run(&init)?);
    for (number, port) in MASTERS.iter().enumerate() {
        let dir = running.path(&format!("master-{number}"));
        if number > 0 {
            running.join(&dir, "master")?;
        }
        let listen = format!("127.0.0.1:{port}");
        running.start(&["master", &dir, "--listen", &listen, "--meta", &meta])?;
        sleep(Duration::from_secs(2));
    }
    for (number, port) in CHUNKSERVERS.iter().enumerate() {
        let dir = running.path(&format!("chunkserver-{number}"));
        running.join(&dir, "chunkserver")?;
        running.start(&["chunkserver", &dir, "--listen", &format!("127.0.0.1:{port}")])?;
    }
    for (number, (s3, http)) in GATEWAYS.iter().enumerate() {
        let dir = running.path(&format!("gateway-{number}"));
        running.join(&dir, "gateway")?;
        let (s3, http) = (format!("127.0.0.1:{s3}"), format!("127.0.0.1:{http}"));
        running.start(&["gateway", &dir, "--s3", &s3, "--http", &http])?;
        println!("gateway {number}: s3 http://{s3}  http http://{http}");
    }
    println!(
        "\nA look: {} cluster status {master}\nLogs: {}/*.log\nEnd it: Ctrl-D",
        running.cairn.display(),
        running.dir.display()
    );
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

impl Running {
    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs a command of cairn to its end; returns its output.
    fn run(&self, arguments: &[&str]) -> io::Result<String> {
        let done = Command::new(&self.cairn).args(arguments).stderr(Stdio::inherit()).output()?;
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).into_owned())
        } else {
            Err(Error::other(format!("cairn {}: {}", arguments[0], done.status)))
        }
    }

    fn join(&self, dir: &str, role: &str) -> io::Result<()> {
        let token = self.run(&["cluster", "token", &self.path("master-0"), "--role", role])?;
        self.run(&["cluster", "join", dir, token.trim()]).map(drop)
    }

    /// Starts a node, which logs to a file beside its directory.
    fn start(&mut self, arguments: &[&str]) -> io::Result<()> {
        let log = File::create(format!("{}.log", arguments[1]))?;
        let mut command = Command::new(&self.cairn);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for this process, which ends the others in their order.
        self.children.push(command.process_group(0).spawn()?);
        Ok(())
    }

    /// Starts a PostgreSQL of its own; returns its URL. PostgreSQL refuses to run as root; then it
    /// runs as the user `postgres`.
    fn database(&mut self) -> io::Result<String> {
        let programs = fs::read_dir("/usr/lib/postgresql").and_then(|mut all| {
            let newest = all.next().ok_or_else(|| Error::other("no version is installed"))?;
            Ok(newest?.path().join("bin"))
        });
        let programs = programs
            .map_err(|error| Error::other(format!("PostgreSQL: {error}: run tests/install")))?;
        let data = self.dir.join("database");
        fs::create_dir(&data)?;
        let is_root = Command::new("id").arg("-u").output()?.stdout == b"0\n";
        let program = |name: &str| {
            if is_root {
                let mut command = Command::new("setpriv");
                let user = ["--reuid=postgres", "--regid=postgres", "--init-groups"];
                command.args(user).arg(programs.join(name));
                command
            } else {
                Command::new(programs.join(name))
            }
        };
        if is_root {
            Command::new("chown").arg("postgres").arg(&data).status()?;
        }
        let initdb = program("initdb")
            .args(["--username=cairn", "--auth=trust", "--encoding=UTF8", "--no-locale", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()?;
        if !initdb.success() {
            return Err(Error::other("initdb failed"));
        }
        let log = File::create(self.dir.join("database.log"))?;
        let (port, data_shown) = (DATABASE_PORT.to_string(), data.display().to_string());
        let options = ["-D", &data_shown, "-p", &port, "-k", &data_shown, "-h", "127.0.0.1"];
        let mut server = program("postgres");
        server.args(options).stdout(log.try_clone()?).stderr(log).process_group(0);
        self.children.push(server.spawn()?);
        sleep(Duration::from_secs(2));
        Ok(format!("postgres://cairn@127.0.0.1:{DATABASE_PORT}/postgres"))
    }
}
