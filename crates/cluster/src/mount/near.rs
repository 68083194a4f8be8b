//! Blocks of a server on the same machine, read from its files: the bytes do not cross a socket.
//! After any failure here, the server is asked for the bytes instead.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::disk::RealDisk;
use cairn_base::{BlockId, Error, GroupId};
use cairn_blocks::{BlockPlace, NearBlocks};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A block, and the group that it is in.
pub type Key = (GroupId, BlockId);

/// Places that are remembered, at most: beyond that all are forgotten.
const PLACES: usize = 4096;
/// Failures in a row after which it is given up for a while: a server behind a tunnel, files that
/// may not be read.
const FAILURES: u32 = 4;
const REST: Duration = Duration::from_secs(10);

/// The mount's knowledge of the server's files.
#[derive(Default)]
pub struct Near {
    state: Mutex<NearState>,
}

#[derive(Default)]
struct NearState {
    files: Files,
    places: HashMap<Key, BlockPlace>,
    failures: u32,
}

#[derive(Default, Clone)]
pub enum Files {
    /// The server was not asked yet.
    #[default]
    Unknown,
    There(NearBlocks),
    /// The files cannot be read before that time.
    Not(Option<Instant>),
}

impl Near {
    pub fn files(&self) -> Files {
        let mut state = self.state.lock();
        if let Files::Not(Some(until)) = state.files
            && until <= Instant::now()
        {
            *state = NearState::default();
        }
        state.files.clone()
    }

    /// Notes the server's answer about the directory of its files.
    pub fn found(&self, directory: Option<&str>) {
        self.state.lock().files = match directory {
            Some(path) => {
                Files::There(NearBlocks::new(Arc::new(RealDisk::existing(Path::new(path)))))
            }
            None => Files::Not(None),
        };
    }

    /// Notes that the server could not be asked.
    pub fn rest(&self) {
        self.state.lock().files = Files::Not(Some(Instant::now() + REST));
    }

    pub fn place(&self, key: Key) -> Option<BlockPlace> {
        self.state.lock().places.get(&key).copied()
    }

    pub fn learn(&self, key: Key, place: BlockPlace) {
        let mut state = self.state.lock();
        if state.places.len() >= PLACES {
            state.places.clear();
        }
        state.places.insert(key, place);
    }

    pub fn succeeded(&self) {
        self.state.lock().failures = 0;
    }

    /// Notes that a block was not found at its place.
    pub fn failed(&self, (group, block): Key, error: &Error) {
        tracing::debug!(%group, %block, %error, "not read from the server's files");
        let mut state = self.state.lock();
        state.places.remove(&(group, block));
        state.failures += 1;
        if state.failures >= FAILURES {
            state.files = Files::Not(Some(Instant::now() + REST));
        }
    }
}
