//! `cairn cluster recover`: one master goes on alone, where the majority is lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{ClusterMap, NodeId, RealDisk, Role, Roles};
use cairn_meta::engine::Snapshot;
use cairn_meta::engine::raft::MemberStore;
use cairn_meta::keys;

use super::members::{self, MastersSaid, MembersShown};
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::node::{ThisNode, directory_of};
use crate::offline::store::frozen_engine;
use crate::output;

/// Nodes may have maps of the lost masters that this one never had: its next map is newer than any
/// of these.
const EPOCHS: u64 = 1 << 20;

/// Go on with one master, if a majority of them is lost for good
///
/// DIR is that of a master whose process is stopped. Without --accept-loss the command only tells
/// how far this master and all others are that can be reached, and what may be lost. With it, this
/// master becomes the only one, the others are removed from the cluster, and their metadata are
/// refused when they come back: let new directories join in their place.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster recover /srv/cairn-master
  cairn cluster recover /srv/cairn-master --accept-loss")]
pub struct RecoverArgs {
    /// The directory of the master that is to go on
    dir: PathBuf,
    /// Do it: changes that only lost masters had are lost
    #[arg(long)]
    accept_loss: bool,
}

pub fn run(args: &RecoverArgs) -> Result<ExitCode> {
    let own = directory_of(&args.dir, Role::Master);
    let dir = DataDir::open(&own, MetaPlace::Directory)?;
    if dir.format.meta != MetaPlace::Members {
        let shown = args.dir.display();
        let text = "is not the directory of one of several masters: there is nothing to recover";
        return Err(Failure::new(format!("{shown}: {text}")));
    }
    // With all entries of the log, of which the store has applied none when it is opened.
    let map = map_of(&*frozen_engine(&dir)?.snapshot()?)?;
    let path = dir.meta();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let opened = MemberStore::open_any(Arc::new(disk), dir.sizes.of_meta());
    let store = opened.map_err(|error| Failure::from(error).of(path.display()))?;
    let own = NodeId(store.member());
    let last = store.last().or(store.applied().0);
    let (term, index) = last.map_or((0, 0), |id| (id.term, id.index));
    let voters = store.members()?.voters;
    let said = ask(args, &map)?;
    let others = said.members();
    output::line(format!("node {own}, this one: its log ends at term {term}, index {index}"))?;
    let mut ahead = None;
    let reports = others.into_iter().flat_map(MembersShown::reports);
    for report in reports.filter(|one| one.member != own.0) {
        let (node, (its_term, its_index)) = (NodeId(report.member), report.last);
        output::line(format!("node {node}: its log ends at term {its_term}, index {its_index}"))?;
        if report.generation == store.generation() && report.last > (term, index) {
            ahead = Some(node);
        }
    }
    for (node, address, why) in others.into_iter().flat_map(MembersShown::silent) {
        let node = node.map_or("?".into(), |node| NodeId(node).to_string());
        if node != own.to_string() {
            output::line(format!("node {node} at {address}: {why}"))?;
        }
    }
    if !voters.is_empty() && voters.iter().all(|ids| is_majority(ids, own, others)) {
        return Err(Failure::new(
            "a majority of the masters is there with this one: start it (cairn master), and \
             nothing is lost",
        ));
    }
    output::line(
        "What may be lost: every change since then that only masters had that are lost. That is \
         nothing if none was acknowledged while this master was away or behind.",
    )?;
    if let Some(node) = ahead {
        return Err(Failure::new(format!(
            "the log of node {node} goes further: recover with its directory, and lose less"
        )));
    }
    if !args.accept_loss {
        output::line("Nothing was changed: say --accept-loss to go on with this master alone.")?;
        return Ok(ExitCode::from(1));
    }
    store.survive(|store| {
        let map = map_of(&*store.snapshot())?;
        let next = without_others(&map, own);
        next.check()?;
        Ok(vec![(keys::map(), Some(next.encode()))])
    })?;
    let generation = store.generation();
    drop(store);
    output::line(format!(
        "Node {own} is the only master now, in generation {generation}: start it, and let new \
         masters join (cairn cluster token --role master)."
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether most of these masters answer; this one does.
fn is_majority(ids: &BTreeSet<u64>, own: NodeId, others: Option<&MembersShown>) -> bool {
    let is_heard = |id: u64| {
        others.into_iter().flat_map(MembersShown::reports).any(|report| report.member == id)
    };
    ids.iter().filter(|id| **id == own.0 || is_heard(**id)).count() * 2 > ids.len()
}

fn map_of(rows: &dyn Snapshot) -> cairn_base::Result<ClusterMap> {
    let row: Option<Bytes> = rows.get(&[keys::map()])?.into_iter().next().flatten();
    let none = || cairn_base::Error::NotFound("there is no cluster map in these metadata".into());
    ClusterMap::decode(&row.ok_or_else(none)?)
}

/// Asks the other masters.
fn ask(args: &RecoverArgs, map: &ClusterMap) -> Result<MastersSaid> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = ThisNode::open(&args.dir, Role::Master)?;
        node.view.adopt_rows(&Arc::new(map.clone()));
        // That map is as old as the metadata here: it does not say who is up now.
        members::ask_as(&node, Role::Master, Some(map), |_| true).await
    })
}

/// The map in which `own` is the only master. A node that has other roles too keeps these.
fn without_others(map: &ClusterMap, own: NodeId) -> ClusterMap {
    let mut next = map.clone();
    for (id, node) in &mut next.nodes {
        if *id != own {
            let left: Roles = node.pin.roles.iter().filter(|role| *role != Role::Master).collect();
            node.pin.roles = left;
        }
    }
    next.nodes.retain(|_, node| !node.pin.roles.is_empty());
    next.follow(map);
    next.epoch = map.epoch + EPOCHS;
    next
}

#[cfg(test)]
mod tests {
    use cairn_base::map::Node;
    use cairn_base::{KeyHash, Pin};

    use super::*;

    #[test]
    fn the_map_of_a_survivor_has_no_other_master() {
        let node = |roles: Roles| Node::new(Pin { key: KeyHash([1; 32]), roles });
        let both = Roles::from(Role::Master).with(Role::Gateway);
        let nodes = [
            (NodeId(1), node(Role::Master.into())),
            (NodeId(2), node(Role::Master.into())),
            (NodeId(3), node(both)),
            (NodeId(4), node(Role::Chunkserver.into())),
        ];
        let map = ClusterMap {
            epoch: 7,
            replicas: 1,
            minimum: 1,
            nodes: nodes.into(),
            next_node: 5,
            ..ClusterMap::default()
        };
        let next = without_others(&map, NodeId(2));
        next.check().unwrap();
        assert_eq!(next.epoch, 7 + EPOCHS);
        let roles: Vec<_> = next.nodes.iter().map(|(id, node)| (id.0, node.pin.roles)).collect();
        let expected =
            [(2, Role::Master.into()), (3, Role::Gateway.into()), (4, Role::Chunkserver.into())];
        assert_eq!(roles, expected);
    }
}
