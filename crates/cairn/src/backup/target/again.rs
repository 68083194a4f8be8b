//! Trying again: networks fail for a moment, and servers are started again.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Instant;

use bytes::Bytes;
use cairn_base::waits;

use super::objects::Target;
use crate::failure::{Failure, Result};
use crate::output;

/// Tries again while a server cannot be reached that could be reached before.
#[derive(Default)]
pub struct Again {
    was_reached: AtomicBool,
}

impl Again {
    /// For a server that was reached before.
    pub fn reached() -> Again {
        Again { was_reached: AtomicBool::new(true) }
    }

    /// # Errors
    /// Those of `work`: at once if they are no passing ones, or if nothing went well before; else
    /// after `waits::BACKUP_AGAIN`.
    pub fn run<T>(&self, work: impl Fn() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let mut pause = waits::BACKUP_RETRY;
        loop {
            let failure = match work() {
                Ok(done) => {
                    self.was_reached.store(true, Ordering::Relaxed);
                    return Ok(done);
                }
                Err(failure) => failure,
            };
            if !failure.is_passing() || !self.was_reached.load(Ordering::Relaxed) {
                return Err(failure);
            }
            if start.elapsed() >= waits::BACKUP_AGAIN {
                let secs = start.elapsed().as_secs();
                return Err(failure.and(&format!("given up after {secs} s")));
            }
            if pause == waits::BACKUP_RETRY {
                output::complain(&format!("{failure}: trying again"));
            }
            sleep(pause);
            pause = (pause * 2).min(waits::BACKUP_RETRY_MAX);
        }
    }
}

/// A target whose requests are sent again.
pub struct Persistent<T> {
    pub target: T,
    pub again: Again,
}

/// Adds the remedy to a failure, where there is one.
fn advised(failure: Failure) -> Failure {
    if failure.is_full() {
        failure.of("the target is full").and(
            "make room there, or remove old states (cairn backup prune), and run it again: what \
             was written is used",
        )
    } else {
        failure
    }
}

impl<T: Target> Target for Persistent<T> {
    fn put(&self, name: &str, bytes: &Bytes) -> Result<()> {
        self.again.run(|| self.target.put(name, bytes)).map_err(advised)
    }

    fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool> {
        self.again.run(|| self.target.put_new(name, bytes)).map_err(advised)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        self.again.run(|| self.target.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.again.run(|| self.target.get_range(name, range.clone()))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.again.run(|| self.target.list(prefix))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.again.run(|| self.target.remove(name))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_a_server_that_was_reached_is_asked_again() {
        let (again, asked) = (Again::default(), Cell::new(0));
        let ask = |fails: u32| {
            asked.set(0);
            again.run(|| {
                asked.set(asked.get() + 1);
                if asked.get() > fails { Ok(()) } else { Err(Failure::new("gone").passing()) }
            })
        };
        assert!(ask(1).is_err() && asked.get() == 1);
        assert!(ask(0).is_ok());
        assert!(ask(1).is_ok() && asked.get() == 2);
        let refused = || Err::<(), _>(Failure::refused("no"));
        assert_eq!(again.run(refused).unwrap_err().to_string(), "no");
    }
}
