//! The engine of a master whose member is one of several.
//!
//! ```text
//!   wait_for_turn ──► leads ──► take-over applied ──► the former lease is over ──► serves
//!                                                                                   │
//!   commit_later ──► an entry ──► a majority has it ──► applied here ──► acknowledged
//!   reads ──► the rows of this member, while its lease lasts
//! ```

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::super::{
    Change, Checkpoints, Commit, CommitError, Engine, Fence, Later, Lease, Snapshot,
};
use super::apply::Outcome;
use super::commit;
use super::entry::Proposal;
use super::member::{Lead, Member, ProposalFailure};

/// Interval between two looks whether this member leads.
const LEAD_LOOK: Duration = Duration::from_millis(20);

/// Metadata that several masters keep together.
pub struct RaftEngine {
    member: Arc<Member>,
    tenure: Mutex<Option<Arc<Tenure>>>,
    /// Take-over that [`RaftEngine::wait_for_turn`] made and nobody has used yet.
    ready: Mutex<Option<Arc<Tenure>>>,
    giving_up: Mutex<Option<JoinHandle<()>>>,
}

/// A master since its take-over.
pub(super) struct Tenure {
    pub fence: Fence,
    pub lease: Arc<Lease>,
    renewing: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for RaftEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftEngine").field("member", &self.member).finish_non_exhaustive()
    }
}

impl RaftEngine {
    pub fn new(member: Arc<Member>) -> RaftEngine {
        let (tenure, ready) = (Mutex::default(), Mutex::default());
        RaftEngine { member, tenure, ready, giving_up: Mutex::default() }
    }

    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Waits until no other master serves: this member leads, a take-over is applied here, and the
    /// lease of any former master is over. The next take-over returns at once.
    ///
    /// # Errors
    /// `Unavailable` when the member ends.
    pub async fn wait_for_turn(&self) -> Result<()> {
        let tenure = take_turn(&self.member, 0).await?;
        *self.ready.lock() = Some(tenure);
        Ok(())
    }

    /// Waits briefly until a master that gave up has notified the others.
    pub async fn given_up(&self) {
        let giving_up = self.giving_up.lock().take();
        if let Some(task) = giving_up {
            let _ = task.await;
        }
    }

    fn begin(&self, tenure: Arc<Tenure>) -> Fence {
        let fence = tenure.fence;
        let renewing =
            self.member.runtime.spawn(renew(Arc::clone(&self.member), Arc::clone(&tenure)));
        *tenure.renewing.lock() = Some(renewing);
        let former = self.tenure.lock().replace(tenure);
        if let Some(former) = former {
            former.end();
        }
        fence
    }
}

impl Tenure {
    fn end(&self) {
        self.lease.give_up();
        if let Some(renewing) = self.renewing.lock().take() {
            renewing.abort();
        }
    }
}

impl Drop for RaftEngine {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Engine for RaftEngine {
    fn fence(&self) -> Result<Fence> {
        Ok(self.member.shared.store.fence())
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let ready = self.ready.lock().take().filter(|tenure| tenure.fence.batch >= batch);
        let tenure = match ready {
            Some(tenure) => tenure,
            None => {
                let member = Arc::clone(&self.member);
                self.member.runtime.block_on(async move { take_turn(&member, batch).await })?
            }
        };
        Ok(self.begin(tenure))
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        self.tenure.lock().as_ref().map(|tenure| Arc::clone(&tenure.lease))
    }

    fn give_up(&self) {
        let Some(tenure) = self.tenure.lock().take() else { return };
        tenure.end();
        let (member, epoch) = (Arc::clone(&self.member), tenure.fence.epoch);
        let task = self.member.runtime.spawn(async move {
            let limit = member.shared.timing.call();
            let said = member.propose(Proposal::GivenUp { epoch });
            let _ = tokio::time::timeout(limit, said).await;
        });
        *self.giving_up.lock() = Some(task);
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.member.shared.store.snapshot())
    }

    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        let snapshot = self.member.shared.store.snapshot();
        Ok((snapshot.batch(), snapshot.get(keys)?))
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        match self.commit_later(expected, changes) {
            Commit::Done(result) => result,
            Commit::Later(result) => self.member.runtime.block_on(result),
        }
    }

    fn commit_later(&self, expected: Fence, changes: Vec<Change>) -> Commit {
        let member = Arc::clone(&self.member);
        let lease = self.lease();
        let task = self.member.runtime.spawn(async move {
            commit::commit(&member, lease.as_deref(), expected, changes).await
        });
        Commit::Later(Box::pin(async move {
            let ended = |_| Err(CommitError::Poisoned(Error::Unavailable("it has ended".into())));
            task.await.unwrap_or_else(ended)
        }))
    }

    fn settle(&self) -> Later<Result<Fence>> {
        let (member, runtime) = (Arc::clone(&self.member), self.member.runtime.clone());
        let mut settling = Box::pin(async move { commit::settle(&member).await });
        // A committer has a thread of its own, and its waits are timers of the runtime.
        Box::pin(poll_fn(move |context| {
            let _entered = runtime.enter();
            settling.as_mut().poll(context)
        }))
    }

    fn is_low_on_space(&self) -> bool {
        self.member.shared.store.is_low_on_space()
    }

    fn memory_bytes(&self) -> u64 {
        self.member.shared.store.memory_bytes()
    }

    fn checkpoints(&self) -> Checkpoints {
        self.member.shared.store.rows.checkpoints()
    }
}

