//! Proposes batches to the log, and finds the outcome of a batch whose outcome is unknown.

use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Result};

use super::super::ring::header::HEADER_BYTES;
use super::super::{Change, CommitError, Fence, Lease, changes};
use super::apply::Outcome;
use super::entry::{Entry, EntryId, Proposal};
use super::member::{Member, ProposalFailure};
use super::shared::MemberShared;

/// Interval between two looks at a lease, or at the applied entries.
const LOOK: Duration = Duration::from_millis(20);

/// Appends a batch to the log, for a master that holds `lease`, if it has taken over.
pub async fn commit(
    member: &Member,
    lease: Option<&Lease>,
    expected: Fence,
    changes: Vec<Change>,
) -> Result<(), CommitError> {
    wait_for_room(member, &changes).await?;
    let shared = &member.shared;
    let sent = shared.now();
    let proposed = tokio::select! {
        biased;
        proposed = member.propose(Proposal::Batch { expected, changes }) => proposed,
        () = wait_over(shared, lease, sent) => {
            let text = "no majority has answered while the lease of this master lasted";
            return Err(CommitError::Unknown(Error::Unavailable(text.into())));
        }
    };
    match proposed {
        Ok((_, Outcome::Fenced { found })) => Err(CommitError::Fenced { found }),
        Ok(_) => {
            if let Some(lease) = lease {
                lease.extend(counted_from(shared, sent));
            }
            Ok(())
        }
        Err(ProposalFailure::NotLeader) => {
            let text = "this member leads no longer";
            Err(CommitError::Unknown(Error::Unavailable(text.into())))
        }
        Err(ProposalFailure::Ended(error)) => Err(CommitError::Poisoned(error)),
    }
}

/// Returns the time from which a lease counts that is proven by a message sent at `sent`.
pub fn counted_from(shared: &MemberShared, sent: Duration) -> Duration {
    if is_planted(Bug::LeaseFromAnswer) { shared.now() } else { sent }
}

/// Waits for room for a batch, at most for a lease that a master may have had when the wait began.
/// Conditions that do not pass by themselves are errors at once.
async fn wait_for_room(member: &Member, changes: &[Change]) -> Result<(), CommitError> {
    let shared = &member.shared;
    let head = Entry {
        id: EntryId { term: 0, index: 0 },
        proposal: Proposal::Batch { expected: Fence::default(), changes: Vec::new() },
    };
    let bytes = HEADER_BYTES + head.encoded_bytes() + changes::encoded_bytes(changes);
    let begun = shared.now();
    member.wait_for_purge(bytes).await;
    loop {
        let waiting = shared.with_store(move |store| Ok(store.wait_for_room(bytes)));
        let error = match waiting.await.map_err(CommitError::Failed)? {
            Err(CommitError::Failed(error @ Error::Unavailable(_))) => error,
            done => return done,
        };
        let late = shared.now().saturating_sub(begun) > shared.timing.lease;
        if late || shared.rest(LOOK).await.is_err() {
            return Err(CommitError::Failed(error));
        }
    }
}

/// Waits until no master could acknowledge a batch that it proposed at `sent`.
async fn wait_over(shared: &MemberShared, lease: Option<&Lease>, sent: Duration) {
    loop {
        let is_held = lease.is_some_and(Lease::is_held);
        let waited = shared.now().saturating_sub(sent);
        if !is_held && waited > shared.timing.lease || shared.rest(LOOK).await.is_err() {
            return;
        }
    }
}

/// Returns the fence once all batches that were proposed here before are applied, or never will be:
/// an entry of the same term after them is applied, or an entry of a later term.
///
/// # Errors
/// `Unavailable` if that did not happen in time, or the member ends.
pub async fn settle(member: &Member) -> Result<Fence> {
    let shared = &member.shared;
    let begun = shared.now();
    let mut error = Error::Unavailable("no majority has answered".into());
    while shared.now().saturating_sub(begun) < shared.timing.settle() {
        let view = member.view().await?;
        // All were proposed in this term or before it; if another member leads this term, before
        // it.
        let next_term = view.vote.term + u64::from(view.leads);
        let in_time = tokio::time::timeout(shared.timing.call(), async {
            if view.leads {
                member.propose(Proposal::Empty).await.map(drop)
            } else {
                Err(ProposalFailure::NotLeader)
            }
        });
        match in_time.await {
            Ok(Ok(())) => return Ok(shared.store.fence()),
            Ok(Err(ProposalFailure::Ended(ended))) => return Err(ended),
            Ok(Err(ProposalFailure::NotLeader)) => {
                error = Error::Unavailable("another member leads, and is not heard".into());
            }
            Err(_) => {}
        }
        let applied = shared.store.applied().0.map_or(0, |id| id.term);
        if applied >= next_term {
            return Ok(shared.store.fence());
        }
        shared.rest(LOOK).await?;
    }
    Err(error)
}
