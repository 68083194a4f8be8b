//! Limits of one user in this process: requests and bytes per second.
//!
//! Most users have no limit: then a request costs one look-up in a table of this process. Limits
//! are rows of the metadata, which are read again every few seconds. Each process counts on its
//! own: with three gateways a user may have three times as much.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cairn_base::{Clock, UserId};
use cairn_meta::rows::UserLimits;
use parking_lot::Mutex;

/// Time for which the limits of a user are trusted.
const FRESH: Duration = Duration::from_secs(5);
/// Number of users that are remembered.
const USERS: usize = 10_000;
/// Longest wait for the next bytes of a body (connections without bytes for long are ended), and of
/// a request at a door that makes its clients wait.
const PAUSE: Duration = Duration::from_secs(5);
/// Debt from which on further requests are refused.
const DEBT: Duration = Duration::from_secs(1);
/// The period in which one user's bodies may send their share.
const ROUND: Duration = Duration::from_secs(1);

/// The recent use of each user of this process.
#[derive(Default)]
pub struct Throttle {
    users: Mutex<HashMap<UserId, AccountEntry>>,
    counts: Arc<ThrottleCounts>,
}

/// Counters of the effects of limits.
#[derive(Default, Debug)]
pub struct ThrottleCounts {
    refused: AtomicU64,
    delayed: AtomicU64,
}

impl ThrottleCounts {
    /// Returns the number of refused requests.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the number of pauses before bytes of a body, or before a call of NFS.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Relaxed)
    }
}

struct AccountEntry {
    /// `None`: the user has no limits.
    account: Option<Arc<Account>>,
    /// Monotonic time at which the limits must be read again.
    until: Duration,
}

/// The account of a user with limits.
pub struct Account {
    clock: Arc<dyn Clock>,
    counts: Arc<ThrottleCounts>,
    state: Mutex<Balances>,
}

struct Balances {
    limits: UserLimits,
    requests: Balance,
    bytes: Balance,
    /// Number of bodies in progress.
    bodies: u64,
}

/// The rest of a limit: at most the amount of one second, and negative for a user that has taken
/// more.
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

    /// Continues at another rate. A user in debt waits for as long as before.
    fn change(&mut self, rate: u64, new: u64) {
        self.left = match rate {
            0 => new as f64,
            _ => self.left / rate as f64 * new as f64,
        };
    }

    /// Returns the time until `amount` is available.
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
        let state = Mutex::new(Balances { limits, requests, bytes, bodies: 0 });
        Account { clock: Arc::clone(clock), counts: Arc::clone(counts), state }
    }

    fn set(&self, new: UserLimits) {
        let mut state = self.state.lock();
        let Balances { limits, requests, bytes, .. } = &mut *state;
        requests.change(limits.requests, new.requests);
        bytes.change(limits.bytes, new.bytes);
        *limits = new;
    }

    /// Takes one request.
    ///
    /// # Errors
    /// The time until a request is allowed again.
    pub fn take_request(&self) -> Result<(), Duration> {
        let taken = self.take();
        if taken.is_err() {
            self.counts.refused.fetch_add(1, Relaxed);
        }
        taken
    }

    fn take(&self) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let wait = state.wait_for_request(self.clock.monotonic());
        if !wait.is_zero() {
            return Err(wait);
        }
        state.take_request();
        Ok(())
    }

    /// Takes one request at a door that makes its clients wait. Returns the time that the request
    /// has to wait before anything is done for it.
    ///
    /// # Errors
    /// The request would have to wait for too long, and nothing was taken. It is to be refused
    /// after the returned time.
    pub fn take_late(&self) -> Result<Duration, Duration> {
        let mut state = self.state.lock();
        let wait = state.wait_for_request(self.clock.monotonic());
        if wait > PAUSE {
            self.counts.refused.fetch_add(1, Relaxed);
            return Err(PAUSE);
        }
        state.take_request();
        if !wait.is_zero() {
            self.counts.delayed.fetch_add(1, Relaxed);
        }
        Ok(wait)
    }
}

impl Balances {
    /// Returns the time until one more request may begin.
    fn wait_for_request(&mut self, now: Duration) -> Duration {
        let Balances { limits, requests, bytes, .. } = self;
        let mut wait = Duration::ZERO;
        if limits.bytes > 0 {
            bytes.refill(limits.bytes, now);
            let debt = bytes.wait_for(0.0, limits.bytes);
            if debt > DEBT {
                wait = debt;
            }
        }
        if limits.requests > 0 {
            requests.refill(limits.requests, now);
            wait = wait.max(requests.wait_for(1.0, limits.requests));
        }
        wait
    }

    /// Takes one request, into debt if necessary.
    fn take_request(&mut self) {
        if self.limits.requests > 0 {
            self.requests.left -= 1.0;
        }
    }
}

