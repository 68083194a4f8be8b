//! Directories that one session fills on its own: docs/decisions/0016.
//!
//! While a session holds a directory, nobody else sees its tally or its entries, nor changes its
//! inode, its bucket, or whether the store is read-only. Such an operation of another session is
//! put off before it has any effect, and the holder is asked to give the directory back. The holder
//! does so when everything that it has done there on its own has run. While an operation waits that
//! concerns all directories of a bucket, or of the store, no more of these are delegated: otherwise
//! it would never run while sessions go on making directories. Inodes that the holder made are
//! known to nobody else before it gives the directory back, and its posted operations change
//! nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{BucketId, Ino, SessionId};

use super::op::{DelegationWish, Ground, Job};
use super::recall_deadlines::RecallDeadlines;
use super::settle::UnsettledOperations;
use crate::{Changes, keys};

/// Most directories that are noted as fresh; beyond that all are forgotten.
const FRESH: usize = 1 << 16;
/// Most files that were made in held directories. Beyond that, the directory that has been held
/// longest is asked for.
const FILES: usize = 1 << 19;

pub struct Delegations {
    /// Directories that a session made and nobody else has looked into.
    fresh: HashMap<Ino, SessionId>,
    held: BTreeMap<Ino, DelegationState>,
    /// Delegations whose return was not requested, by their numbers.
    unasked: BTreeMap<u64, Ino>,
    /// Files that sessions made on their own in held directories, with these directories.
    files: HashMap<Ino, Ino>,
    /// Number of these files that are in directories that were not asked for.
    unasked_files: usize,
    /// Number of the last delegation.
    last: u64,
    /// Grounds on which nothing is delegated, and the number of operations that closed each.
    closed: BTreeMap<Ground, usize>,
    /// Directories that the current operation met.
    met: RefCell<Met>,
    unsettled: Arc<UnsettledOperations>,
    asked: Arc<RecallDeadlines>,
}

struct DelegationState {
    session: SessionId,
    bucket: BucketId,
    number: u64,
    files: Vec<Ino>,
    /// Operations that are put off until the directory is given back.
    waiting: Vec<Job>,
}

/// A session, and the key that names the delegation to ask it for.
pub type Ask = (SessionId, Bytes);

#[derive(Default)]
struct Met {
    /// Directories that other sessions hold.
    held: BTreeSet<Ino>,
    /// Directories that are no longer fresh.
    fresh: BTreeSet<Ino>,
}

impl Delegations {
    pub fn new(unsettled: Arc<UnsettledOperations>, asked: Arc<RecallDeadlines>) -> Delegations {
        Delegations {
            fresh: HashMap::new(),
            held: BTreeMap::new(),
            unasked: BTreeMap::new(),
            files: HashMap::new(),
            unasked_files: 0,
            last: 0,
            closed: BTreeMap::new(),
            met: RefCell::default(),
            unsettled,
            asked,
        }
    }

    /// Returns the number of directories that are held, and of files that were made there.
    pub fn usage(&self) -> (u64, u64) {
        (self.held.len() as u64, self.files.len() as u64)
    }

    /// Notes that a session has just made a directory.
    pub fn made(&mut self, directory: Ino, session: SessionId) {
        if self.fresh.len() >= FRESH {
            self.fresh.clear();
        }
        self.fresh.insert(directory, session);
    }

    /// Returns whether a wish can be granted as far as other sessions and operations are concerned.
    pub fn may_hold(&self, wish: DelegationWish) -> bool {
        let DelegationWish { directory, bucket, session } = wish;
        match self.held.get(&directory) {
            // Asked for again, as it was not durable. Refused if it is to be given back.
            Some(held) => held.session == session && self.unasked.contains_key(&held.number),
            None => self.fresh.get(&directory) == Some(&session) && !self.is_closed(bucket),
        }
    }

    fn is_closed(&self, bucket: BucketId) -> bool {
        [Ground::Bucket(bucket), Ground::Store]
            .iter()
            .any(|ground| self.closed.contains_key(ground))
    }

