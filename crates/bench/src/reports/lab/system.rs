//! Programs, files and mounts of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::stop;

/// Time that a program may take to start.
const START_WAIT: Duration = Duration::from_secs(60);
/// Interval of checks whether something has started or ended.
pub const LOOK: Duration = Duration::from_millis(20);

/// Returns the program that is started as Cairn: this one, unless another is given.
pub fn program(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe().map_err(|error| {
            Error::failed(format!("cannot find the path of this program: {error}"))
        })?,
    };
    let remedy = "give the program of Cairn with --cairn PATH";
    let answer = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| Error::file(&path, format!("{error}: {remedy}")))?;
    if answer.stdout.starts_with(b"cairn ") {
        Ok(path)
    } else {
        Err(Error::file(&path, format!("is not the program of Cairn: {remedy}")))
    }
}

/// Runs a command to its end; returns its output.
pub fn run(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let name = name.rsplit('/').next().unwrap_or_default().to_owned();
    let verbs = command.get_args().filter_map(|arg| arg.to_str());
    let verbs: Vec<String> = verbs.take(2).map(str::to_owned).collect();
    let shown = format!("{name} {}", verbs.join(" "));
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| Error::failed(format!("{shown}: {error}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        let said = text(&done.stderr);
        let said = if said.is_empty() { text(&done.stdout) } else { said };
        let last = said.lines().last().unwrap_or("it says nothing").to_owned();
        Err(Error::failed(format!("{shown}: {last}")))
    }
}

/// Finds a program by its name, also in directories that only root has in its path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut all = std::env::split_paths(&path).chain(extra);
    all.find_map(|directory| Some(directory.join(name)).filter(|path| path.is_file()))
}

/// Returns the path like [`find`], or an error that says how to get the program.
pub fn installed(name: &str, package: &str) -> Result<PathBuf> {
    find(name).ok_or_else(|| Error::failed(format!("not installed: apt-get install {package}")))
}

/// Waits until `look` finds something; fails if this program is to end, or at the end of
/// `START_WAIT`.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if stop::is_stopped() {
            return Err(Error::failed("stopped by a signal"));
        }
        if began.elapsed() > START_WAIT {
            return Err(Error::failed(format!(
                "{what}: did not happen within {} s",
                START_WAIT.as_secs()
            )));
        }
        thread::sleep(LOOK);
    }
}

pub fn is_listening(address: &str) -> bool {
    std::net::TcpStream::connect(address).is_ok()
}

pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::file(path, error))
}

/// Makes a certificate for 127.0.0.1 and its key in a directory.
pub fn certify(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let made = made.map_err(|error| Error::failed(format!("a certificate: {error}")))?;
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    write(&certificate, made.cert.pem())?;
    write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

/// Returns the command lines of processes that name a path.
pub fn processes_with(path: &Path) -> BTreeMap<u32, Vec<String>> {
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

pub fn unmount(path: &Path) {
    use rustix::mount::{UnmountFlags, unmount};
    // If nothing is mounted, there is nothing to do.
    let _ = unmount(path, UnmountFlags::DETACH);
}

pub fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

/// Returns the uid and gid of a user of this machine.
pub fn user(name: &str) -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut found = fields.filter_map(|fields| match fields.as_slice() {
        [user, _, uid, gid, ..] if *user == name => Some((uid.parse().ok()?, gid.parse().ok()?)),
        _ => None,
    });
    found.next().ok_or_else(|| io::Error::other(format!("no user {name}")))
}
