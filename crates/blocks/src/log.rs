//! The segment that is being written: space handed out to many writers at once, and the order in
//! which what they wrote becomes durable.
//!
//! ```text
//!   0 ........ synced ........ written ........ end ........ limit
//!     durable         written,         in flight      free
//!                     not durable
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_base::{DiskFile, Error, Result};
use parking_lot::Mutex;

use crate::format::hint::HintEntry;
use crate::format::record::RecordPlace;
use crate::format::segment::RECORDS_OFFSET;

/// The change that takes effect when a record is durable.
#[derive(Debug)]
pub(crate) enum Outcome {
    Put(HintEntry),
    Delete(Vec<HintEntry>),
    /// Compaction: what it means is decided by the one who waits for it.
    Move(Vec<HintEntry>),
}

impl Outcome {
    pub(crate) fn entries(&self) -> &[HintEntry] {
        match self {
            Outcome::Put(entry) => std::slice::from_ref(entry),
            Outcome::Delete(entries) | Outcome::Move(entries) => entries,
        }
    }
}

/// Called once, with how it ended.
pub(crate) type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A record between the reservation of its space and its acknowledgement.
pub(crate) struct Flight {
    pub end: u64,
    written: bool,
    pub outcome: Outcome,
    /// `None` once it was called (asynchronous durability).
    pub done: Option<Done>,
}

/// Tells how a record ended, if nobody was told before.
pub(crate) fn finish(flight: Flight, result: impl Fn() -> Result<()>) {
    if let Some(done) = flight.done {
        done(result());
    }
}

pub(crate) struct Log {
    pub number: u32,
    pub salt: u64,
    pub file: Arc<dyn DiskFile>,
    /// The same file once more for each syncer: Linux reports a failed write-back once per open
    /// file, so two that share one could each take the other's failure for success.
    pub sync_files: Vec<Arc<dyn DiskFile>>,
    pub limit: u64,
    /// Made of the reserve of a full disk: takes no new blocks.
    pub reserved: bool,
    /// Takes compressed blocks.
    pub codecs: bool,
    state: Mutex<LogState>,
}

struct LogState {
    synced: u64,
    /// Up to here a sync is under way or done.
    syncing: u64,
    written: u64,
    end: u64,
    flights: VecDeque<Flight>,
    /// Of durable records.
    entries: Vec<HintEntry>,
    /// The syncer has been told of it.
    queued: bool,
    closed: bool,
    poisoned: bool,
}

impl LogState {
    /// Returns how many flights from the first on are written, 0 if that at `end` is gone.
    fn mark_written(&mut self, end: u64) -> usize {
        let Ok(at) = self.flights.binary_search_by_key(&end, |flight| flight.end) else { return 0 };
        self.flights[at].written = true;
        let ready = self.flights.iter().take_while(|flight| flight.written).count();
        if ready > 0 {
            self.written = self.flights[ready - 1].end;
        }
        ready
    }
}

/// The room that a writer has reserved.
pub(crate) struct LogRoom {
    pub log: Arc<Log>,
    pub offset: u64,
    pub synced: u64,
}

/// The next step of the syncer for a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    Sync,
    Seal,
}

impl Log {
    pub(crate) fn new(
        number: u32,
        salt: u64,
        files: (Arc<dyn DiskFile>, Vec<Arc<dyn DiskFile>>),
        limit: u64,
        (reserved, codecs): (bool, bool),
    ) -> Log {
        let (file, sync_files) = files;
        let state = LogState {
            synced: RECORDS_OFFSET,
            syncing: RECORDS_OFFSET,
            written: RECORDS_OFFSET,
            end: RECORDS_OFFSET,
            flights: VecDeque::new(),
            entries: Vec::new(),
            queued: false,
            closed: false,
            poisoned: false,
        };
        Log { number, salt, file, sync_files, limit, reserved, codecs, state: Mutex::new(state) }
    }

    pub(crate) fn place(&self, offset: u64) -> RecordPlace {
        RecordPlace { segment: self.number, salt: self.salt, offset }
    }

