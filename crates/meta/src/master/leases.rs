//! The leases of rows that sessions keep in memory. A session that has received a row, or the
//! answer that there is none, keeps it until it is recalled. Before that, no change of the row
//! becomes visible to all.
//!
//! The executor owns this table and grants and recalls in the order in which it runs operations, so
//! no grant slips past a change. An operation that changes rows with holders *settles* when all of
//! them have acknowledged the recall or their session has lapsed. An operation that saw its changes
//! settles no sooner, and is answered no sooner.
//!
//! The memory of the table is bounded: beyond its limit the oldest leases are recalled, and remains
//! of ended leases are swept before they outnumber the leases.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Ino, SessionId};
use quick_cache::DefaultHashBuilder;
use tokio::sync::mpsc::UnboundedSender;

use super::delegations::Ask;
use super::op::{Job, RowLease};
use super::recall_deadlines::RecallDeadlines;
use super::settle::{Answered, Settle, UnsettledOperations};
use crate::keys;
use crate::session::Recall;

/// Approximate memory of a lease in addition to its key, bytes: a place in the table and up to two
/// in the order of grants, the headers of keys, and room for both to grow.
const LEASE_OVERHEAD: usize = 256;
/// Fraction of the limit, as a divisor, that is freed at a time, so that not each grant sends a
/// recall.
const MADE_FREE: usize = 64;
/// Most rows that are recalled together to make room.
const RECALLED_TOGETHER: usize = 256;
/// Number of ended grants, or of free places for entries, that is not worth a sweep.
const SWEEP_GRANTS: usize = 1024;

/// An event of a session. Events come in the order in which they happened.
pub enum Event {
    /// The session attached: it holds nothing from here on, and its recalls go to `recalls`.
    Attached { session: SessionId, recalls: UnboundedSender<Recall> },
    /// The session has given up all rows that were recalled up to this number.
    Acknowledged { session: SessionId, number: u64 },
    /// The session ended: it holds nothing any more, and nothing will be granted to it.
    Ended { session: SessionId },
    /// The session has attached again, and its own operations have run: no directory is delegated
    /// to it.
    Replayed { session: SessionId },
    /// The operations that the session had posted in these directories have run. Each directory
    /// comes with the number of the delegation that ends.
    GivenBack { session: SessionId, directories: Vec<(Ino, u64)> },
    /// The session must give back what is delegated to it.
    Unwelcome { session: SessionId },
    /// These sessions must give up all rows, whichever master has leased them. `done` is called
    /// when they have, or have ended.
    AllRecalled { sessions: Vec<SessionId>, done: Answered },
}

pub struct Leases {
    holders: Holders,
    sessions: HashMap<SessionId, SessionLeases>,
    /// All grants, the oldest first, including some that have ended.
    order: VecDeque<GrantedLease>,
    /// Number of the last grant.
    granted: u64,
    kept: LeaseCounts,
    /// Most bytes that `kept` may take.
    limit: usize,
    /// Number of recalls that were sent to all sessions together. It numbers them, so that a late
    /// acknowledgement of a recall of an earlier attachment never counts for a later recall.
    sent: u64,
    /// Number of recalls that were not acknowledged.
    pending: usize,
    /// Rows changed by operations that have not settled, the oldest change first.
    settling: BTreeMap<Bytes, Vec<Settling>>,
    /// Unsettled operations whose changes the current operation has seen.
    seen: RefCell<Vec<Arc<Settle<Job>>>>,
    unsettled: Arc<UnsettledOperations>,
    asked: Arc<RecallDeadlines>,
}

struct Settling {
    settle: Arc<Settle<Job>>,
    batch: u64,
    before: Before,
}

/// A row before a change, if it may be shown: nobody has seen the change yet. `None` otherwise.
pub type Before = Option<Option<Bytes>>;

