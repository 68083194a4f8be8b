//! `cairn cluster drain`: empties a chunkserver, so that it can be removed.

use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cairn_base::{ClusterMap, GroupId, NodeId};
use cairn_cluster::control::forecast::{Forecast, RATE, emptying, unknown};
use cairn_cluster::control::{Edit, Status};

use super::edit::NodeArgs;
use super::reach;
use crate::failure::Result;
use crate::output;

const POLL: Duration = Duration::from_secs(1);
/// Time without progress after which the reason is printed.
const STILL: Duration = Duration::from_secs(60);

/// Move the blocks of a chunkserver elsewhere; it goes on serving meanwhile
///
/// It is refused where the node would never be empty: there are too few other chunkservers, or they
/// have no room.
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
        return Err(unknown(*node).into());
    }
    let forecast = emptying(&status, *node).map_err(reach::refusal)?;
    if args.dry_run {
        let others = map.places().filter(|(other, _)| other != node).count();
        output::line(format!(
            "{} groups, {} would be copied to {others} other nodes",
            groups(map, *node),
            indicatif::BinaryBytes(bytes_of(&status, *node))
        ))?;
        show(&forecast)?;
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

/// Waits until a draining node is in no group. Prints a line while nothing moves.
pub fn wait(dir: &Path, before: &ClusterMap, node: NodeId) -> Result<()> {
    let to_move = groups(before, node);
    let bar = output::count_bar(to_move, "groups moved");
    let mut left = to_move;
    let mut progress = Progress::new(Instant::now());
    while left > 0 {
        sleep(POLL);
        let status = reach::status(dir)?;
        left = groups(&status.map, node);
        bar.set_position(to_move.saturating_sub(left));
        if left > 0 && progress.is_still(copied(&status, node), Instant::now()) {
            bar.suspend(|| output::complain(&why_still(&status, node)));
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Notes since when the same progress was seen.
struct Progress {
    seen: (u64, u64),
    since: Instant,
}

impl Progress {
    fn new(now: Instant) -> Progress {
        Progress { seen: (0, 0), since: now }
    }

    /// Returns true if nothing has changed for [`STILL`]; then the time begins again.
    fn is_still(&mut self, seen: (u64, u64), now: Instant) -> bool {
        let is_still = seen == self.seen && now.saturating_duration_since(self.since) >= STILL;
        if seen != self.seen || is_still {
            *self = Progress { seen, since: now };
        }
        is_still
    }
}

/// Returns the number of groups of a node, and their bytes that other nodes have copied so far.
fn copied(status: &Status, node: NodeId) -> (u64, u64) {
    let is_of_node =
        |group: &GroupId| status.map.groups.get(group).is_some_and(|group| group.has(node));
    let copying = status.nodes.iter().flat_map(|node| &node.copying);
    let bytes = copying.filter(|one| is_of_node(&one.group)).map(|one| one.bytes).sum();
    (groups(&status.map, node), bytes)
}

fn why_still(status: &Status, node: NodeId) -> String {
    let (left, seconds) = (groups(&status.map, node), STILL.as_secs());
    let why = match emptying(status, node) {
        Err(error) => reach::refusal(error).to_string(),
        Ok(_) => "the logs of the chunkservers may say why".to_owned(),
    };
    format!("node {node} is in {left} groups, and nothing has moved for {seconds} s: {why}")
}

/// Prints the forecast: the bytes that move, their targets, and the duration.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_now_and_then_that_nothing_moves() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        assert!(!progress.is_still((8, 0), start));
        assert!(!progress.is_still((8, 0), start + STILL / 2));
        assert!(!progress.is_still((8, 1), start + STILL), "a block was copied");
        assert!(!progress.is_still((8, 1), start + STILL * 3 / 2));
        assert!(progress.is_still((8, 1), start + STILL * 2));
        assert!(!progress.is_still((8, 1), start + STILL * 5 / 2), "it was said");
        assert!(progress.is_still((8, 1), start + STILL * 3));
    }
}
