//! `cairn node`: a machine of a small cluster: master, chunkserver and gateway in one process.
//!
//! ```text
//!   DIR/machine.toml   under which name others reach this machine, at which ports, further disks
//!   DIR/master/        the nodes, as `cairn master`, `chunkserver` and `gateway` have them
//!   DIR/disk/
//!   DIR/gateway/
//! ```
//!
//! Each role is a node of its own, with a thread and a runtime of its own. Only the process is
//! shared.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use cairn_base::Role;
use cairn_cluster::identity::JoinToken;
use cairn_meta::session::OwnMaster;
use clap::Parser;
use rustix::process::{Signal, getpid, kill_process};

use crate::cluster::{bundle, init, join, reach};
use crate::config::{ConfigArgs, of_role};
use crate::dir::{CLUSTER_FILE, DirectoryUse, directory_of_role};
use crate::failure::{Failure, Result};
use crate::memory::ProcessSizes;
use crate::node::{Machine, chunkserver, gateway, make_directory, master};
use crate::output;
use crate::server::{log, process};

/// Pause between two attempts to find the master that this machine has just started.
const RETRY: Duration = Duration::from_millis(200);

/// Run a machine of a small cluster: a master, a chunkserver and a gateway in one process
///
/// The first machine makes the cluster, and prints the first credentials. `cairn cluster token DIR
/// --machine` prints the command for each further one. Three machines keep everything three times,
/// and any one of them may die. Afterwards `cairn node DIR` starts the machine again. A file of
/// options may have sections of the roles beside its own, for their other options.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  cairn node /srv/cairn --address 10.0.0.1                              # the first machine
  cairn cluster token /srv/cairn --machine                              # prints the next command
  cairn node /srv/cairn --address 10.0.0.2 --join cairn-node-1....      # on the second machine
  cairn node /srv/cairn --config /etc/cairn/node.toml                   # with options of the roles")]
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
    #[arg(value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    #[arg(value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// Number of replicas of each block, 1 to 5, when the first machine makes the cluster
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    log: log::LogArgs,
}

/// Returns the machine as its file describes it, with the changes of the command line; and whether
/// they change anything.
fn machine_of(args: &NodeArgs) -> Result<(Machine, bool)> {
    let known = Machine::read(&args.dir)?;
    let host = args.address.clone().or(known.as_ref().map(|known| known.host.clone()));
    let host = host.ok_or_else(|| {
        Failure::usage(
            "say by --address HOST under which name the other machines will reach this one",
        )
    })?;
    let port = args.port.or(known.as_ref().map(|known| known.port)).unwrap_or(7400);
    let new = Machine::new(&host, port)?;
    let mut machine = known.clone().unwrap_or_else(|| new.clone());
    (machine.host, machine.port) = (new.host, new.port);
    let is_new = known.as_ref() != Some(&machine);
    Ok((machine, is_new))
}

/// The options of one role, as its own command has them.
#[derive(clap::Parser)]
struct Options<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

fn options<A: clap::Args>(words: Vec<OsString>) -> Result<A> {
    let words = std::iter::once("cairn".into()).chain(words);
    let parsed = Options::<A>::try_parse_from(words);
    parsed.map(|parsed| parsed.args).map_err(|error| Failure::usage(error.to_string()))
}

/// Roles that run here, each with the options of its own command.
struct Roles {
    master: master::MasterArgs,
    chunkservers: Vec<chunkserver::ChunkserverArgs>,
    gateway: gateway::GatewayArgs,
}

impl Roles {
    /// Reads the options of the roles; `whole` is the whole command line, as clap knows it.
    fn of(args: &NodeArgs, machine: &Machine, whole: &clap::Command) -> Result<Roles> {
        let words = |role: &str, own: Vec<String>| of_role(&args.config, role, own, whole);
        let node = |dir: &Path, offset| {
            let mut words = vec![dir.display().to_string()];
            words.extend(["--listen".into(), machine.listen(offset)]);
            words.extend(["--address".into(), machine.at(offset)]);
            words
        };
        let mut chunkservers = Vec::new();
        for (dir, offset) in disks(args, machine) {
            let disk: chunkserver::ChunkserverArgs =
                options(words("chunkserver", node(&dir, offset))?)?;
            chunkservers.push(match machine.zone() {
                Some(zone) => disk.beside(zone, offset - 1)?,
                None => disk,
            });
        }
        let master = node(&own(&args.dir, Role::Master), 0);
        let gateway = args.doors(&own(&args.dir, Role::Gateway));
        Ok(Roles {
            master: options(words("master", master)?)?,
            chunkservers,
            gateway: options(words("gateway", gateway)?)?,
        })
    }

    /// Divides the memory of this process among the parts of all roles.
    fn sizes(&self) -> Result<ProcessSizes> {
        ProcessSizes::divide(&[self.master.requests(), self.gateway.requests()].concat())
    }
}

/// Returns the disks to run chunkservers on, each with the offset of its port. If there are
/// several, a disk that is not there is left out: the others and the master go on.
fn disks(args: &NodeArgs, machine: &Machine) -> Vec<(PathBuf, u16)> {
    let mut all = machine.chunkservers(&args.dir);
    if all.len() > 1 {
        all.retain(|(disk, _)| {
            let is_there = disk.join(CLUSTER_FILE).exists();
            if !is_there {
                let text = "is not there, and this machine runs without it: mount it and restart \
                            this machine, or remove its node (cairn cluster remove DIR NODE)";
                tracing::error!("the disk {} {text}", disk.display());
            }
            is_there
        });
    }
    all
}