struct Holder {
    session: SessionId,
    stage: LeaseStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaseStage {
    /// Holds the lease by the grant of this number.
    Kept(u64),
    /// Asked to give the row up by the recall of this number.
    Recalled(u64),
}

impl Holder {
    fn is_kept_by(&self, session: SessionId) -> bool {
        self.session == session && matches!(self.stage, LeaseStage::Kept(_))
    }
}

struct GrantedLease {
    key: Bytes,
    number: u64,
}

/// Number of leases that were not recalled, and the memory that they take.
#[derive(Default)]
struct LeaseCounts {
    leases: usize,
    bytes: usize,
}

impl LeaseCounts {
    fn add(&mut self, key: &Bytes) {
        self.leases += 1;
        self.bytes += weight(key);
    }

    fn remove(&mut self, key: &Bytes) {
        self.leases -= 1;
        self.bytes -= weight(key);
    }
}

/// Memory of a lease, bytes.
fn weight(key: &Bytes) -> usize {
    LEASE_OVERHEAD + key.len()
}

struct SessionLeases {
    recalls: UnboundedSender<Recall>,
    /// Recalls that were not acknowledged, the oldest first.
    unacknowledged: VecDeque<PendingRecall>,
}

struct PendingRecall {
    recall: Recall,
    waiting: Vec<Arc<Settle<Job>>>,
}

impl Leases {
    /// Creates a table whose leases take at most `limit` bytes; beyond that the oldest are
    /// recalled.
    pub fn new(
        limit: usize,
        unsettled: Arc<UnsettledOperations>,
        asked: Arc<RecallDeadlines>,
    ) -> Leases {
        Leases {
            holders: HashMap::default(),
            sessions: HashMap::new(),
            order: VecDeque::new(),
            granted: 0,
            kept: LeaseCounts::default(),
            limit,
            sent: 0,
            pending: 0,
            settling: BTreeMap::new(),
            seen: RefCell::default(),
            unsettled,
            asked,
        }
    }

    /// Returns the number of leases that were not recalled, and the memory that they take, bytes.
    pub fn usage(&self) -> (u64, u64) {
        (self.kept.leases as u64, self.kept.bytes as u64)
    }

    /// Returns the number of recalls that were not acknowledged.
    pub fn recalls(&self) -> u64 {
        self.pending as u64
    }

    /// Returns whether no operation is affected by leases.
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.settling.is_empty()
    }

    pub fn take(&mut self, event: Event, ready: &mut Vec<Job>) {
        match event {
            Event::Attached { session, recalls } => {
                self.end(session, ready);
                let fresh = SessionLeases { recalls, unacknowledged: VecDeque::new() };
                self.sessions.insert(session, fresh);
            }
            Event::Acknowledged { session, number } => self.acknowledge(session, number, ready),
            Event::Ended { session } => self.end(session, ready),
            Event::AllRecalled { sessions, done } => self.recall_all(&sessions, done, ready),
            Event::Replayed { .. } | Event::GivenBack { .. } | Event::Unwelcome { .. } => {}
        }
        self.retain_settling(|settling| !settling.settle.is_done());
        self.sweep();
    }

    fn retain_settling(&mut self, keep: impl Fn(&Settling) -> bool) {
        self.settling.retain(|_, changes| {
            changes.retain(&keep);
            !changes.is_empty()
        });
    }

    fn acknowledge(&mut self, session: SessionId, number: u64, ready: &mut Vec<Job>) {
        self.asked.acknowledged(session, number);
        loop {
            let Some(state) = self.sessions.get_mut(&session) else { return };
            let due = state.unacknowledged.pop_front_if(|one| one.recall.number <= number);
            let Some(PendingRecall { recall, waiting }) = due else { return };
            self.pending -= 1;
            for key in &recall.keys {
                if let Some(holders) = self.holders.get_mut(key) {
                    let told = LeaseStage::Recalled(recall.number);
                    holders.retain(|one| one.session != session || one.stage != told);
                    if holders.is_empty() {
                        self.holders.remove(key);
                    }
                }
            }
            waiting.iter().for_each(|settle| settle.done(ready));
        }
    }

    fn end(&mut self, session: SessionId, ready: &mut Vec<Job>) {
        self.asked.let_go(session);
        let Some(state) = self.sessions.remove(&session) else { return };
        let kept = &mut self.kept;
        self.holders.retain(|key, holders| {
            holders.retain(|holder| {
                if holder.is_kept_by(session) {
                    kept.remove(key);
                }
                holder.session != session
            });
            !holders.is_empty()
        });
        self.pending -= state.unacknowledged.len();
        for one in state.unacknowledged {
            one.waiting.iter().for_each(|settle| settle.done(ready));
        }
    }

