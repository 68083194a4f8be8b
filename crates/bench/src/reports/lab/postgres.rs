//! A PostgreSQL server over a separate directory.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Gid, Uid, chown};
use rustix::process::Signal;

use super::ports::free_address;
use super::process::Process;
use super::site::Lab;
use super::system::{is_listening, run, user, write};
use crate::error::{Error, Result};

/// Directory in which Debian keeps its programs.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// User as which it runs if this program is root: it refuses to run as root.
const USER: &str = "postgres";

pub struct Postgres {
    pub process: Process,
    /// URL with the password.
    pub url: String,
}

impl Postgres {
    pub fn start(lab: &Lab) -> Result<Postgres> {
        let programs = programs()?;
        let work = lab.directory("postgres")?;
        let (password, data) = (work.join("password"), work.join("data"));
        write(&password, &lab.secret)?;
        let who = rustix::process::geteuid().is_root().then(|| user(USER)).transpose();
        let who = who.map_err(|error| Error::failed(format!("PostgreSQL: {error}")))?;
        if let Some((uid, gid)) = who {
            for path in [&work, &password] {
                let owned = chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                owned.map_err(|error| Error::file(path, std::io::Error::from(error)))?;
            }
        }
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command.current_dir(&work);
            if let Some((uid, gid)) = who {
                command.uid(uid).gid(gid);
            }
            command
        };
        let mut init = program("initdb");
        init.args(["--username=cairn", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
        init.arg(format!("--pwfile={}", password.display()));
        init.arg(format!("--pgdata={}", data.display()));
        run(init)?;
        let address = free_address()?;
        let (host, port) = address.split_once(':').unwrap_or_default();
        let mut serve = program("postgres");
        serve.arg("-D").arg(&data).args(["-p", port, "-k", ""]);
        serve.args(["-c", &format!("listen_addresses={host}")]);
        // Ended at once: its data are not needed.
        let mut process = Process::start(lab, "PostgreSQL", Signal::QUIT, serve)?;
        process.wait(|process| {
            let is_ready = process.printed().contains("ready to accept connections");
            Ok((is_ready && is_listening(&address)).then_some(()))
        })?;
        let url = format!("postgres://cairn:{}@{address}/postgres", lab.secret);
        Ok(Postgres { process, url })
    }
}

/// Returns the directory of the newest installed version.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let found = versions.map(|entry| entry.path());
    let found = found.filter(|path| path.join("bin/initdb").is_file());
    let newest = found.max_by_key(|path| version(path));
    let newest =
        newest.ok_or_else(|| Error::failed("not installed: apt-get install postgresql"))?;
    Ok(newest.join("bin"))
}