    /// Returns the ground on which no directory may be held when these changes are made.
    pub fn ground_of(&self, changes: &Changes) -> Option<Ground> {
        if changes.contains_key(&keys::read_only()) {
            return Some(Ground::Store);
        }
        // Hardly any operation changes a bucket, and many directories may be held.
        let mut changed = changes.range(Bytes::from_static(b"b")..Bytes::from_static(b"c"));
        let of_held = |key: &Bytes| {
            let mut buckets = self.held.values().map(|held| held.bucket);
            buckets.find(|bucket| keys::bucket(*bucket) == *key)
        };
        changed.find_map(|(key, _)| of_held(key)).map(Ground::Bucket)
    }

    /// Stops delegating on this ground until it is opened again as many times. Returns the sessions
    /// to ask for what they hold there.
    pub fn close(&mut self, ground: Ground) -> Vec<Ask> {
        *self.closed.entry(ground).or_default() += 1;
        let is_there = |held: &DelegationState| {
            ground == Ground::Store || ground == Ground::Bucket(held.bucket)
        };
        let there = self.held.iter().filter(|(_, held)| is_there(held));
        let there: Vec<Ino> = there.map(|(directory, _)| *directory).collect();
        there.into_iter().filter_map(|directory| self.ask(directory)).collect()
    }

    pub fn open(&mut self, ground: Ground) {
        if let Some(operations) = self.closed.get_mut(&ground) {
            *operations -= 1;
            if *operations == 0 {
                self.closed.remove(&ground);
            }
        }
    }

    /// Grants a wish that can be granted; returns the number of the delegation.
    pub fn hold(&mut self, DelegationWish { directory, bucket, session }: DelegationWish) -> u64 {
        if let Some(held) = self.held.get(&directory) {
            return held.number;
        }
        self.last += 1;
        let number = self.last;
        let held =
            DelegationState { session, bucket, number, files: Vec::new(), waiting: Vec::new() };
        self.held.insert(directory, held);
        self.unasked.insert(number, directory);
        self.unsettled.hold();
        number
    }

    /// Notes that an operation of `by` is about to see a row, or a range that begins there; a range
    /// of entries is within one directory. Returns whether the operation must not see it.
    pub fn see(&self, key: &[u8], by: Option<SessionId>) -> bool {
        if self.held.is_empty() && self.fresh.is_empty() {
            return false;
        }
        let Some(directory) = keys::directory_of(key) else { return false };
        if let Some(held) = self.held.get(&directory) {
            let is_met = by != Some(held.session) && !is_planted(Bug::DelegationIgnored);
            if is_met {
                self.met.borrow_mut().held.insert(directory);
            }
            return is_met;
        }
        if self.fresh.get(&directory).is_some_and(|session| by != Some(*session)) {
            self.met.borrow_mut().fresh.insert(directory);
        }
        false
    }

    /// Forgets the directories that were met, as the operation runs again, or another one does.
    pub fn forget_met(&mut self) {
        *self.met.get_mut() = Met::default();
    }

    /// Returns a directory that an operation of `by`, which has run and would make these changes,
    /// has to wait for, if any; there may be several. If there is none, the operation is complete.
    pub fn obstacle(
        &mut self,
        changes: &Changes,
        by: Option<SessionId>,
        released: &[Bytes],
    ) -> Option<Ino> {
        let Met { held, fresh } = std::mem::take(self.met.get_mut());
        for directory in fresh {
            self.fresh.remove(&directory);
        }
        if self.held.is_empty() {
            return None;
        }
        let changed = |(key, row): (&Bytes, &Option<Bytes>)| {
            self.obstacle_of(key, row.is_some() && !released.contains(key), by)
        };
        held.first().copied().or_else(|| changes.iter().find_map(changed))
    }

    /// Returns the directory that the change of a row has to wait for. `is_news`: the session does
    /// not know the new state of the row.
    fn obstacle_of(&self, key: &Bytes, is_news: bool, by: Option<SessionId>) -> Option<Ino> {
        let of = |directory: Ino| Some((directory, self.held.get(&directory)?));
        match key.first()? {
            b'd' => {
                let (directory, held) = of(keys::directory_of(key)?)?;
                (by != Some(held.session) || is_news).then_some(directory)
            }
            b't' | b'i' => {
                let ino = keys::directory_of(key).or_else(|| keys::inode_of(key))?;
                let (directory, held) = of(ino)?;
                (by != Some(held.session)).then_some(directory)
            }
            b'b' => {
                let mut held = self.held.iter();
                let within = |held: &DelegationState| keys::bucket(held.bucket) == *key;
                held.find(|(_, held)| within(held)).map(|(directory, _)| *directory)
            }
            // No session makes files on its own in a read-only store.
            b'c' if *key == keys::read_only() => self.held.keys().next().copied(),
            _ => None,
        }
    }

