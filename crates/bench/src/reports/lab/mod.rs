//! What scenarios run on: systems that are started for them, and ended with them.
//!
//! Whatever is made lies in one directory and is removed; whatever is started is a value, and ends
//! when it is dropped.

mod cairn;
mod gluster;
mod nginx;
mod ports;
mod postgres;
mod process;
mod quota;
mod threads;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use tokio_rustls::TlsConnector;

pub use cairn::{Cluster, Gateway, Mount, Server};
pub use gluster::{Gluster, Volume};
pub use nginx::{Lighttpd, Nginx};
use ports::free_address;
pub use postgres::Postgres;
pub use process::Process;
pub use quota::Quota;
pub use threads::Threads;

use super::Args;
use crate::client::{Tls, connector};
use crate::error::{Error, Result};
use crate::fs::Scratch;
use crate::stop;

/// The access key of root of all stores that are started; their secret is a new one.
const KEY: &str = "CAIRNBENCHREPORTS001";
const SECRET_BYTES: usize = 20;
/// How long anything may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what starts or ends.
const LOOK: Duration = Duration::from_millis(20);

pub struct Lab<'a> {
    pub args: &'a Args,
    /// Trusts any certificate.
    pub connector: TlsConnector,
    pub secret: String,
    work: Scratch,
    cairn: PathBuf,
    /// Which processes ended by themselves, and how.
    fallen: Rc<RefCell<Vec<String>>>,
    names: Cell<u32>,
}

impl<'a> Lab<'a> {
    /// A place with room for so many bytes.
    pub fn new(args: &'a Args, needed: u64) -> Result<Lab<'a>> {
        let cairn = program(args.cairn.as_deref())?;
        let remedy = "free some, give another --dir, or smaller --object, --file or --seconds";
        let work = Scratch::with_remedy(&args.dir, needed, remedy)?;
        let mut random = [0; SECRET_BYTES];
        let urandom = Path::new("/dev/urandom");
        let read = fs::File::open(urandom).and_then(|mut file| file.read_exact(&mut random));
        read.map_err(|error| Error::file(urandom, error))?;
        Ok(Lab {
            args,
            connector: connector(&Tls::any_certificate())?,
            secret: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            work,
            cairn,
            fallen: Rc::default(),
            names: Cell::new(0),
        })
    }

    /// Removes all that was made.
    pub fn remove(self) -> Result<()> {
        self.work.remove()
    }

    /// A path of that name, where nothing is yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.names.set(self.names.get() + 1);
        self.work.path().join(format!("{}-{name}", self.names.get()))
    }

    /// A new directory.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(|error| Error::file(&path, error))?;
        Ok(path)
    }

    /// What has ended by itself until now.
    pub fn fallen(&self) -> Vec<String> {
        self.fallen.borrow().clone()
    }

    /// A command of Cairn, with the credentials of the stores here.
    fn cairn(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.cairn);
        command.args(arguments).env_remove("CAIRN_LOG").env_remove("CAIRN_TOKEN");
        let keys = [("CAIRN_ROOT_KEY", "CAIRN_ROOT_SECRET"), ("CAIRN_KEY", "CAIRN_SECRET")];
        for (key, secret) in keys {
            command.env(key, KEY).env(secret, &self.secret);
        }
        command
    }

    /// Runs a command of Cairn to its end; what it prints.
    fn run_cairn(&self, arguments: &[&str]) -> Result<String> {
        run(self.cairn(arguments))
    }

    /// Credentials as URLs and clients take them.
    pub fn credentials(&self) -> (String, String) {
        (KEY.to_owned(), self.secret.clone())
    }
}

/// The program that is started as Cairn: this one, unless told otherwise.
fn program(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .map_err(|error| Error::failed(format!("where this program is: {error}")))?,
    };
    let remedy = "give the program of Cairn with --cairn PATH";
    let answer = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| Error::file(&path, format!("{error}: {remedy}")))?;
    match answer.stdout.starts_with(b"cairn ") {
        true => Ok(path),
        false => Err(Error::file(&path, format!("is not Cairn: {remedy}"))),
    }
}

/// Runs a command to its end; what it prints.
fn run(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    let verbs = command.get_args().filter_map(|arg| arg.to_str());
    let verbs: Vec<String> = verbs.take(2).map(str::to_owned).collect();
    let shown = format!("{name} {}", verbs.join(" "));
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| Error::failed(format!("{shown}: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout)),
        false => {
            let said = text(&done.stderr);
            let said = if said.is_empty() { text(&done.stdout) } else { said };
            let last = said.lines().last().unwrap_or("it says nothing").to_owned();
            Err(Error::failed(format!("{shown}: {last}")))
        }
    }
}

/// A program by its name, also where only root has it in its path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut all = std::env::split_paths(&path).chain(extra);
    all.find_map(|directory| Some(directory.join(name)).filter(|path| path.is_file()))
}

/// The same, or where to get it.
fn installed(name: &str, package: &str) -> Result<PathBuf> {
    find(name).ok_or_else(|| Error::failed(format!("not installed: apt-get install {package}")))
}

/// Waits until something is there; fails if this program is to end, or at the end of patience.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if stop::is_stopped() {
            return Err(Error::failed("stopped by a signal"));
        }
        if began.elapsed() > PATIENCE {
            return Err(Error::failed(format!("{what}: not in {} s", PATIENCE.as_secs())));
        }
        thread::sleep(LOOK);
    }
}

fn is_listening(address: &str) -> bool {
    std::net::TcpStream::connect(address).is_ok()
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::file(path, error))
}

/// A certificate for 127.0.0.1 and its key, in a directory.
pub fn certify(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let made = made.map_err(|error| Error::failed(format!("a certificate: {error}")))?;
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    write(&certificate, made.cert.pem())?;
    write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

/// Command lines of processes that name a path.
fn processes_with(path: &Path) -> BTreeMap<u32, Vec<String>> {
    let Some(path) = path.to_str() else { return BTreeMap::new() };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = pids.filter_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word));
        let words: Vec<String> = words.map(|word| word.into_owned()).collect();
        words.iter().any(|word| word.contains(path)).then_some((pid, words))
    });
    found.collect()
}

fn unmount(path: &Path) {
    use rustix::mount::{UnmountFlags, unmount};
    // Where nothing is mounted, nothing is to be done.
    let _ = unmount(path, UnmountFlags::DETACH);
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

/// The uid and gid of a user of this machine.
fn user(name: &str) -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut found = fields.filter_map(|fields| match fields.as_slice() {
        [user, _, uid, gid, ..] if *user == name => Some((uid.parse().ok()?, gid.parse().ok()?)),
        _ => None,
    });
    found.next().ok_or_else(|| io::Error::other(format!("no user {name}")))
}
