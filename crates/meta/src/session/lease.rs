//! The lease of a session: the time for which the session may use leased rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::Clock;
use cairn_base::planted::{Bug, is_planted};
use parking_lot::RwLock;

use super::serving::Serving;

/// Share of a lease that the client uses, per cent: clocks do not run at exactly the same rate.
const PERCENT: u32 = 90;

pub struct Lease {
    clock: Arc<dyn Clock>,
    /// End of the time in which rows may be used, by the monotonic clock, nanoseconds.
    valid_until: AtomicU64,
    /// Time at which the last call was sent that proved the session alive, by the monotonic clock,
    /// nanoseconds.
    known_alive: AtomicU64,
    /// Batch that all reads see that begin now.
    settled: AtomicU64,
    /// Master in this process to whose lease the use of rows is bound.
    bound: RwLock<Option<Serving>>,
}

impl Lease {
    pub fn new(clock: Arc<dyn Clock>) -> Lease {
        Lease {
            clock,
            valid_until: AtomicU64::new(0),
            known_alive: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            bound: RwLock::default(),
        }
    }

    /// Returns whether leased rows may be used.
    pub fn is_valid(&self) -> bool {
        nanos(self.clock.monotonic()) < self.valid_until.load(Ordering::SeqCst)
            && !self.left_of_master().is_zero()
    }

    /// Binds the use of rows to the lease of this master; `None` removes the bond.
    pub fn bind(&self, to: Option<Serving>) {
        *self.bound.write() = to;
    }

    /// Returns the epoch of the master to which the lease is bound.
    pub fn bound_to(&self) -> Option<u64> {
        self.bound.read().as_ref().map(Serving::epoch)
    }

    /// Returns how long the master to which the lease is bound still holds its own lease.
    fn left_of_master(&self) -> Duration {
        match &*self.bound.read() {
            Some(serving) if !is_planted(Bug::BoundLeaseIgnored) => serving.left(),
            _ => Duration::MAX,
        }
    }

    /// Returns how long leased rows may be used without a renewal.
    pub fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.valid_until.load(Ordering::SeqCst));
        until.saturating_sub(self.clock.monotonic()).min(self.left_of_master())
    }

    /// Returns the time since a master last proved the session alive.
    pub fn silent(&self) -> Duration {
        let known_alive = self.known_alive.load(Ordering::SeqCst);
        Duration::from_nanos(nanos(self.clock.monotonic()).saturating_sub(known_alive))
    }

    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Notes that a master gave or renewed the lease when it was asked at `sent`, and that
    /// everything up to batch `settled` has settled.
    pub fn extend(&self, sent: Duration, lease: Duration, settled: u64) {
        self.settled.fetch_max(settled, Ordering::SeqCst);
        let until = if is_planted(Bug::LeaseStretched) {
            self.clock.monotonic() + lease * 3
        } else {
            sent + lease * PERCENT / 100
        };
        self.valid_until.fetch_max(nanos(until), Ordering::SeqCst);
        self.known_alive.fetch_max(nanos(sent), Ordering::SeqCst);
    }

    /// Ends the lease: no row may be used.
    pub fn end(&self) {
        self.valid_until.store(0, Ordering::SeqCst);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