    /// Notes that the current operation sees a row.
    pub fn see(&self, key: &Bytes) {
        if let Some(last) = self.preceding(key) {
            self.seen.borrow_mut().push(Arc::clone(last));
        }
    }

    /// Returns the operation that changed a row last, if operations that see or change the row have
    /// to wait for it. Counters are exempt: all operations share them, and one waiting operation
    /// would delay all.
    fn preceding(&self, key: &Bytes) -> Option<&Arc<Settle<Job>>> {
        let last = self.settling.get(key)?.last()?;
        (!keys::is_counter(key)).then_some(&last.settle)
    }

    /// Returns the row before all changes that have not settled; `None` if there are none.
    pub fn before(&self, key: &Bytes) -> Option<&Before> {
        let changes = self.settling.get(key)?;
        let first = changes.iter().find(|change| !change.settle.is_done())?;
        Some(&first.before)
    }

    /// Returns whether a range of rows has changes that have not settled.
    pub fn is_settling(&self, start: &Bytes, end: &Bytes) -> bool {
        if start >= end {
            return false;
        }
        let mut rows = self.settling.range::<Bytes, _>(start..end);
        rows.any(|(_, changes)| changes.iter().any(|change| !change.settle.is_done()))
    }

    /// Notes that the current operation sees a range of rows.
    pub fn see_range(&self, start: &Bytes, end: &Bytes) {
        if self.settling.is_empty() || start >= end {
            return;
        }
        let rows = self.settling.range::<Bytes, _>(start..end);
        let last = rows.filter_map(|(_, changes)| changes.last());
        self.seen.borrow_mut().extend(last.map(|last| Arc::clone(&last.settle)));
    }

    /// Forgets the rows that were seen, as the operation runs again later.
    pub fn forget_seen(&mut self) {
        self.seen.get_mut().clear();
    }

    /// Notes that the session holds none of these rows, though they were not recalled.
    pub fn release(&mut self, session: SessionId, keys: &[Bytes]) {
        for key in keys {
            let Some(holders) = self.holders.get_mut(key) else { continue };
            let kept = &mut self.kept;
            holders.retain(|holder| {
                let goes = holder.is_kept_by(session);
                if goes {
                    kept.remove(key);
                }
                !goes
            });
            if holders.is_empty() {
                self.holders.remove(key);
            }
        }
    }