    /// Bytes that can still be reserved.
    pub(crate) fn room(&self) -> u64 {
        let state = self.state.lock();
        if state.closed { 0 } else { self.limit - state.end }
    }

    /// Space for a record. `make` says what becomes true with it, knowing its offset.
    pub(crate) fn reserve(
        self: &Arc<Log>,
        footprint: u64,
        make: impl FnOnce(u64) -> (Outcome, Done),
    ) -> Option<LogRoom> {
        let mut state = self.state.lock();
        if state.closed || state.end + footprint > self.limit {
            return None;
        }
        let offset = state.end;
        let (outcome, done) = make(offset);
        state.end += footprint;
        let flight = Flight { end: state.end, written: false, outcome, done: Some(done) };
        state.flights.push_back(flight);
        Some(LogRoom { log: Arc::clone(self), offset, synced: state.synced })
    }

    /// The record that ends at `end` is written. Says whether the syncer must be told.
    pub(crate) fn written(&self, end: u64, unsynced_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let ready = state.mark_written(end);
        let waiting = state.flights.iter().take(ready).any(|flight| flight.done.is_some());
        let due = waiting || state.written - state.syncing >= unsynced_bytes || state.closed;
        let tell = ready > 0 && due && !state.queued;
        state.queued |= tell;
        tell
    }

    /// Before it is said to be written: the blocks that need not be durable to be acknowledged.
    /// `settle` is told of each.
    pub(crate) fn acknowledge(&self, end: u64, mut settle: impl FnMut(&Outcome)) -> Vec<Done> {
        let mut state = self.state.lock();
        let ready = state.mark_written(end);
        let mut acknowledged = Vec::new();
        for flight in state.flights.iter_mut().take(ready) {
            if matches!(flight.outcome, Outcome::Put(_))
                && let Some(done) = flight.done.take()
            {
                settle(&flight.outcome);
                acknowledged.push(done);
            }
        }
        acknowledged
    }

    /// Takes no further records. Says whether the syncer must be told.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.closed, true);
        let idle = state.flights.iter().all(|flight| flight.written);
        let tell = first && idle && !state.queued && !state.poisoned;
        state.queued |= tell;
        tell
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The step that is due, and up to where bytes are written.
    pub(crate) fn begin_sync(&self) -> (Next, u64) {
        let mut state = self.state.lock();
        state.queued = false;
        let next = if state.poisoned {
            Next::Nothing
        } else if state.written > state.syncing {
            state.syncing = state.written;
            Next::Sync
        } else if state.closed && state.flights.is_empty() {
            Next::Seal
        } else {
            Next::Nothing
        };
        (next, state.written)
    }

    /// All up to `end` is durable: the flights that this ends.
    pub(crate) fn synced(&self, end: u64) -> Vec<Flight> {
        let mut state = self.state.lock();
        if state.poisoned {
            return Vec::new();
        }
        state.synced = state.synced.max(end);
        let count = state.flights.partition_point(|flight| flight.end <= end);
        let flights: Vec<Flight> = state.flights.drain(..count).collect();
        for flight in &flights {
            state.entries.extend_from_slice(flight.outcome.entries());
        }
        flights
    }

    /// A write or sync failed: nothing is written here again. The first time, returns those who
    /// wait; what they wrote may or may not be on the disk.
    pub(crate) fn poison(&self) -> Option<Vec<Flight>> {
        let mut state = self.state.lock();
        state.closed = true;
        let first = !std::mem::replace(&mut state.poisoned, true);
        first.then(|| state.flights.drain(..).collect())
    }

    /// The offset after the last durable record.
    pub(crate) fn durable_end(&self) -> u64 {
        self.state.lock().synced
    }

    pub(crate) fn end(&self) -> u64 {
        self.state.lock().end
    }

    /// The entries of all durable records, for the hint.
    pub(crate) fn take_entries(&self) -> Vec<HintEntry> {
        std::mem::take(&mut self.state.lock().entries)
    }
}

/// An I/O error for one of several who were hit by it.
pub(crate) fn copy_error(error: &std::io::Error) -> Error {
    std::io::Error::new(error.kind(), error.to_string()).into()
}
