//! Files with bytes that were answered UNSTABLE: they stay open until the bytes are written back.
//!
//! A client resends unstable bytes when COMMIT returns a verifier that differs from the one WRITE
//! returned. So the verifier changes at each start, and as soon as bytes are dropped that a client
//! may still count on: those of a file that cannot be written back, or that others have written to
//! since. Each bucket has its own verifier, so bytes dropped in one bucket make no client resend
//! what it wrote to another. All files of a bucket share the verifier, as some clients remember
//! only one for each mount.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{BucketId, Error, Ino, Result};
use cairn_posix::{Descriptor, Posix};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::limits::HELD_FILES;

/// A file that has had no writer for this long is written back and closed.
const LINGER: Duration = Duration::from_secs(3);

pub struct Openings {
    posix: Arc<Posix>,
    /// Verifier of a bucket in which nothing was dropped.
    verifier: u64,
    state: Arc<Mutex<OpeningsState>>,
}

#[derive(Default)]
struct OpeningsState {
    held: HashMap<Ino, OpenFile>,
    /// Number of times that bytes of a bucket were dropped.
    drops: HashMap<BucketId, u64>,
}

struct OpenFile {
    bucket: BucketId,
    file: Descriptor,
    /// Number of calls that write to it now.
    writers: u32,
    used: Instant,
    /// True while a task writes it back.
    is_closing: bool,
}

impl OpeningsState {
    /// Notes that bytes of a file are about to be dropped: the verifier of its bucket changes.
    fn drop_of(&mut self, ino: Ino) {
        if let Some(held) = self.held.get(&ino) {
            *self.drops.entry(held.bucket).or_default() += 1;
        }
    }
}

/// A call that writes to a file. The file stays open while this exists.
pub struct Writer<'a> {
    openings: &'a Openings,
    ino: Ino,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.openings.state.lock().held.get_mut(&self.ino) {
            held.writers -= 1;
            held.used = Instant::now();
        }
    }
}

impl Openings {
    pub fn new(posix: Arc<Posix>, verifier: u64) -> Arc<Openings> {
        let state: Arc<Mutex<OpeningsState>> = Arc::default();
        let dropped = Arc::clone(&state);
        posix.never_overwrite(move |ino| dropped.lock().drop_of(ino));
        Arc::new(Openings { posix, verifier, state })
    }

    /// Returns the verifier of a bucket. To be read before bytes are taken, and after they have
    /// become durable.
    pub fn verifier(&self, bucket: BucketId) -> [u8; 8] {
        let drops = self.state.lock().drops.get(&bucket).copied().unwrap_or_default();
        self.verifier.wrapping_add(drops).to_be_bytes()
    }

    /// Keeps a file, opened as `file`, open while it is written to, and after. Returns the writer,
    /// and whether `file` is the descriptor that stays open. Returns `None` if too many files are
    /// open: then the bytes must become durable at once.
    pub fn hold(&self, bucket: BucketId, ino: Ino, file: Descriptor) -> Option<(Writer<'_>, bool)> {
        let held = &mut self.state.lock().held;
        if held.len() >= HELD_FILES && !held.contains_key(&ino) {
            return None;
        }
        let used = Instant::now();
        let fresh = || OpenFile { bucket, file, writers: 0, used, is_closing: false };
        let one = held.entry(ino).or_insert_with(fresh);
        one.writers += 1;
        Some((Writer { openings: self, ino }, one.file == file))
    }

    /// Makes the bytes written to a file durable. If bytes are dropped, the verifier changes.
    pub async fn commit(&self, ino: Ino) -> Result<()> {
        let file = self.state.lock().held.get(&ino).map(|held| held.file);
        match file {
            Some(file) => self.posix.sync(file).await,
            None => Ok(()),
        }
    }

    /// Begins to write back and close files without recent writers, each in a task of its own: no
    /// file waits for another. To be called regularly.
    pub fn sweep(self: &Arc<Openings>) {
        for (ino, file, used) in self.over(LINGER) {
            let openings = Arc::clone(self);
            tokio::spawn(async move { openings.close(ino, file, used).await });
        }
    }

    /// Writes back and closes all files.
    pub async fn close_all(self: &Arc<Openings>) {
        let mut closing = JoinSet::new();
        let all: Vec<_> = {
            let state = self.state.lock();
            state.held.iter().map(|(ino, held)| (*ino, held.file, held.used)).collect()
        };
        for (ino, file, used) in all {
            let openings = Arc::clone(self);
            closing.spawn(async move { openings.close(ino, file, used).await });
        }
        while closing.join_next().await.is_some() {}
    }

    /// Returns the files that have had no writer for `linger`, and that no task writes back. Marks
    /// them as closing.
    fn over(&self, linger: Duration) -> Vec<(Ino, Descriptor, Instant)> {
        let mut state = self.state.lock();
        let is_over = |held: &OpenFile| {
            held.writers == 0 && held.used.elapsed() >= linger && !held.is_closing
        };
        let held = state.held.iter_mut().filter(|(_, held)| is_over(held));
        let mut over: Vec<_> = held
            .map(|(ino, held)| {
                held.is_closing = true;
                (*ino, held.file, held.used)
            })
            .collect();
        over.sort_by_key(|(ino, ..)| *ino);
        over
    }

    async fn close(&self, ino: Ino, file: Descriptor, used: Instant) {
        let synced = self.posix.sync(file).await;
        {
            let mut state = self.state.lock();
            let Some(held) = state.held.get_mut(&ino).filter(|held| held.file == file) else {
                return;
            };
            held.is_closing = false;
            if let Err(error @ (Error::Unavailable(_) | Error::Conflict(_))) = &synced {
                tracing::warn!(%ino, %error, "written, and not written back yet");
                return;
            }
            if held.writers > 0 || held.used != used {
                return;
            }
            if synced.is_err() {
                // The verifier must change before anybody can find that there is nothing to be
                // committed.
                state.drop_of(ino);
            }
            state.held.remove(&ino);
        }
        if let Err(error) = synced {
            tracing::error!(%ino, %error, "written, and LOST: clients are told to write it again");
        }
        self.posix.release(file).await;
    }
}
