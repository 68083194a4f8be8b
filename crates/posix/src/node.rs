//! An open file: the bytes that were written to it and are not written back yet.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Buffers, Error, Ino, Result, SessionId, Timestamp, limits};
use cairn_fs::rows::Inode;
use cairn_fs::{FileWriter, Fs, Object, Over, PACKED_RUNS, Piece};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::dirt::Account;
use crate::owners::{self, LockOwners};
use crate::runs::{Frozen, Runs, overlay};

/// Number of blocks of one file that are uploaded at the same time.
const PARALLEL_BLOCKS: usize = 4;
/// Attempts to write back while others change the same file.
const TRIES: u32 = 16;
/// Time without a read after which a file that was removed elsewhere can no longer be read here.
const LINGER: Duration = Duration::from_secs(30);
/// Longest time for which such a file can be read: the server ends a session that holds deleted
/// blocks for longer than twice this time.
const FORMER: Duration = Duration::from_secs(60);
/// Number of runs that go into the metadata instead of a block, if they are short together.
const INLINE_RUNS: usize = 4;
/// Number of small writes to one chunk after which it is rewritten.
const SMALL_WRITES: u32 = 32;
/// Numbers of changes from here on belong to unwritten bytes: neither the master nor a session
/// numbers operations so. They begin with the time, so that none is used twice.
const WRITTEN: u64 = Inode::NO_BATCH | Inode::NO_BATCH >> 1;
/// Number of dirty bytes from which on whole blocks are written back while writes go on.
const EAGER_BYTES: u64 = 2 * limits::BLOCK_BYTES as u64;

/// Receives a file before bytes of it are dropped because others wrote to it. Must not wait, nor
/// call the file.
pub type Dropped = Arc<dyn Fn(Ino) + Send + Sync>;

pub struct Node {
    pub ino: Ino,
    fs: Fs,
    writer: FileWriter,
    /// If set, bytes do not overwrite what others have written since the file was opened.
    dropped: Option<Dropped>,
    state: Mutex<NodeState>,
    pub locks: LockOwners,
    /// Held during a write-back.
    writing_back: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct NodeState {
    dirty: Runs,
    /// Runs that are being written back, beneath the dirty runs.
    frozen: Arc<Frozen>,
    /// Time of the last write, while it is not written back.
    written: Option<Timestamp>,
    /// Number of the last local write: no other state of the file has it.
    change: u64,
    /// The caller on whose behalf the bytes are written back.
    writer: Option<Caller>,
    /// The account of dirty and frozen bytes.
    account: Option<Arc<Account>>,
    /// Number of times that written bytes were lost.
    losses: u64,
    /// True while a task writes back whole blocks.
    is_eager: bool,
    /// True if the session counts as one of the file's names.
    retained: bool,
    /// True if that is its only name, so that it cannot be opened any more.
    is_nameless: bool,
    /// The chunk that last received small writes, and their number.
    small_writes: (u32, u32),
    /// The file as it was last read.
    last: Option<Last>,
    /// The change of the file's bytes that dirty and frozen bytes were written over, if they must
    /// not overwrite any other.
    base: Option<u64>,
    /// Changes of the file's bytes before and after the last write-backs without another writer in
    /// between, each over the result of the one before. All states in between came from this node
    /// as well.
    own: Option<(u64, u64)>,
    /// Number of times that bytes were dropped because others wrote to the file.
    drops: u64,
}

impl NodeState {
    /// Notes that the file was written to over the change `before`, which made it `after`.
    fn wrote_over(&mut self, before: u64, after: u64) {
        let first = self.own.filter(|(_, last)| *last == before).map_or(before, |own| own.0);
        (self.own, self.base) = (Some((first, after)), Some(after));
    }

