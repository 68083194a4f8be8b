//! Reading of many rows of the master that serves without delaying other work, until the work ends.

#![expect(clippy::disallowed_methods, reason = "rows are read on a thread that may block")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_base::{Error, Result};
use cairn_meta::Master;
use cairn_meta::engine::Snapshot;
use parking_lot::Mutex;

use crate::limits::PACED_ROWS;

/// Longest time that rows are read without a pause.
const STEP: Duration = Duration::from_millis(20);
/// Interval of the checks whether the master serves again.
const LOOK: Duration = Duration::from_millis(50);

/// State of work that reads rows: it goes on or is over. Clones share the same work.
#[derive(Clone)]
pub(super) struct Going {
    master: Master,
    is_over: Arc<AtomicBool>,
}

/// Ends the work when it is dropped, for instance when the process ends.
pub(super) struct OverWhenDropped(Arc<AtomicBool>);

impl Drop for OverWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Going {
    pub(super) fn new(master: Master) -> Going {
        Going { master, is_over: Arc::default() }
    }

    pub(super) fn guard(&self) -> OverWhenDropped {
        OverWhenDropped(Arc::clone(&self.is_over))
    }

    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns true if this master serves no longer, and never will again.
    pub(super) fn is_replaced(&self) -> bool {
        self.master.failed().is_some()
    }

    /// Checks that the work goes on.
    ///
    /// # Errors
    /// `Unavailable` if the work is over, or this master serves no longer.
    pub(super) fn look(&self) -> Result<()> {
        if self.is_over() {
            return Err(Error::Unavailable("it was stopped".into()));
        }
        match self.master.failed() {
            Some(reason) => Err(Error::Unavailable(reason)),
            None => Ok(()),
        }
    }

    /// Checks like [`Going::look`], and waits until it is certain that this master serves. Blocks.
    fn check(&self) -> Result<()> {
        loop {
            self.look()?;
            if self.master.check_serving().is_ok() {
                return Ok(());
            }
            sleep(LOOK);
        }
    }

    /// Returns a snapshot of the current rows: no other master had served when it was taken.
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`Going::look`] and of the engine.
    pub(super) fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.check()?;
        let snapshot = self.master.snapshot()?;
        self.check()?;
        Ok(snapshot)
    }
}

/// A snapshot whose reader rests at least as long as it works, and ends when the work does.
pub(super) struct PacedSnapshot<'a> {
    snapshot: &'a dyn Snapshot,
    going: &'a Going,
    turn: Mutex<PacedTurn>,
}

/// Reading since the last rest.
struct PacedTurn {
    begun: Instant,
    rows: u32,
}

impl<'a> PacedSnapshot<'a> {
    pub(super) fn new(snapshot: &'a dyn Snapshot, going: &'a Going) -> PacedSnapshot<'a> {
        PacedSnapshot {
            snapshot,
            going,
            turn: Mutex::new(PacedTurn { begun: Instant::now(), rows: 0 }),
        }
    }

    fn rest(&self) -> Result<()> {
        self.going.check()?;
        let mut turn = self.turn.lock();
        let worked = turn.begun.elapsed();
        if worked >= STEP {
            sleep(rest_after(worked, turn.rows));
            *turn = PacedTurn { begun: Instant::now(), rows: 0 };
        }
        Ok(())
    }

    fn read(&self, rows: usize) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut turn = self.turn.lock();
        turn.rows = turn.rows.saturating_add(rows);
    }
}

fn rest_after(worked: Duration, rows: u32) -> Duration {
    let least = Duration::from_secs_f64(f64::from(rows) / f64::from(PACED_ROWS));
    worked.max(least.saturating_sub(worked))
}

impl Snapshot for PacedSnapshot<'_> {
    fn batch(&self) -> u64 {
        self.snapshot.batch()
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        self.rest()?;
        self.read(keys.len());
        self.snapshot.get(keys)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.rest()?;
        let rows = self.snapshot.scan(start, end, limit)?;
        self.read(rows.len());
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_rests_as_long_as_it_works_and_reads_no_more_than_so_many_rows_a_second() {
        let millis = Duration::from_millis;
        assert_eq!(rest_after(millis(30), 1), millis(30));
        assert_eq!(rest_after(millis(20), PACED_ROWS / 10), millis(80));
        assert_eq!(rest_after(millis(60), PACED_ROWS / 10), millis(60));
    }
}
