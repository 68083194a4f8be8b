//! An fsck of the cluster, as it is ordered, as it stands, and what it found.

use std::sync::{Arc, OnceLock};

use cairn_base::{Error, NodeId, Result, Timestamp};
use parking_lot::Mutex;

use super::controller::Controller;
use super::degraded::DegradedObjects;
use super::paced::Going;
use super::scrubbing::check_number;
use crate::data::RunOrder;
use crate::limits::FSCK_USER_BYTES;

/// How an fsck stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsckPhase {
    /// This master has made none, or another one since.
    #[default]
    Unknown,
    /// It compares rows with each other.
    Rows,
    /// It compares blocks that rows name with those that chunkservers have.
    Blocks,
    /// It names the objects.
    Names,
    Ended,
    Stopped,
    Failed,
    /// It ended because another master serves.
    Replaced,
}

impl FsckPhase {
    pub const ALL: [FsckPhase; 8] = [
        FsckPhase::Unknown,
        FsckPhase::Rows,
        FsckPhase::Blocks,
        FsckPhase::Names,
        FsckPhase::Ended,
        FsckPhase::Stopped,
        FsckPhase::Failed,
        FsckPhase::Replaced,
    ];

    pub fn number(self) -> u32 {
        self as u32
    }

    /// A number of a newer version is [`FsckPhase::Unknown`].
    pub fn from_number(number: u32) -> FsckPhase {
        Self::ALL.into_iter().find(|phase| phase.number() == number).unwrap_or_default()
    }

    pub fn word(self) -> &'static str {
        match self {
            FsckPhase::Unknown => "unknown",
            FsckPhase::Rows => "rows",
            FsckPhase::Blocks => "blocks",
            FsckPhase::Names => "names",
            FsckPhase::Ended => "ended",
            FsckPhase::Stopped => "stopped",
            FsckPhase::Failed => "failed",
            FsckPhase::Replaced => "replaced",
        }
    }

    pub fn is_under_way(self) -> bool {
        matches!(self, FsckPhase::Rows | FsckPhase::Blocks | FsckPhase::Names)
    }
}

/// Who ordered an fsck.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orderer {
    pub node: NodeId,
    /// For whom the node asked; empty where it asked for itself.
    pub user: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckState {
    pub run: u64,
    pub phase: FsckPhase,
    pub begun: Timestamp,
    /// 0 while it runs.
    pub ended: Timestamp,
    pub by: Orderer,
    /// Read in all passes, and about how many these have.
    pub rows: u64,
    pub total_rows: u64,
    /// Compared so far.
    pub blocks: u64,
    /// Of the blocks that are compared now.
    pub groups: u64,
    pub total_groups: u64,
    pub buckets: u64,
    pub directories: u64,
    /// Inodes that are not directories.
    pub files: u64,
    /// What does not fit in the metadata.
    pub findings: u64,
    pub lost_blocks: u64,
    pub degraded_blocks: u64,
    /// Blocks of which not enough members said whether they have them.
    pub unknown_blocks: u64,
    /// Why it failed, or is not known.
    pub failure: String,
}

impl FsckState {
    /// Whether it came to its end and found nothing.
    pub fn is_clean(&self) -> bool {
        let found = [self.findings, self.lost_blocks, self.degraded_blocks, self.unknown_blocks];
        self.phase == FsckPhase::Ended && found == [0; 4]
    }
}

/// What an fsck found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckFound {
    /// What each finding of the metadata is about, `bucket/key` where it has a name, and what does
    /// not fit.
    pub findings: Vec<(String, String)>,
    /// The objects of blocks with too few replicas, and nodes that did not list what they have.
    pub degraded: DegradedObjects,
}

/// The fsck that runs, or ended last.
pub(super) struct Fsck {
    pub going: Going,
    pub found: OnceLock<Arc<FsckFound>>,
    state: Mutex<FsckState>,
}

impl Fsck {
    pub(super) fn state(&self) -> FsckState {
        self.state.lock().clone()
    }

    pub(super) fn note<R>(&self, change: impl FnOnce(&mut FsckState) -> R) -> R {
        change(&mut self.state.lock())
    }

