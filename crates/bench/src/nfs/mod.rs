//! `cairn bench nfs`: measures a server of NFS version 3, beside another.

pub mod client;
mod loads;

use std::time::Duration;

use crate::closed_loop::named;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::report::{Axis, Key, NamedTarget};
use crate::session::{Case, Output, Session};
use crate::values;
use client::Export;
use loads::{Amounts, Load, Server};

/// Calls of NFS version 3, by a client that remembers nothing
///
/// A closed loop: each connection has as many calls under way as --in-flight says. Works as root,
/// in a directory of its own, which it removes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench nfs 'nfs://127.0.0.1/photos?nfsport=2049'
  cairn bench nfs nfs://10.0.0.1/photos --compare other=nfs://10.0.0.2/export --connections 1,4
  cairn bench nfs nfs://10.0.0.1/photos --loads stream-write,stream-read --size 4g --json nfs.json")]
pub struct NfsArgs {
    /// The export, such as nfs://HOST/PATH?nfsport=2049&mountport=2049
    url: String,
    /// The name of the URL in results
    #[arg(long, value_name = "NAME", default_value = "target")]
    name: String,
    /// Measure this URL in turns with the first, and print ratios; may be given several times
    #[arg(long, value_name = "NAME=URL")]
    compare: Vec<String>,
    /// Loads to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "getattr,lookup,read,create,stream-write,stream-read")]
    loads: Vec<Kind>,
    /// Numbers of connections at the same time
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = values::count)]
    connections: Vec<usize>,
    /// Calls under way on each connection
    #[arg(long, value_name = "N", default_value = "8", value_parser = values::count)]
    in_flight: usize,
    /// Number of files of each size, which are looked at and read
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count)]
    files: usize,
    /// Bytes of these files; each size is a load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "430,93k")]
    #[arg(value_parser = values::size)]
    sizes: Vec<u64>,
    /// Bytes that are written and read in sequence, 1 MiB at a time
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = values::size)]
    size: u64,
    /// Duration of each load in each round, but for those in sequence
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = values::some_duration)]
    duration: Duration,
    /// Number of rounds; results are medians over rounds
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = values::count)]
    rounds: usize,
    /// Show the CPU use of this process, which is the server of that name; may be given several
    /// times
    #[arg(long, value_name = "NAME=PID")]
    pid: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
enum Kind {
    Getattr,
    Lookup,
    Read,
    /// New files, each durable when it is answered
    Create,
    StreamWrite,
    StreamRead,
}

/// Bytes that one READ asks for, at most.
const READ_BYTES: u64 = 1 << 20;
/// Calls in progress on a connection, at most; a server may refuse more.
const IN_FLIGHT: usize = 1024;

impl NfsArgs {
    fn check(&self) -> Result<()> {
        if self.sizes.iter().any(|size| !(1..=READ_BYTES).contains(size)) {
            return Err(Error::usage("--sizes: from 1 byte to 1m each"));
        }
        if self.size < READ_BYTES {
            return Err(Error::usage("--size: at least 1m"));
        }
        if self.in_flight > IN_FLIGHT {
            return Err(Error::usage(format!("--in-flight: at most {IN_FLIGHT}")));
        }
        match self.loads.iter().position(|load| *load == Kind::StreamRead) {
            Some(at) if !self.loads.iter().take(at).any(|load| *load == Kind::StreamWrite) => {
                Err(Error::usage("--loads: give stream-write before stream-read, which reads it"))
            }
            _ => Ok(()),
        }
    }

    fn exports(&self) -> Result<Vec<(String, Export)>> {
        let mut found = vec![(self.name.clone(), Export::parse(&self.url)?)];
        for text in &self.compare {
            let (name, url) = named(text)?;
            found.push((name, Export::parse(&url)?));
        }
        Ok(found)
    }

    /// Returns the processes of a server.
    fn pids(&self, of: &str) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for text in &self.pid {
            let wrong = || Error::usage(format!("--pid {text:?}: write NAME=PID"));
            let (name, pid) = text.split_once('=').ok_or_else(wrong)?;
            let pid: u32 = pid.parse().map_err(|_| wrong())?;
            pids.extend((name == of).then_some(pid));
        }
        match Processes::of(&pids).missing() {
            Some(pid) => Err(Error::usage(format!("--pid {of}={pid}: no such process"))),
            None => Ok(pids),
        }
    }

    fn loads(&self) -> Vec<Load> {
        let of = |kind: &Kind| match kind {
            Kind::Getattr => vec![Load::Getattr],
            Kind::Lookup => vec![Load::Lookup],
            Kind::Read => self.sizes.iter().map(|size| Load::Read(*size)).collect(),
            Kind::Create => vec![Load::Create],
            Kind::StreamWrite => vec![Load::StreamWrite],
            Kind::StreamRead => vec![Load::StreamRead],
        };
        self.loads.iter().flat_map(of).collect()
    }
}

pub fn run(args: &NfsArgs) -> Result<()> {
    args.check()?;
    let amounts = Amounts {
        files: args.files,
        sizes: args.sizes.clone(),
        stream: args.size,
        duration: args.duration,
        in_flight: args.in_flight,
    };
    let exports = args.exports()?;
    let pids: Result<Vec<_>> = exports.iter().map(|(name, _)| args.pids(name)).collect();
    let shown = exports
        .iter()
        .map(|(name, export)| NamedTarget { name: name.clone(), target: export.to_string() });
    let mut session = Session::begin("nfs", shown.collect(), &args.output)?;
    let mut servers = Vec::new();
    let mut failed = None;
    for ((name, export), pids) in exports.iter().zip(pids?) {
        match Server::prepare(export.clone(), &amounts, pids) {
            Ok(server) => servers.push((name, server)),
            Err(error) => failed = failed.or(Some(Error::failed(format!("{name}: {error}")))),
        }
    }
    let mut cases = Vec::new();
    for load in args.loads().into_iter().filter(|_| failed.is_none()) {
        for &connections in &args.connections {
            for (name, server) in &servers {
                let key = Key {
                    target: (*name).clone(),
                    what: load.name(),
                    axis: Axis { name: "connections".to_owned(), value: connections as f64 },
                };
                let amounts = &amounts;
                let run = Box::new(move || server.run(load, amounts, connections));
                cases.push(Case { key, run });
            }
        }
    }
    session.run(cases, args.rounds);
    let removed: Vec<_> = servers.iter().map(|(_, server)| server.remove()).collect();
    if let Some(error) = failed {
        return Err(error);
    }
    session.end()?;
    removed.into_iter().collect()
}
