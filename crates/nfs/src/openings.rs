//! Files with bytes that were answered UNSTABLE: they stay open until the bytes are written back.
//!
//! A client that hears of another verifier than it was told with its bytes sends them again. So the
//! verifier is another one after a start, and as soon as bytes are dropped that some client may
//! believe to be here: those of a file that cannot be written back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::{Error, Ino, Result};
use cairn_posix::{Descriptor, Posix};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::HELD_FILES;

/// A file to which nobody has written for so long is written back and closed.
const LINGER: Duration = Duration::from_secs(3);

pub struct Openings {
    posix: Arc<Posix>,
    verifier: AtomicU64,
    held: Mutex<HashMap<Ino, Held>>,
}

struct Held {
    file: Descriptor,
    /// Who write to it right now.
    writers: u32,
    used: Instant,
}

/// Somebody writes to a file that stays open meanwhile.
pub struct Writer<'a> {
    openings: &'a Openings,
    ino: Ino,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.openings.held.lock().get_mut(&self.ino) {
            held.writers -= 1;
            held.used = Instant::now();
        }
    }
}

impl Openings {
    pub fn new(posix: Arc<Posix>, verifier: u64) -> Openings {
        Openings { posix, verifier: AtomicU64::new(verifier), held: Mutex::default() }
    }

    /// To be asked for before bytes are taken, and after they have become durable.
    pub fn verifier(&self) -> [u8; 8] {
        self.verifier.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Has a file that was opened as `file` stay open while it is written to, and after. Whether
    /// it is `file` that stays open. `None` if there are too many: then the bytes must become
    /// durable at once.
    pub fn hold(&self, ino: Ino, file: Descriptor) -> Option<(Writer<'_>, bool)> {
        let mut held = self.held.lock();
        if held.len() >= HELD_FILES && !held.contains_key(&ino) {
            return None;
        }
        let fresh = || Held { file, writers: 0, used: Instant::now() };
        let one = held.entry(ino).or_insert_with(fresh);
        one.writers += 1;
        Some((Writer { openings: self, ino }, one.file == file))
    }

    /// Has what was written to a file become durable.
    pub async fn commit(&self, ino: Ino) -> Result<()> {
        let file = self.held.lock().get(&ino).map(|held| held.file);
        match file {
            Some(file) => self.posix.sync(file).await,
            None => Ok(()),
        }
    }

    /// Writes back and closes files that nobody has written to of late. To be called now and then.
    pub async fn sweep(&self) {
        self.close(LINGER).await;
    }

    /// All files, whenever they were written to.
    pub async fn close_all(&self) {
        self.close(Duration::ZERO).await;
    }

    async fn close(&self, linger: Duration) {
        let is_over = |held: &Held| held.writers == 0 && held.used.elapsed() >= linger;
        let mut over: Vec<(Ino, Descriptor, Instant)> = {
            let held = self.held.lock();
            let over = held.iter().filter(|(_, held)| is_over(held));
            over.map(|(ino, held)| (*ino, held.file, held.used)).collect()
        };
        over.sort_by_key(|(ino, ..)| *ino);
        for (ino, file, used) in over {
            let synced = self.posix.sync(file).await;
            if let Err(error @ (Error::Unavailable(_) | Error::Conflict(_))) = &synced {
                tracing::warn!(%ino, %error, "written, and not written back yet");
                continue;
            }
            {
                let mut held = self.held.lock();
                if !held.get(&ino).is_some_and(|one| one.writers == 0 && one.used == used) {
                    continue;
                }
                if synced.is_err() {
                    // Before anybody can find that there is nothing to be committed.
                    self.verifier.fetch_add(1, Ordering::SeqCst);
                }
                held.remove(&ino);
            }
            if let Err(error) = synced {
                tracing::error!(%ino, %error, "written, and LOST: clients are told to write it again");
            }
            self.posix.release(file).await;
        }
    }
}
