//! Limits of what one user may ask this process for: requests and bytes a second.
//!
//! Most users have no limit: then a request costs one look-up in a table of this process. Limits
//! are rows of the metadata, and are looked at again every few seconds. Each process counts on its
//! own: with three gateways a user may have three times as much.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::{Clock, UserId};
use cairn_meta::rows::UserLimits;
use parking_lot::Mutex;

/// How long limits are believed.
const FRESH: Duration = Duration::from_secs(5);
/// Users that are remembered.
const USERS: usize = 10_000;
/// The longest wait for the next bytes of a body: connections without bytes for long are ended.
const PAUSE: Duration = Duration::from_secs(5);
/// The debt from which further requests are refused.
const DEBT: Duration = Duration::from_secs(1);

/// The recent use of users of this process.
#[derive(Default)]
pub struct Throttle {
    users: Mutex<HashMap<UserId, Known>>,
    counts: Arc<ThrottleCounts>,
}

/// The effects of limits.
#[derive(Default, Debug)]
pub struct ThrottleCounts {
    refused: AtomicU64,
    delayed: AtomicU64,
}

impl ThrottleCounts {
    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Pauses before bytes of a body, or before a call of NFS.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Relaxed)
    }
}

struct Known {
    /// None: the user has no limits.
    account: Option<Arc<Account>>,
    /// When the limits are to be looked at again.
    until: Duration,
}

/// The account of a user who has limits.
pub struct Account {
    clock: Arc<dyn Clock>,
    counts: Arc<ThrottleCounts>,
    state: Mutex<Balances>,
}

struct Balances {
    limits: UserLimits,
    requests: Balance,
    bytes: Balance,
}

/// The part of a limit that is left: what comes in a second at most, and less than nothing for one
/// who has taken more.
struct Balance {
    left: f64,
    at: Duration,
}

impl Balance {
    fn new(rate: u64, now: Duration) -> Balance {
        Balance { left: rate as f64, at: now }
    }

    fn refill(&mut self, rate: u64, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * rate as f64).min(rate as f64);
        self.at = now;
    }

    /// How long it takes until there is as much as this.
    fn wait_for(&self, amount: f64, rate: u64) -> Duration {
        Duration::try_from_secs_f64((amount - self.left).max(0.0) / rate.max(1) as f64)
            .unwrap_or(Duration::MAX)
    }
}

impl Account {
    fn new(limits: UserLimits, clock: &Arc<dyn Clock>, counts: &Arc<ThrottleCounts>) -> Account {
        let now = clock.monotonic();
        let (requests, bytes) =
            (Balance::new(limits.requests, now), Balance::new(limits.bytes, now));
        let state = Mutex::new(Balances { limits, requests, bytes });
        Account { clock: Arc::clone(clock), counts: Arc::clone(counts), state }
    }

    fn set(&self, limits: UserLimits) {
        self.state.lock().limits = limits;
    }

    /// Takes one request.
    ///
    /// # Errors
    /// How long it takes until there is one again.
    pub fn take_request(&self) -> Result<(), Duration> {
        let taken = self.take();
        if taken.is_err() {
            self.counts.refused.fetch_add(1, Relaxed);
        }
        taken
    }

    fn take(&self) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let Balances { limits, requests, bytes } = &mut *state;
        if limits.bytes > 0 {
            bytes.refill(limits.bytes, now);
            let debt = bytes.wait_for(0.0, limits.bytes);
            if debt > DEBT {
                return Err(debt);
            }
        }
        if limits.requests > 0 {
            requests.refill(limits.requests, now);
            if requests.left < 1.0 {
                return Err(requests.wait_for(1.0, limits.requests));
            }
            requests.left -= 1.0;
        }
        Ok(())
    }

    /// Takes bytes of a body, which are on their way already.
    pub fn take_bytes(&self, count: u64) {
        let mut state = self.state.lock();
        if state.limits.bytes > 0 {
            state.bytes.left -= count as f64;
        }
    }

    /// How long further bytes of a body should wait.
    pub fn pause(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let Balances { limits, bytes, .. } = &mut *state;
        if limits.bytes == 0 {
            return None;
        }
        bytes.refill(limits.bytes, now);
        let pause = bytes.wait_for(0.0, limits.bytes).min(PAUSE);
        (!pause.is_zero()).then(|| {
            self.counts.delayed.fetch_add(1, Relaxed);
            pause
        })
    }

    /// As [`Account::take_request`], for a door that lets its clients wait: how long.
    pub fn take_late(&self) -> Duration {
        match self.take() {
            Ok(()) => Duration::ZERO,
            Err(wait) => {
                self.counts.delayed.fetch_add(1, Relaxed);
                wait.min(PAUSE)
            }
        }
    }
}

