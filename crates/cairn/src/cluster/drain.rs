//! `cairn cluster drain`: empties a chunkserver, so that it can be removed.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use cairn_base::{ClusterMap, Error, NodeId};
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
    let groups = |map: &ClusterMap| map.groups.values().filter(|one| one.has(*node)).count() as u64;
    let status = reach::status(dir)?;
    let map = &status.map;
    if !map.nodes.contains_key(node) {
        return Err(Error::NotFound(format!(
            "node {node}: `cairn cluster status` lists the nodes"
        ))
        .into());
    }
    let to_move = groups(map);
    if args.dry_run {
        let others = map.places().filter(|(other, _)| other != node).count();
        output::line(format!(
            "{to_move} groups, {} would be copied to {others} other nodes",
            indicatif::BinaryBytes(bytes_of(&status, *node))
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    reach::edit(dir, Edit::Drain(*node))?;
    if args.wait {
        let bar = output::count_bar(to_move, "groups moved");
        let mut left = to_move;
        while left > 0 {
            sleep(POLL);
            left = groups(&reach::status(dir)?.map);
            bar.set_position(to_move.saturating_sub(left));
        }
        bar.finish_and_clear();
    }
    let what = if args.wait { "is in no group now" } else { "drains; when it is in no group" };
    output::line(format!("node {node} {what}: cairn cluster remove {} {node}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn bytes_of(status: &Status, node: NodeId) -> u64 {
    let said = status.nodes.iter().filter(|said| said.node == node);
    said.map(|said| said.store.live_bytes).sum()
}
