//! A follower of one file.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Object;
use tokio::sync::watch;

use super::tail::{Tail, TailState, Tails};

/// News for a follower.
#[derive(PartialEq, Eq, Debug)]
pub enum Ready {
    Bytes(Bytes),
    /// The file became shorter.
    Cut,
    /// The file was deleted.
    Gone,
}

pub struct FileFollower {
    tail: Arc<Tail>,
    seen: watch::Receiver<TailState>,
    at: u64,
    cuts: u64,
}

impl FileFollower {
    /// Follows a file that was opened just now.
    pub fn new(tails: &Arc<Tails>, object: &Object, at: u64) -> FileFollower {
        let tail = tails.of(object);
        let seen = tail.subscribe();
        let cuts = seen.borrow().cuts;
        FileFollower { tail, seen, at, cuts }
    }

    pub fn ino(&self) -> Ino {
        self.tail.ino()
    }

    /// Returns the news that are available now, with at most `most` bytes. Cancel safe.
    pub async fn ready(&mut self, most: usize) -> Result<Option<Ready>> {
        let seen = *self.seen.borrow_and_update();
        if seen.is_gone {
            return Ok(Some(Ready::Gone));
        }
        if seen.cuts != self.cuts {
            return Ok(Some(Ready::Cut));
        }
        if self.at >= seen.size {
            return Ok(None);
        }
        let bytes = match self.tail.kept(self.at, most) {
            Some(bytes) => Some(bytes),
            None => match self.tail.read(self.at, most).await {
                Err(Error::NotFound(_)) => return Ok(Some(Ready::Gone)),
                read => read?,
            },
        };
        Ok(bytes.map(|bytes| {
            self.at += bytes.len() as u64;
            self.tail.count(&bytes);
            Ready::Bytes(bytes)
        }))
    }

    /// Waits for a change since the last call of [`FileFollower::ready`]. Cancel safe.
    pub async fn changed(&mut self) {
        // The sender is in the tail, which this follower keeps.
        let _ = self.seen.changed().await;
    }
}
