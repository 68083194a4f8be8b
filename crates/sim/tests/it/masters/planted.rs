//! Promises that are broken on purpose: in the product, or in what stands for it in this world.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::planted::Bug;
use cairn_meta::engine::raft::entry::Proposal;
use cairn_meta::engine::raft::message::{self, Message};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    Of(Bug),
    /// A member that has lost its disk takes part again under its former id.
    WipedVotes,
    /// A member that learns of a change of members still counts removed ones.
    RemovedVotes,
    /// The clock by which leases count stands still while a machine is suspended.
    ClockStops,
}

impl Planted {
    pub fn of_product(planted: Option<Planted>) -> Option<Bug> {
        match planted {
            Some(Planted::Of(bug)) => Some(bug),
            _ => None,
        }
    }

    pub fn name(self) -> String {
        match self {
            Planted::Of(bug) => format!("{bug:?}"),
            other => format!("{other:?}"),
        }
    }
}

/// Voters that each member has learned of.
#[derive(Default)]
pub struct ToldVoters {
    told: BTreeMap<u64, BTreeSet<u64>>,
}

impl ToldVoters {
    /// Returns the same message, changed so that all former voters still vote.
    pub fn keep(&mut self, to: u64, bytes: &Bytes) -> Result<Bytes> {
        let (envelope, mut parsed) = message::parse(bytes)?;
        let Message::Append { entries, .. } = &mut parsed else { return Ok(bytes.clone()) };
        let told = self.told.entry(to).or_default();
        for entry in entries {
            let Proposal::Members(members) = &mut entry.proposal else { continue };
            told.extend(members.voters.iter().flatten());
            members.voters.iter_mut().for_each(|ids| ids.extend(told.iter()));
        }
        message::encode(envelope, &parsed)
    }
}
