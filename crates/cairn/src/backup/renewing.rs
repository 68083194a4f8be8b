//! Renewal of things that would expire, while they are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Number of renewals before it would end.
const RENEWALS: u32 = 3;

/// Renews something on a separate thread, as long as this exists.
pub struct Renewing {
    ended: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewing {
    /// Starts the renewals. `renew` returns false if it has ended and can never be renewed.
    pub fn start(seconds: u32, mut renew: impl FnMut() -> bool + Send + 'static) -> Renewing {
        let (stop, stopped) = channel::<()>();
        let pause = Duration::from_secs(u64::from(seconds)) / RENEWALS;
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if !renew() {
                    flag.store(true, Ordering::Release);
                    return;
                }
            }
        });
        Renewing { ended, stop: Some(stop), thread: Some(thread) }
    }

    /// Returns true if it has ended, as far as this process knows.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for a renewal in progress, and renews no more.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.stop();
    }
}
