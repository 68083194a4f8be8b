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

use crate::dir::nodes_of_machine;
use crate::failure::Result;
use crate::output;

pub use serve::{Role, Serving};

/// Show what a server, node or mount on this machine waits for
///
/// TARGET is a data directory or a mount point. Of a machine of `cairn node`, all its nodes are
/// shown. Each request that waits is shown with who asks, in
/// which stage it is, for how long, and what it waits for. The process is asked over a local
/// socket: a mount point is not touched, so this works when the mount does not answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn inflight /mnt/cairn
  cairn inflight /srv/cairn --json            # of a machine, one line for each of its nodes")]
pub struct InflightArgs {
    /// The directory of a server or node, or where it is mounted
    target: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &InflightArgs) -> Result<ExitCode> {
    let absent = match place::find(&args.target)?.ask(&args.target) {
        Ok(report) => return show(args, &report).map(|()| ExitCode::SUCCESS),
        Err(failure) => failure,
    };
    // A mount whose process is there may not answer: it is not touched.
    let nodes = absent.is_not_found().then(|| nodes_of_machine(&args.target)).flatten();
    let Some(nodes) = nodes else { return Err(absent) };
    let mut failures = Vec::new();
    for node in &nodes {
        match place::find(node).and_then(|place| place.ask(node)) {
            Ok(report) => {
                if !args.json && !report.requests.is_empty() {
                    output::line(format!("{} {}:", report.role, report.of))?;
                }
                show(args, &report)?;
            }
            // A disk that is not there, or was replaced.
            Err(failure) => failures.push(failure),
        }
    }
    if failures.len() == nodes.len() {
        failures.into_iter().next().map_or(Ok(ExitCode::SUCCESS), Err)
    } else {
        failures.iter().for_each(|failure| output::complain(&failure.to_string()));
        Ok(ExitCode::SUCCESS)
    }
}

fn show(args: &InflightArgs, report: &form::Report) -> Result<()> {
    if args.json { output::json(report) } else { show::table(report) }
}
