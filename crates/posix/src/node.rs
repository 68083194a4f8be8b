//! A file that is open: what was written to it and not written back yet.

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
use crate::owners::{self, Held};
use crate::runs::{Frozen, Runs, overlay};

/// Blocks of one file on their way at the same time.
const PARALLEL_BLOCKS: usize = 4;
/// Attempts to write back while others change the same file.
const TRIES: u32 = 16;
/// How long a file that was removed elsewhere can still be read by who goes on reading it.
const LINGER: Duration = Duration::from_secs(30);
/// And how long at most: the server ends a session that holds deleted blocks for longer than twice
/// that.
const FORMER: Duration = Duration::from_secs(60);
/// Runs that go into the metadata in place of a block, if they are short together.
const INLINE_RUNS: usize = 4;
/// Small writes to one chunk after which it is rewritten.
const SMALL_WRITES: u32 = 32;
/// Changes from here on are of what was written and not written back: neither the master nor a
/// session numbers operations so. They begin with the time, so that none comes twice.
const WRITTEN: u64 = Inode::NO_BATCH | Inode::NO_BATCH >> 1;
/// From this many bytes on, what is whole is written back while more is written.
const EAGER_BYTES: u64 = 2 * limits::BLOCK_BYTES as u64;

/// Is told of a file before bytes of it are dropped, since others wrote to it. Must not wait, nor
/// ask for anything of the file.
pub type Dropped = Arc<dyn Fn(Ino) + Send + Sync>;

pub struct Node {
    pub ino: Ino,
    fs: Fs,
    writer: FileWriter,
    /// If there is one, bytes do not overwrite what others have written since they were taken.
    dropped: Option<Dropped>,
    state: Mutex<NodeState>,
    pub locks: Held,
    /// Held by the one that writes back.
    writing_back: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct NodeState {
    dirty: Runs,
    /// Runs on their way, under what is dirty.
    frozen: Arc<Frozen>,
    /// When it was last written to, while that was not written back.
    written: Option<Timestamp>,
    /// Names what was written here last: no other state of the file has it.
    change: u64,
    /// On whose behalf it is written back.
    writer: Option<Caller>,
    /// The account of dirty and frozen bytes.
    account: Option<Arc<Account>>,
    /// How often bytes were dropped that somebody had written.
    losses: u64,
    /// A task writes back what is whole.
    is_eager: bool,
    /// The session counts as one of its names.
    retained: bool,
    /// That is its only name, so nobody can open it any more.
    is_nameless: bool,
    /// The chunk that was written to last in small runs, and how often.
    small_writes: (u32, u32),
    /// As it was read last.
    last: Option<Last>,
    /// What dirty and frozen bytes were taken over, where they overwrite nothing else.
    base: Option<u64>,
    /// What the file was before and after the last write-backs between which nobody else wrote,
    /// each over what the one before had left. What it was in between is of this node as well.
    own: Option<(u64, u64)>,
    /// How often bytes were dropped since others wrote to the file.
    drops: u64,
}

impl NodeState {
    /// The file was written to over `before`, which made it `after`.
    fn wrote_over(&mut self, before: u64, after: u64) {
        let first = self.own.filter(|(_, last)| *last == before).map_or(before, |own| own.0);
        (self.own, self.base) = (Some((first, after)), Some(after));
    }