impl Throttle {
    /// The account of a user, if it is known and its limits are fresh.
    pub(crate) fn known(&self, user: UserId, now: Duration) -> Option<Option<Arc<Account>>> {
        let users = self.users.lock();
        let known = users.get(&user).filter(|known| now < known.until)?;
        Some(known.account.clone())
    }

    pub(crate) fn counts(&self) -> Arc<ThrottleCounts> {
        Arc::clone(&self.counts)
    }

    /// Takes limits that were looked at; `None` if that failed: those that are known hold.
    pub(crate) fn note(
        &self,
        user: UserId,
        limits: Option<UserLimits>,
        (clock, now): (&Arc<dyn Clock>, Duration),
    ) -> Option<Arc<Account>> {
        let mut users = self.users.lock();
        if users.len() >= USERS && !users.contains_key(&user) {
            users.retain(|_, known| known.account.is_some() && now < known.until);
            if users.len() >= USERS {
                users.clear();
            }
        }
        let known = users.entry(user).or_insert(Known { account: None, until: now });
        known.until = now + FRESH;
        match (limits, &known.account) {
            (None, _) => {}
            (Some(limits), _) if limits == UserLimits::default() => known.account = None,
            (Some(limits), Some(account)) => account.set(limits),
            (Some(limits), None) => {
                known.account = Some(Arc::new(Account::new(limits, clock, &self.counts)));
            }
        }
        known.account.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use cairn_base::Timestamp;

    use super::*;

    /// Moved by hand, milliseconds.
    #[derive(Default)]
    struct HandClock(AtomicU64);

    impl HandClock {
        fn advance(&self, time: Duration) {
            self.0.fetch_add(time.as_millis() as u64, Relaxed);
        }
    }

    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Relaxed))
        }
    }

    fn account(requests: u64, bytes: u64) -> (Account, Arc<HandClock>) {
        let manual = Arc::new(HandClock::default());
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
        let counts = Arc::new(ThrottleCounts::default());
        (Account::new(UserLimits { requests, bytes }, &clock, &counts), manual)
    }

    #[test]
    fn requests_come_at_their_rate_after_those_of_a_second() {
        let (account, clock) = account(10, 0);
        let taken = |most: usize| (0..most).filter(|_| account.take_request().is_ok()).count();
        assert_eq!(taken(100), 10);
        assert_eq!(account.take_request(), Err(Duration::from_millis(100)));
        clock.advance(Duration::from_millis(500));
        assert_eq!(taken(100), 5);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(taken(100), 10, "nobody saves more than a second");
        assert_eq!(account.counts.refused(), 90 + 1 + 95 + 90);
    }

    #[test]
    fn bytes_wait_and_many_of_them_keep_requests_away() {
        let (account, clock) = account(0, 1 << 20);
        assert_eq!(account.pause(), None);
        account.take_bytes(3 << 19);
        assert_eq!(account.pause(), Some(Duration::from_millis(500)));
        assert_eq!(account.take_request(), Ok(()), "half a second is no debt");
        account.take_bytes(1 << 20);
        assert_eq!(account.take_request(), Err(Duration::from_millis(1500)));
        account.take_bytes(100 << 20);
        assert_eq!(account.pause(), Some(PAUSE), "a body is not held up for longer");
        clock.advance(Duration::from_secs(102));
        assert_eq!((account.pause(), account.take_request()), (None, Ok(())));
    }

    #[test]
    fn any_number_of_users_is_remembered_in_bounded_memory() {
        let throttle = Throttle::default();
        let clock: Arc<dyn Clock> = Arc::new(HandClock::default());
        let limits = UserLimits { requests: 1, bytes: 0 };
        for user in 0..3 * USERS as u64 - 1 {
            let limits = (user % 2 == 0).then_some(limits).or(Some(UserLimits::default()));
            let account = throttle.note(UserId(user), limits, (&clock, Duration::ZERO));
            assert_eq!(account.is_some(), user % 2 == 0);
        }
        assert!(throttle.users.lock().len() <= USERS);
        let one = UserId(3 * USERS as u64 - 2);
        assert!(throttle.note(one, None, (&clock, Duration::ZERO)).is_some(), "it still holds");
        assert!(throttle.note(one, Some(UserLimits::default()), (&clock, FRESH)).is_none());
    }
}
