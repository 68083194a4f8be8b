//! Numbers of clients and connections, and the time for which connections were full: for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use crate::parties::PartyAmounts;

#[derive(Default)]
pub struct Load {
    pub(crate) connected: Arc<PartyAmounts>,
    full_us: AtomicU64,
}

impl Load {
    /// Returns the number of addresses, or /64 of IPv6, with connections.
    pub fn clients(&self) -> u64 {
        self.connected.parties() as u64
    }

    pub fn connections(&self) -> u64 {
        self.connected.sum() as u64
    }

    /// Returns the total time that connections had as many calls at work as they may, microseconds.
    pub fn full_us(&self) -> u64 {
        self.full_us.load(Relaxed)
    }
}

/// Measures for how long one connection is full.
pub struct Full {
    load: Arc<Load>,
    since: Option<Instant>,
}

impl Full {
    pub fn new(load: &Arc<Load>) -> Full {
        Full { load: Arc::clone(load), since: None }
    }

    pub fn set(&mut self, is_full: bool) {
        if is_full {
            self.since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.since.take() {
            self.load.full_us.fetch_add(since.elapsed().as_micros() as u64, Relaxed);
        }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use cairn_base::Party;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_are_counted_and_so_is_the_time_that_they_are_full() {
        let load = Arc::new(Load::default());
        let at = |last: u8| load.connected.one(Party::at(IpAddr::from([10, 0, 0, last])), 9);
        let _held = [at(1), at(1), at(2)];
        assert_eq!((load.clients(), load.connections()), (2, 3));
        let mut full = Full::new(&load);
        for is_full in [false, true, true, false, false, true] {
            full.set(is_full);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        drop(full);
        assert_eq!(load.full_us(), 3_000_000);
    }
}
