//! Operations that a session has run on its own, in directories that are delegated to it, and that
//! the master has not run yet: docs/decisions/0016-delegated-directories.md.

mod sources;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BucketId, Error, Ino, SessionId, Timestamp};
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::timeout;

use sources::{Local, Over};
use state::{ChangedRow, Directory, PostedState};

use super::messages::{DelegateReply, ExecuteReply};
use super::operation::Operation;
use super::rows::{LeasedRows, Mark};
use super::slots::SlotGuard;
use crate::erased::Apply;
use crate::rows::{Inode, Row};
use crate::{Context, Source, View, Watched, keys};

pub use state::Post;

/// Operations that are sent at a time, and their bytes.
const BATCH_OPS: usize = 256;
const BATCH_BYTES: usize = 512 << 10;
/// Time after which a posted operation is sent, together with later ones, if nobody waits for it.
const LINGER: Duration = Duration::from_millis(5);
/// Time without new entries after which a directory is given back.
const IDLE: Duration = Duration::from_secs(1);
/// Time without new entries after which a directory is given back if another one is recalled.
const BRIEFLY: Duration = Duration::from_millis(50);
/// Interval at which idle directories are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Number of inode numbers that are reserved at a time.
pub const RESERVED: u32 = 1 << 14;
/// Number of directories that may be asked for; beyond that, all are forgotten.
const OWN: usize = 1 << 16;

#[derive(Default)]
pub struct Posts {
    state: RwLock<PostedState>,
    /// Set if rows are known here that are not among the leased rows.
    has_rows: AtomicBool,
    /// Number of changes of the rows that are known here.
    changes: AtomicU64,
    /// Number up to which all operations have run, or are lost.
    ran: Watched<u64>,
    wake: Notify,
    /// Notified when somebody waits for the queued operations.
    urgent: Notify,
    /// Lock of the task that asks for a directory, so that others wait for the answer.
    pub asking: tokio::sync::Mutex<()>,
    /// Lock of the task that has inode numbers reserved.
    pub reserving: Arc<tokio::sync::Mutex<()>>,
}

/// The facts known when a directory is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    pub bucket: BucketId,
    attachment: u64,
    barred: u64,
}

/// An operation on its way that may change delegated rows: meanwhile nothing is posted.
#[must_use]
pub struct Barring<'a>(Option<&'a Posts>);

/// The poster of an operation, and the time.
pub struct Poster<'a> {
    pub session: SessionId,
    /// Attachment that [`Posts::may_post`] returned.
    pub attachment: u64,
    pub caller: &'a Caller,
    pub now: Timestamp,
    pub monotonic: Duration,
}

impl Posts {
    /// Runs an operation here, if nobody else can know the rows that it needs and changes. `slot`
    /// is the slot in which the master is to run it, as `operation`. Returns `None` if it was not
    /// run.
    pub fn post(
        &self,
        rows: &LeasedRows,
        poster: Poster<'_>,
        slot: SlotGuard,
        apply: Apply<'_>,
        operation: &dyn Fn() -> Result<Operation, Error>,
    ) -> Option<()> {
        let mut state = self.state.write();
        let Poster { session, attachment, caller, now, monotonic } = poster;
        if state.barring > 0 || state.attachment != attachment {
            return None;
        }
        let time = now.max(state.time);
        let context =
            Context { caller: caller.clone(), now: time, batch: Inode::NO_BATCH + state.last + 1 };
        let ino = state.reserved.front().map(|(first, _)| *first);
        let local = Local { state: &state, rows, session, ino };
        let mut view = View::new(&local);
        if let Some(ino) = ino {
            view.give_ino(ino, session);
        }
        // Any error is reported by the master.
        apply(&mut view, &context).ok()?;
        let made = view.taken_ino();
        let mut changes = view.into_changes().ok()?;
        // The master counts, and orders entries, when it runs the operation.
        changes.retain(|key, _| !keys::is_counter(key) && !keys::is_ordered_entry(key));
        let parent = |key: &Bytes| state.made.get(&keys::inode_of(key)?).copied();
        let directory = changes.keys().find_map(|key| keys::directory_of(key).or(parent(key)));
        let is_ours = |key: &Bytes| state.is_ours(key, made);
        if changes.is_empty() || !changes.keys().all(is_ours) {
            return None;
        }
        let operation = operation().ok()?;
        state.last += 1;
        let number = state.last;
        let keys: Vec<Bytes> = changes.keys().cloned().collect();
        if let Some(held) = directory.and_then(|directory| state.held.get_mut(&directory)) {
            held.used = monotonic;
            held.entries.extend(keys.iter().filter(|key| key.first() == Some(&b'd')).cloned());
        }
        if let (Some(ino), Some(directory)) = (made, directory) {
            state.use_reserved();
            state.made.insert(ino, directory);
        }
        state
            .rows
            .extend(changes.into_iter().map(|(key, row)| (key, ChangedRow { row, by: number })));
        state.time = time;
        let (operation, slot) = (Arc::new(operation), Arc::new(slot));
        rows.overlaid(&keys);
        state.queue.push_back(Arc::new(Post { operation, slot, ino: made, time, number, keys }));
        self.changed(true);
        drop(state);
        self.wake.notify_one();
        Some(())
    }

