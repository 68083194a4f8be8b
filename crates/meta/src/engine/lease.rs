//! The lease by which a master answers from memory: the time in which no other can have taken over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Clock, Error};
use parking_lot::Mutex;

/// Callback that gets the reason when another master took over.
type Fenced = Box<dyn FnOnce(String) + Send>;

/// The right to answer reads without asking the engine. It expires unless it is renewed. Commits
/// need no lease, since the engine itself refuses those of a fenced master.
pub struct Lease {
    /// Holder of the lease, for messages.
    shown: String,
    length: Duration,
    clock: Arc<dyn Clock>,
    /// End of the lease in microseconds of `clock`; 0 if it will never be held again.
    until: AtomicU64,
    end: Mutex<End>,
}

#[derive(Default)]
struct End {
    ended: bool,
    /// Reason, if another master took over.
    reason: Option<String>,
    told: Option<Fenced>,
}

impl Lease {
    /// Creates a lease of `length` that was requested at `sent` by `clock`.
    pub fn new(shown: String, length: Duration, clock: Arc<dyn Clock>, sent: Duration) -> Lease {
        let until = AtomicU64::new(counted(&*clock, sent + length));
        Lease { shown, length, clock, until, end: Mutex::default() }
    }

    /// Returns whether nobody else can have taken over by now.
    pub fn is_held(&self) -> bool {
        counted(&*self.clock, self.clock.monotonic()) < self.until.load(Ordering::Acquire)
            || is_planted(Bug::LostLeaseServes)
    }

    /// Returns how long nobody else can take over without a renewal.
    pub fn left(&self) -> Duration {
        if is_planted(Bug::LostLeaseServes) {
            return self.length;
        }
        let until = Duration::from_micros(self.until.load(Ordering::Acquire));
        until.saturating_sub(Duration::from_micros(counted(&*self.clock, self.clock.monotonic())))
    }

    /// Extends the lease after the engine answered a renewal, or a commit, that was sent at `sent`.
    pub fn extend(&self, sent: Duration) {
        let end = self.end.lock();
        if !end.ended {
            let until = counted(&*self.clock, sent + self.length);
            self.until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// Gives the lease up: its holder answers nothing any more.
    pub fn give_up(&self) {
        let mut end = self.end.lock();
        end.ended = true;
        self.until.store(0, Ordering::Release);
    }

    /// Ends the lease because another master took over, for the given `reason`.
    pub fn fence(&self, reason: String) {
        let mut end = self.end.lock();
        if std::mem::replace(&mut end.ended, true) {
            return;
        }
        self.until.store(0, Ordering::Release);
        let told = end.told.take();
        end.reason = Some(reason.clone());
        drop(end);
        if let Some(told) = told {
            told(reason);
        }
    }

    /// Sets the callback for another master taking over; calls it at once if one already has.
    pub fn when_fenced(&self, told: impl FnOnce(String) + Send + 'static) {
        let mut end = self.end.lock();
        match end.reason.clone() {
            None => end.told = Some(Box::new(told)),
            Some(reason) => {
                drop(end);
                told(reason);
            }
        }
    }

    /// Returns the error for readers while the lease is not held.
    pub fn refusal(&self) -> Error {
        let what = match &self.end.lock().reason {
            Some(reason) => reason.clone(),
            None => "its lease was not renewed in time".to_owned(),
        };
        Error::Unavailable(format!("{}: not the active master: {what}", self.shown))
    }
}

/// Returns the microseconds of a monotonic time.
fn counted(clock: &dyn Clock, at: Duration) -> u64 {
    let mut micros = at.as_micros();
    if is_planted(Bug::LeaseByWallClock) {
        let wall = u128::try_from(clock.now().0 / 1000).unwrap_or(0);
        micros += wall.saturating_sub(clock.monotonic().as_micros());
    }
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use cairn_base::Timestamp;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);

    #[derive(Default)]
    struct SetClock(Mutex<Duration>);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            *self.0.lock()
        }
    }

    #[test]
    fn it_runs_out_and_goes_on_when_renewed() {
        let clock = Arc::new(SetClock::default());
        let lease = Lease::new("x".into(), LENGTH, clock.clone(), Duration::ZERO);
        assert!(lease.is_held());
        *clock.0.lock() = 2 * LENGTH;
        assert!(!lease.is_held());
        lease.extend(LENGTH / 2);
        assert!(!lease.is_held(), "it counts from when the renewal was sent");
        lease.extend(2 * LENGTH);
        lease.extend(Duration::ZERO);
        assert!(lease.is_held());
        lease.give_up();
        lease.extend(2 * LENGTH);
        assert!(!lease.is_held());
    }

    #[test]
    fn who_is_fenced_stays_so_and_is_told_once() {
        let lease = Lease::new("x".into(), LENGTH, Arc::new(SetClock::default()), Duration::ZERO);
        let (sender, told) = mpsc::channel();
        let again = sender.clone();
        lease.when_fenced(move |reason| sender.send(reason).unwrap());
        lease.fence("first".into());
        lease.fence("second".into());
        lease.extend(Duration::ZERO);
        assert!(!lease.is_held());
        lease.when_fenced(move |reason| again.send(reason).unwrap());
        assert_eq!(told.iter().collect::<Vec<_>>(), ["first", "first"]);
        assert!(lease.refusal().to_string().contains("not the active master: first"));
    }
}
