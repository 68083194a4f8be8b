//! The leases of rows that sessions keep in memory. A session that was sent a row, or was told that
//! there is none, keeps it until it is recalled. A row that a session keeps is not changed for all
//! to see before that.
//!
//! The executor owns this table and grants and recalls in the order in which it runs operations, so
//! no grant slips past a change. An operation that changes rows with holders *settles* when all of
//! them have acknowledged the recall or their session has lapsed. An operation that saw its changes
//! settles no sooner, and is answered no sooner.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Ino, SessionId};
use quick_cache::DefaultHashBuilder;
use tokio::sync::mpsc::UnboundedSender;

use super::asked::Asked;
use super::delegations::Ask;
use super::op::{Job, RowLease};
use super::settle::{Answered, Settle, Unsettled};
use crate::keys;
use crate::session::Recall;

/// An event of a session; events come in the order they happened.
pub enum Event {
    /// It holds nothing from here on, and its recalls go to `recalls`.
    Attached { session: SessionId, recalls: UnboundedSender<Recall> },
    /// It has let go of all that was recalled up to this number.
    Acknowledged { session: SessionId, number: u64 },
    /// It holds nothing any more, and nothing will be granted to it.
    Ended { session: SessionId },
    /// It has been attached again, and what it had done on its own has run: no directory is
    /// delegated to it.
    Replayed { session: SessionId },
    /// The operations that it had posted in these directories have run. With each, the number of
    /// the delegation that ends.
    GivenBack { session: SessionId, directories: Vec<(Ino, u64)> },
    /// It is to give back what is delegated to it.
    Unwelcome { session: SessionId },
    /// These are to let go of all rows, whichever master has leased them. When they have, or have
    /// ended, `done` is called.
    AllRecalled { sessions: Vec<SessionId>, done: Answered },
}

pub struct Leases {
    holders: Holders,
    sessions: HashMap<SessionId, SessionLeases>,
    /// All grants, the oldest first, and some that are gone.
    order: VecDeque<(Bytes, SessionId)>,
    /// Leases that were not recalled.
    kept: usize,
    limit: usize,
    /// Recalls that were sent to all sessions. They are numbered so: one of an earlier attachment,
    /// which comes and is acknowledged late, never counts for a later recall.
    sent: u64,
    /// Rows changed by operations that have not settled, the oldest change first.
    settling: BTreeMap<Bytes, Vec<Settling>>,
    /// The unsettled operations that the operation that runs now has seen.
    seen: RefCell<Vec<Arc<Settle<Job>>>>,
    unsettled: Arc<Unsettled>,
    asked: Arc<Asked>,
}

struct Settling {
    settle: Arc<Settle<Job>>,
    batch: u64,
    before: Before,
}

/// A row before a change, where that may be shown. It is for as long as nobody was told of the
/// change.
pub type Before = Option<Option<Bytes>>;

struct Holder {
    session: SessionId,
    /// It was told to let go.
    recall: Option<u64>,
}

struct SessionLeases {
    recalls: UnboundedSender<Recall>,
    /// Recalls that were not acknowledged.
    unacknowledged: VecDeque<Unacknowledged>,
}

struct Unacknowledged {
    recall: Recall,
    waiting: Vec<Arc<Settle<Job>>>,
}

impl Leases {
    /// At most `limit` leases are held at a time: beyond that the oldest are recalled.
    pub fn new(limit: usize, unsettled: Arc<Unsettled>, asked: Arc<Asked>) -> Leases {
        Leases {
            holders: HashMap::default(),
            sessions: HashMap::new(),
            order: VecDeque::new(),
            kept: 0,
            limit: limit.max(1),
            sent: 0,
            settling: BTreeMap::new(),
            seen: RefCell::default(),
            unsettled,
            asked,
        }
    }

