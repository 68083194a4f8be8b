//! A snapshot that comes late, to a member whose log goes on after it.
//!
//! In the world of `world.rs` no leader sends one to such a member: it sends one only if the log
//! of that member ends before the snapshot, and nothing else until it is installed. So this is
//! done on the disks themselves.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::planted::{Bug, plant};
use cairn_base::rng::SeededRng;
use cairn_meta::engine::raft::entry::{Entry, EntryId, Proposal};
use cairn_meta::engine::raft::{MemberStore, Vote};
use cairn_meta::engine::{Fence, Snapshot};
use cairn_sim::SimDisk;

use crate::member::config;

pub fn open(disk: &SimDisk, rng: &Arc<SeededRng>) -> Result<MemberStore> {
    MemberStore::open(Arc::new(disk.clone()), config(rng), 1)
}

/// All rows of a state.
pub fn rows(snapshot: Box<dyn Snapshot>) -> Result<Vec<(Bytes, Bytes)>> {
    snapshot.scan(b"", &[0xff; 40], usize::MAX)
}

pub fn entries(rng: &SeededRng, count: u64) -> Vec<Entry> {
    let entry = |index| {
        let key = format!("r{}", rng.below(8)).into();
        let row = vec![index as u8; 1 + rng.below(400) as usize].into();
        let expected = Fence { epoch: 0, batch: index };
        let proposal = Proposal::Batch { expected, changes: vec![(key, Some(row))] };
        Entry { id: EntryId { term: 1, index }, proposal }
    };
    (0..count).map(entry).collect()
}

/// Some entries are applied at the receiver, all of its log is acknowledged; the power fails after
/// the snapshot. All of the log must be there.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    plant(bug);
    let result = install(seed).map_err(|error| error.to_string());
    plant(None);
    result.and_then(|lost| if lost == 0 { Ok(()) } else { Err(format!("{lost} entries are lost")) })
}

/// Installs a snapshot; returns the number of lost entries.
fn install(seed: u64) -> Result<usize> {
    let rng = Arc::new(SeededRng::new(seed));
    let log = entries(&rng, 20 + rng.below(40));
    let sent = 2 + rng.below(log.len() as u64 - 2) as usize;
    let applied = rng.below(sent as u64 - 1) as usize;
    let source = open(&SimDisk::new(seed << 1), &rng)?;
    source.append(log[..sent].to_vec())?;
    source.apply(log[..sent].to_vec())?;
    let disk = SimDisk::new(seed << 1 | 1);
    let target = open(&disk, &rng)?;
    target.save_vote(Vote { term: 1, member: 1, committed: true })?;
    for part in log.chunks(7) {
        target.append(part.to_vec())?;
    }
    target.apply(log[..applied].to_vec())?;
    let Some(mut outgoing) = source.take_snapshot() else { return Ok(0) };
    let mut incoming = target.receive_snapshot()?;
    while let Some(page) = outgoing.page()? {
        incoming.add(page)?;
    }
    incoming.sync()?;
    target.install_snapshot(&outgoing.taken, incoming)?;
    let left = disk.crash_image(seed);
    target.abandon();
    let target = open(&left, &rng)?;
    let rest = target.entries(sent as u64, log.len() as u64, usize::MAX)?;
    let lost = log.len() - sent - rest.len();
    target.apply(rest)?;
    source.append(log[sent..].to_vec())?;
    source.apply(log[sent..].to_vec())?;
    let same = lost > 0 || rows(source.snapshot())? == rows(target.snapshot())?;
    Ok(if same { lost } else { log.len() })
}
