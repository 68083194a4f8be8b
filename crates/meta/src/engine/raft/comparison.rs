//! The comparison of members: rows that check out and are wrong all the same are found by digests
//! of all rows as of one entry.
//!
//! ```text
//!   leader                          every member
//!   ── a comparison begins (9) ───► its next empty entry counts
//!   ── an empty entry ────────────► keeps its rows as of it, and sums them up
//!                                   ── your digests? (10) ──► each other member
//!                                   judges itself alone (verdict.rs)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Result};
use tokio::time::timeout;

use super::super::row_store::Pace;
use super::compared_rows::Comparison;
use super::digest::RowDigests;
use super::entry::{Entry, EntryId, Members, Proposal};
use super::member::Member;
use super::message::{Message, Reply};
use super::network::{ask_each, call};
use super::scrub_results::Damage;
use super::store::MemberStore;
use super::verdict::Verdict;

/// Time between two requests to a member that has no digests yet.
const RETRY: Duration = Duration::from_secs(1);
/// Time that a member waits for the digests of others, in addition to the time that its own took.
const PATIENCE: Duration = Duration::from_secs(30);

impl MemberStore {
    /// Makes the next empty entry the one as of which rows are compared.
    pub fn await_comparison(&self) {
        self.comparison.lock().awaited = true;
    }

    /// Takes the portion off `entries` that is applied at once: if a comparison is awaited, it ends
    /// with the first empty entry, so that the rows as of that entry can be kept.
    pub fn split_portion(&self, entries: &mut Vec<Entry>) -> Vec<Entry> {
        let is_awaited = self.comparison.lock().awaited;
        let empty = entries.iter().position(|entry| entry.proposal == Proposal::Empty);
        let rest = match empty {
            Some(at) if is_awaited => entries.split_off(at + 1),
            _ => Vec::new(),
        };
        std::mem::replace(entries, rest)
    }

    /// Keeps all rows for a comparison if one awaits them. The last applied entry is empty.
    pub(super) fn keep_compared_rows(&self) {
        if std::mem::take(&mut self.comparison.lock().awaited) {
            let rows = self.take_snapshot();
            let mut comparison = self.comparison.lock();
            comparison.rows = rows;
            comparison.table_bytes = self.rows.table_bytes();
        }
    }

    /// Returns the digests of the last comparison, if its rows are summed up.
    pub fn digests(&self) -> Option<RowDigests> {
        self.comparison.lock().digests.clone()
    }

    fn has_compared_rows(&self) -> bool {
        self.comparison.lock().rows.is_some()
    }

    /// Sums up the rows that were kept last. Returns their digests, and how often all rows had been
    /// replaced.
    ///
    /// # Errors
    /// Those of the rows; `Io` if `pace` says that it is to end, `Unavailable` if it says that the
    /// table has grown too much meanwhile: no page that is freed is used again while the rows are
    /// kept.
    pub fn sum_compared_rows(&self, pace: &Pace) -> Result<Option<(RowDigests, u64)>> {
        let (taken, before, replaced) = {
            let mut comparison = self.comparison.lock();
            (comparison.rows.take(), comparison.table_bytes, comparison.replaced)
        };
        let Some(rows) = taken else { return Ok(None) };
        let digests = RowDigests::of(rows, |bytes| {
            let grown = self.rows.table_bytes().saturating_sub(before);
            if grown > before.max(pace.growth_bytes) {
                let text = format!("the table of rows grew by {grown} bytes beside a comparison");
                return Err(Error::Unavailable(text));
            }
            Ok(pace.rest(bytes)?)
        })?;
        let mut comparison = self.comparison.lock();
        if comparison.replaced == replaced {
            comparison.digests = Some(digests.clone());
        }
        Ok(Some((digests, replaced)))
    }

    /// Forgets the comparison of rows that were replaced, and what it has found.
    pub(super) fn forget_comparison(&self) {
        let mut comparison = self.comparison.lock();
        *comparison = Comparison { replaced: comparison.replaced + 1, ..Comparison::default() };
        *self.differing.lock() = None;
    }

    /// Notes that the rows are not those of a majority: `what` says which, and is damage until
    /// they are replaced. Does nothing if they have been replaced since the count was `replaced`.
    fn note_differing(&self, what: String, replaced: u64) {
        if self.comparison.lock().replaced == replaced {
            self.differing.lock().get_or_insert(what);
        }
    }
}

impl Member {
    /// Returns the digests of this member's rows as of the last comparison, once summed up.
    pub fn digests(&self) -> Option<RowDigests> {
        self.shared.store.digests()
    }

