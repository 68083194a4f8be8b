//! `cairn node`: a machine of a small cluster: master, chunkserver and gateway in one process.
//!
//! ```text
//!   DIR/machine.toml   under which name others reach this machine, and at which ports
//!   DIR/master/        the nodes, as `cairn master`, `chunkserver` and `gateway` have them
//!   DIR/disk/
//!   DIR/gateway/
//! ```
//!
//! Each role is a node of its own, with a thread and a runtime of its own. Only the process is
//! shared.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use cairn_base::Role;
use cairn_cluster::identity::JoinToken;
use clap::Parser;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::cluster::{bundle, init, join, reach};
use crate::failure::{Failure, Result};
use crate::node::{MACHINE, chunkserver, directory_of, gateway, host_and_port, master};
use crate::output;
use crate::server::{log, process};

/// Between two attempts to find the master that this machine has just started.
const RETRY: Duration = Duration::from_millis(200);

/// Run a machine of a small cluster: a master, a chunkserver and a gateway in one process
///
/// The first machine makes the cluster, and prints the first credentials. `cairn cluster token DIR
/// --machine` prints the command for each further one. Three machines keep everything three times,
/// and any one of them may die. Afterwards `cairn node DIR` starts the machine again.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn node /srv/cairn --address 10.0.0.1                              # the first machine
  cairn cluster token /srv/cairn --machine                              # prints the next command
  cairn node /srv/cairn --address 10.0.0.2 --join cairn-node-1....      # on the second machine")]
pub struct NodeArgs {
    /// The directory of this machine: missing or empty the first time
    dir: PathBuf,
    /// Name or address under which the other machines reach this one; needed the first time
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    /// Join the cluster of this token, the first time; - to read it from stdin, where other users
    /// of this machine do not see it
    #[arg(long, value_name = "TOKEN")]
    join: Option<String>,
    /// Port at which the master listens for other machines; the chunkserver takes the one after it
    /// [default: 7400, or that of the first time]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65535))]
    port: Option<u16>,
    /// Address of the S3 door
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:9000")]
    s3: SocketAddr,
    /// Address of the HTTP door
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080")]
    http: SocketAddr,
    /// Certificate chain of the doors, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Number of replicas of each block, 1 to 5, when the first machine makes the cluster
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    #[command(flatten)]
    log: log::LogArgs,
}

/// `machine.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    version: u32,
    /// A name, or an IP address without brackets.
    host: String,
    port: u16,
}

impl Machine {
    /// As it was the first time, but for what the command line says now.
    fn of(args: &NodeArgs) -> Result<Machine> {
        let path = args.dir.join(MACHINE);
        let known = match fs::read_to_string(&path) {
            Ok(text) => {
                let of_file = |error| Failure::new(format!("{}: {error}", path.display()));
                Some(toml::from_str::<Machine>(&text).map_err(of_file)?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::file(&path, &error)),
        };
        if let Some(known) = known.as_ref().filter(|known| known.version != 1) {
            let (shown, version) = (path.display(), known.version);
            let text = format!("{shown}: version {version}, this cairn knows 1: use the newer one");
            return Err(Failure::new(text));
        }
        let host = match (&args.address, &known) {
            (Some(host), _) => host.trim_matches(['[', ']']).to_owned(),
            (None, Some(known)) => known.host.clone(),
            (None, None) => {
                let text = "say by --address HOST under which name the other machines will reach \
                            this one";
                return Err(Failure::usage(text));
            }
        };
        let port = args.port.or(known.as_ref().map(|known| known.port)).unwrap_or(7400);
        let machine = Machine { version: 1, host, port };
        host_and_port(&machine.at(0)).map_err(Failure::usage)?;
        if known.as_ref() != Some(&machine) {
            machine.save(&args.dir)?;
        }
        Ok(machine)
    }

    fn save(&self, dir: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Failure::file(dir, &error));
            }
            _ => {}
        }
        let text = toml::to_string(self).map_err(|error| Failure::new(error.to_string()))?;
        let (path, new) = (dir.join(MACHINE), dir.join("machine.new"));
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()
        });
        written.map_err(|error| Failure::file(&path, &error))
    }

    /// Where others reach the master (0), or the chunkserver (1).
    fn at(&self, offset: u16) -> String {
        let port = self.port + offset;
        match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{port}"),
            Err(_) => format!("{}:{port}", self.host),
        }
    }

    fn listen(&self, offset: u16) -> String {
        let port = self.port + offset;
        match self.host.parse::<Ipv6Addr>() {
            Ok(_) => format!("[::]:{port}"),
            Err(_) => format!("0.0.0.0:{port}"),
        }
    }
}

/// The options of one role, as its own command has them.
#[derive(clap::Parser)]
struct Options<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn options<A: clap::Args>(options: &[String]) -> Result<A> {
    let words = std::iter::once("cairn".to_owned()).chain(options.iter().cloned());
    let parsed = Options::<A>::try_parse_from(words);
    parsed.map(|parsed| parsed.args).map_err(|error| Failure::usage(error.to_string()))
}

