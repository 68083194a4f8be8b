//! Handing over: a leader has another member lead in its place.
//!
//! ```text
//!   leader                                              another voter
//!   ── would you lead? ───────────────────────────────► it answers, follows, has room: yes
//!   its master ends, and says that it gives up
//!   ── the last entries ──────────────────────────────►
//!   is silent ── begin ───────────────────────────────► waits until the others may vote, asks
//!                                                       them, starts an election
//! ```
//!
//! This decides only when there is an election, never who wins it. A leader whose successor does
//! not win in time leads on.

use std::collections::BTreeSet;
use std::time::Duration;

use cairn_base::Result;
use tokio::time::timeout;

use super::entry::EntryId;
use super::member::Member;
use super::message::{Message, Reply};
use super::network::{ask_each, call};
use super::record::Vote;
use super::shared::MemberShared;

/// Interval between two looks at the progress.
const LOOK: Duration = Duration::from_millis(20);

/// Keeps this leader silent while it exists, so that it keeps nobody from an election.
struct Silence<'a>(&'a MemberShared);

impl Silence<'_> {
    fn begin(shared: &MemberShared) -> Silence<'_> {
        shared.contact.stand_down(true);
        Silence(shared)
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.0.contact.stand_down(false);
    }
}

impl Member {
    /// Returns whether the disk of this member is nearly full.
    pub fn is_low_on_space(&self) -> bool {
        self.shared.store.is_low_on_space()
    }

    /// Returns the other members that have answered lately: on the leader, those that work.
    pub fn answering(&self) -> BTreeSet<u64> {
        let since = self.shared.now().saturating_sub(self.shared.timing.lease);
        self.shared.contact.answering(since)
    }

    /// Returns the voter `among` these that should lead in place of this one: it is willing, and
    /// has most of the log. `None` if there is none, or if this member does not lead.
    pub async fn successor(&self, among: &BTreeSet<u64>) -> Option<u64> {
        let view = self.view().await.ok()?;
        let [voters] = &view.voters[..] else { return None };
        let mut others = voters & among;
        others.remove(&self.id());
        if !view.leads || others.is_empty() {
            return None;
        }
        let last = self.shared.store.last();
        let message = Message::HandOver { vote: view.vote, last, begins: false };
        let willing = ask_each(&self.shared, others, &message).await;
        let followers = self.status().await.ok()?.followers;
        willing.into_iter().max_by_key(|id| followers.get(id).copied().flatten())
    }

    /// Hands the lead over to the member `to`, once this member's master has ended. Returns `false`
    /// if that failed in time; then this member leads on.
    pub async fn hand_over(&self, to: u64) -> bool {
        let (shared, begun) = (&self.shared, self.shared.now());
        let is_over = |limit| shared.now().saturating_sub(begun) > limit;
        loop {
            match self.status().await {
                Ok(status) if status.leads() && status.lag_of(to) == Some(0) => break,
                Ok(status) if status.leads() => {}
                _ => return true,
            }
            if is_over(shared.timing.lease) || shared.rest(LOOK).await.is_err() {
                return false;
            }
        }
        let _silence = Silence::begin(shared);
        let Ok(view) = self.view().await else { return true };
        let message =
            Message::HandOver { vote: view.vote, last: shared.store.last(), begins: true };
        let asked = timeout(shared.timing.call(), call(shared, to, &message)).await;
        if !matches!(asked, Ok(Ok(Reply::Asked { yes: true }))) {
            return false;
        }
        while self.lead().await.is_some() {
            if is_over(shared.timing.handing_over()) || shared.rest(LOOK).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Answers a leader, known by its id and its vote, that asks whether this member would take
    /// over, or hands over.
    pub(super) async fn would_lead(
        &self,
        from: u64,
        vote: Vote,
        last: Option<EntryId>,
        begins: bool,
    ) -> Result<Reply> {
        let (shared, store) = (&self.shared, &self.shared.store);
        let is_fit = shared.with_store(|store| Ok(store.is_fit())).await?;
        let view = self.view().await?;
        let follows = vote.member == from
            && (view.vote.member, view.vote.term) == (vote.member, vote.term)
            && !view.leads;
        let is_voter = view.voters.len() == 1 && view.is_voter(shared.me);
        let yes = follows && is_voter && is_fit && (!begins || store.last() >= last);
        if yes && begins {
            tracing::info!(member = shared.me, leader = from, "the leader hands over to this one");
            shared.contact.invite(shared.now() + shared.timing.handing_over());
        }
        Ok(Reply::Asked { yes })
    }
}