/// One body of a user with limits, from its first bytes until this is dropped.
pub struct CountedBody {
    account: Arc<Account>,
}

impl CountedBody {
    pub fn begin(account: Arc<Account>) -> CountedBody {
        account.state.lock().bodies += 1;
        CountedBody { account }
    }

    /// Returns the time for which its next bytes should wait.
    pub fn pause(&self) -> Option<Duration> {
        let now = self.account.clock.monotonic();
        let mut state = self.account.state.lock();
        let Balances { limits, bytes, .. } = &mut *state;
        if limits.bytes == 0 {
            return None;
        }
        bytes.refill(limits.bytes, now);
        let pause = bytes.wait_for(0.0, limits.bytes).min(PAUSE);
        (!pause.is_zero()).then(|| {
            self.account.counts.delayed.fetch_add(1, Relaxed);
            pause
        })
    }

    /// Takes the bytes that may be sent at once, and returns their number, at most `count`. The
    /// more bodies there are, the fewer bytes: so each body moves in each round, and all together
    /// send no more than the limit.
    pub fn take(&self, count: usize) -> usize {
        let mut state = self.account.state.lock();
        let Balances { limits, bytes, bodies, .. } = &mut *state;
        if limits.bytes == 0 {
            return count;
        }
        let part = limits.bytes.saturating_mul(ROUND.as_secs()) / (*bodies).max(1);
        let taken = count.min(usize::try_from(part.max(1)).unwrap_or(usize::MAX));
        bytes.left -= taken as f64;
        taken
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.account.state.lock().bodies -= 1;
    }
}

impl Throttle {
    /// Returns the account of a user, if it is known and its limits are fresh.
    pub(crate) fn known(&self, user: UserId, now: Duration) -> Option<Option<Arc<Account>>> {
        let users = self.users.lock();
        let known = users.get(&user).filter(|known| now < known.until)?;
        Some(known.account.clone())
    }

    pub(crate) fn counts(&self) -> Arc<ThrottleCounts> {
        Arc::clone(&self.counts)
    }