pub fn run(args: &NodeArgs) -> Result<ExitCode> {
    args.log.start()?;
    let machine = Machine::of(args)?;
    let of = |role| directory_of(&args.dir, role).display().to_string();
    let (master, disk, gateway) = (of(Role::Master), of(Role::Chunkserver), of(Role::Gateway));
    let is_first = match &args.join {
        Some(token) => {
            let tokens = bundle::read(token)?;
            join_all(&args.dir, &tokens)?;
            false
        }
        None if joined(&args.dir, Role::Master) => !joined(&args.dir, Role::Gateway),
        None => {
            let replicas = args.replicas.to_string();
            let words = [&master, "--address", &machine.at(0), "--replicas", &replicas];
            init::make(&options(&words.map(str::to_owned))?, init::Next::Machine(&args.dir))?;
            true
        }
    };
    let (ended, results) = channel();
    let words = [&master, "--listen", &machine.listen(0), "--address", &machine.at(0)];
    let of_master: master::MasterArgs = options(&words.map(str::to_owned))?;
    start("master", &ended, move || process::run_started(master::run_master(&of_master)))?;
    if is_first {
        // The master that was just started lets the others of this machine in.
        for role in [Role::Chunkserver, Role::Gateway] {
            join_own(&args.dir, role, &results)?;
        }
    }
    let words = [&disk, "--listen", &machine.listen(1), "--address", &machine.at(1)];
    let of_disk: chunkserver::ChunkserverArgs = options(&words.map(str::to_owned))?;
    let of_gateway: gateway::GatewayArgs = options(&args.doors(&gateway))?;
    start("chunkserver", &ended, move || {
        process::run_started(chunkserver::run_chunkserver(&of_disk))
    })?;
    start("gateway", &ended, move || process::run_started(gateway::run_gateway(&of_gateway)))?;
    drop(ended);
    let mut failure = None;
    for (role, result) in results {
        if let Err(error) = result {
            tracing::error!(%error, role, "a role of this machine has failed: all of them stop");
            failure.get_or_insert(error.of(role));
            // The others end as they do when the machine is told to stop.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

impl NodeArgs {
    fn doors(&self, gateway: &str) -> Vec<String> {
        let mut words = vec![gateway.to_owned()];
        words.extend(["--s3".into(), self.s3.to_string(), "--http".into(), self.http.to_string()]);
        for (option, file) in [("--tls-cert", &self.tls_cert), ("--tls-key", &self.tls_key)] {
            if let Some(file) = file {
                words.extend([option.to_owned(), file.display().to_string()]);
            }
        }
        words
    }
}

type Ended = (&'static str, Result<ExitCode>);

/// Runs a role on a thread of its own.
fn start(
    role: &'static str,
    ended: &Sender<Ended>,
    work: impl FnOnce() -> Result<ExitCode> + Send + 'static,
) -> Result<()> {
    let ended = ended.clone();
    let running = move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let result = result.unwrap_or_else(|_| Err(Failure::new("it panicked")));
        // Only gone when the process ends.
        let _ = ended.send((role, result));
    };
    thread::Builder::new().name(role.to_owned()).spawn(running)?;
    Ok(())
}

fn joined(dir: &Path, role: Role) -> bool {
    directory_of(dir, role).join("cluster.toml").exists()
}

/// Joins with those tokens whose role has not joined yet.
fn join_all(dir: &Path, tokens: &[JoinToken]) -> Result<()> {
    for token in tokens {
        let role = token.roles.iter().next().ok_or_else(|| Failure::new("a token of no role"))?;
        if !joined(dir, role) {
            let node = join::join_as(&directory_of(dir, role), token)?;
            output::line(format!("joined as node {node} ({role})"))?;
        }
    }
    Ok(())
}

/// Lets a node of this machine join at the master that runs here, once that serves.
fn join_own(dir: &Path, role: Role, results: &std::sync::mpsc::Receiver<Ended>) -> Result<()> {
    while !joined(dir, role) {
        let asked = reach::new_token(&directory_of(dir, Role::Master), role.into(), None);
        match asked {
            Ok(token) => drop(join::join_as(&directory_of(dir, role), &token)?),
            Err(failure) => match results.recv_timeout(RETRY) {
                Ok((_, Err(ended))) => return Err(ended.of("master")),
                // It was told to stop.
                Ok((_, Ok(_))) => return Err(failure),
                Err(_) => {
                    tracing::debug!(%failure, "the master of this machine does not serve yet")
                }
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_machine() {
        let machine = |host: &str| Machine { version: 1, host: host.into(), port: 7400 };
        let both = |host: &str| {
            let machine = machine(host);
            (machine.at(0), machine.listen(1))
        };
        assert_eq!(both("10.0.0.1"), ("10.0.0.1:7400".into(), "0.0.0.0:7401".into()));
        assert_eq!(both("one.example"), ("one.example:7400".into(), "0.0.0.0:7401".into()));
        assert_eq!(both("fd00::1"), ("[fd00::1]:7400".into(), "[::]:7401".into()));
    }
}
