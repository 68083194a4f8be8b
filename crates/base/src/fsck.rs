//! Fscks of a cluster: progress and findings.

use crate::scrub::DegradedObjects;
use crate::{NodeId, Timestamp};

/// The current step of an fsck, or the way it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsckPhase {
    /// This master has run no such fsck, or has run another one since.
    #[default]
    Unknown,
    /// Compares rows with each other.
    Rows,
    /// Compares the blocks that rows name with those that chunkservers have.
    Blocks,
    /// Finds the names of the affected objects.
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

    /// Decodes a number; one of a newer version is [`FsckPhase::Unknown`].
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

/// The node, and the user if there is one, that ordered an fsck.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orderer {
    pub node: NodeId,
    /// User for whom the node asked; empty if it asked for itself.
    pub user: String,
}

/// Progress and counts of an fsck of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckState {
    pub run: u64,
    pub phase: FsckPhase,
    pub begun: Timestamp,
    /// Time of its end; 0 while it runs.
    pub ended: Timestamp,
    pub by: Orderer,
    /// Rows read so far, in all passes together; `total_rows` is an estimate.
    pub rows: u64,
    pub total_rows: u64,
    /// Blocks compared so far.
    pub blocks: u64,
    /// Groups whose blocks have been compared, of `total_groups`.
    pub groups: u64,
    pub total_groups: u64,
    pub buckets: u64,
    pub directories: u64,
    /// Inodes that are not directories.
    pub files: u64,
    /// Contradictions in the metadata.
    pub findings: u64,
    pub lost_blocks: u64,
    pub degraded_blocks: u64,
    /// Blocks for which too few members reported whether they have them.
    pub unknown_blocks: u64,
    /// Reason why it failed, or why its state is unknown.
    pub failure: String,
}

impl FsckState {
    /// Returns whether the fsck came to its end and found nothing.
    pub fn is_clean(&self) -> bool {
        let found = [self.findings, self.lost_blocks, self.degraded_blocks, self.unknown_blocks];
        self.phase == FsckPhase::Ended && found == [0; 4]
    }
}

/// The results of an fsck.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckFound {
    /// Contradictions in the metadata: the subject of each (`bucket/key` if it has a name), and its
    /// description.
    pub findings: Vec<(String, String)>,
    /// Objects of blocks with too few replicas, and nodes that did not list their blocks.
    pub degraded: DegradedObjects,
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
