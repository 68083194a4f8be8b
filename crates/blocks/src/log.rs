//! The segment that is being written: hands out space to many writers at once, and keeps the order
//! in which their records become durable.
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
    /// Copies made by compaction, which decides on their effect itself.
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

/// Called once, with the outcome of a record.
pub(crate) type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// A record between the reservation of its space and its acknowledgement.
pub(crate) struct Flight {
    pub end: u64,
    written: bool,
    pub outcome: Outcome,
    /// `None` once it was called (asynchronous durability).
    pub done: Option<Done>,
}

/// Reports the outcome of a record, unless it was reported before.
pub(crate) fn finish(flight: Flight, result: impl Fn() -> Result<()>) {
    if let Some(done) = flight.done {
        done(result());
    }
}

pub(crate) struct Log {
    pub number: u32,
    pub salt: u64,
    pub file: Arc<dyn DiskFile>,
    /// One more handle of the same file for each syncer: Linux reports a failed write-back once per
    /// open file, so two syncers that share a handle could each miss a failure that the other one
    /// got.
    pub sync_files: Vec<Arc<dyn DiskFile>>,
    pub limit: u64,
    /// True if the file was the reserve of a full disk: it takes no new blocks.
    pub reserved: bool,
    /// True if the segment takes compressed blocks.
    pub codecs: bool,
    state: Mutex<LogState>,
}

struct LogState {
    synced: u64,
    /// Offset up to which a sync is in progress or done.
    syncing: u64,
    written: u64,
    end: u64,
    flights: VecDeque<Flight>,
    /// Entries of durable records.
    entries: Vec<HintEntry>,
    /// True if this log is in the syncer's queue.
    queued: bool,
    closed: bool,
    poisoned: bool,
}

impl LogState {
    /// Marks the flight that ends at `end` as written. Returns the number of flights, from the
    /// first on, that are written; 0 if the flight is gone.
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

/// The space that a writer has reserved.
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
        reserved: bool,
        codecs: bool,
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

    /// Returns the bytes that can still be reserved.
    pub(crate) fn room(&self) -> u64 {
        let state = self.state.lock();
        if state.closed { 0 } else { self.limit - state.end }
    }

    /// Reserves space for a record; `None` if there is too little. `make` returns the outcome of
    /// the record, given its offset.
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

    /// Marks the record that ends at `end` as written. Returns whether the syncer must be notified.
    pub(crate) fn written(&self, end: u64, unsynced_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let ready = state.mark_written(end);
        let waiting = state.flights.iter().take(ready).any(|flight| flight.done.is_some());
        let due = waiting || state.written - state.syncing >= unsynced_bytes || state.closed;
        let tell = ready > 0 && due && !state.queued;
        state.queued |= tell;
        tell
    }

    /// Acknowledges blocks before they are durable, up to the record that ends at `end`. Must be
    /// called before [`Log::written`]. Calls `settle` for each block.
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

    /// Takes no further records. Returns whether the syncer must be notified.
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

    /// Returns the step that is due, and the offset up to which bytes are written.
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

    /// Marks all bytes up to `end` as durable. Returns the flights that have become durable.
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

    /// Closes the log for ever after a failed write or sync. The first call returns the flights
    /// that wait; their bytes may or may not be on the disk.
    pub(crate) fn poison(&self) -> Option<Vec<Flight>> {
        let mut state = self.state.lock();
        state.closed = true;
        let first = !std::mem::replace(&mut state.poisoned, true);
        first.then(|| state.flights.drain(..).collect())
    }

    /// Returns the offset after the last durable record.
    pub(crate) fn durable_end(&self) -> u64 {
        self.state.lock().synced
    }

    pub(crate) fn end(&self) -> u64 {
        self.state.lock().end
    }

    /// Takes the entries of all durable records, for the hint.
    pub(crate) fn take_entries(&self) -> Vec<HintEntry> {
        std::mem::take(&mut self.state.lock().entries)
    }
}

/// Copies an I/O error, for each of the writers that it affects.
pub(crate) fn copy_error(error: &std::io::Error) -> Error {
    std::io::Error::new(error.kind(), error.to_string()).into()
}