    /// No operation has anything to do with leases.
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
            let Some(Unacknowledged { recall, waiting }) = due else { return };
            for key in &recall.keys {
                if let Some(holders) = self.holders.get_mut(key) {
                    holders
                        .retain(|one| one.session != session || one.recall != Some(recall.number));
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
        self.holders.retain(|_, holders| {
            holders.retain(|holder| {
                *kept -= usize::from(holder.session == session && holder.recall.is_none());
                holder.session != session
            });
            !holders.is_empty()
        });
        self.order.retain(|(_, holder)| *holder != session);
        for one in state.unacknowledged {
            one.waiting.iter().for_each(|settle| settle.done(ready));
        }
    }

    /// The operation that runs now sees a row.
    pub fn see(&self, key: &Bytes) {
        if let Some(last) = self.preceding(key) {
            self.seen.borrow_mut().push(Arc::clone(last));
        }
    }

    /// The operation that changed a row last, if whoever sees or changes it has to wait for that.
    /// All operations share counters: nobody would be answered while one of them waits.
    fn preceding(&self, key: &Bytes) -> Option<&Arc<Settle<Job>>> {
        let last = self.settling.get(key)?.last()?;
        (!keys::is_counter(key)).then_some(&last.settle)
    }

    /// The row before all changes that have not settled; `None` if there are none.
    pub fn before(&self, key: &Bytes) -> Option<&Before> {
        let changes = self.settling.get(key)?;
        let first = changes.iter().find(|change| !change.settle.is_done())?;
        Some(&first.before)
    }

    /// Whether there are such changes in a range of rows.
    pub fn is_settling(&self, start: &Bytes, end: &Bytes) -> bool {
        let mut rows = match start < end {
            true => self.settling.range::<Bytes, _>(start..end),
            false => return false,
        };
        rows.any(|(_, changes)| changes.iter().any(|change| !change.settle.is_done()))
    }

    /// The operation that runs now sees a range of rows.
    pub fn see_range(&self, start: &Bytes, end: &Bytes) {
        if self.settling.is_empty() || start >= end {
            return;
        }
        let rows = self.settling.range::<Bytes, _>(start..end);
        let last = rows.filter_map(|(_, changes)| changes.last());
        self.seen.borrow_mut().extend(last.map(|last| Arc::clone(&last.settle)));
    }

    /// The operation that saw rows runs again later.
    pub fn forget_seen(&mut self) {
        self.seen.get_mut().clear();
    }

    /// The session holds none of these rows, without having been told to let go.
    pub fn release(&mut self, session: SessionId, keys: &[Bytes]) {
        for key in keys {
            let Some(holders) = self.holders.get_mut(key) else { continue };
            let before = holders.len();
            holders.retain(|one| one.session != session || one.recall.is_some());
            self.kept -= before - holders.len();
            if holders.is_empty() {
                self.holders.remove(key);
            }
        }
    }

    /// The operation that ran is over, has changed `changed` in `batch`, and wants `grant`;
    /// `before` says what these rows were. Returns what it has to wait for, if anything.
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
                match holder.recall {
                    None => due.entry(holder.session).or_default().push(key.clone()),
                    Some(number) => await_recall(&mut self.sessions, holder, number, &settle),
                }
            }
        }
        for (session, keys) in due {
            self.send(session, keys, Some(&settle));
        }
        // The caller's own part.
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

    fn recall_all(&mut self, sessions: &[SessionId], done: Answered, ready: &mut Vec<Job>) {
        // It is no operation: no batch waits for it.
        let settle = Settle::new(Arc::clone(&self.unsettled), u64::MAX);
        for session in sessions {
            self.send(*session, vec![keys::all_rows()], Some(&settle));
        }
        settle.answer_early(done);
        settle.done(ready);
    }

    /// Asks a session for something that is no lease.
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
            for holder in holders.filter(|one| one.session == session && one.recall.is_none()) {
                holder.recall = Some(recall.number);
                self.kept -= 1;
            }
        }
        // A session that cannot be reached lapses, or attaches again with empty hands.
        let _ = state.recalls.send(recall.clone());
        let mut waiting: Vec<_> = waiting.into_iter().cloned().collect();
        if is_planted(Bug::RecallNotAwaited) {
            waiting.clear();
        }
        waiting.iter().for_each(|settle| settle.expect());
        state.unacknowledged.push_back(Unacknowledged { recall, waiting });
    }

    fn grant(&mut self, grant: RowLease) {
        let RowLease { session, keys } = grant;
        if !self.sessions.contains_key(&session) {
            return;
        }
        for key in keys {
            let holders = self.holders.entry(key.clone()).or_default();
            if holders.iter().any(|one| one.session == session && one.recall.is_none()) {
                continue;
            }
            holders.push(Holder { session, recall: None });
            self.kept += 1;
            self.order.push_back((key, session));
        }
        self.recall_oldest();
    }

    fn recall_oldest(&mut self) {
        while self.kept > self.limit
            && let Some((key, session)) = self.order.pop_front()
        {
            if is_kept(&self.holders, &key, session) {
                self.send(session, vec![key], None);
            }
        }
        if self.order.len() > 2 * self.limit {
            let holders = &self.holders;
            self.order.retain(|(key, session)| is_kept(holders, key, *session));
        }
    }

    /// Changes of batches after `durable`, of the rows `void`, are void: they will be made again.
    pub fn start_over(&mut self, durable: u64, void: &[Bytes]) {
        self.retain_settling(|settling| settling.batch <= durable);
        self.forget_seen();
        // A session that was told of them early must not go on showing them.
        let mut due: BTreeMap<SessionId, Vec<Bytes>> = BTreeMap::new();
        for key in void {
            let holders = self.holders.get(key).into_iter().flatten();
            for holder in holders.filter(|holder| holder.recall.is_none()) {
                due.entry(holder.session).or_default().push(key.clone());
            }
        }
        for (session, keys) in due {
            self.send(session, keys, None);
        }
    }
}

type Holders = HashMap<Bytes, Vec<Holder>, DefaultHashBuilder>;

fn is_kept(holders: &Holders, key: &Bytes, session: SessionId) -> bool {
    let mut held = holders.get(key).into_iter().flatten();
    held.any(|one| one.session == session && one.recall.is_none())
}

/// `settle` waits for a recall that was sent before.
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