    /// Returns the attachment in which an operation that changes these rows may be posted; `None`
    /// if an attempt is not worthwhile.
    pub fn may_post(&self, changes: &[Bytes]) -> Option<u64> {
        let state = self.state.read();
        let is_ours = |key: &Bytes| state.is_ours(key, None);
        (state.barring == 0 && changes.iter().any(is_ours)).then_some(state.attachment)
    }

    /// Notes that the rows that are known here have changed.
    fn changed(&self, has_rows: bool) {
        self.has_rows.store(has_rows, Ordering::SeqCst);
        self.count_change();
    }

    fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a number that grows whenever rows that are known here beside the leased rows have
    /// changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Reads rows as seen here: leased rows, and over them posted changes.
    pub fn over<R>(&self, rows: &LeasedRows, read: impl FnOnce(&dyn Source) -> R) -> R {
        if !self.has_rows.load(Ordering::SeqCst) {
            return read(rows);
        }
        let state = self.state.read();
        read(&Over { state: &state, rows })
    }

    /// Returns the number of directories that the session holds, and of operations that are not
    /// known to have run.
    pub fn usage(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.held.len() as u64, state.queue.len() as u64)
    }

    /// Returns the first operations to send.
    pub fn batch(&self) -> Vec<Arc<Post>> {
        let state = self.state.read();
        let mut bytes = 0;
        let fit = |post: &&Arc<Post>| {
            let fits = bytes < BATCH_BYTES;
            bytes += post.operation.weight();
            fits
        };
        state.queue.iter().take(BATCH_OPS).take_while(fit).cloned().collect()
    }

    /// Handles the results of `batch`, which the master has run; it was asked after `mark`. Returns
    /// the rows that differ from what this session has shown, and the number of lost operations.
    pub fn confirm(
        &self,
        rows: &LeasedRows,
        mark: Mark,
        batch: &[Arc<Post>],
        ran: Vec<Result<ExecuteReply, Error>>,
    ) -> (Vec<Bytes>, usize) {
        let mut state = self.state.write();
        let (mut wrong, mut lost, mut settled) = (Vec::new(), 0, Vec::new());
        for (post, ran) in batch.iter().zip(ran) {
            if state.queue.pop_front_if(|first| first.number == post.number).is_none() {
                continue;
            }
            for key in &post.keys {
                if state.rows.get(key).is_some_and(|changed| changed.by == post.number) {
                    state.rows.remove(key);
                }
            }
            match ran {
                Ok(ran) => {
                    for (key, row) in ran.rows {
                        if !state.rows.contains_key(&key) {
                            rows.offer(mark, key, row);
                        }
                    }
                }
                Err(error) => {
                    let verb = post.operation.name();
                    tracing::error!(verb, %error, "done, not durable, and LOST");
                    lost += 1;
                    wrong.extend(post.keys.iter().cloned());
                }
            }
            settled.extend(post.keys.iter().cloned());
            self.ran.set(post.number);
        }
        rows.settled(&settled);
        if lost > 0 {
            state.give_up();
        }
        self.changed(!state.is_empty());
        (wrong, lost)
    }

    /// Waits until all posted operations have run.
    pub async fn drained(&self) {
        let last = self.state.read().last;
        if self.ran.get() < last {
            self.urgent.notify_one();
        }
        self.ran.wait_for(|ran| (*ran >= last).then_some(())).await;
    }

    /// Waits for something to do. Queued operations wait a moment for more.
    pub async fn work(&self) {
        let (queued, is_idle) = {
            let state = self.state.read();
            (state.queue.len(), state.held.is_empty())
        };
        if queued == 0 {
            let patience = if is_idle { IDLE } else { LOOK };
            let _ = timeout(patience, self.wake.notified()).await;
        }
        if queued < BATCH_OPS {
            let _ = timeout(LINGER, self.urgent.notified()).await;
        }
    }

    /// Stops posting while an operation is on its way that changes these rows, as far as its fields
    /// determine. Drop the result when the operation is over.
    pub fn bar(&self, changes: &[Bytes]) -> Barring<'_> {
        let mut state = self.state.write();
        let may_change = |key: &Bytes| match keys::inode_of(key) {
            Some(ino) => state.held.contains_key(&ino),
            None => keys::directory_of(key).is_some(),
        };
        if !changes.is_empty() && !changes.iter().any(may_change) {
            // It changes files. Their rows may be known elsewhere afterwards.
            for ino in changes.iter().filter_map(|key| keys::inode_of(key)) {
                state.made.remove(&ino);
            }
            self.count_change();
            return Barring(None);
        }
        state.made.clear();
        state.barring += 1;
        state.barred += 1;
        for key in changes {
            let held = keys::directory_of(key).and_then(|ino| state.held.get_mut(&ino));
            if let (Some(held), Some(b'd')) = (held, key.first()) {
                held.entries.insert(key.clone());
            }
        }
        self.count_change();
        Barring(Some(self))
    }

    /// Notes that the session has made a directory.
    pub fn made(&self, directory: Ino) {
        {
            let own = &mut self.state.write().own;
            if own.len() >= OWN {
                own.clear();
            }
            own.insert(directory);
        }
        // Inode numbers may be needed now.
        self.wake.notify_one();
    }

    /// Returns the facts to ask for a directory with, or `None` if it is not to be asked for.
    pub fn may_ask(&self, rows: &LeasedRows, directory: Ino) -> Option<Asking> {
        let state = self.state.read();
        let is_released = state.releasing.iter().any(|(released, ..)| *released == directory);
        let is_new = state.own.contains(&directory) && !state.held.contains_key(&directory);
        if !is_new || state.numbers() == 0 || is_released || state.barring > 0 {
            return None;
        }
        let inode = rows.get(&keys::inode(directory))??;
        let bucket = Inode::decode(&inode).ok()?.bucket;
        Some(Asking { bucket, attachment: state.attachment, barred: state.barred })
    }

    /// Notes that a directory is about to be asked for, and no answer about another one is
    /// awaited: no delegation that was recalled so far can still arrive.
    pub fn asks(&self) {
        self.state.write().void.clear();
    }

    /// Notes that a directory is not to be asked for again.
    pub fn refused(&self, directory: Ino) {
        self.state.write().own.remove(&directory);
    }

    /// Notes that a directory was delegated. Directories that are no longer as expected are given
    /// back.
    pub fn delegated(
        &self,
        directory: Ino,
        asked: Asking,
        delegated: DelegateReply,
        monotonic: Duration,
    ) {
        let mut state = self.state.write();
        let DelegateReply { number, entries, .. } = delegated;
        if state.attachment != asked.attachment || state.void.remove(&number) {
            return;
        }
        if state.barred == asked.barred {
            let entries = entries.into_iter().collect();
            state.held.insert(directory, Directory { number, entries, used: monotonic });
            self.changed(true);
        } else {
            state.releasing.push((directory, number, 0));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Handles the recall of a directory. After one directory, those beside it are often recalled
    /// next.
    pub fn recalled(&self, directory: Ino, number: u64, monotonic: Duration) {
        let mut state = self.state.write();
        state.release_idle(monotonic, BRIEFLY);
        match state.held.get(&directory) {
            Some(held) if held.number == number => state.release(directory),
            // It is about to be given back.
            _ if state.releasing.iter().any(|(_, of, _)| *of == number) => {}
            _ => {
                state.void.insert(number);
                state.releasing.push((directory, number, 0));
            }
        }
        self.count_change();
        drop(state);
        self.wake.notify_one();
        self.urgent.notify_one();
    }

    /// Returns the directories to give back now, with the numbers of their delegations.
    pub fn to_give_back(&self, monotonic: Duration) -> Vec<(Ino, u64)> {
        let mut state = self.state.write();
        state.release_idle(monotonic, IDLE);
        let (ran, mut due) = (self.ran.get(), Vec::new());
        state.releasing.retain(|(directory, number, after)| {
            let is_due = *after <= ran;
            due.extend(is_due.then_some((*directory, *number)));
            !is_due
        });
        self.changed(!state.is_empty());
        due
    }

    /// Notes that inode numbers were reserved.
    pub fn reserved(&self, first: Ino, end: Ino) {
        self.state.write().reserved.push_back((first, end));
    }

    /// Returns whether more inode numbers should be reserved.
    pub fn needs_numbers(&self) -> bool {
        let state = self.state.read();
        let left = state.numbers();
        let few = if state.held.is_empty() {
            left == 0 && !state.own.is_empty()
        } else {
            left < u64::from(RESERVED) / 2
        };
        few && !state.has_no_numbers
    }

    /// Notes that the server reserves no inode numbers.
    pub fn do_without_numbers(&self) {
        self.state.write().has_no_numbers = true;
    }

    /// Begins a new attachment, in which nothing is delegated to the session.
    pub fn begin(&self) {
        let mut state = self.state.write();
        state.attachment += 1;
        state.held.clear();
        state.made.clear();
        state.releasing.clear();
        state.void.clear();
        self.count_change();
    }

    /// Gives up the posted operations of a session that has ended; returns their number.
    pub fn lose(&self) -> usize {
        let mut state = self.state.write();
        let lost = std::mem::take(&mut state.queue).len();
        state.rows.clear();
        state.own.clear();
        state.reserved.clear();
        self.changed(false);
        self.ran.set(state.last);
        lost
    }
}

impl Drop for Barring<'_> {
    fn drop(&mut self) {
        if let Some(posts) = self.0 {
            posts.state.write().barring -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recalls_of_what_was_given_back_before_take_no_memory() {
        let posts = Posts::default();
        for number in 0..100 {
            posts.recalled(Ino(5), number, Duration::ZERO);
            assert_eq!(posts.to_give_back(Duration::ZERO), [(Ino(5), number)]);
        }
        posts.asks();
        let state = posts.state.read();
        assert!(state.void.is_empty() && state.releasing.is_empty());
    }
}
