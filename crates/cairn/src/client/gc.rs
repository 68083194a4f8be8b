//! `cairn gc`

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::failure::Result;
use crate::output;

/// Collect garbage now; a server does so on its own
///
/// Blocks of what was deleted are freed when nobody can be reading them any more: a first pass may
/// leave some for the next one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn gc --dry-run
  cairn gc --json")]
pub struct GcArgs {
    /// Report what would be collected, and collect nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize, Deserialize)]
struct Report {
    drained: u64,
    orphans: u64,
    blocks_deleted: u64,
    blocks_waiting: u64,
    blocks_unknown: u64,
}

pub fn run(args: &GcArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let path = if args.dry_run { "/admin/gc?dry_run=1" } else { "/admin/gc" };
    let report: Report = server.send_order(path)?.json()?;
    if args.json {
        output::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Report { drained, orphans, blocks_deleted, blocks_waiting, blocks_unknown } = report;
    output::line(format!("{drained} bodies and uploads drained"))?;
    output::line(format!("{orphans} blocks found that were never published"))?;
    output::line(format!("{blocks_deleted} blocks deleted, {blocks_waiting} waiting for readers"))?;
    if blocks_unknown > 0 {
        output::line(format!(
            "{blocks_unknown} blocks of sessions the metadata does not know, left alone: is the \
             metadata an older copy?"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
