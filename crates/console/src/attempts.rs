//! Attempts to log in. A reply to wrong credentials is held back if there were many from the same
//! network, or for the same access key; right credentials are never refused because of others'
//! attempts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Clock, Party, Shares};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::limits;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Source {
    Network(Party),
    AccessKey(String),
}

struct Failures {
    count: u32,
    last: Duration,
}

pub struct Attempts {
    clock: Arc<dyn Clock>,
    failures: Mutex<HashMap<Source, Failures>>,
    /// Places for replies that are held back: a network has few at a time.
    places: Arc<Shares>,
}

impl Attempts {
    pub fn new(clock: Arc<dyn Clock>) -> Attempts {
        let (failures, places) = (Mutex::default(), Shares::new(limits::ATTEMPTS));
        Attempts { clock, failures, places }
    }

    /// Counts wrong credentials, and waits for as long as their reply is held back.
    pub async fn refuse(&self, address: IpAddr, id: &str) {
        let held = self.failed(address, id);
        if !held.is_zero() {
            let _place = self.places.take(Party::at(address), 1).await;
            sleep(held).await;
        }
    }

    /// Counts wrong credentials. Returns how long the reply is held back.
    fn failed(&self, address: IpAddr, id: &str) -> Duration {
        let now = self.clock.monotonic();
        let mut failures = self.failures.lock();
        let is_fresh = |known: &Failures| now.saturating_sub(known.last) < limits::FAILURES_WINDOW;
        if failures.len() + 2 > limits::FAILURE_SOURCES {
            failures.retain(|_, known| is_fresh(known));
        }
        if failures.len() + 2 > limits::FAILURE_SOURCES {
            failures.clear();
        }
        let id = id.chars().take(64).collect();
        let mut most = 0;
        for source in [Source::Network(Party::at(address)), Source::AccessKey(id)] {
            let known = failures.entry(source).or_insert(Failures { count: 0, last: now });
            if !is_fresh(known) {
                known.count = 0;
            }
            *known = Failures { count: known.count.saturating_add(1), last: now };
            most = most.max(known.count);
        }
        held(most)
    }

    /// Notes that right credentials came: the owner of the access key may mistype again.
    pub fn succeeded(&self, address: IpAddr) {
        self.failures.lock().remove(&Source::Network(Party::at(address)));
    }
}

fn held(failures: u32) -> Duration {
    match failures.checked_sub(limits::FREE_FAILURES) {
        None | Some(0) => Duration::ZERO,
        Some(over) => {
            let secs = 1u64.checked_shl(over - 1).unwrap_or(u64::MAX);
            Duration::from_secs(secs).min(limits::HELD_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use cairn_base::Timestamp;

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(self.0.load(Ordering::Relaxed) as i64)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn guesses_of_a_network_or_for_an_access_key_are_held_back() {
        let clock = Arc::new(Hand::default());
        let attempts = Attempts::new(clock.clone());
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let secs = |address, id: &str| attempts.failed(address, id).as_secs();
        for _ in 0..limits::FREE_FAILURES {
            assert_eq!(secs(address(1), "root"), 0);
        }
        let held: Vec<u64> = (0..6).map(|_| secs(address(1), "root")).collect();
        assert_eq!(held, [1, 2, 4, 8, 8, 8]);
        // Another access key from there, and this one from elsewhere, but not both at once.
        assert_eq!(secs(address(1), "alice"), 8);
        assert_eq!(secs(address(2), "root"), 8);
        assert_eq!(secs(address(3), "bob"), 0);
        clock.0.fetch_add(limits::FAILURES_WINDOW.as_secs(), Ordering::Relaxed);
        assert_eq!(secs(address(1), "root"), 0);
    }

    #[test]
    fn little_is_remembered() {
        let attempts = Attempts::new(Arc::new(Hand::default()));
        for number in 0..3 * limits::FAILURE_SOURCES as u32 {
            attempts.failed(IpAddr::from(number.to_be_bytes()), &number.to_string());
        }
        assert!(attempts.failures.lock().len() <= limits::FAILURE_SOURCES);
    }
}
