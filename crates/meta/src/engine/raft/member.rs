//! A member: its disk, the library's core, and the task that keeps it in touch with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::{EmptyNode, Raft, ServerState};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::super::Fence;
use super::apply::Outcome;
use super::entry::{EntryId, Proposal};
use super::progress::Stall;
use super::receiving::Receiving;
use super::record::Vote;
use super::shared::MemberShared;
use super::types::{Types, id_of, vote_of};

/// Interval between two looks whether the last task of a closed member has ended.
const CLOSING: Duration = Duration::from_millis(2);
/// Interval between two looks at the applied entries.
const APPLIED_LOOK: Duration = Duration::from_millis(5);

/// One of several masters' members, which keep a log together.
pub struct Member {
    pub(super) shared: Arc<MemberShared>,
    pub(super) raft: Raft<Types>,
    /// Term that this process sees itself lead, and since when.
    pub(super) led: Mutex<Option<Lead>>,
    pub(super) votes: Arc<Semaphore>,
    pub(super) messages: Arc<Semaphore>,
    pub(super) receiving: tokio::sync::Mutex<Option<Receiving>>,
    /// Runtime of the tasks, which outlive the thread that asks for them.
    pub(super) runtime: Handle,
    pub(super) watching: Mutex<Option<JoinHandle<()>>>,
    /// The scrub, and the comparison with others.
    pub(super) scrubbing: Mutex<Vec<JoinHandle<()>>>,
    /// Last entry that was reported to the library as purged.
    pub(super) told_purged: Mutex<Option<u64>>,
    /// Stalls, with their durations.
    pub(super) stalls: Mutex<BTreeMap<Stall, Duration>>,
}

/// A term that this member leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    pub term: u64,
    /// Time when this process first saw it.
    pub since: Duration,
}

/// The state of the library's core.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub vote: Vote,
    pub leads: bool,
    /// Sets of voters; a majority of each decides.
    pub voters: Vec<BTreeSet<u64>>,
    /// Number of entries that are committed as far as this member knows: an index plus one.
    pub committed: u64,
}

/// The reason for which a proposal has no outcome.
#[derive(Debug)]
pub(super) enum ProposalFailure {
    /// Another member leads, or none. The proposal may be in the log, or not.
    NotLeader,
    /// The member accepts nothing more.
    Ended(Error),
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("id", &self.shared.me).finish_non_exhaustive()
    }
}

impl View {
    pub fn is_voter(&self, member: u64) -> bool {
        self.voters.iter().any(|ids| ids.contains(&member))
    }

    /// Returns whether no members are known. A new member knows none until it hears of a log, and
    /// votes for members that have one.
    pub fn names_nobody(&self) -> bool {
        self.voters.iter().all(BTreeSet::is_empty)
    }

    /// Returns whether `ids` are a majority of each set.
    pub fn is_majority(&self, ids: &BTreeSet<u64>) -> bool {
        let is_majority = |of: &BTreeSet<u64>| of.intersection(ids).count() * 2 > of.len();
        !self.voters.is_empty() && self.voters.iter().all(is_majority)
    }
}

impl Member {
    pub fn id(&self) -> u64 {
        self.shared.me
    }

    /// Returns the fence as of the last entry that is applied here.
    pub fn fence(&self) -> Fence {
        self.shared.store.fence()
    }

    /// Makes the first entry of a new log, which names its members. Called once, on one of them.
    ///
    /// # Errors
    /// `Exists` if there is a log, `Invalid` for members without this one.
    pub async fn found(&self, members: &BTreeSet<u64>) -> Result<()> {
        let nodes: BTreeMap<u64, EmptyNode> =
            members.iter().map(|id| (*id, EmptyNode {})).collect();
        match self.raft.initialize(nodes).await {
            Ok(()) => Ok(()),
            Err(RaftError::APIError(InitializeError::NotAllowed(error))) => {
                Err(Error::Exists(format!("a log of metadata: {error}")))
            }
            Err(RaftError::APIError(error)) => Err(Error::Invalid(error.to_string())),
            Err(RaftError::Fatal(fatal)) => Err(Error::Unavailable(fatal.to_string())),
        }
    }

