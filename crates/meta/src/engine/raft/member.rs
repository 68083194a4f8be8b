//! A member: its disk, the library's core, and the task that keeps it in touch with the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Disk, Error, Result};
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::{EmptyNode, Raft, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::super::Fence;
use super::super::config::Config;
use super::apply::Outcome;
use super::entry::{EntryId, Proposal};
use super::log::Log;
use super::machine::Machine;
use super::network::Network;
use super::receive::Receiving;
use super::record::Vote;
use super::shared::{Seams, Shared};
use super::store::MemberStore;
use super::timing::Timing;
use super::types::{Types, id_of, vote_of};
use super::watch;

/// Entries that are sent at once.
const ENTRIES_MAX: u64 = 300;
/// Votes and questions that are answered at the same time, and other messages.
const VOTES_AT_ONCE: usize = 32;
const MESSAGES_AT_ONCE: usize = 32;
/// Between two looks whether the last task of a member that is closed has ended.
const CLOSING: Duration = Duration::from_millis(2);
/// Between two looks at what is applied.
const APPLIED_LOOK: Duration = Duration::from_millis(5);

/// One of several masters' members that keep a log together.
pub struct Member {
    pub(super) shared: Arc<Shared>,
    pub(super) raft: Raft<Types>,
    /// Since when this process sees itself as the leader, and of which term.
    pub(super) led: Mutex<Option<Lead>>,
    pub(super) votes: Arc<Semaphore>,
    pub(super) messages: Arc<Semaphore>,
    pub(super) receiving: tokio::sync::Mutex<Option<Receiving>>,
    /// Tasks outlive the thread that asks for them.
    pub(super) runtime: Handle,
    watching: Mutex<Option<JoinHandle<()>>>,
}

/// A term that this member leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    pub term: u64,
    /// When this process saw it first.
    pub since: Duration,
}

/// The state of the library's core.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub vote: Vote,
    pub leads: bool,
    /// A majority of each decides.
    pub voters: Vec<BTreeSet<u64>>,
}

/// The reason for which a proposal has no outcome.
#[derive(Debug)]
pub(super) enum Unproposed {
    /// Another member leads, or none; the proposal may be in the log, or not.
    NotLeader,
    /// The member takes nothing more.
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

    /// Whether `ids` are a majority of each set.
    pub fn is_majority(&self, ids: &BTreeSet<u64>) -> bool {
        let is_majority = |of: &BTreeSet<u64>| of.intersection(ids).count() * 2 > of.len();
        !self.voters.is_empty() && self.voters.iter().all(is_majority)
    }
}

impl Member {
    /// Opens the disk of the member `id`, which must not be 0, and takes part. Called within a
    /// runtime, whose tasks do the work from then on.
    ///
    /// # Errors
    /// Those of [`MemberStore::open`].
    pub async fn open(
        disk: Arc<dyn Disk>,
        config: Config,
        id: u64,
        seams: Seams,
        timing: Timing,
    ) -> Result<Arc<Member>> {
        if id == 0 {
            return Err(Error::Invalid("no member has the id 0".into()));
        }
        let threads = seams.threads.clone();
        let opening = move || MemberStore::open(disk, config, id);
        let store = Arc::new(super::work::blocking(threads.as_ref(), opening).await?);
        let shared = Arc::new(Shared::new(store, seams, timing));
        let network = Network { shared: Arc::clone(&shared) };
        let (log, machine) = (Log::new(Arc::clone(&shared)), Machine::new(Arc::clone(&shared)));
        let config = Arc::new(library_config(&timing)?);
        let raft = Raft::new(id, config, network, log, machine).await;
        let raft = raft.map_err(|fatal| Error::Unavailable(format!("member {id}: {fatal}")))?;
        let member = Arc::new(Member {
            shared,
            raft,
            led: Mutex::default(),
            votes: Arc::new(Semaphore::new(VOTES_AT_ONCE)),
            messages: Arc::new(Semaphore::new(MESSAGES_AT_ONCE)),
            receiving: tokio::sync::Mutex::default(),
            runtime: Handle::current(),
            watching: Mutex::default(),
        });
        *member.watching.lock() = Some(tokio::spawn(watch::run(Arc::clone(&member))));
        Ok(member)
    }

    pub fn id(&self) -> u64 {
        self.shared.me
    }

    /// The fence as of the last entry that is applied here.
    pub fn fence(&self) -> Fence {
        self.shared.store.fence()
    }

    /// Makes the first entry of a new log, which names its members. For one of them, once.
    ///
    /// # Errors
    /// `Exists` where there is a log, `Invalid` for members without this one.
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

    /// Ends. On return nothing of it uses the disk, which may be opened again.
    pub async fn close(&self) {
        self.shared.end();
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the core of the consensus library failed");
        }
        let watching = self.watching.lock().take();
        if let Some(watching) = watching {
            let _ = watching.await;
        }
        self.receiving.lock().await.take();
    }

    /// As `close`, and waits until all tasks have let go of the member's disk.
    pub async fn close_all(self: Arc<Self>) {
        self.close().await;
        let store = Arc::downgrade(&self.shared.store);
        drop(self);
        while store.strong_count() > 0 {
            tokio::time::sleep(CLOSING).await;
        }
    }

    /// The last term that this member leads, if it does, as far as it knows.
    pub async fn lead(&self) -> Option<Lead> {
        self.view().await.ok()?;
        *self.led.lock()
    }

    /// Asks the core itself: what anybody noted earlier may be over.
    pub(super) async fn view(&self) -> Result<View> {
        let look = |state: &openraft::RaftState<_, _, _>| View {
            vote: vote_of(state.vote_ref()),
            leads: state.server_state == ServerState::Leader,
            voters: state.membership_state.effective().membership().get_joint_config().clone(),
        };
        let view = self.raft.with_raft_state(look).await;
        let view = view.map_err(|fatal| Error::Unavailable(fatal.to_string()))?;
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

    /// Has the log take `proposal`; returns when it is applied here.
    pub(super) async fn propose(
        &self,
        proposal: Proposal,
    ) -> Result<(EntryId, Outcome), Unproposed> {
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok((id_of(written.log_id), written.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Unproposed::NotLeader)
            }
            Err(error) => Err(Unproposed::Ended(Error::Unavailable(format!(
                "the consensus library takes nothing more: {error}"
            )))),
        }
    }

    /// Shows that this member leads, and that it has applied all that was committed before the
    /// call. `false`: it could not be shown in time.
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

/// Elections, heartbeats, snapshots and purges are up to us.
fn library_config(timing: &Timing) -> Result<openraft::Config> {
    let millis = |time: Duration| time.as_millis() as u64;
    let config = openraft::Config {
        cluster_name: "cairn".into(),
        heartbeat_interval: millis(timing.call()),
        // They differ by one: no random number is drawn.
        election_timeout_min: millis(timing.silence()),
        election_timeout_max: millis(timing.silence()) + 1,
        install_snapshot_timeout: 3_600_000,
        max_payload_entries: ENTRIES_MAX,
        replication_lag_threshold: u64::MAX / 2,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX / 2,
        enable_heartbeat: false,
        enable_elect: false,
        ..openraft::Config::default()
    };
    config.validate().map_err(|error| Error::Invalid(error.to_string()))
}
