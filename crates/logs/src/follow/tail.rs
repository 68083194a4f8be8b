//! The ends of files that grow: each is read once for all followers of the file in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result};
use cairn_fs::{Fs, Object, RowWatch};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::limits::{
    TAIL_BYTES, TAIL_LOOK, TAIL_LOOK_UNLEASED, TAIL_PIECE_BYTES, TAIL_RETRY, TAILS_BYTES,
};

/// Counters of followers and their reads.
#[derive(Debug, Default)]
pub struct FollowCounts {
    followers: AtomicU64,
    shared_reads: AtomicU64,
    own_reads: AtomicU64,
    bytes: AtomicU64,
    /// Bytes of the ends of files that are kept in memory.
    buffered: AtomicU64,
}

impl FollowCounts {
    /// Counts one more follower.
    pub fn come(&self) {
        self.followers.fetch_add(1, Relaxed);
    }

    pub fn go(&self) {
        self.followers.fetch_sub(1, Relaxed);
    }

    /// Returns the number of followers now.
    pub fn followers(&self) -> u64 {
        self.followers.load(Relaxed)
    }

    /// Returns the number of reads of new bytes for all followers of a file.
    pub fn shared_reads(&self) -> u64 {
        self.shared_reads.load(Relaxed)
    }

    /// Returns the number of reads for a single follower: of older bytes, or because it was slow.
    pub fn own_reads(&self) -> u64 {
        self.own_reads.load(Relaxed)
    }