pub fn run(args: &NodeArgs, whole: &clap::Command) -> Result<ExitCode> {
    args.log.start()?;
    args.config.announce();
    DirectoryUse::Machine.require(&args.dir)?;
    let (machine, is_new) = machine_of(args)?;
    let roles = Roles::of(args, &machine, whole)?;
    let memory = Arc::new(roles.sizes()?);
    memory.announce();
    let tokens = args.join.as_deref().map(bundle::read).transpose()?;
    if let Some(tokens) = &tokens {
        // Made before the file: a directory that has not joined belongs to no machine yet.
        make_directory(&args.dir)?;
        join_all(&args.dir, tokens)?;
    }
    if is_new {
        machine.save(&args.dir)?;
    }
    let is_first = match tokens {
        Some(_) => false,
        None if joined(&args.dir, Role::Master) => !joined(&args.dir, Role::Gateway),
        None => {
            let replicas = args.replicas.to_string();
            let master = own(&args.dir, Role::Master).display().to_string();
            let words = [&master, "--address", &machine.at(0), "--replicas", &replicas];
            let words = words.iter().map(Into::into).collect();
            init::make(&options(words)?, init::Next::Machine(&args.dir))?;
            true
        }
    };
    let (ended, results) = channel();
    let Roles { master, chunkservers, gateway } = roles;
    let own = Arc::<OwnMaster>::default();
    let told = Arc::clone(&own);
    let sizes = Arc::clone(&memory);
    start("master", &ended, move || {
        process::run_started(master::run_master(&master, &sizes, told))
    })?;
    if is_first {
        // The master that was just started admits the other nodes of this machine.
        for role in [Role::Chunkserver, Role::Gateway] {
            join_own(&args.dir, role, &results)?;
        }
    }
    for disk in chunkservers {
        start("chunkserver", &ended, move || {
            process::run_started(chunkserver::run_chunkserver(&disk))
        })?;
    }
    start("gateway", &ended, move || {
        process::run_started(gateway::run_gateway(&gateway, &memory, Some(own)))
    })?;
    drop(ended);
    let mut failure = None;
    for (role, result) in results {
        if let Err(error) = result {
            tracing::error!(%error, role, "a role of this machine has failed: all of them stop");
            failure.get_or_insert(error.of(role));
            // The others end as they do when the machine gets a signal to stop.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

impl NodeArgs {
    fn doors(&self, gateway: &Path) -> Vec<String> {
        let mut words = vec![gateway.display().to_string()];
        words.extend(["--s3".into(), self.s3.to_string(), "--http".into(), self.http.to_string()]);
        for (option, file) in [("--tls-cert", &self.tls_cert), ("--tls-key", &self.tls_key)] {
            if let Some(file) = file {
                words.extend([option.to_owned(), file.display().to_string()]);
            }
        }
        words
    }
}

type RoleEnd = (&'static str, Result<ExitCode>);

/// Runs a role on a separate thread.
fn start(
    role: &'static str,
    ended: &Sender<RoleEnd>,
    work: impl FnOnce() -> Result<ExitCode> + Send + 'static,
) -> Result<()> {
    let ended = ended.clone();
    let running = move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let result = result.unwrap_or_else(|_| Err(Failure::new("it panicked")));
        // The receiver is gone only when the process ends.
        let _ = ended.send((role, result));
    };
    thread::Builder::new().name(role.to_owned()).spawn(running)?;
    Ok(())
}

/// Returns the directory of this machine's node of a role, whether it exists yet or not.
fn own(dir: &Path, role: Role) -> PathBuf {
    dir.join(directory_of_role(role))
}

fn joined(dir: &Path, role: Role) -> bool {
    own(dir, role).join(CLUSTER_FILE).exists()
}

/// Joins with the tokens of roles that have not joined yet.
fn join_all(dir: &Path, tokens: &[JoinToken]) -> Result<()> {
    for token in tokens {
        let role = token.roles.iter().next().ok_or_else(|| Failure::new("a token of no role"))?;
        if !joined(dir, role) {
            let node = join::join_as(&own(dir, role), token)?;
            output::line(format!("joined as node {node} ({role})"))?;
        }
    }
    Ok(())
}

/// Lets a node of this machine join at the master that runs here, once that master serves.
fn join_own(dir: &Path, role: Role, results: &std::sync::mpsc::Receiver<RoleEnd>) -> Result<()> {
    while !joined(dir, role) {
        let asked = reach::new_token(&own(dir, Role::Master), role.into(), None);
        match asked {
            Ok(token) => drop(join::join_as(&own(dir, role), &token)?),
            Err(failure) => match results.recv_timeout(RETRY) {
                Ok((_, Err(ended))) => return Err(ended.of("master")),
                // The master got a signal to stop.
                Ok((_, Ok(_))) => return Err(failure),
                Err(_) => {
                    tracing::debug!(%failure, "the master of this machine does not serve yet")
                }
            },
        }
    }
    Ok(())
}
