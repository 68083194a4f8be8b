//! `cairn inflight`: what waits in a process of Cairn on this machine just now.
//!
//! ```text
//!   cairn inflight TARGET ── place: which socket ──► a thread of the process (serve)
//!   table or JSON ◄── form ───────────────────────── all requests in flight (base)
//!                                                     └─ watch: warnings in its log
//! ```

mod form;
mod place;
mod serve;
mod show;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::Result;
use crate::output;

pub use serve::{Role, Serving};

/// Show what a server, node or mount on this machine waits for
///
/// TARGET is a data directory or a mount point. Each request that waits is shown with who asks, in
/// which stage it is, for how long, and what it waits for. The process is asked over a local
/// socket: a mount point is not touched, so this works when the mount does not answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn inflight /mnt/cairn
  cairn inflight /srv/cairn --json")]
pub struct InflightArgs {
    /// The directory of a server or node, or where it is mounted
    target: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &InflightArgs) -> Result<ExitCode> {
    let report = place::find(&args.target)?.ask(&args.target)?;
    match args.json {
        true => output::json(&report)?,
        false => show::table(&report)?,
    }
    Ok(ExitCode::SUCCESS)
}
