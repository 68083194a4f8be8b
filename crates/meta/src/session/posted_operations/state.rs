//! The operations that a session has run on its own, and the directories that it holds for that.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Ino, Timestamp};

use crate::keys;
use crate::session::operation::Operation;
use crate::session::slots::SlotGuard;

/// An operation that the session has run on its own.
pub struct Post {
    pub operation: Arc<Operation>,
    pub slot: Arc<SlotGuard>,
    /// Inode that the operation made.
    pub ino: Option<Ino>,
    /// Time at which the operation was run here.
    pub time: Timestamp,
    pub number: u64,
    /// Rows that the operation changed.
    pub keys: Vec<Bytes>,
}

#[derive(Default)]
pub struct PostedState {
    /// Operations that are not known to have run, the oldest first.
    pub queue: VecDeque<Arc<Post>>,
    pub last: u64,
    /// Rows that these operations changed.
    pub rows: HashMap<Bytes, ChangedRow>,
    pub held: BTreeMap<Ino, Directory>,
    /// Inodes that were made here and are known to nobody else, and the directories of their names.
    pub made: HashMap<Ino, Ino>,
    /// Directories that the session made, and may ask for.
    pub own: HashSet<Ino>,
    /// Directories to give back, once all operations up to a number have run: directory,
    /// delegation, number.
    pub releasing: Vec<(Ino, u64, u64)>,
    /// Delegations that were recalled before the session learned of them.
    pub void: HashSet<u64>,
    /// Number of operations on their way that may change delegated rows; `barred` counts all that
    /// ever were.
    pub barring: usize,
    pub barred: u64,
    /// Number of the attachment. Delegations of former attachments are void.
    pub attachment: u64,
    pub reserved: VecDeque<(Ino, Ino)>,
    pub has_no_numbers: bool,
    /// Time of the last operation.
    pub time: Timestamp,
}

pub struct ChangedRow {
    pub row: Option<Bytes>,
    /// Number of the last operation that changed the row.
    pub by: u64,
}

pub struct Directory {
    pub number: u64,
    /// Keys of all its entries, and of some removed ones.
    pub entries: HashSet<Bytes>,
    /// Time of the last creation of an entry, by the monotonic clock.
    pub used: Duration,
}

impl PostedState {
    /// Returns whether nobody else can know a row; `made` is the inode that the operation which
    /// changes it makes.
    pub fn is_ours(&self, key: &Bytes, made: Option<Ino>) -> bool {
        if let Some(directory) = keys::directory_of(key) {
            return self.held.contains_key(&directory);
        }
        let ino = keys::inode_of(key);
        ino.is_some_and(|ino| made == Some(ino) || self.made.contains_key(&ino))
    }

    /// Returns whether a row is known not to exist: an entry of a directory that the session holds.
    pub fn lacks(&self, key: &Bytes) -> bool {
        let directory = keys::directory_of(key).filter(|_| key.first() == Some(&b'd'));
        let held = directory.and_then(|directory| self.held.get(&directory));
        held.is_some_and(|held| !held.entries.contains(key))
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.held.is_empty()
    }

    /// Returns the number of inode numbers that are reserved and not used.
    pub fn numbers(&self) -> u64 {
        self.reserved.iter().map(|(first, end)| end.0 - first.0).sum()
    }

    pub fn use_reserved(&mut self) {
        if let Some((first, end)) = self.reserved.front_mut() {
            first.0 += 1;
            if first >= end {
                self.reserved.pop_front();
            }
        }
    }

    pub fn release_idle(&mut self, monotonic: Duration, idle: Duration) {
        let is_idle = |held: &Directory| monotonic.saturating_sub(held.used) >= idle;
        let unused = self.held.iter().filter(|(_, held)| is_idle(held));
        for directory in unused.map(|(directory, _)| *directory).collect::<Vec<_>>() {
            self.release(directory);
        }
    }

    pub fn release(&mut self, directory: Ino) {
        if let Some(held) = self.held.remove(&directory) {
            self.releasing.push((directory, held.number, self.last));
            self.made.retain(|_, parent| *parent != directory);
        }
    }

    /// Releases all directories that the session holds, and forgets those that it might ask for.
    pub fn give_up(&mut self) {
        for directory in self.held.keys().copied().collect::<Vec<_>>() {
            self.release(directory);
        }
        self.own.clear();
    }
}