    /// Returns rows that differ among members, where no majority agrees.
    pub fn undecided(&self) -> Option<Damage> {
        self.shared.scrubbed.undecided.lock().clone()
    }

    /// Has all members compare their rows, if this one leads.
    ///
    /// # Errors
    /// `Unavailable` when the member has ended.
    pub async fn begin_comparison(&self) -> Result<()> {
        let (status, shared) = (self.status().await?, &self.shared);
        let Members { voters, learners } = &status.members;
        let mut others: BTreeSet<u64> = voters.iter().flatten().chain(learners).copied().collect();
        others.remove(&shared.me);
        if !status.leads() || others.is_empty() {
            return Ok(());
        }
        ask_each(shared, others, &Message::Compare).await;
        shared.store.await_comparison();
        // If it fails nothing is compared this time.
        drop(timeout(shared.timing.settle(), self.propose(Proposal::Empty)).await);
        Ok(())
    }

    /// Sums up the rows that a comparison has kept, asks the others for theirs, and judges.
    ///
    /// # Errors
    /// Of the rows; `Unavailable` when the member ends.
    async fn compare(&self) -> Result<()> {
        let shared = &self.shared;
        let (pace, begun) = (shared.scrub_pace(), shared.now());
        let summed = shared.with_store(move |store| store.sum_compared_rows(&pace)).await?;
        let Some((own, replaced)) = summed else { return Ok(()) };
        let patience = shared.now().saturating_sub(begun) + PATIENCE;
        let view = self.view().await?;
        // While members change, the next comparison decides.
        let [voters] = &view.voters[..] else { return Ok(()) };
        let entry = own.entry;
        let mut digests = BTreeMap::from([(shared.me, own)]);
        let begun = shared.now();
        loop {
            for other in voters {
                if !digests.contains_key(other)
                    && let Some(answer) = self.ask_digests(*other, entry).await
                {
                    digests.insert(*other, answer);
                }
            }
            let is_late = shared.now().saturating_sub(begun) >= patience;
            // A snapshot that waits keeps pages of the table from being used again.
            let is_late = is_late || shared.store.has_compared_rows();
            if is_late || voters.iter().all(|voter| digests.contains_key(voter)) {
                break;
            }
            shared.rest(RETRY).await?;
        }
        let verdict = Verdict::of(shared.me, voters, &digests);
        self.note_verdict(verdict, entry, replaced);
        Ok(())
    }

    /// Asks `other` for its digests as of `entry`; `None` if it has none yet.
    async fn ask_digests(&self, other: u64, entry: EntryId) -> Option<RowDigests> {
        let shared = &self.shared;
        let asked = timeout(shared.timing.call(), call(shared, other, &Message::Digests)).await;
        match asked {
            Ok(Ok(Reply::Digests(Some(digests)))) if digests.entry == entry => Some(digests),
            _ => None,
        }
    }

    fn note_verdict(&self, verdict: Verdict, entry: EntryId, replaced: u64) {
        let shared = &self.shared;
        let mut undecided = shared.scrubbed.undecided.lock();
        let index = entry.index;
        match verdict {
            Verdict::Unknown => {}
            Verdict::Sound => *undecided = None,
            Verdict::Wrong(tables) => {
                *undecided = None;
                drop(undecided);
                let what = format!(
                    "rows that begin with {} are not those of a majority, as of entry {index}",
                    letters(&tables)
                );
                shared.store.note_differing(what, replaced);
                self.note_damage();
            }
            Verdict::Undecided(tables) => {
                let what = format!(
                    "rows that begin with {} differ among the masters, as of entry {index}",
                    letters(&tables)
                );
                tracing::error!(
                    member = shared.me,
                    what,
                    "nothing decides which are right: start all masters, or let others join until \
                     there are three"
                );
                let since = undecided.as_ref().map(|known| known.since);
                let since = since.unwrap_or_else(|| shared.seams.clock.now());
                *undecided = Some(Damage { what, since });
            }
        }
    }
}

/// Takes part in comparisons until the member ends.
pub async fn run(member: Arc<Member>) {
    let shared = Arc::clone(&member.shared);
    while shared.rest(shared.timing.heartbeat()).await.is_ok() {
        if !shared.store.has_compared_rows() {
            continue;
        }
        match member.compare().await {
            Ok(()) | Err(Error::Corrupt { .. }) => {}
            Err(_) if shared.is_ending() => return,
            Err(error) => tracing::warn!(%error, "the rows were not compared"),
        }
    }
}

/// Returns the first bytes of keys as a text.
fn letters(tables: &[u8]) -> String {
    let letters = tables.iter().map(|table| format!("{}", table.escape_ascii()));
    letters.collect::<Vec<_>>().join(", ")
}
