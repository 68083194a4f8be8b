//! `cairn cluster rebalance`: gives every chunkserver its share of the bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use cairn_base::{ClusterMap, GroupId};
use cairn_cluster::control::balance::moves;
use cairn_cluster::control::forecast::bytes_by_group;
use cairn_cluster::control::{Edit, Move, shares};
use indicatif::BinaryBytes;

use super::reach;
use crate::failure::{Failure, Result};
use crate::output;

/// Groups that move at the same time: they take no writes meanwhile.
const TOGETHER: usize = 2;
const POLL: Duration = Duration::from_secs(1);

/// Move groups of blocks so that every chunkserver has its share, by its weight
///
/// Nodes that were added get only new data until then. Moves two groups at a time, each whole all
/// the time; when it is interrupted, what has begun is brought to its end and no more is begun.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster rebalance /srv/cairn-master --dry-run
  cairn cluster rebalance /srv/cairn-master")]
pub struct RebalanceArgs {
    /// The directory of a master
    dir: PathBuf,
    /// Show what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &RebalanceArgs) -> Result<ExitCode> {
    let status = reach::status(&args.dir)?;
    let map = &status.map;
    let bytes = bytes_by_group(&status);
    let planned = moves(map, &bytes);
    let size = |wanted: &Move| bytes.get(&wanted.group).copied().unwrap_or(0);
    let total = planned.iter().map(size).sum();
    if args.dry_run {
        show(map, &bytes, &planned)?;
    }
    let (groups, shown) = (planned.len(), BinaryBytes(total));
    output::line(match groups {
        0 => "every node has its share".to_owned(),
        _ => format!("{groups} groups to move, {shown} in all"),
    })?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    match carry_out(&args.dir, &bytes, planned)? {
        0 => Ok(ExitCode::SUCCESS),
        failed => Err(Failure::new(format!(
            "{failed} of {groups} groups were not moved, as nodes or groups changed meanwhile: \
             run it again"
        ))),
    }
}

/// Makes moves, a few at a time. Returns the number of moves that were not made.
pub fn carry_out(dir: &Path, bytes: &BTreeMap<GroupId, u64>, planned: Vec<Move>) -> Result<usize> {
    let total = planned.iter().filter_map(|wanted| bytes.get(&wanted.group)).sum();
    let bar = output::bytes_bar(total, "moving");
    let mut work = Work { dir, bytes, running: Vec::new(), moved: 0, failed: 0 };
    let mut planned = planned.into_iter().peekable();
    while planned.peek().is_some() || !work.running.is_empty() {
        while work.running.len() < TOGETHER
            && let Some(wanted) = planned.next_if(|next| !work.moves(next.group))
        {
            work.begin(wanted);
        }
        sleep(POLL);
        bar.set_position(work.look()?);
    }
    bar.finish_and_clear();
    Ok(work.failed)
}

fn show(map: &ClusterMap, bytes: &BTreeMap<GroupId, u64>, planned: &[Move]) -> Result<()> {
    let nodes = shares(map, bytes).into_iter().map(|(node, (has, share))| {
        vec![node.to_string(), BinaryBytes(has).to_string(), BinaryBytes(share).to_string()]
    });
    output::table(&["node", "has", "share"], nodes.collect())?;
    let rows = planned.iter().map(|Move { group, from, to }| {
        let size = bytes.get(group).copied().unwrap_or(0);
        vec![group.to_string(), from.to_string(), to.to_string(), BinaryBytes(size).to_string()]
    });
    output::table(&["group", "from", "to", "bytes"], rows.collect())
}

struct Work<'a> {
    dir: &'a Path,
    bytes: &'a BTreeMap<GroupId, u64>,
    running: Vec<Move>,
    /// Bytes of the groups that have moved.
    moved: u64,
    failed: usize,
}

impl Work<'_> {
    fn moves(&self, group: GroupId) -> bool {
        self.running.iter().any(|running| running.group == group)
    }

    fn begin(&mut self, wanted: Move) {
        match reach::edit(self.dir, Edit::Move(wanted)) {
            Ok(()) => self.running.push(wanted),
            Err(error) => {
                self.failed += 1;
                output::complain(&format!("group {} was not moved: {error}", wanted.group));
            }
        }
    }

    /// Notes which moves have ended; returns the bytes copied so far.
    fn look(&mut self) -> Result<u64> {
        let status = reach::status(self.dir)?;
        let size = |group: GroupId| self.bytes.get(&group).copied().unwrap_or(0);
        let mut copied = 0;
        let mut running = Vec::new();
        for wanted in self.running.drain(..) {
            let members =
                status.map.groups.get(&wanted.group).map_or(&[][..], |group| &group.members);
            match members.iter().find(|member| member.node == wanted.from) {
                None => self.moved += size(wanted.group),
                Some(member) if !member.is_leaving => self.failed += 1,
                Some(_) => {
                    let copying = status.nodes.iter().flat_map(|node| &node.copying);
                    let same = copying.filter(|one| one.group == wanted.group);
                    copied += same.map(|one| one.bytes).sum::<u64>().min(size(wanted.group));
                    running.push(wanted);
                }
            }
        }
        self.running = running;
        Ok(self.moved + copied)
    }
}
