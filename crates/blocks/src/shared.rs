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

/// Lock order: `moving`, `writer`, `state`, a log's own.
pub(crate) struct StoreShared {
    pub disk: Arc<dyn Disk>,
    pub config: Config,
    pub state: RwLock<StoreState>,
    pub writer: Mutex<Writer>,
    /// Something about `writer` changed.
    pub changed: Condvar,
    pub syncer: OnceLock<Syncer>,
    /// Held to read while it must not change in which segment a block is.
    pub moving: RwLock<()>,
    pub compacting: Mutex<()>,
    pub corrupt_reads: AtomicU64,
    pub health: DiskHealth,
    pub memory: ReadMemory,
}

pub(crate) struct Writer {
    pub active: Option<Arc<Log>>,
    /// Somebody is making a segment.
    pub rolling: bool,
    pub closed: bool,
    /// Logs that are neither sealed nor poisoned.
    pub open_logs: usize,
    pub next_segment: u32,
    pub next_sequence: u64,
    /// Segments are made for compressed records: there is one already.
    pub codecs: bool,
    /// Length of the reserve; 0 where there is none.
    pub reserve_bytes: u64,
    /// Blocks being written.
    pub pending: HashSet<Key>,
}

/// The task or thread that syncs.
pub(crate) enum Syncer {
    Threads(Sender<Arc<Log>>),
    /// Any writer that has a turn.
    Turns(Mutex<VecDeque<Arc<Log>>>),
}

impl StoreShared {
    /// Does what blocks where that is allowed.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        match &self.config.threads {
            None => drop(tokio::task::spawn_blocking(work)),
            Some(threads) => threads.run(Box::new(work)),
        }
    }
}