    /// So many bytes are dirty no more.
    fn uncount(&self, bytes: u64) {
        if let Some(account) = &self.account {
            account.less(bytes);
        }
    }
}

/// A file as it was read last.
struct Last {
    object: Object,
    read: Instant,
    /// Since when it is kept as it was then.
    opened: Instant,
}

/// The local state of a file, over the one in the store.
pub struct Local {
    pub end: u64,
    /// When it was written, and what names that.
    written: Option<(Timestamp, u64)>,
    retained: bool,
    patches: Frozen,
    base: Option<u64>,
}

impl Node {
    /// `whole`: memory of runs that become whole blocks.
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
            locks: Held::default(),
            writing_back: tokio::sync::Mutex::new(()),
        }
    }

    /// Takes bytes over `base`, as the file was when it was opened. Returns by how much there are
    /// more of them, and whether somebody should write back what is whole.
    pub fn write(
        &self,
        (caller, account): (&Caller, &Arc<Account>),
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
        // A write by root does not have others' earlier writes written back as if by root.
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
            // What was written back since the file was opened hides nothing of what its opener saw:
            // unless others had written in between.
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

    /// The local state, with the bytes of `range`. To be asked for before the store is.
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

    /// How often bytes were dropped since others wrote to the file.
    pub fn drops(&self) -> u64 {
        self.state.lock().drops
    }

    pub fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        !state.dirty.is_empty() || !state.frozen.is_empty()
    }

    /// Something was written, and not so much that whoever wants to know its time could not wait
    /// until it is written back, which gives it the time that stays.
    pub fn is_soon_flushed(&self) -> bool {
        let state = self.state.lock();
        let bytes = state.dirty.bytes() + length(&state.frozen);
        (1..=limits::BLOCK_BYTES as u64).contains(&bytes) && !state.is_nameless
    }

    /// An answer for which much of the file may have to be written back.
    pub fn answer<T>(&self, work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        match self.dirty_bytes() > limits::INLINE_BYTES as u64 {
            true => Answer::later(work),
            false => Answer::soon(work),
        }
    }

    /// Bytes written and not written back.
    pub fn dirty_bytes(&self) -> u64 {
        self.state.lock().dirty.bytes()
    }

    /// Whether anything was written to it since it was opened.
    pub fn was_written(&self) -> bool {
        self.state.lock().writer.is_some()
    }

    pub fn set_retained(&self, retained: bool) {
        self.state.lock().retained = retained;
    }

    pub fn is_retained(&self) -> bool {
        self.state.lock().retained
    }

    /// Its last name has gone.
    pub fn set_nameless(&self) {
        self.state.lock().is_nameless = true;
    }

    pub fn is_nameless(&self) -> bool {
        self.state.lock().is_nameless
    }

    /// It was read: this can be read for a while even if it is removed elsewhere.
    pub fn remember(&self, object: &Object) {
        let now = Instant::now();
        self.state.lock().last = Some(Last { object: object.clone(), read: now, opened: now });
    }

    /// As it was when it was read last.
    pub fn last(&self) -> Option<Object> {
        let mut state = self.state.lock();
        let last = state.last.as_mut()?;
        last.read = Instant::now();
        Some(last.object.clone())
    }

    /// Forgets what was not read for a while. Whether it was read since.
    pub fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        let is_over = |last: &Last| last.read.elapsed() > LINGER || last.opened.elapsed() > FORMER;
        if state.last.as_ref().is_some_and(is_over) {
            state.last = None;
        }
        state.last.is_some()
    }

    /// The body of the file may be another one now.
    pub async fn forget_body(&self) {
        self.writer.forget().await;
    }

    /// The session in which something may be written.
    ///
    /// # Errors
    /// `Io` when locks were taken in another one: what is written is written under them.
    pub fn session(&self) -> Result<SessionId> {
        let now = self.fs.session();
        match self.locks.session(now) {
            Some(held) if held != now => Err(owners::lost(self.ino)),
            _ => Ok(now),
        }
    }

    /// Drops what was written and not written back. Returns how many bytes that were.
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

    /// As [`Node::discard`], of what was written under locks that are lost.
    pub async fn discard_lost(&self) -> u64 {
        // Bytes that are being written back come back first.
        let _held = self.writing_back.lock().await;
        let bytes = self.discard();
        if bytes > 0 {
            self.state.lock().losses += 1;
            let ino = self.ino;
            tracing::error!(%ino, bytes, "written under locks that are lost, and LOST with them");
        }
        bytes
    }

    /// Writes back everything; durable when it returns, but for bytes that are dropped since others
    /// wrote to the file. `done` is told of bytes that went.
    ///
    /// # Errors
    /// The error that keeps it from being written back now. Bytes that failed stay, to be tried
    /// again. So the next caller hears of the failure as well, and nobody hears of bytes that were
    /// written back after all.
    pub async fn flush(&self, done: impl Fn(u64)) -> Result<()> {
        self.write_back(false, &done).await.map(drop)
    }

    /// Writes back what is whole.
    pub async fn flush_whole(&self, done: impl Fn(u64)) {
        // A task that waits to write back gets in between.
        let written = loop {
            match self.write_back(true, &done).await {
                Ok(true) => {}
                written => break written,
            }
        };
        self.state.lock().is_eager = false;
        self.note(written.map(drop));
    }

    /// Writes back everything. A failure is tried again by the next sync or close.
    pub async fn flush_later(&self, done: impl Fn(u64)) {
        let written = self.write_back(false, &done).await;
        self.note(written.map(drop));
    }

    fn note(&self, written: Result<()>) {
        if let Err(error) = written {
            tracing::warn!(ino = %self.ino, %error, "not written back");
        }
    }

    /// Writes back what is there when its turn comes. Whether that was anything.
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
        // Also of bytes that were published before others failed.
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
            // Also those that were taken meanwhile: they are over the same. Nobody finds nothing
            // to be written back before it was told.
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

    /// Somebody writes back, or waits to.
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
                // The body is another one now, or blocks were of a session that has ended.
                Error::Conflict(_) if tries < TRIES => {}
                Error::Unavailable(_) | Error::Invalid(_) if is_other_session && tries < TRIES => {}
                error => {
                    // The outcome may not be known: a body that was tried is not spare.
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

    /// Rewrites a chunk that has taken many small writes: each further one would cost more.
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
            // It is done when there is no more room, at the latest.
            tracing::debug!(ino = %self.ino, %error, "not compacted");
        }
        Ok(())
    }
}

fn is_root(caller: &Caller) -> bool {
    caller.posix().is_some_and(|posix| posix.uid == 0)
}

/// Bytes of runs.
fn length(runs: &Frozen) -> u64 {
    runs.iter().map(|(_, run)| run.len() as u64).sum()
}

/// Which runs go into the metadata, and which share blocks: few small ones, and all others.
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
    /// The inode with what is here. What is over others' bytes is about to be dropped, and hides
    /// nothing.
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

    /// Whether the bytes of a file are others than those over which these were taken.
    pub fn is_over_others(&self, inode: &Inode) -> bool {
        self.written.is_some() && self.base.is_some_and(|base| base != inode.data_change)
    }

    /// Puts the bytes that are here over `bytes`, which begin where `range` does.
    pub fn overlay(&self, range: &Range<u64>, bytes: &mut [u8]) {
        for (start, run) in &self.patches {
            overlay(*start, run, range, bytes);
        }
    }
}
