//! `cairn stats`: what a mount has done.

use std::path::PathBuf;
use std::process::ExitCode;

use rustix::fs::getxattr;
use rustix::io::Errno;

use crate::failure::{Failure, Result};
use crate::output;

/// Longer than they ever are, bytes.
const STATS_BYTES: usize = 64 << 10;

/// Show what a mount on this machine has done
///
/// Requests of the kernel by operation, with the mean and percentiles of their latencies in
/// microseconds (upper ends of buckets that double); bytes; what was asked of the server.
#[derive(clap::Args)]
#[command(after_help = "Example:
  cairn stats /mnt/cairn")]
pub struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut text = vec![0; STATS_BYTES];
    let at = &args.mountpoint;
    let length = getxattr(at, "user.cairn.stats", &mut text[..]).map_err(|error| match error {
        Errno::NODATA | Errno::OPNOTSUPP => {
            Failure::new(format!("{}: is not a mount of Cairn", at.display()))
        }
        error => Failure::file(at, &error.into()),
    })?;
    text.truncate(length);
    output::line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(ExitCode::SUCCESS)
}