    fn is_under_way(&self) -> bool {
        self.state.lock().phase.is_under_way()
    }
}

impl Controller {
    /// Begins an fsck, stops it, or says how it stands. `run` is its number; 0 for the one that
    /// runs or ended last. While one runs no other begins: that one is answered about.
    ///
    /// # Errors
    /// `Unavailable` if this master serves no longer.
    pub fn fsck(self: &Arc<Self>, run: u64, order: RunOrder, by: Orderer) -> Result<FsckState> {
        check_number("an fsck", run, order)?;
        if by.user.len() > FSCK_USER_BYTES {
            let text = format!("the name of the user has more than {FSCK_USER_BYTES} bytes");
            return Err(Error::Invalid(text));
        }
        self.chunkserver_pool()?;
        self.master.check_serving()?;
        let mut latest = self.fsck.lock();
        match &*latest {
            Some(fsck) if order == RunOrder::Begin => {
                if fsck.is_under_way() || fsck.state().run == run {
                    return Ok(fsck.state());
                }
            }
            Some(fsck) if run == 0 || fsck.state().run == run => {
                if order == RunOrder::Stop {
                    fsck.going.stop();
                }
                return Ok(fsck.state());
            }
            None if order == RunOrder::Begin => {}
            known => return Ok(unknown(run, known.is_some())),
        }
        let state = FsckState { run, phase: FsckPhase::Rows, by, ..FsckState::default() };
        let state = FsckState { begun: self.clock.now(), ..state };
        let going = Going::new(self.master.clone());
        let fsck = Fsck { going, found: OnceLock::new(), state: Mutex::new(state.clone()) };
        let fsck = Arc::new(fsck);
        *latest = Some(Arc::clone(&fsck));
        tokio::spawn(Arc::clone(self).carry_out(fsck));
        Ok(state)
    }

    /// What an fsck found; nothing while it runs, or where it did not come to its end.
    ///
    /// # Errors
    /// `NotFound` if this master does not know it; `Unavailable` if it serves no longer.
    pub fn fsck_found(&self, run: u64) -> Result<Option<Arc<FsckFound>>> {
        self.master.check_serving()?;
        let latest = self.fsck.lock();
        match &*latest {
            Some(fsck) if run == 0 || fsck.state().run == run => Ok(fsck.found.get().cloned()),
            known => Err(Error::NotFound(unknown(run, known.is_some()).failure)),
        }
    }
}

/// Of an fsck that this master does not know. The former master may have made it.
fn unknown(run: u64, knows_another: bool) -> FsckState {
    let (phase, failure) = match (run, knows_another) {
        (0, _) => (FsckPhase::Unknown, "no fsck was made since this master serves"),
        (_, true) => (FsckPhase::Unknown, "it ended, and another fsck followed"),
        (_, false) => (FsckPhase::Replaced, "it ended because another master serves now"),
    };
    FsckState { run, phase, failure: failure.to_owned(), ..FsckState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_known_by_their_numbers() {
        for phase in FsckPhase::ALL {
            assert_eq!(FsckPhase::from_number(phase.number()), phase);
        }
        assert_eq!(FsckPhase::from_number(99), FsckPhase::Unknown);
    }

    #[test]
    fn one_that_did_not_end_or_found_something_is_not_clean() {
        let clean = FsckState { phase: FsckPhase::Ended, blocks: 5, ..FsckState::default() };
        assert!(clean.is_clean());
        for phase in FsckPhase::ALL.into_iter().filter(|phase| *phase != FsckPhase::Ended) {
            assert!(!FsckState { phase, ..clean.clone() }.is_clean(), "{phase:?}");
        }
        for found in 0..4 {
            let mut state = clean.clone();
            let counts = [
                &mut state.findings,
                &mut state.lost_blocks,
                &mut state.degraded_blocks,
                &mut state.unknown_blocks,
            ];
            *counts.into_iter().nth(found).unwrap() = 1;
            assert!(!state.is_clean(), "{state:?}");
        }
    }
}