    /// Updates the limits of a user with those just read; `None` if the read failed: the known
    /// limits stay.
    pub(crate) fn note(
        &self,
        user: UserId,
        limits: Option<UserLimits>,
        clock: &Arc<dyn Clock>,
        now: Duration,
    ) -> Option<Arc<Account>> {
        let mut users = self.users.lock();
        if users.len() >= USERS && !users.contains_key(&user) {
            users.retain(|_, known| known.account.is_some() && now < known.until);
            if users.len() >= USERS {
                users.clear();
            }
        }
        let known = users.entry(user).or_insert(AccountEntry { account: None, until: now });
        known.until = now + FRESH;
        match (limits, &known.account) {
            (None, _) => {}
            (Some(limits), Some(account)) => {
                // Bodies in progress also follow the new limits.
                account.set(limits);
                if limits == UserLimits::default() {
                    known.account = None;
                }
            }
            (Some(limits), None) if limits == UserLimits::default() => {}
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

    /// A clock that is advanced by hand, milliseconds.
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
    fn requests_that_wait_come_at_the_rate_too() {
        let (account, clock) = account(10, 0);
        let begins: Vec<_> = (0..100).map(|_| account.take_late()).collect();
        let wait = |tenths: u64| Ok(Duration::from_millis(100 * tenths));
        // The requests of one second are taken at once, and each of the others in its turn.
        assert_eq!(begins[..10], vec![wait(0); 10]);
        for (number, begin) in (1..).zip(&begins[10..60]) {
            let late = begin.unwrap().abs_diff(Duration::from_millis(100 * number));
            assert!(late < Duration::from_millis(1), "{number}: {begin:?}");
        }
        // The others are refused in the end, and take nothing.
        assert_eq!(begins[60..], vec![Err(PAUSE); 40]);
        assert_eq!((account.counts.delayed(), account.counts.refused()), (50, 40));
        let refused = account.take_request().unwrap_err();
        assert!(refused > PAUSE, "nobody passes by: {refused:?}");
        clock.advance(Duration::from_millis(5050));
        let next = account.take_late().unwrap();
        assert!(next <= Duration::from_millis(100), "{next:?}");
    }

    #[test]
    fn bytes_wait_and_many_of_them_keep_requests_away() {
        let (account, clock) = account(0, 1 << 20);
        let account = Arc::new(account);
        let begin = || CountedBody::begin(Arc::clone(&account));
        let mut bodies: Vec<_> = std::iter::repeat_with(begin).take(4).collect();
        assert_eq!(bodies[0].pause(), None);
        // Each body has its part of one second at once, however many there are.
        for body in &bodies {
            assert_eq!(body.take(1 << 30), 1 << 18);
        }
        assert_eq!(bodies[1].take(100), 100);
        assert_eq!(bodies[1].take(1 << 30), 1 << 18);
        let pause = bodies[0].pause().unwrap();
        assert!((250..251).contains(&pause.as_millis()), "{pause:?}");
        assert_eq!(account.take_request(), Ok(()), "a quarter of a second is no debt");
        for _ in 0..6 {
            assert_eq!(bodies[2].take(1 << 18), 1 << 18);
        }
        let refused = account.take_request().unwrap_err();
        assert!((1750..1751).contains(&refused.as_millis()), "{refused:?}");
        for _ in 0..400 {
            bodies[2].take(1 << 18);
        }
        assert_eq!(bodies[3].pause(), Some(PAUSE), "a body is not held up for longer");
        clock.advance(Duration::from_secs(102));
        assert_eq!((bodies[3].pause(), account.take_request()), (None, Ok(())));
        bodies.truncate(1);
        assert_eq!(bodies[0].take(1 << 30), 1 << 20, "the others have ended");
    }

    /// Simulates bodies that always have more to send, for some time. Returns the bytes that each
    /// has sent, and the longest time between two pieces of one body.
    fn sent(count: usize, rate: u64, millis: u64) -> (Vec<u64>, u64) {
        let (account, clock) = account(0, rate);
        let account = Arc::new(account);
        let bodies: Vec<_> = (0..count).map(|_| CountedBody::begin(Arc::clone(&account))).collect();
        // Times of the next piece of each body, and of its last piece.
        let (mut due, mut sent) = (vec![None; count], vec![0; count]);
        let (mut last, mut longest) = (vec![0; count], 0);
        for now in 0..millis {
            for (at, body) in bodies.iter().enumerate() {
                let wait = || body.pause().map_or(0, |pause| pause.as_micros().div_ceil(1000));
                let goes = *due[at].get_or_insert_with(|| now + wait() as u64);
                if goes <= now {
                    sent[at] += body.take(256 << 10) as u64;
                    (longest, last[at]) = (longest.max(now - last[at]), now);
                    due[at] = None;
                }
            }
            clock.advance(Duration::from_millis(1));
        }
        (sent, longest)
    }

    #[test]
    fn many_bodies_share_a_limit() {
        const SECS: u64 = 30;
        for (count, rate) in [(1, 1 << 20), (50, 1 << 20), (400, 64 << 10), (50, 64 << 20)] {
            let (sent, longest) = sent(count, rate, SECS * 1000);
            let all: u64 = sent.iter().sum();
            // The saved second, and a round that is not paid yet.
            let most = rate * (SECS + 2) + (256 << 10);
            assert!((rate * (SECS - 2)..=most).contains(&all), "{count} at {rate}: {all}");
            let part = all / count as u64;
            let parts = part / 2..=2 * part;
            assert!(sent.iter().all(|one| parts.contains(one)), "{count} at {rate}: {sent:?}");
            assert!(longest <= PAUSE.as_millis() as u64, "{count} at {rate}: {longest} ms");
        }
    }

    #[test]
    fn a_limit_that_changes_keeps_nobody_longer_than_before() {
        let (account, _clock) = account(10, 100 << 20);
        let account = Arc::new(account);
        let body = CountedBody::begin(Arc::clone(&account));
        for _ in 0..3 {
            body.take(100 << 20);
        }
        let waits = |body: &CountedBody| body.pause().map(|pause| pause.as_secs_f64().round());
        assert_eq!(waits(&body), Some(2.0));
        account.set(UserLimits { requests: 10, bytes: 64 << 10 });
        assert_eq!(waits(&body), Some(2.0));
        account.set(UserLimits { requests: 20, bytes: 0 });
        assert_eq!((body.pause(), body.take(1 << 30)), (None, 1 << 30));
        assert_eq!((0..100).filter(|_| account.take_request().is_ok()).count(), 20);
    }

    #[test]
    fn any_number_of_users_is_remembered_in_bounded_memory() {
        let throttle = Throttle::default();
        let clock: Arc<dyn Clock> = Arc::new(HandClock::default());
        let limits = UserLimits { requests: 1, bytes: 0 };
        for user in 0..3 * USERS as u64 - 1 {
            let limits = (user % 2 == 0).then_some(limits).or(Some(UserLimits::default()));
            let account = throttle.note(UserId(user), limits, &clock, Duration::ZERO);
            assert_eq!(account.is_some(), user % 2 == 0);
        }
        assert!(throttle.users.lock().len() <= USERS);
        let one = UserId(3 * USERS as u64 - 2);
        assert!(throttle.note(one, None, &clock, Duration::ZERO).is_some(), "it still holds");
        assert!(throttle.note(one, Some(UserLimits::default()), &clock, FRESH).is_none());
    }
}