    /// Counts bytes that are no longer dirty.
    fn uncount(&self, bytes: u64) {
        if let Some(account) = &self.account {
            account.less(bytes);
        }
    }
}

/// A file as it was last read.
struct Last {
    object: Object,
    read: Instant,
    /// Time since which it is kept in that state.
    opened: Instant,
}

/// The local state of a file, on top of the one in the store.
pub struct Local {
    pub end: u64,
    /// Time of the last write, and its number.
    written: Option<(Timestamp, u64)>,
    retained: bool,
    patches: Frozen,
    base: Option<u64>,
}

impl Node {
    /// Returns a node. `whole` is the memory for runs that become whole blocks.
    pub fn new(fs: &Fs, ino: Ino, dropped: Option<Dropped>, whole: &Buffers) -> Node {
        let now = fs.clock().now().0.unsigned_abs();
        let change = WRITTEN | now & !WRITTEN;
        Node {
            ino,
            fs: fs.clone(),
            writer: fs.writer(ino),
            dropped,
            state: Mutex::new(NodeState {
                change,
                dirty: Runs::new(whole.clone()),
                ..NodeState::default()
            }),
            locks: LockOwners::default(),
            writing_back: tokio::sync::Mutex::new(()),
        }
    }

    /// Takes bytes that are written over `base`, the state of the file when it was opened. Returns
    /// by how much the number of dirty bytes has grown, and whether somebody should write back
    /// whole blocks.
    pub fn write(
        &self,
        caller: &Caller,
        account: &Arc<Account>,
        base: Option<u64>,
        offset: u64,
        data: &[u8],
    ) -> (u64, bool) {
        let mut state = self.state.lock();
        let before = state.dirty.bytes();
        state.dirty.write(offset, data);
        state.written = Some(self.fs.clock().now());
        state.change = WRITTEN | state.change.wrapping_add(1);
        let is_clean = before == 0 && state.frozen.is_empty();
        // A write by root must not let earlier writes of others be written back as root.
        if (is_clean || !is_root(caller))
            && !state.writer.as_ref().is_some_and(|writer| writer.acts_as(caller))
        {
            state.writer = Some(caller.clone());
        }
        let eager = state.dirty.bytes() >= EAGER_BYTES && !state.is_eager;
        state.is_eager |= eager;
        if is_clean {
            state.account = Some(Arc::clone(account));
            let base = base.filter(|_| self.dropped.is_some());
            // Bytes that were written back since the file was opened hide nothing that its opener
            // saw, unless others had written in between.
            let base_of = |base| match state.own {
                Some((first, last)) if (first..=last).contains(&base) => last,
                _ => base,
            };
            state.base = base.map(base_of);
        }
        let more = state.dirty.bytes() - before;
        if let Some(account) = &state.account {
            account.add(more);
        }
        (more, eager)
    }

    /// Returns the local state, with the bytes of `range`. Must be called before the store is read.
    pub fn local(&self, range: &Range<u64>) -> Local {
        let state = self.state.lock();
        let mut patches = Frozen::new();
        let frozen = state.frozen.iter();
        patches.extend(
            frozen
                .filter(|(at, run)| *at < range.end && at + run.len() as u64 > range.start)
                .cloned(),
        );
        if state.dirty.overlaps(range) {
            patches.extend(state.dirty.copy(range));
        }
        let frozen = state.frozen.iter().map(|(at, run)| at + run.len() as u64);
        Local {
            end: frozen.max().unwrap_or(0).max(state.dirty.end()),
            written: state.written.map(|written| (written, state.change)),
            retained: state.retained,
            patches,
            base: state.base,
        }
    }

    /// Returns the number of times that bytes were dropped because others wrote to the file.
    pub fn drops(&self) -> u64 {
        self.state.lock().drops
    }

    pub fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        !state.dirty.is_empty() || !state.frozen.is_empty()
    }

    /// Returns whether the file has dirty bytes, but so few that a caller that wants its time can
    /// wait until they are written back, which gives the file its final time.
    pub fn is_soon_flushed(&self) -> bool {
        let state = self.state.lock();
        let bytes = state.dirty.bytes() + length(&state.frozen);
        (1..=limits::BLOCK_BYTES as u64).contains(&bytes) && !state.is_nameless
    }

