//! The state that the parts of a store share.

#![expect(clippy::disallowed_methods, reason = "where no simulation gives threads")]

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use cairn_base::Disk;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::config::Config;
use crate::failing::DiskHealth;
use crate::format::Key;
use crate::log::Log;
use crate::memory::ReadMemory;
use crate::state::StoreState;

/// The shared state. Locks are taken in the order `moving`, `writer`, `state`, a log's own.
pub(crate) struct StoreShared {
    pub disk: Arc<dyn Disk>,
    pub config: Config,
    pub state: RwLock<StoreState>,
    pub writer: Mutex<Writer>,
    /// Signals that something about `writer` has changed.
    pub changed: Condvar,
    pub syncer: OnceLock<Syncer>,
    /// Held for reading while no block may move to another segment.
    pub moving: RwLock<()>,
    pub compacting: Mutex<()>,
    pub corrupt_reads: AtomicU64,
    pub health: DiskHealth,
    pub memory: ReadMemory,
}

pub(crate) struct Writer {
    pub active: Option<Arc<Log>>,
    /// True while a segment is being made.
    pub rolling: bool,
    pub closed: bool,
    /// Number of logs that are neither sealed nor poisoned.
    pub open_logs: usize,
    pub next_segment: u32,
    pub next_sequence: u64,
    /// True if there is a segment for compressed records already.
    pub codecs: bool,
    /// Length of the reserve; 0 if there is none.
    pub reserve_bytes: u64,
    /// Blocks that are being written.
    pub pending: HashSet<Key>,
}

/// The way in which logs are synced.
pub(crate) enum Syncer {
    Threads(Sender<Arc<Log>>),
    /// Logs to be synced, by any writer before it waits.
    Turns(Mutex<VecDeque<Arc<Log>>>),
}

impl StoreShared {
    /// Runs `work` on a thread that may block.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        match &self.config.threads {
            None => drop(tokio::task::spawn_blocking(work)),
            Some(threads) => threads.run(Box::new(work)),
        }
    }
}