    /// Returns the number of bytes that all followers received.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// The files that are followed.
pub struct Tails {
    fs: Fs,
    open: Mutex<HashMap<Ino, Weak<Tail>>>,
    counts: Arc<FollowCounts>,
}

/// The last known state of a file.
#[derive(Clone, Copy, Debug)]
pub struct TailState {
    /// Size in bytes.
    pub size: u64,
    /// Number of times that the file became shorter.
    pub cuts: u64,
    /// True if the file was deleted.
    pub is_gone: bool,
}

/// The end of one file, as kept in memory.
pub struct Tail {
    ino: Ino,
    tails: Arc<Tails>,
    seen: watch::Sender<TailState>,
    pieces: Mutex<Pieces>,
    task: OnceLock<AbortHandle>,
}

/// The bytes that were read last: each piece begins where the one before it ends.
#[derive(Default)]
struct Pieces {
    all: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl Tails {
    pub fn new(fs: Fs) -> Arc<Tails> {
        Arc::new(Tails { fs, open: Mutex::default(), counts: Arc::default() })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    pub fn counts(&self) -> &Arc<FollowCounts> {
        &self.counts
    }

    /// Returns the tail of a file that was opened just now.
    pub fn of(self: &Arc<Self>, object: &Object) -> Arc<Tail> {
        let ino = object.ino();
        let mut open = self.open.lock();
        if let Some(tail) = open.get(&ino).and_then(Weak::upgrade) {
            return tail;
        }
        let seen = TailState { size: object.size(), cuts: 0, is_gone: false };
        let tail = Arc::new(Tail {
            ino,
            tails: Arc::clone(self),
            seen: watch::Sender::new(seen),
            pieces: Mutex::default(),
            task: OnceLock::new(),
        });
        open.insert(ino, Arc::downgrade(&tail));
        let changes = self.fs.watch(ino);
        let task = tokio::spawn(look(Arc::downgrade(&tail), self.fs.clone(), ino, changes));
        // The task is set once, here.
        let _ = tail.task.set(task.abort_handle());
        tail
    }
}

/// Looks at a file whenever it changes, until it has no followers or is gone.
async fn look(tail: Weak<Tail>, fs: Fs, ino: Ino, mut changes: RowWatch) {
    let mut is_idle = false;
    loop {
        let opened = fs.open_inode(&Caller::system(), ino, true).await;
        let Some(tail) = tail.upgrade() else { return };
        let pause = match opened {
            Ok(object) => {
                tail.take(&object, is_idle).await;
                // No notice comes of changes of a row that is not leased.
                match fs.open_inode_now(&Caller::system(), ino, true) {
                    Some(_) => TAIL_LOOK,
                    None => TAIL_LOOK_UNLEASED,
                }
            }
            Err(Error::NotFound(_)) => {
                tail.seen.send_modify(|seen| seen.is_gone = true);
                return;
            }
            Err(error) => {
                tracing::debug!(%ino, %error, "a file that is followed could not be looked at");
                sleep(TAIL_RETRY).await;
                continue;
            }
        };
        drop(tail);
        // The time is up: look in any case.
        is_idle = timeout(pause, changes.changed()).await.is_err();
    }
}

impl Tail {
    pub fn ino(&self) -> Ino {
        self.ino
    }

    pub fn subscribe(&self) -> watch::Receiver<TailState> {
        self.seen.subscribe()
    }

    /// Returns kept bytes from an offset on, at most `most`; `None` if these are not kept.
    pub fn kept(&self, at: u64, most: usize) -> Option<Bytes> {
        let pieces = self.pieces.lock();
        let behind = pieces.all.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = pieces.all.get(behind.checked_sub(1)?)?;
        let skip = usize::try_from(at.checked_sub(*start)?).ok()?;
        let end = bytes.len().min(skip.saturating_add(most));
        (skip < end).then(|| bytes.slice(skip..end))
    }

    /// Reads new bytes and notifies all followers. If nothing was added for a while, the kept bytes
    /// are dropped to make room for others.
    async fn take(&self, object: &Object, is_idle: bool) {
        let (known, size) = (self.seen.borrow().size, object.size());
        if size < known {
            self.forget(0);
            self.seen.send_modify(|seen| (seen.size, seen.cuts) = (size, seen.cuts + 1));
            return;
        }
        if size == known {
            if is_idle {
                self.forget(0);
            }
            return;
        }
        let start = known.max(size.saturating_sub(TAIL_BYTES as u64));
        self.tails.counts.shared_reads.fetch_add(1, Relaxed);
        match object.read_all(start..size).await {
            Ok(bytes) => self.keep(start, &bytes),
            // Each follower finds out on its own.
            Err(error) => {
                tracing::debug!(ino = %self.ino, %error, "a file that is followed was not read");
                self.forget(0);
            }
        }
        self.seen.send_modify(|seen| seen.size = size);
    }

    fn keep(&self, start: u64, bytes: &Bytes) {
        self.forget(TAIL_BYTES.saturating_sub(bytes.len()));
        let buffered = &self.tails.counts.buffered;
        let len = bytes.len();
        if buffered.fetch_add(len as u64, Relaxed) + len as u64 > TAILS_BYTES {
            buffered.fetch_sub(len as u64, Relaxed);
            return self.forget(0);
        }
        let mut pieces = self.pieces.lock();
        pieces.bytes += len;
        let mut start = start;
        for piece in bytes.chunks(TAIL_PIECE_BYTES) {
            // Copied, so that a slow client holds this piece only, and neither the whole read nor a
            // cached block.
            pieces.all.push_back((start, Bytes::copy_from_slice(piece)));
            start += piece.len() as u64;
        }
    }

    /// Drops the oldest pieces until at most `most` bytes are kept.
    fn forget(&self, most: usize) {
        let mut pieces = self.pieces.lock();
        while pieces.bytes > most {
            let Some((_, bytes)) = pieces.all.pop_front() else { return };
            pieces.bytes -= bytes.len();
            self.tails.counts.buffered.fetch_sub(bytes.len() as u64, Relaxed);
        }
    }

    /// Reads bytes from an offset on for one follower; `None` if the file ends before it.
    pub async fn read(&self, at: u64, most: usize) -> Result<Option<Bytes>> {
        let object = self.tails.fs.open_inode(&Caller::system(), self.ino, true).await?;
        let end = object.size().min(at.saturating_add(most as u64));
        if end <= at {
            return Ok(None);
        }
        self.tails.counts.own_reads.fetch_add(1, Relaxed);
        object.read_all(at..end).await.map(Some)
    }

    pub fn count(&self, bytes: &Bytes) {
        self.tails.counts.bytes.fetch_add(bytes.len() as u64, Relaxed);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        self.forget(0);
        let mut open = self.tails.open.lock();
        // A new tail of the same file may have been made meanwhile.
        if open.get(&self.ino).is_some_and(|tail| tail.strong_count() == 0) {
            open.remove(&self.ino);
        }
    }
}
