//! The options on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::values;

/// Repeat five public reports on storage systems, with Cairn and with its peers
///
/// Each scenario starts the systems that it measures on this machine, in a directory of its own
/// below --dir, and removes them: clusters of Cairn, and nginx, lighttpd, GlusterFS and PostgreSQL
/// where they are installed. Mounts and CPU quotas need root; the tables name what is
/// missing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench reports --dir /var/tmp --html reports.html --markdown reports.md
  cairn bench reports --only gateway,redirects --seconds 5 --rounds 3
  cairn bench reports --only files --beside nfs=/mnt/nfs
  cairn bench reports --only writers --dir /srv/disk1 --disk /srv/disk2
  cairn bench reports --only redirects --keys 10000 --bodies 5k,15k
  cairn bench reports --only scaling --object 10g --part 64m --threads 1,8,32 --share 100")]
pub struct ReportsArgs {
    /// Run only these scenarios [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    pub only: Vec<Name>,
    /// The directory for data and sockets, on the disk that will be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    /// The program of Cairn to start [default: this one]
    #[arg(long, value_name = "PATH")]
    pub cairn: Option<PathBuf>,
    /// Seconds of each load that has no end of its own, in each round
    #[arg(long, value_name = "N", default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    /// Number of rounds; results are medians over rounds
    #[arg(short, long, value_name = "N", default_value = "1", value_parser = values::count)]
    pub rounds: usize,
    #[command(flatten)]
    pub sizes: Sizes,
    /// Save all results as JSON, for `cairn bench diff` and programs
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Save the results as a page of HTML with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Save the printed tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// How large everything is.
#[derive(clap::Args)]
pub struct Sizes {
    /// gateway, redirects: numbers of clients at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,5,10,20")]
    #[arg(value_parser = values::count)]
    pub clients: Vec<usize>,
    /// gateway, redirects: bytes of the object that is read
    #[arg(long, value_name = "SIZE", default_value = "155k", value_parser = some_size)]
    pub size: u64,
    /// gateway: CPU quota of PostgreSQL, percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent)]
    pub database_quota: f64,
    /// writers: numbers of writers and readers at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = values::count)]
    pub writers: Vec<usize>,
    /// writers: bytes of the file of each writer and reader
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = some_size)]
    pub file: u64,
    /// writers: a directory on a further disk, for replicas of Cairn and bricks of GlusterFS in
    /// turn with --dir [default: all of them are in --dir]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<PathBuf>,
    /// scaling: number of gateways
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count)]
    pub gateways: usize,
    /// scaling: CPU quota of each gateway, percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "4", value_parser = percent)]
    pub share: f64,
    /// scaling: bytes of the object that is sent in parts and read in ranges
    #[arg(long, value_name = "SIZE", default_value = "120m", value_parser = some_size)]
    pub object: u64,
    /// scaling: bytes of a part or range
    #[arg(long, value_name = "SIZE", default_value = "5m", value_parser = some_size)]
    pub part: u64,
    /// scaling: numbers of requests at the same time at each gateway
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16")]
    #[arg(value_parser = values::count)]
    pub threads: Vec<usize>,
    /// files: number of files of each size
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count)]
    pub files: usize,
    /// files: how many times each file is served
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count)]
    pub notifications: usize,
    /// files: sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "430,93k")]
    #[arg(value_parser = some_size)]
    pub file_sizes: Vec<u64>,
    /// writers, files: a further directory to measure, such as a mount of NFS
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    pub beside: Vec<(String, PathBuf)>,
    /// redirects: rates to measure one after another, look-ups a second
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::rate)]
    #[arg(default_value = "1000,2000,5000,10000,20000,40000,60000,80000")]
    pub rates: Vec<f64>,
    /// redirects: number of keys that are looked up, put and got in turn
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count)]
    pub keys: usize,
    /// redirects: the least and the most bytes of the bodies that are put and got
    #[arg(long, value_name = "LEAST,MOST", value_delimiter = ',', default_value = "5k,15k")]
    #[arg(value_parser = some_size)]
    pub bodies: Vec<u64>,
}

/// Least size of a part in S3; only the last part may be smaller.
const PART_MIN: u64 = 5 << 20;

/// A public report.
#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub enum Name {
    /// A store behind an HTTP service and a TLS gateway: reads over clients, layer by layer
    Gateway,
    /// A mount: whether several writers are faster than one
    Writers,
    /// S3 gateways, from one to five
    Scaling,
    /// Small files served from file systems and by HTTP
    Files,
    /// Look-ups that are answered with a redirect, at a rate
    Redirects,
}

impl Name {
    pub fn text(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl ReportsArgs {
    pub fn check(&self) -> Result<()> {
        let sizes = &self.sizes;
        if sizes.part > sizes.object {
            return Err(Error::usage("--part is larger than --object: make it smaller"));
        }
        if sizes.part < PART_MIN && sizes.part < sizes.object {
            return Err(Error::usage("--part: S3 takes parts of at least 5m: make it larger"));
        }
        if sizes.size > 1 << 30 || sizes.file_sizes.iter().any(|size| *size > 1 << 30) {
            return Err(Error::usage("--size and --file-sizes are at most 1g: make them smaller"));
        }
        if sizes.gateways > 64 {
            return Err(Error::usage("--gateways: at most 64"));
        }
        match *sizes.bodies {
            [least, most] if least <= most && most <= 1 << 20 => Ok(()),
            _ => Err(Error::usage(
                "--bodies: give the least and the most bytes, up to 1m, such as 5k,15k",
            )),
        }
    }

    /// Returns the least and the most bytes of bodies.
    pub fn body_bytes(&self) -> (u64, u64) {
        match *self.sizes.bodies {
            [least, most, ..] => (least, most),
            _ => (0, 0),
        }
    }

    /// Returns the largest number of a list.
    pub fn most(list: &[usize]) -> usize {
        list.iter().copied().max().unwrap_or(1)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches('s').parse::<f64>().ok();
    match number.filter(|number| (0.05..=3600.0).contains(number)) {
        Some(number) => Ok(Duration::from_secs_f64(number)),
        None => Err(format!("{text:?} is not a number of seconds from 0.05 to 3600")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (1.0..=10_000.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a percentage from 1 to 10000 (100 is one CPU)")),
    }
}

fn some_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("must be more than nothing: for example 1m".to_owned()),
        some => Ok(some),
    }
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, dir)) if !name.is_empty() && !dir.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(dir)))
        }
        _ => Err(format!("{text:?}: write NAME=DIR")),
    }
}