    /// Returns an answer for work that may first have to write back much of the file.
    pub fn answer<T>(&self, work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        if self.dirty_bytes() > limits::INLINE_BYTES as u64 {
            Answer::later(work)
        } else {
            Answer::soon(work)
        }
    }

    /// Returns the number of bytes written and not written back.
    pub fn dirty_bytes(&self) -> u64 {
        self.state.lock().dirty.bytes()
    }

    /// Returns whether the file was written to since it was opened.
    pub fn was_written(&self) -> bool {
        self.state.lock().writer.is_some()
    }

    pub fn set_retained(&self, retained: bool) {
        self.state.lock().retained = retained;
    }

    pub fn is_retained(&self) -> bool {
        self.state.lock().retained
    }

    /// Notes that its last name is gone.
    pub fn set_nameless(&self) {
        self.state.lock().is_nameless = true;
    }

    pub fn is_nameless(&self) -> bool {
        self.state.lock().is_nameless
    }

    /// Remembers a file that was read: it stays readable for a while even if it is removed
    /// elsewhere.
    pub fn remember(&self, object: &Object) {
        let now = Instant::now();
        self.state.lock().last = Some(Last { object: object.clone(), read: now, opened: now });
    }

    /// Returns the file as it was last read.
    pub fn last(&self) -> Option<Object> {
        let mut state = self.state.lock();
        let last = state.last.as_mut()?;
        last.read = Instant::now();
        Some(last.object.clone())
    }

