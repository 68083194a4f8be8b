//! Directories that one session fills by itself: docs/decisions/0016.
//!
//! While a session holds a directory, nobody else sees its tally or its entries, nor changes its
//! inode or the bucket that it is in: an operation of somebody else that would is put off, before
//! it has any effect, and the session is asked to give the directory back. It does so when all that
//! it has done there by itself has run. What it made is known to nobody else before that.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{BucketId, Ino, SessionId};

use super::asked::Asked;
use super::op::{Job, Wish};
use super::settle::Unsettled;
use crate::{Changes, keys};

/// Directories that are noted as fresh, at most: beyond that all are forgotten.
const FRESH: usize = 1 << 16;

pub struct Delegations {
    /// Directories that a session made and nobody else has looked into.
    fresh: HashMap<Ino, SessionId>,
    held: BTreeMap<Ino, Held>,
    /// How many were ever held.
    last: u64,
    /// What the operation that runs now met.
    met: RefCell<Met>,
    unsettled: Arc<Unsettled>,
    asked: Arc<Asked>,
}

struct Held {
    session: SessionId,
    bucket: BucketId,
    number: u64,
    is_recalled: bool,
    /// Operations that were put off.
    waiting: Vec<Job>,
}

#[derive(Default)]
struct Met {
    /// Directories of others.
    held: BTreeSet<Ino>,
    /// Directories that are fresh no more.
    fresh: BTreeSet<Ino>,
}

impl Delegations {
    pub fn new(unsettled: Arc<Unsettled>, asked: Arc<Asked>) -> Delegations {
        let (fresh, held, met) = (HashMap::new(), BTreeMap::new(), RefCell::default());
        Delegations { fresh, held, last: 0, met, unsettled, asked }
    }

    /// A session has just made a directory.
    pub fn made(&mut self, directory: Ino, session: SessionId) {
        if self.fresh.len() >= FRESH {
            self.fresh.clear();
        }
        self.fresh.insert(directory, session);
    }

    /// Whether a wish can be granted, as far as others have to do with the directory.
    pub fn may_hold(&self, Wish { directory, session, .. }: Wish) -> bool {
        match self.held.get(&directory) {
            // Asked again, because it was not durable: not if it is to be given back.
            Some(held) => held.session == session && !held.is_recalled,
            None => self.fresh.get(&directory) == Some(&session),
        }
    }

    /// Grants a wish that can be; the number of the delegation.
    pub fn hold(&mut self, Wish { directory, bucket, session }: Wish) -> u64 {
        if let Some(held) = self.held.get(&directory) {
            return held.number;
        }
        self.last += 1;
        let number = self.last;
        let held = Held { session, bucket, number, is_recalled: false, waiting: Vec::new() };
        self.held.insert(directory, held);
        self.unsettled.hold();
        number
    }

    /// An operation of `by` is about to see a row, or a range that begins there: of entries, those
    /// of one directory. Whether it must not.
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

    /// The operation that met directories runs again, or another one does.
    pub fn forget_met(&mut self) {
        *self.met.get_mut() = Met::default();
    }

    /// What an operation of `by` has to wait for that has run, and would make these changes, if
    /// anything: one of several. If it need not wait, it is over.
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

    /// `is_news`: its session does not know what becomes of this row.
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
                let within = |held: &Held| keys::bucket(held.bucket) == *key;
                held.find(|(_, held)| within(held)).map(|(directory, _)| *directory)
            }
            _ => None,
        }
    }

    /// Whether all entries and tallies among these rows are of directories that a session holds.
    pub fn are_of<'a>(
        &self,
        mut rows: impl Iterator<Item = &'a Bytes>,
        session: Option<SessionId>,
    ) -> bool {
        let is_held = |directory: Ino| {
            let held = self.held.get(&directory);
            held.is_some_and(|held| session == Some(held.session))
        };
        rows.all(|key| keys::directory_of(key).is_none_or(is_held))
    }

    /// Puts an operation off until a directory is given back. Returns who is to be asked for it,
    /// and for what.
    pub fn wait(&mut self, directory: Ino, job: Job) -> Option<(SessionId, Bytes)> {
        let held = self.held.get_mut(&directory)?;
        held.waiting.push(job);
        let was_recalled = std::mem::replace(&mut held.is_recalled, true);
        self.asked.wanted_back(held.session, directory);
        (!was_recalled).then(|| (held.session, keys::delegation(directory, held.number)))
    }

    /// What to ask a session for so that it gives back all that it holds.
    pub fn recall_all(&mut self, session: SessionId) -> Vec<Bytes> {
        let is_due = |held: &Held| held.session == session && !held.is_recalled;
        let due = self.held.iter_mut().filter(|(_, held)| is_due(held));
        let recall = |(directory, held): (&Ino, &mut Held)| {
            held.is_recalled = true;
            self.asked.wanted_back(session, *directory);
            keys::delegation(*directory, held.number)
        };
        due.map(recall).collect()
    }

    /// A session gives directories back. Operations that waited for them go to `ready`.
    pub fn give_back(
        &mut self,
        session: SessionId,
        given: &[(Ino, u64)],
        ready: &mut VecDeque<Job>,
    ) {
        for (directory, number) in given {
            let is_so = |held: &Held| held.session == session && held.number == *number;
            if self.held.get(directory).is_some_and(is_so) {
                self.release(*directory, ready);
                self.made(*directory, session);
            }
        }
    }

    /// A session holds nothing any more.
    pub fn end(&mut self, session: SessionId, ready: &mut VecDeque<Job>) {
        let of = self.held.iter().filter(|(_, held)| held.session == session);
        let directories: Vec<Ino> = of.map(|(directory, _)| *directory).collect();
        for directory in directories {
            self.release(directory, ready);
        }
        self.fresh.retain(|_, maker| *maker != session);
    }

    /// Nobody holds anything any more.
    pub fn end_all(&mut self, ready: &mut VecDeque<Job>) {
        while let Some((directory, _)) = self.held.first_key_value() {
            self.release(*directory, ready);
        }
    }

    fn release(&mut self, directory: Ino, ready: &mut VecDeque<Job>) {
        if let Some(held) = self.held.remove(&directory) {
            self.unsettled.let_go();
            self.asked.given_back(held.session, directory);
            ready.extend(held.waiting);
        }
    }
}
