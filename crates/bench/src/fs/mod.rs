//! `cairn bench fs`: measures a file system, beside another.

pub mod loads;
mod scratch;

use std::path::PathBuf;
use std::time::Duration;

use crate::closed_loop::named;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::report::{Axis, Key, NamedTarget};
use crate::session::{Case, Output, Session};
use crate::values;
pub use loads::{Load, Sizes};
pub use scratch::Scratch;

/// Most bytes that a file takes in addition to its contents.
const FILE_BYTES: u64 = 8192;

/// Files: written, read, made, listed, removed and served
///
/// Works in a directory of its own below DIR, which it removes. Writers sync each file before they
/// close it. Before files are read in sequence or at random, the kernel is asked to forget them.
/// Files are served from whatever remembers them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench fs /mnt/cairn/bench --beside /var/tmp
  cairn bench fs /mnt/gluster --compare nfs=/mnt/nfs --compare local=/var/tmp --html fs.html
  cairn bench fs /mnt/cairn/bench --loads write,read --threads 1,2,4,8 --size 1g")]
pub struct FsArgs {
    /// The directory to measure; files are made below it, and removed in the end
    dir: PathBuf,
    /// The name of DIR in results
    #[arg(long, value_name = "NAME", default_value = "target")]
    name: String,
    /// A directory to compare DIR with, such as one on a local disk
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
    /// A further directory to compare, with its name in results; may be given several times
    #[arg(long, value_name = "NAME=DIR")]
    compare: Vec<String>,
    /// Loads to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "write,read,random-read,random-write,small,serve")]
    loads: Vec<Kind>,
    /// Numbers of threads at the same time; each thread has files of its own
    #[arg(short = 'j', long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = values::count)]
    threads: Vec<usize>,
    /// Bytes of the file of each writer and reader, such as 64m
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = values::size)]
    size: u64,
    /// Bytes written or read at once
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = values::size)]
    block: u64,
    /// Bytes written or read at once at random places
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = values::size)]
    random_block: u64,
    /// Small files of each thread
    #[arg(long, value_name = "N", default_value = "200", value_parser = values::count)]
    files: usize,
    /// Bytes of the small files and of the files that are served; each size is a load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "430,93k")]
    #[arg(value_parser = values::size)]
    serve_sizes: Vec<u64>,
    /// Duration of random and serving loads in each round
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = values::some_duration)]
    duration: Duration,
    /// Number of rounds; results are medians over rounds
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = values::count)]
    rounds: usize,
    /// Show the CPU use of this process, which serves DIR, with its children
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
enum Kind {
    Write,
    Read,
    RandomRead,
    RandomWrite,
    Small,
    Serve,
}

impl FsArgs {
    fn directories(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut found = vec![(self.name.clone(), self.dir.clone())];
        found.extend(self.beside.iter().map(|dir| ("beside".to_owned(), dir.clone())));
        for text in &self.compare {
            let (name, dir) = named(text)?;
            found.push((name, dir.into()));
        }
        Ok(found)
    }

    fn sizes(&self) -> Result<Sizes> {
        let sizes = [self.size, self.block, self.random_block];
        if sizes.contains(&0) || self.serve_sizes.contains(&0) {
            return Err(Error::usage("a size of 0: give at least one byte"));
        }
        if self.block > self.size || self.random_block > self.size {
            return Err(Error::usage("a block is larger than --size: make it smaller"));
        }
        let most = self.serve_sizes.iter().copied().chain([self.block]).max().unwrap_or(0);
        if most > 1 << 30 {
            return Err(Error::usage("blocks and served files are at most 1g: make them smaller"));
        }
        Ok(Sizes {
            file: self.size,
            block: self.block,
            random_block: self.random_block,
            small: self.serve_sizes.first().copied().unwrap_or(1),
            files: self.files,
            duration: self.duration,
        })
    }

    /// Returns the most bytes that are on the disk at once, for one directory.
    fn needed_bytes(&self) -> u64 {
        let most = self.threads.iter().copied().max().unwrap_or(1) as u64;
        let small = self.serve_sizes.first().map_or(0, |size| size + FILE_BYTES);
        let served: u64 = self.serve_sizes.iter().map(|size| size + FILE_BYTES).sum();
        let of = |kind: &Kind| match kind {
            Kind::Small => self.files as u64 * small,
            Kind::Serve => loads::SERVED as u64 * served,
            _ => 0,
        };
        most * (self.size + self.loads.iter().map(of).sum::<u64>())
    }

    fn loads(&self) -> Vec<Load> {
        let of = |kind: &Kind| match kind {
            Kind::Write => vec![Load::Write],
            Kind::Read => vec![Load::Read],
            Kind::RandomRead => vec![Load::RandomRead],
            Kind::RandomWrite => vec![Load::RandomWrite],
            Kind::Small => vec![Load::Create, Load::Stat, Load::List, Load::Unlink],
            Kind::Serve => self.serve_sizes.iter().map(|size| Load::Serve(*size)).collect(),
        };
        self.loads.iter().flat_map(of).collect()
    }
}

pub fn run(args: &FsArgs) -> Result<()> {
    let sizes = args.sizes()?;
    if let Some(pid) = Processes::of(&args.pid).missing() {
        return Err(Error::usage(format!("--pid {pid}: no such process: look it up with ps")));
    }
    let directories = args.directories()?;
    let shown = directories
        .iter()
        .map(|(name, dir)| NamedTarget { name: name.clone(), target: dir.display().to_string() });
    let mut session = Session::begin("fs", shown.collect(), &args.output)?;
    let mut scratches = Vec::new();
    for (name, dir) in &directories {
        scratches.push((name, Scratch::new(dir, args.needed_bytes())?));
    }
    let mut cases = Vec::new();
    for load in args.loads() {
        for &threads in &args.threads {
            for (name, scratch) in &scratches {
                let key = Key {
                    target: (*name).clone(),
                    what: load.name(&sizes),
                    axis: Axis { name: "threads".to_owned(), value: threads as f64 },
                };
                let (sizes, pids) = (&sizes, &args.pid);
                let run = Box::new(move || loads::run(load, scratch.path(), sizes, threads, pids));
                cases.push(Case { key, run });
            }
        }
    }
    session.run(cases, args.rounds);
    let removed: Vec<_> = scratches.into_iter().map(|(_, scratch)| scratch.remove()).collect();
    session.end()?;
    removed.into_iter().collect()
}