    /// Forgets a file that was not read for a while. Returns whether it is still remembered.
    pub fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        let is_over = |last: &Last| last.read.elapsed() > LINGER || last.opened.elapsed() > FORMER;
        if state.last.as_ref().is_some_and(is_over) {
            state.last = None;
        }
        state.last.is_some()
    }

    /// Forgets the file's body, which may be another one now.
    pub async fn forget_body(&self) {
        self.writer.forget().await;
    }

    /// Returns the session in which bytes may be written.
    ///
    /// # Errors
    /// `Io` if locks were taken in another session: the bytes were written under these locks.
    pub fn session(&self) -> Result<SessionId> {
        let now = self.fs.session();
        match self.locks.session(now) {
            Some(held) if held != now => Err(owners::lost(self.ino)),
            _ => Ok(now),
        }
    }

    /// Drops bytes that are not written back. Returns their number.
    pub fn discard(&self) -> u64 {
        let mut state = self.state.lock();
        let bytes = state.dirty.bytes();
        state.uncount(bytes);
        state.dirty.clear();
        state.written = None;
        bytes
    }

    pub fn losses(&self) -> u64 {
        self.state.lock().losses
    }

    /// Drops bytes as [`Node::discard`] does, because they were written under locks that are lost.
    pub async fn discard_lost(&self) -> u64 {
        // Waits for a write-back in progress, which may return its bytes.
        let _held = self.writing_back.lock().await;
        let bytes = self.discard();
        if bytes > 0 {
            self.state.lock().losses += 1;
            let ino = self.ino;
            tracing::error!(%ino, bytes, "written under locks that are lost, and LOST with them");
        }
        bytes
    }

    /// Writes back everything. All bytes are durable when this returns, except bytes that are
    /// dropped because others wrote to the file. `done` receives the number of bytes that are no
    /// longer dirty.
    ///
    /// # Errors
    /// The error that keeps bytes from being written back now. These bytes stay, to be tried again.
    /// So the next caller gets the error as well, and no caller gets an error for bytes that were
    /// written back after all.
    pub async fn flush(&self, done: impl Fn(u64)) -> Result<()> {
        self.write_back(false, &done).await.map(drop)
    }

    /// Writes back whole blocks.
    pub async fn flush_whole(&self, done: impl Fn(u64)) {
        // The lock is released in between, for a task that waits to write back.
        let written = loop {
            match self.write_back(true, &done).await {
                Ok(true) => {}
                written => break written,
            }
        };
        self.state.lock().is_eager = false;
        self.note(written.map(drop));
    }

    /// Writes back everything. After a failure, the next sync or close tries again.
    pub async fn flush_later(&self, done: impl Fn(u64)) {
        let written = self.write_back(false, &done).await;
        self.note(written.map(drop));
    }

    fn note(&self, written: Result<()>) {
        if let Err(error) = written {
            tracing::warn!(ino = %self.ino, %error, "not written back");
        }
    }

    /// Writes back the bytes that are there when its turn comes. Returns whether there were any.
    async fn write_back(&self, only_whole: bool, done: &impl Fn(u64)) -> Result<bool> {
        let _held = self.writing_back.lock().await;
        let (frozen, caller, mut over) = {
            let mut state = self.state.lock();
            let frozen = Arc::new(state.dirty.take(only_whole));
            let Some(caller) = state.writer.clone() else { return Ok(false) };
            if frozen.is_empty() {
                if state.dirty.is_empty() {
                    state.written = None;
                }
                return Ok(false);
            }
            state.frozen = Arc::clone(&frozen);
            let shown = state.written.unwrap_or_default();
            let over = state.base.map(|base| Over { base, shown });
            (frozen, caller, over)
        };
        let (bytes, before) = (length(&frozen), over);
        let sent = self.send(&caller, &frozen, &mut over).await;
        let mut state = self.state.lock();
        state.frozen = Arc::default();
        // Bytes may have been published before others failed.
        if let (Some(before), Some(over)) = (before, over)
            && before.base != over.base
        {
            state.wrote_over(before.base, over.base);
        }
        match sent {
            Ok(()) => {
                state.uncount(bytes);
                if state.dirty.is_empty() {
                    state.written = None;
                }
                drop(state);
                done(bytes);
                Ok(true)
            }
            // Bytes taken meanwhile are dropped, too: they are over the same base. `dropped` is
            // called before anybody can find that there is nothing to write back.
            Err(Error::PreconditionFailed(_)) if over.is_some() => {
                let gone = state.dirty.bytes() + bytes;
                if let Some(dropped) = &self.dropped {
                    dropped(self.ino);
                }
                state.uncount(gone);
                state.dirty.clear();
                (state.written, state.base) = (None, None);
                state.drops += 1;
                drop(state);
                done(gone);
                tracing::info!(ino = %self.ino, bytes = gone, "written elsewhere since: dropped");
                Ok(true)
            }
            Err(error) => {
                let before = state.dirty.bytes() + bytes;
                state.dirty.put_back(&frozen);
                let gone = before - state.dirty.bytes();
                state.uncount(gone);
                drop(state);
                done(gone);
                Err(error)
            }
        }
    }

    /// Returns whether a write-back is in progress or waits.
    pub fn is_writing_back(&self) -> bool {
        self.writing_back.try_lock().is_err()
    }

    async fn send(&self, caller: &Caller, frozen: &Frozen, over: &mut Option<Over>) -> Result<()> {
        let mut tries = 0;
        loop {
            // Bytes that were written under locks are published only while the locks are held.
            let now = self.session()?;
            let error = match self.send_once(caller, now, frozen, over).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tries += 1;
            let is_other_session = self.fs.session() != now;
            match error {
                // The body has been replaced, or blocks belonged to a session that has ended.
                Error::Conflict(_) if tries < TRIES => {}
                Error::Unavailable(_) | Error::Invalid(_) if is_other_session && tries < TRIES => {}
                error => {
                    // The outcome may be unknown: a body that was tried must not be used again.
                    self.writer.forget().await;
                    return Err(error);
                }
            }
            self.writer.forget().await;
        }
    }

    async fn send_once(
        &self,
        caller: &Caller,
        session: SessionId,
        frozen: &Frozen,
        over: &mut Option<Over>,
    ) -> Result<()> {
        let (inline, packs) = pack(frozen);
        let upload = |pack: Frozen| async move {
            Ok::<_, Error>(Piece::Block(self.writer.upload(caller, &pack).await?))
        };
        let uploads = stream::iter(packs.into_iter().map(upload));
        let mut pieces: Vec<Piece> =
            uploads.buffer_unordered(PARALLEL_BLOCKS).try_collect().await?;
        pieces.extend(inline.into_iter().map(|(offset, run)| Piece::Inline(offset, run)));
        self.writer.publish(caller, session, pieces, over).await?;
        self.compact_inline(caller, frozen).await
    }

    /// Rewrites a chunk after many small writes: each further one would cost more.
    async fn compact_inline(&self, caller: &Caller, frozen: &Frozen) -> Result<()> {
        let Some((offset, run)) = frozen.first() else { return Ok(()) };
        let small = run.len() <= limits::INLINE_BYTES;
        let chunk = (offset / limits::CHUNK_BYTES) as u32;
        let is_due = {
            let mut state = self.state.lock();
            let (last, count) = state.small_writes;
            state.small_writes = match (small, last == chunk) {
                (true, true) => (chunk, count + 1),
                (true, false) => (chunk, 1),
                (false, _) => (last, count),
            };
            let is_due = state.small_writes.1 >= SMALL_WRITES;
            if is_due {
                state.small_writes.1 = 0;
            }
            is_due
        };
        if is_due && let Err(error) = self.fs.compact_chunk(caller, self.ino, chunk).await {
            // It will be compacted when there is no more room, at the latest.
            tracing::debug!(ino = %self.ino, %error, "not compacted");
        }
        Ok(())
    }
}