    /// Finishes the operation that ran: it has changed `changed` in `batch`, and wants `grant`;
    /// `before` returns the former rows. Returns the recalls that it has to wait for, if any.
    pub fn ran<'a>(
        &mut self,
        changed: impl Iterator<Item = &'a Bytes> + Clone,
        batch: u64,
        grant: Option<RowLease>,
        before: impl Fn(&Bytes) -> Before,
    ) -> Option<Arc<Settle<Job>>> {
        let settle = if self.is_idle() { None } else { self.recall(changed, batch, before) };
        if let Some(grant) = grant {
            self.grant(grant);
        }
        settle
    }

    fn recall<'a>(
        &mut self,
        changed: impl Iterator<Item = &'a Bytes> + Clone,
        batch: u64,
        before: impl Fn(&Bytes) -> Before,
    ) -> Option<Arc<Settle<Job>>> {
        let settle = Settle::new(Arc::clone(&self.unsettled), batch);
        for seen in self.seen.get_mut().drain(..) {
            seen.precede(&settle);
        }
        let mut due: BTreeMap<SessionId, Vec<Bytes>> = BTreeMap::new();
        for key in changed.clone() {
            if let Some(former) = self.preceding(key) {
                former.precede(&settle);
            }
            for holder in self.holders.get(key).into_iter().flatten() {
                match holder.stage {
                    LeaseStage::Kept(_) => {
                        due.entry(holder.session).or_default().push(key.clone());
                    }
                    LeaseStage::Recalled(number) => {
                        await_recall(&mut self.sessions, holder, number, &settle);
                    }
                }
            }
        }
        for (session, mut rows) in due {
            self.add_other_kinds(session, &mut rows);
            self.send(session, rows, Some(&settle));
        }
        // The share of the creator of `settle`.
        settle.done(&mut Vec::new());
        if settle.is_done() {
            return None;
        }
        for key in changed {
            let settling = Settling { settle: Arc::clone(&settle), batch, before: before(key) };
            self.settling.entry(key.clone()).or_default().push(settling);
        }
        Some(settle)
    }

    /// Adds entries of the other kind: a name is looked up as a file and as a directory at once. A
    /// session that gives up one gives up the other, so that nothing is left of a removed name.
    fn add_other_kinds(&self, session: SessionId, rows: &mut Vec<Bytes>) {
        let others = rows.iter().filter_map(keys::entry_of_other_kind);
        let others: Vec<Bytes> =
            others.filter(|key| is_kept_by(&self.holders, key, session)).collect();
        rows.extend(others);
    }

    fn recall_all(&mut self, sessions: &[SessionId], done: Answered, ready: &mut Vec<Job>) {
        // Not an operation: no batch waits for it.
        let settle = Settle::new(Arc::clone(&self.unsettled), u64::MAX);
        for session in sessions {
            self.send(*session, vec![keys::all_rows()], Some(&settle));
        }
        settle.answer_early(done);
        settle.done(ready);
    }

    /// Asks a session for a directory, which is not a lease.
    pub fn ask(&mut self, (session, key): Ask) {
        self.send(session, vec![key], None);
    }

    fn send(&mut self, session: SessionId, keys: Vec<Bytes>, waiting: Option<&Arc<Settle<Job>>>) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        self.sent += 1;
        let recall = Recall { number: self.sent, keys };
        self.asked.recalled(session, recall.number);
        for key in &recall.keys {
            let holders = self.holders.get_mut(key).into_iter().flatten();
            for holder in holders.filter(|one| one.is_kept_by(session)) {
                holder.stage = LeaseStage::Recalled(recall.number);
                self.kept.remove(key);
            }
        }
        // A session that cannot be reached lapses, or attaches again without any rows.
        let _ = state.recalls.send(recall.clone());
        let mut waiting: Vec<_> = waiting.into_iter().cloned().collect();
        if is_planted(Bug::RecallNotAwaited) {
            waiting.clear();
        }
        waiting.iter().for_each(|settle| settle.expect());
        state.unacknowledged.push_back(PendingRecall { recall, waiting });
        self.pending += 1;
    }

    fn grant(&mut self, grant: RowLease) {
        let RowLease { session, keys } = grant;
        if !self.sessions.contains_key(&session) {
            return;
        }
        for key in keys {
            // Most rows have one holder.
            let one = || Vec::with_capacity(1);
            let holders = self.holders.entry(key.clone()).or_insert_with(one);
            if holders.iter().any(|holder| holder.is_kept_by(session)) {
                continue;
            }
            self.granted += 1;
            let number = self.granted;
            holders.push(Holder { session, stage: LeaseStage::Kept(number) });
            self.kept.add(&key);
            self.order.push_back(GrantedLease { key, number });
        }
        self.recall_oldest();
        self.sweep();
    }

    /// Makes room for some leases if there is none.
    fn recall_oldest(&mut self) {
        if self.kept.bytes <= self.limit {
            return;
        }
        let (mut left, most) = (self.kept.bytes, self.limit - self.limit / MADE_FREE);
        let mut due: BTreeMap<SessionId, Vec<Bytes>> = BTreeMap::new();
        while left > most
            && let Some(grant) = self.order.pop_front()
        {
            if let Some(session) = holder_of(&self.holders, &grant) {
                left -= weight(&grant.key);
                due.entry(session).or_default().push(grant.key);
            }
        }
        for (session, rows) in due {
            for some in rows.chunks(RECALLED_TOGETHER) {
                self.send(session, some.to_vec(), None);
            }
        }
    }

    /// Forgets ended grants once they outnumber the leases, and frees the memory of tables that
    /// have become too large.
    fn sweep(&mut self) {
        if self.order.len() <= 2 * self.kept.leases + SWEEP_GRANTS {
            return;
        }
        let holders = &self.holders;
        self.order.retain(|grant| holder_of(holders, grant).is_some());
        let (grants, rows) = (self.order.len() + SWEEP_GRANTS, self.holders.len() + SWEEP_GRANTS);
        if self.order.capacity() > 4 * grants {
            self.order.shrink_to(2 * grants);
        }
        if self.holders.capacity() > 4 * rows {
            self.holders.shrink_to(2 * rows);
        }
    }

    /// Voids the changes of batches after `durable`, of the rows `void`: they will be made again.
    pub fn start_over(&mut self, durable: u64, void: &[Bytes]) {
        self.retain_settling(|settling| settling.batch <= durable);
        self.forget_seen();
        // A session that received them early must not go on showing them.
        let mut due: BTreeMap<SessionId, Vec<Bytes>> = BTreeMap::new();
        for key in void {
            let holders = self.holders.get(key).into_iter().flatten();
            let is_kept = |holder: &&Holder| matches!(holder.stage, LeaseStage::Kept(_));
            for holder in holders.filter(is_kept) {
                due.entry(holder.session).or_default().push(key.clone());
            }
        }
        for (session, keys) in due {
            self.send(session, keys, None);
        }
    }
}