    /// Ends the member. On return, no part of it uses the disk, which may be opened again.
    pub async fn close(&self) {
        self.shared.end();
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the core of the consensus library failed");
        }
        let scrubbing = std::mem::take(&mut *self.scrubbing.lock());
        let watching = self.watching.lock().take();
        for task in watching.into_iter().chain(scrubbing) {
            let _ = task.await;
        }
        self.receiving.lock().await.take();
    }

    /// Closes like `close`, and waits until all tasks have released the member's disk.
    pub async fn close_all(self: Arc<Self>) {
        self.close().await;
        let store = Arc::downgrade(&self.shared.store);
        drop(self);
        while store.strong_count() > 0 {
            tokio::time::sleep(CLOSING).await;
        }
    }

    /// Returns the last term that this member leads, if it does, as far as it knows.
    pub async fn lead(&self) -> Option<Lead> {
        self.try_lead().await.ok().flatten()
    }

    /// Returns the same as `lead`, or an error if the library's core has ended.
    pub(super) async fn try_lead(&self) -> Result<Option<Lead>> {
        self.view().await?;
        Ok(*self.led.lock())
    }

    /// Returns whether `member` was a member before this generation began, and no longer is.
    pub fn is_former(&self, member: u64) -> bool {
        self.shared.seams.peers.former().contains(&member)
    }

    /// Returns the reason why this member no longer takes part, if a newer generation has begun
    /// without it.
    pub fn superseded(&self) -> Option<String> {
        self.shared.superseded()
    }

    /// Asks the core itself, as earlier notes may be out of date.
    pub(super) async fn view(&self) -> Result<View> {
        let look = |state: &openraft::RaftState<_, _, _>| View {
            vote: vote_of(state.vote_ref()),
            leads: state.server_state == ServerState::Leader,
            voters: state.membership_state.effective().membership().get_joint_config().clone(),
            committed: state.committed.map_or(0, |id| id.index + 1),
        };
        let view = self.raft.with_raft_state(look).await;
        let view = view.map_err(ended)?;
        let mut led = self.led.lock();
        let term = view.vote.term;
        match *led {
            _ if !view.leads => *led = None,
            Some(lead) if lead.term == term => {}
            _ => {
                self.shared.contact.set_deaf(false);
                *led = Some(Lead { term, since: self.shared.now() });
            }
        }
        Ok(view)
    }

    /// Appends `proposal` to the log; returns when it is applied here.
    pub(super) async fn propose(
        &self,
        proposal: Proposal,
    ) -> Result<(EntryId, Outcome), ProposalFailure> {
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok((id_of(written.log_id), written.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(ProposalFailure::NotLeader)
            }
            Err(error) => Err(ProposalFailure::Ended(Error::Unavailable(format!(
                "the consensus library takes nothing more: {error}"
            )))),
        }
    }

    /// Proves that this member leads, and that it has applied everything that was committed before
    /// the call. Returns `false` if that failed in time.
    pub(super) async fn confirm(&self) -> bool {
        let Ok((read, _)) = self.raft.get_read_log_id().await else { return false };
        let next = read.map_or(0, |id| id.index + 1);
        if is_planted(Bug::ReadBeforeTerm) {
            return true;
        }
        let begun = self.shared.now();
        while self.shared.store.applied_next() < next {
            let late = self.shared.now().saturating_sub(begun) > self.shared.timing.lease;
            if late || self.shared.rest(APPLIED_LOOK).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Makes the error of a library core that has ended.
pub(super) fn ended(fatal: openraft::error::Fatal<u64>) -> Error {
    Error::Unavailable(fatal.to_string())
}