/// Waits for the turn of this member's master, and begins its tenure.
async fn take_turn(member: &Arc<Member>, batch: u64) -> Result<Arc<Tenure>> {
    loop {
        member.shared.rest(LEAD_LOOK).await?;
        if let Some(why) = member.shared.superseded() {
            return Err(Error::Denied(why));
        }
        let Some(lead) = member.try_lead().await? else { continue };
        if let Some(tenure) = begin_turn(member, lead, batch).await? {
            return Ok(tenure);
        }
    }
}

/// Takes over in the term of `lead`; `None` if that term is over, or may be.
async fn begin_turn(member: &Arc<Member>, lead: Lead, batch: u64) -> Result<Option<Arc<Tenure>>> {
    let shared = &member.shared;
    let Some((fence, alone)) = take_over(member, lead, batch).await? else { return Ok(None) };
    let since =
        if is_planted(Bug::WaitFromLastHeard) { shared.contact.heard_leader() } else { lead.since };
    // Before the very first take-over there was no lease.
    let alone = alone || fence.epoch == 1;
    let is_over = || {
        let waited = shared.now().saturating_sub(since);
        alone || waited > shared.timing.former_lease() || is_planted(Bug::FormerLeaseIgnored)
    };
    while !is_over() {
        shared.rest(LEAD_LOOK).await?;
        if member.lead().await != Some(lead) {
            return Ok(None);
        }
    }
    let sent = shared.now();
    let confirmed = while_leading(member, lead, member.confirm()).await == Some(true);
    let is_applied = shared.store.fence() == fence || is_planted(Bug::ReadBeforeTerm);
    if !confirmed || !is_applied || member.lead().await != Some(lead) {
        return Ok(None);
    }
    let shown = format!("member {}", member.id());
    let clock = Arc::clone(&shared.seams.clock);
    let lease = Arc::new(Lease::new(shown, shared.timing.lease, clock, sent));
    Ok(Some(Arc::new(Tenure { fence, lease, renewing: Mutex::default() })))
}

/// Appends a take-over to the log in the term of `lead`. Returns once it is applied here, together
/// with everything that former masters acknowledged: its fence, and whether the former master has
/// given its last answer. `None`: the term is over, or may be.
async fn take_over(member: &Arc<Member>, lead: Lead, batch: u64) -> Result<Option<(Fence, bool)>> {
    let proposal = Proposal::TakeOver { batch };
    if is_planted(Bug::ReadBeforeTerm) {
        // Entries that are only proposed count as applied.
        let Fence { epoch, batch: last } = member.shared.store.fence();
        let proposing = Arc::clone(member);
        member.runtime.spawn(async move { drop(proposing.propose(proposal).await) });
        return Ok(Some((Fence { epoch: epoch + 1, batch: last.max(batch) }, false)));
    }
    match while_leading(member, lead, member.propose(proposal)).await {
        Some(Ok((id, Outcome::TookOver { fence, alone }))) if id.term == lead.term => {
            Ok(Some((fence, alone)))
        }
        Some(Err(ProposalFailure::Ended(error))) => Err(error),
        _ => Ok(None),
    }
}

/// Returns the result of `work` if it comes before the term of `lead` is over, as far as this
/// member knows.
async fn while_leading<T>(member: &Member, lead: Lead, work: impl Future<Output = T>) -> Option<T> {
    let over = async {
        while member.shared.rest(LEAD_LOOK).await.is_ok() && member.lead().await == Some(lead) {}
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = over => None,
    }
}

/// Renews the lease of `tenure` until another master has taken over, or it is given up.
async fn renew(member: Arc<Member>, tenure: Arc<Tenure>) {
    let (shared, lease) = (&member.shared, &tenure.lease);
    while shared.rest(shared.timing.renewal()).await.is_ok() {
        let sent = shared.now();
        let confirmed = member.confirm().await;
        let found = shared.store.fence();
        if found.epoch != tenure.fence.epoch {
            return lease.fence(format!("epoch {} has begun", found.epoch));
        }
        if confirmed {
            lease.extend(commit::counted_from(shared, sent));
        }
    }
}