type Holders = HashMap<Bytes, Vec<Holder>, DefaultHashBuilder>;

fn is_kept_by(holders: &Holders, key: &Bytes, session: SessionId) -> bool {
    holders.get(key).into_iter().flatten().any(|holder| holder.is_kept_by(session))
}

/// Returns the session that still has the lease by a grant.
fn holder_of(holders: &Holders, grant: &GrantedLease) -> Option<SessionId> {
    let stage = LeaseStage::Kept(grant.number);
    let holder = holders.get(&grant.key)?.iter().find(|holder| holder.stage == stage)?;
    Some(holder.session)
}

/// Makes `settle` wait for a recall that was sent before.
fn await_recall(
    sessions: &mut HashMap<SessionId, SessionLeases>,
    holder: &Holder,
    number: u64,
    settle: &Arc<Settle<Job>>,
) {
    let Some(state) = sessions.get_mut(&holder.session) else { return };
    if let Some(one) = state.unacknowledged.iter_mut().find(|one| one.recall.number == number) {
        settle.expect();
        one.waiting.push(Arc::clone(settle));
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::clock::RealClock;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::super::recall_deadlines::Working;
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    /// Returns leases that may take `limit` bytes, and the recalls to two sessions.
    fn leases(limit: usize) -> (Leases, [UnboundedReceiver<Recall>; 2]) {
        let working = Working::new(Arc::new(RealClock::default()), None);
        let asked = Arc::new(RecallDeadlines::new(Arc::new(working)));
        let mut leases = Leases::new(limit, Arc::default(), asked);
        let told = [ONE, TWO].map(|session| attach(&mut leases, session));
        (leases, told)
    }

    fn attach(leases: &mut Leases, session: SessionId) -> UnboundedReceiver<Recall> {
        let (recalls, told) = unbounded_channel();
        leases.take(Event::Attached { session, recalls }, &mut Vec::new());
        told
    }

    fn grant(leases: &mut Leases, session: SessionId, keys: &[Bytes]) {
        let grant = RowLease { session, keys: keys.to_vec() };
        assert!(leases.ran([].iter(), 1, Some(grant), |_| None).is_none());
    }

    fn inodes(numbers: std::ops::Range<u64>) -> Vec<Bytes> {
        numbers.map(|number| keys::inode(Ino(number))).collect()
    }

    /// Has a session acknowledge its recalls; returns the recalled rows.
    fn let_go(
        leases: &mut Leases,
        session: SessionId,
        told: &mut UnboundedReceiver<Recall>,
    ) -> Vec<Bytes> {
        let (mut rows, mut ready) = (Vec::new(), Vec::new());
        while let Ok(Recall { number, keys }) = told.try_recv() {
            assert!(keys.len() <= RECALLED_TOGETHER);
            rows.extend(keys);
            leases.take(Event::Acknowledged { session, number }, &mut ready);
        }
        rows
    }

    #[test]
    fn a_row_that_is_changed_again_and_again_takes_no_more_memory() {
        let (mut leases, mut told) = leases(1 << 20);
        let (row, other) = (inodes(7..8), inodes(8..9));
        grant(&mut leases, TWO, &other);
        for _ in 0..100_000 {
            leases.release(ONE, &row);
            grant(&mut leases, ONE, &row);
        }
        assert!(leases.order.len() <= 2 * 2 + SWEEP_GRANTS, "{} grants", leases.order.len());
        assert_eq!((leases.holders.len(), leases.kept.leases), (2, 2));
        assert!(told.iter_mut().all(|told| told.try_recv().is_err()), "nobody is in the way");
        // The first grant is the oldest, unless it was granted anew.
        leases.limit = leases.kept.bytes + LEASE_OVERHEAD / 2;
        grant(&mut leases, ONE, &inodes(9..10));
        assert_eq!(let_go(&mut leases, TWO, &mut told[1]), other);
        assert!(told[0].try_recv().is_err());
    }

    #[test]
    fn the_oldest_leases_are_recalled_before_all_take_more_than_they_may() {
        let limit = 1000 * weight(&keys::inode(Ino(1)));
        let (mut leases, mut told) = leases(limit);
        let mut recalled = Vec::new();
        for number in 0..10_000 {
            grant(&mut leases, ONE, &inodes(number..number + 1));
            assert!(leases.kept.bytes <= limit);
            recalled.extend(let_go(&mut leases, ONE, &mut told[0]));
        }
        assert_eq!(recalled, inodes(0..recalled.len() as u64));
        assert_eq!(recalled.len() + leases.kept.leases, 10_000);
        assert!(leases.kept.leases > 950, "{} leases", leases.kept.leases);
        assert_eq!(leases.holders.len(), leases.kept.leases);
        assert!(leases.order.len() <= 2 * leases.kept.leases + SWEEP_GRANTS);
    }

    #[test]
    fn of_a_name_that_is_gone_nothing_is_left() {
        let (mut leases, mut told) = leases(1 << 20);
        let (file, directory) =
            (keys::file_entry(Ino(1), b"name"), keys::directory_entry(Ino(1), b"name"));
        let both = [file.clone(), directory.clone()];
        for (changed, other) in [(&file, &directory), (&directory, &file)] {
            grant(&mut leases, ONE, &both);
            grant(&mut leases, TWO, std::slice::from_ref(other));
            let settle = leases.ran([changed].into_iter(), 2, None, |_| None);
            assert!(settle.is_some_and(|settle| !settle.is_done()));
            assert_eq!(leases.recalls(), 1);
            let rows = let_go(&mut leases, ONE, &mut told[0]);
            assert_eq!(leases.recalls(), 0);
            assert_eq!(rows, [changed.clone(), other.clone()]);
            assert!(told[1].try_recv().is_err(), "it does not hold what was changed");
            assert_eq!((leases.holders.len(), leases.kept.leases), (1, 1));
            leases.release(TWO, &both);
            assert_eq!((leases.holders.len(), leases.kept.bytes), (0, 0));
        }
    }

    #[test]
    fn a_session_that_ends_gives_back_what_its_leases_took() {
        let (mut leases, told) = leases(1 << 30);
        grant(&mut leases, TWO, &inodes(0..10));
        grant(&mut leases, ONE, &inodes(0..100_000));
        assert_eq!((leases.holders.len(), leases.kept.leases), (100_000, 100_010));
        drop(told);
        leases.take(Event::Ended { session: ONE }, &mut Vec::new());
        assert_eq!((leases.holders.len(), leases.kept.leases, leases.order.len()), (10, 10, 10));
        assert_eq!(leases.recalls(), 0);
        assert_eq!(leases.kept.bytes, 10 * weight(&keys::inode(Ino(1))));
        // Tables have at most twice as many places as were requested.
        let most = 4 * (10 + SWEEP_GRANTS);
        let places = (leases.holders.capacity(), leases.order.capacity());
        assert!(places.0 <= most && places.1 <= most, "{places:?} places");
    }
}