    /// Returns whether only `session` knows the inodes, entries and tallies among these rows: they
    /// belong to directories that it holds, or to files that it made there on its own; `made` was
    /// made just now.
    pub fn are_own<'a>(
        &self,
        rows: impl Iterator<Item = &'a Bytes>,
        session: Option<SessionId>,
        made: Option<Ino>,
    ) -> bool {
        let is_held = |directory: Ino| {
            let held = self.held.get(&directory);
            held.is_some_and(|held| session == Some(held.session))
        };
        let is_file = |ino| made == Some(ino) || self.files.get(&ino).copied().is_some_and(is_held);
        let is_own = |key: &Bytes| match keys::inode_of(key) {
            Some(ino) => is_file(ino),
            None => keys::directory_of(key).is_some_and(is_held),
        };
        rows.filter(|key| keys::is_of_tree(key)).all(is_own)
    }

    /// Notes that a session has made a file on its own in a directory that it holds. Returns the
    /// session and the directory to ask for if there are too many such files.
    pub fn made_file(&mut self, ino: Ino, directory: Ino) -> Option<Ask> {
        let held = self.held.get_mut(&directory)?;
        if self.files.insert(ino, directory).is_none() {
            held.files.push(ino);
            self.unasked_files += usize::from(self.unasked.contains_key(&held.number));
        }
        let is_due = self.unasked_files > FILES;
        let (_, oldest) = self.unasked.first_key_value().filter(|_| is_due)?;
        self.ask(*oldest)
    }

    /// Puts an operation off until a directory is given back. Returns the session to ask for it.
    pub fn wait(&mut self, directory: Ino, job: Job) -> Option<Ask> {
        self.held.get_mut(&directory)?.waiting.push(job);
        self.ask(directory)
    }

    /// Returns the directories to ask a session for so that it gives back all that it holds.
    pub fn ask_for_all(&mut self, session: SessionId) -> Vec<Ask> {
        let of = self.held.iter().filter(|(_, held)| held.session == session);
        let directories: Vec<Ino> = of.map(|(directory, _)| *directory).collect();
        directories.into_iter().filter_map(|directory| self.ask(directory)).collect()
    }

    /// Asks for a directory; `None` if it was asked for before.
    fn ask(&mut self, directory: Ino) -> Option<Ask> {
        let held = self.held.get(&directory)?;
        self.unasked.remove(&held.number)?;
        self.unasked_files -= held.files.len();
        self.asked.wanted_back(held.session, directory);
        Some((held.session, keys::delegation(directory, held.number)))
    }

    /// Takes directories back from a session. Operations that waited for them go to `ready`.
    pub fn give_back(
        &mut self,
        session: SessionId,
        given: &[(Ino, u64)],
        ready: &mut VecDeque<Job>,
    ) {
        for (directory, number) in given {
            let is_so = |held: &DelegationState| held.session == session && held.number == *number;
            if self.held.get(directory).is_some_and(is_so) {
                self.release(*directory, ready);
                self.made(*directory, session);
            }
        }
    }

    /// Takes all directories back from a session.
    pub fn end(&mut self, session: SessionId, ready: &mut VecDeque<Job>) {
        let of = self.held.iter().filter(|(_, held)| held.session == session);
        let directories: Vec<Ino> = of.map(|(directory, _)| *directory).collect();
        for directory in directories {
            self.release(directory, ready);
        }
        self.fresh.retain(|_, maker| *maker != session);
    }

    /// Takes all directories back from all sessions.
    pub fn end_all(&mut self, ready: &mut VecDeque<Job>) {
        while let Some((directory, _)) = self.held.first_key_value() {
            self.release(*directory, ready);
        }
    }

    fn release(&mut self, directory: Ino, ready: &mut VecDeque<Job>) {
        if let Some(held) = self.held.remove(&directory) {
            for file in &held.files {
                self.files.remove(file);
            }
            if self.unasked.remove(&held.number).is_some() {
                self.unasked_files -= held.files.len();
            }
            self.unsettled.let_go();
            self.asked.given_back(held.session, directory);
            ready.extend(held.waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::clock::RealClock;

    use super::super::recall_deadlines::Working;
    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    #[test]
    fn nothing_is_delegated_where_an_operation_waits_for_all() {
        let working = Working::new(Arc::new(RealClock::default()), None);
        let asked = Arc::new(RecallDeadlines::new(Arc::new(working)));
        let mut delegations = Delegations::new(Arc::default(), asked);
        let (bucket, other) = (BucketId(1), BucketId(2));
        let wish =
            |directory, bucket| DelegationWish { directory: Ino(directory), bucket, session: ONE };
        for (directory, of) in [(2, bucket), (3, bucket), (4, other)] {
            delegations.hold(wish(directory, of));
        }
        for directory in 5..8 {
            delegations.made(Ino(directory), ONE);
        }
        let asks = delegations.close(Ground::Bucket(bucket));
        assert_eq!(asks.len(), 2, "all that is held there is asked for at once");
        assert!(!delegations.may_hold(wish(5, bucket)) && delegations.may_hold(wish(5, other)));
        assert_eq!(delegations.close(Ground::Store).len(), 1, "the others were asked for before");
        assert!(!delegations.may_hold(wish(5, other)));
        delegations.open(Ground::Bucket(bucket));
        assert!(!delegations.may_hold(wish(5, bucket)), "the store is closed");
        delegations.open(Ground::Store);
        assert!(delegations.may_hold(wish(5, bucket)) && delegations.may_hold(wish(6, other)));
    }

    #[test]
    fn an_operation_concerns_all_that_is_held_in_a_bucket_that_it_changes() {
        let working = Working::new(Arc::new(RealClock::default()), None);
        let asked = Arc::new(RecallDeadlines::new(Arc::new(working)));
        let mut delegations = Delegations::new(Arc::default(), asked);
        let bucket = BucketId(7);
        delegations.hold(DelegationWish { directory: Ino(2), bucket, session: ONE });
        let ground = |changed: &[Bytes]| {
            let changes = changed.iter().map(|key| (key.clone(), None));
            delegations.ground_of(&changes.collect())
        };
        assert_eq!(ground(&[keys::inode(Ino(2)), keys::bucket(BucketId(8))]), None);
        let changed = [keys::bucket(BucketId(6)), keys::bucket(bucket), keys::inode(Ino(2))];
        assert_eq!(ground(&changed), Some(Ground::Bucket(bucket)));
        assert_eq!(ground(&[keys::bucket(bucket), keys::read_only()]), Some(Ground::Store));
    }

    #[test]
    fn who_has_made_many_files_is_asked_for_a_directory() {
        let working = Working::new(Arc::new(RealClock::default()), None);
        let asked = Arc::new(RecallDeadlines::new(Arc::new(working)));
        let mut delegations = Delegations::new(Arc::default(), asked);
        let (first, second, bucket) = (Ino(2), Ino(3), BucketId(1));
        for (directory, session) in [(first, ONE), (second, TWO)] {
            delegations.hold(DelegationWish { directory, bucket, session });
        }
        for number in 0..FILES as u64 {
            assert_eq!(delegations.made_file(Ino(10 + number), first), None);
        }
        assert_eq!(delegations.made_file(Ino(5), second), Some((ONE, keys::delegation(first, 1))));
        assert_eq!(delegations.made_file(Ino(6), second), None);
        assert_eq!(delegations.made_file(Ino(7), first), None, "it was asked for before");
        let own = |delegations: &Delegations, session, ino| {
            delegations.are_own([keys::inode(ino)].iter(), Some(session), None)
        };
        assert!(own(&delegations, ONE, Ino(10)) && own(&delegations, TWO, Ino(5)));
        assert!(!own(&delegations, ONE, Ino(5)) && !own(&delegations, TWO, Ino(10)));
        delegations.give_back(ONE, &[(first, 1)], &mut VecDeque::new());
        assert!(!own(&delegations, ONE, Ino(10)));
        assert_eq!((delegations.files.len(), delegations.unasked_files), (2, 2));
    }
}
