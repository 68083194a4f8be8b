//! `cairn cluster drain`: empties a chunkserver, so that it can be removed.

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use cairn_base::{ClusterMap, Error, NodeId};
use cairn_cluster::control::forecast::{Forecast, RATE, emptying};
use cairn_cluster::control::{Edit, Status};

use super::edit::NodeArgs;
use super::reach;
use crate::failure::Result;
use crate::output;

const POLL: Duration = Duration::from_secs(1);

/// Move the blocks of a chunkserver elsewhere; it goes on serving meanwhile
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster drain /srv/cairn-master 4 --dry-run
  cairn cluster drain /srv/cairn-master 4 --wait")]
pub struct DrainArgs {
    #[command(flatten)]
    of: NodeArgs,
    /// Show how much would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait until the node is in no group any more
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

pub fn run(args: &DrainArgs) -> Result<ExitCode> {
    let NodeArgs { dir, node } = &args.of;
    let status = reach::status(dir)?;
    let map = &status.map;
    if !map.nodes.contains_key(node) {
        return Err(Error::NotFound(format!(
            "node {node}: `cairn cluster status` lists the nodes"
        ))
        .into());
    }
    if args.dry_run {
        let others = map.places().filter(|(other, _)| other != node).count();
        output::line(format!(
            "{} groups, {} would be copied to {others} other nodes",
            groups(map, *node),
            indicatif::BinaryBytes(bytes_of(&status, *node))
        ))?;
        show(&emptying(&status, *node)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    reach::edit(dir, Edit::Drain(*node))?;
    if args.wait {
        wait(dir, map, *node)?;
    }
    let what = if args.wait { "is in no group now" } else { "drains; when it is in no group" };
    output::line(format!("node {node} {what}: cairn cluster remove {} {node}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn groups(map: &ClusterMap, node: NodeId) -> u64 {
    map.groups_of(node) as u64
}

/// Waits until a node that drains is in no group.
pub fn wait(dir: &Path, before: &ClusterMap, node: NodeId) -> Result<()> {
    let to_move = groups(before, node);
    let bar = output::count_bar(to_move, "groups moved");
    let mut left = to_move;
    while left > 0 {
        sleep(POLL);
        left = groups(&reach::status(dir)?.map, node);
        bar.set_position(to_move.saturating_sub(left));
    }
    bar.finish_and_clear();
    Ok(())
}

/// What will move, where to, and how long that takes.
pub fn show(forecast: &Forecast) -> Result<()> {
    for (target, bytes) in &forecast.targets {
        output::line(format!("  to node {target}: {}", indicatif::BinaryBytes(*bytes)))?;
    }
    let time = indicatif::HumanDuration(forecast.takes(RATE));
    let rate = indicatif::BinaryBytes(RATE);
    output::line(format!("  about {time}, if each of these nodes takes {rate} a second"))
}

fn bytes_of(status: &Status, node: NodeId) -> u64 {
    let said = status.nodes.iter().filter(|said| said.node == node);
    said.map(|said| said.store.live_bytes).sum()
}
