//! `cairn stats`: shows what a mount has done.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::getxattr;
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::output;

/// Upper bound of the size of a report, bytes.
const STATS_BYTES: usize = 64 << 10;

/// Show what a mount on this machine has done
///
/// Requests of the kernel by operation, with the mean and percentiles of their latencies in
/// microseconds (upper ends of buckets that double); bytes; requests to the server.
#[derive(clap::Args)]
#[command(after_help = "Example:
  cairn stats /mnt/cairn")]
pub struct StatsArgs {
    /// The mount point
    mountpoint: PathBuf,
}

pub fn run(args: &StatsArgs) -> Result<ExitCode> {
    output::line(read(&args.mountpoint)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the report of the mount.
pub fn read(at: &Path) -> Result<String> {
    let mut text = vec![0; STATS_BYTES];
    let length = getxattr(at, "user.cairn.stats", &mut text[..]).map_err(|error| match error {
        Errno::NODATA | Errno::OPNOTSUPP => {
            Failure::new(format!("{}: is not a mount of Cairn", at.display()))
        }
        error => Failure::file(at, &error.into()),
    })?;
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}
