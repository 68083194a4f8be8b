//! `cairn cluster recover`: lets one master go on alone if the majority is lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::{Clock, ClusterMap, NodeId, RealDisk, Role};
use cairn_meta::engine::Snapshot;
use cairn_meta::engine::raft::MemberStore;
use cairn_meta::keys;

use super::anew::{Beginning, KEEP_OFF};
use super::edit::node;
use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::node::directory_of;
use crate::offline::store::frozen_engine;
use crate::output;

/// Go on with one master, if a majority of them is lost for good
///
/// DIR is that of a master whose process is stopped. Without --accept-loss the command only tells
/// how far this master and all others are that can be reached, and what may be lost. With it, this
/// master becomes the only one, and the others are given up: let new directories join in their
/// place. They are told so when they come back and reach this master. Keep them switched off until
/// they can.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster recover /srv/cairn-master
  cairn cluster recover /srv/cairn-master --accept-loss 2,3")]
pub struct RecoverArgs {
    /// The directory of the master that is to go on
    dir: PathBuf,
    /// Do it, and give up these masters, which are all others: changes that only they had are lost
    #[arg(long, value_name = "NODES", value_delimiter = ',', value_parser = node)]
    accept_loss: Option<Vec<NodeId>>,
}

pub fn run(args: &RecoverArgs) -> Result<ExitCode> {
    let own = directory_of(&args.dir, Role::Master);
    let dir = DataDir::open(&own, MetaPlace::Directory)?;
    if dir.format.meta != MetaPlace::Members {
        let shown = args.dir.display();
        let text = "is not the directory of one of several masters: there is nothing to recover";
        return Err(Failure::new(format!("{shown}: {text}")));
    }
    // This map includes all entries of the log, of which the store has applied none when it is
    // opened.
    let map = map_of(&*frozen_engine(&dir)?.snapshot()?)?;
    let path = dir.meta();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let opened = MemberStore::open_any(Arc::new(disk), dir.sizes.of_meta());
    let store = opened.map_err(|error| Failure::from(error).of(path.display()))?;
    let beginning = Beginning::of(&args.dir, &map)?;
    show(&store, &beginning)?;
    beginning.check_newest(store.generation())?;
    beginning.check_not_denied()?;
    check_majority(&store, &beginning)?;
    output::line(
        "What may be lost: every change since then that only masters had that are lost. That is \
         nothing if none was acknowledged while this master was away or behind.",
    )?;
    let last = end_of(&store);
    let mut reports = beginning.reports();
    let ahead = reports.find(|one| one.generation == store.generation() && one.last > last);
    if let Some(node) = ahead.map(|report| NodeId(report.member)) {
        return Err(Failure::new(format!(
            "the log of node {node} goes further: recover with its directory, and lose less"
        )));
    }
    let Some(named) = &args.accept_loss else {
        let others = beginning.names();
        output::line(format!(
            "Nothing was changed. To go on with this master alone, say --accept-loss {others}\n\
             {KEEP_OFF}"
        ))?;
        return Ok(ExitCode::from(1));
    };
    beginning.check_named(named, "--accept-loss")?;
    let former = store.generation().max(store.superseded());
    let generation = map.next_generation(former, RealClock::default().now());
    let next = beginning.map(&map, generation)?;
    store.survive(generation, vec![(keys::map(), Some(next.encode()))])?;
    let own = NodeId(store.member());
    drop(store);
    output::line(format!(
        "Node {own} is the only master now, in generation {generation}: start it, and let new \
         masters join (cairn cluster token DIR --role master).\n{KEEP_OFF}"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns term and index of the last entry of the log.
fn end_of(store: &MemberStore) -> (u64, u64) {
    let last = store.last().or(store.applied().0);
    last.map_or((0, 0), |id| (id.term, id.index))
}

fn show(store: &MemberStore, beginning: &Beginning) -> Result<()> {
    let (own, (term, index)) = (NodeId(store.member()), end_of(store));
    output::line(format!("node {own}, this one: its log ends at term {term}, index {index}"))?;
    for report in beginning.reports() {
        let (node, (term, index)) = (NodeId(report.member), report.last);
        output::line(format!("node {node}: its log ends at term {term}, index {index}"))?;
    }
    for (asked, why) in beginning.silent() {
        let node = asked.node.map_or("?".into(), |node| node.to_string());
        output::line(format!("node {node} at {}: {why}", asked.address))?;
    }
    match store.superseded() {
        0 => Ok(()),
        newer => output::line(format!(
            "This master was given up: generation {newer} has begun without it. What was \
             acknowledged since then is lost as well if this one goes on."
        )),
    }
}

/// Checks that the majority is lost.
///
/// # Errors
/// If most masters of the log answer, and this one is among them.
fn check_majority(store: &MemberStore, beginning: &Beginning) -> Result<()> {
    let voters = store.members()?.voters;
    let is_there = |id: u64| {
        let mut reports = beginning.reports();
        id == store.member()
            || reports.any(|report| report.member == id && report.failure.is_empty())
    };
    let is_majority =
        |ids: &BTreeSet<u64>| ids.iter().filter(|id| is_there(**id)).count() * 2 > ids.len();
    if voters.is_empty() || store.superseded() > 0 || !voters.iter().all(is_majority) {
        return Ok(());
    }
    Err(Failure::new(
        "a majority of the masters is there with this one: start it (cairn master), and nothing is \
         lost",
    ))
}

fn map_of(rows: &dyn Snapshot) -> cairn_base::Result<ClusterMap> {
    let row: Option<Bytes> = rows.get(&[keys::map()])?.into_iter().next().flatten();
    let none = || cairn_base::Error::NotFound("there is no cluster map in these metadata".into());
    ClusterMap::decode(&row.ok_or_else(none)?)
}
