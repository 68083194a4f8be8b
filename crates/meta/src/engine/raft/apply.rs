//! The effect of each entry when it is applied: the state machine. The order of the log decides
//! which master is fenced, so a proposal of a former master is void wherever it stands.

use super::super::{Change, Fence};
use super::entry::{Entry, Proposal};
use super::member_record::{MemberRecord, Membership};

/// The outcome of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The entry takes effect.
    Done,
    /// A batch of a master that expected another fence; it is void.
    Fenced { found: Fence },
    /// A master begins, with this fence. `alone`: the former master has given its last answer.
    TookOver { fence: Fence, alone: bool },
}

/// One entry, prepared to be added to the rows.
pub struct Step {
    /// Fence after the entry.
    pub fence: Fence,
    pub changes: Vec<Change>,
    pub outcome: Outcome,
}

impl Step {
    /// Computes the effect of `entry` on rows whose fence is `fence`; updates `held`.
    pub fn of(entry: Entry, held: &mut MemberRecord, fence: Fence) -> Step {
        let Entry { id, proposal } = entry;
        held.applied = Some(id);
        let unchanged = |outcome| Step { fence, changes: Vec::new(), outcome };
        match proposal {
            Proposal::Empty => unchanged(Outcome::Done),
            Proposal::Members(members) => {
                held.membership = Membership { entry: Some(id), members };
                unchanged(Outcome::Done)
            }
            Proposal::GivenUp { epoch } => {
                // A late entry must not speak for the master that has taken over since.
                held.given_up |= epoch == fence.epoch;
                unchanged(Outcome::Done)
            }
            Proposal::Batch { expected, .. } if expected != fence => {
                unchanged(Outcome::Fenced { found: fence })
            }
            Proposal::Batch { changes, .. } => {
                held.given_up = false;
                let fence = Fence { batch: fence.batch + 1, ..fence };
                Step { fence, changes, outcome: Outcome::Done }
            }
            Proposal::TakeOver { batch } => {
                let alone = std::mem::take(&mut held.given_up);
                let fence = Fence { epoch: fence.epoch + 1, batch: fence.batch.max(batch) };
                Step { fence, changes: Vec::new(), outcome: Outcome::TookOver { fence, alone } }
            }
        }
    }
}