fn is_root(caller: &Caller) -> bool {
    caller.posix().is_some_and(|posix| posix.uid == 0)
}

/// Returns the number of bytes in runs.
fn length(runs: &Frozen) -> u64 {
    runs.iter().map(|(_, run)| run.len() as u64).sum()
}

/// Divides runs into those that go into the metadata and those that share blocks: a few small runs
/// go into the metadata, all others into blocks.
fn pack(frozen: &Frozen) -> (Frozen, Vec<Frozen>) {
    if frozen.len() <= INLINE_RUNS && length(frozen) <= limits::INLINE_BYTES as u64 {
        return (frozen.clone(), Vec::new());
    }
    let mut packs: Vec<Frozen> = Vec::new();
    let mut room = 0;
    for (offset, run) in frozen {
        let chunk = offset / limits::CHUNK_BYTES;
        match packs.last_mut() {
            Some(pack)
                if run.len() <= room
                    && pack.len() < PACKED_RUNS
                    && pack.first().is_some_and(|(at, _)| at / limits::CHUNK_BYTES == chunk) =>
            {
                room -= run.len();
                pack.push((*offset, run.clone()));
            }
            _ => {
                room = limits::BLOCK_BYTES - run.len();
                packs.push(vec![(*offset, run.clone())]);
            }
        }
    }
    (Frozen::new(), packs)
}

impl Local {
    /// Returns the inode with the local state on top. Bytes that were written over another state
    /// than the present one are about to be dropped, and hide nothing.
    pub fn over(&self, mut inode: Inode) -> Inode {
        if self.retained {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        if self.is_over_others(&inode) {
            return inode;
        }
        inode.size = inode.size.max(self.end);
        if let Some((written, change)) = self.written {
            inode.change = change;
            inode.mtime = inode.mtime.max(written);
            inode.ctime = inode.ctime.max(written);
        }
        inode
    }

    pub fn has_bytes(&self) -> bool {
        !self.patches.is_empty()
    }

    /// Returns whether the local bytes were written over another state of the file than the present
    /// one.
    pub fn is_over_others(&self, inode: &Inode) -> bool {
        self.written.is_some() && self.base.is_some_and(|base| base != inode.data_change)
    }

    /// Copies the local bytes over `bytes`, which begin at the start of `range`.
    pub fn overlay(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for (start, run) in &self.patches {
            overlay(*start, run, range, bytes);
        }
    }
}
