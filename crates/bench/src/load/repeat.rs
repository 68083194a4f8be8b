//! A closed loop of anything: a number of hands, each of which repeats its work as soon as it is
//! done.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Sample, Tally};
use crate::cpu::{Mark, Processes};
use crate::error::{Error, Result};
use crate::stop;

/// Amount of work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Repeat {
    pub hands: usize,
    pub duration: Duration,
    /// Number of repetitions of all hands together, at most.
    pub most: u64,
}

/// Tallies that the hands share: a tally for each of a thousand hands would take a second to make.
const TALLIES: usize = 8;

/// The state that all threads share.
struct RepeatShared {
    next: AtomicU64,
    most: u64,
    began: Instant,
    duration: Duration,
    tallies: [Mutex<Tally>; TALLIES],
}

/// Reason why a hand stopped before its time.
type Broken = Option<String>;

impl Repeat {
    /// Runs each hand as a task of the current runtime. `act` gets numbers from 0 to `most`, each
    /// once, and returns the bytes that it moved.
    pub async fn tasks<F, Fut>(&self, act: F) -> Result<Sample>
    where
        F: Fn(u64) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<u64>> + Send,
    {
        let (shared, mark) = self.begin();
        let tasks: Vec<_> = (0..self.hands)
            .map(|me| {
                let (shared, act) = (Arc::clone(&shared), act.clone());
                tokio::spawn(async move {
                    let mut hand = Hand::new(&shared, me);
                    while let Some(number) = hand.next() {
                        hand.did(act(number).await);
                        // Work that never waits must not keep the other hands from their turn.
                        tokio::task::consume_budget().await;
                    }
                    hand.broken
                })
            })
            .collect();
        let mut broken = None;
        for task in tasks {
            broken = broken.or(task.await.map_err(|_| {
                Error::failed("a task of the client panicked: see its message above")
            })?);
        }
        Ok(shared.sample(&mark, broken))
    }

    /// Runs each hand as a thread; `act` also gets the number of the hand.
    pub fn threads(&self, act: impl Fn(usize, u64) -> Result<u64> + Sync) -> Result<Sample> {
        let (shared, mark) = self.begin();
        let broken = thread::scope(|scope| {
            let hands: Vec<_> = (0..self.hands)
                .map(|me| {
                    let (shared, act) = (&shared, &act);
                    scope.spawn(move || {
                        let mut hand = Hand::new(shared, me);
                        while let Some(number) = hand.next() {
                            hand.did(act(me, number));
                        }
                        hand.broken
                    })
                })
                .collect();
            let joined = hands.into_iter().map(|hand| hand.join());
            joined.collect::<Result<Vec<_>, _>>().map_err(|_| {
                Error::failed("a thread of the client panicked: see its message above")
            })
        })?;
        Ok(shared.sample(&mark, broken.into_iter().flatten().next()))
    }

    fn begin(&self) -> (Arc<RepeatShared>, Mark) {
        let shared = RepeatShared {
            next: AtomicU64::new(0),
            most: self.most,
            tallies: Default::default(),
            duration: self.duration,
            began: Instant::now(),
        };
        (Arc::new(shared), Processes::this().mark())
    }
}

impl RepeatShared {
    fn sample(&self, mark: &Mark, broken: Broken) -> Sample {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let mut tally = Tally::default();
        for one in &self.tallies {
            tally.add(&one.lock());
        }
        Sample {
            began: self.began,
            seconds,
            asked: tally.replies(),
            unsent: 0,
            tally,
            client_cores: Processes::this().cores_since(mark),
            server_cores: None,
            broken,
        }
    }
}

struct Hand<'a> {
    shared: &'a RepeatShared,
    tally: &'a Mutex<Tally>,
    /// Time at which it last ended something, and so began the next.
    at: Instant,
    /// Set before its first repetition, which it does even after the time: a round in which nothing
    /// was done measures nothing.
    is_first: bool,
    broken: Broken,
}

impl Hand<'_> {
    fn new(shared: &RepeatShared, me: usize) -> Hand<'_> {
        let tally = &shared.tallies[me % TALLIES];
        Hand { shared, tally, at: Instant::now(), is_first: true, broken: None }
    }

    /// Returns the number of the next repetition.
    fn next(&mut self) -> Option<u64> {
        let RepeatShared { next, most, began, duration, .. } = self.shared;
        let is_first = mem::take(&mut self.is_first);
        let is_over = self.at - *began >= *duration && !is_first;
        if is_over || self.broken.is_some() || stop::is_stopped() {
            return None;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        (number < *most).then_some(number)
    }

    fn did(&mut self, outcome: Result<u64>) {
        let now = Instant::now();
        match outcome {
            Ok(bytes) => {
                let mut tally = self.tally.lock();
                tally.latency.record(now - self.at);
                tally.in_time += 1;
                tally.bytes_in_time += bytes;
            }
            Err(error) => self.broken = Some(error.to_string()),
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_done_once_and_no_more_than_the_most() {
        let repeat = Repeat { hands: 3, duration: Duration::from_secs(60), most: 1000 };
        let seen: Vec<AtomicU64> = (0..1000).map(|_| AtomicU64::new(0)).collect();
        let sample = repeat.threads(|hand, number| {
            assert!(hand < 3);
            seen[number as usize].fetch_add(1, Ordering::Relaxed);
            Ok(5)
        });
        let sample = sample.unwrap();
        assert!(seen.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert_eq!((sample.tally.in_time, sample.tally.bytes_in_time), (1000, 5000));
        assert_eq!((sample.tally.replies(), sample.broken), (1000, None));
    }

    #[tokio::test]
    async fn tasks_that_never_wait_take_turns_and_end_in_time() {
        let repeat = Repeat { hands: 50, duration: Duration::from_millis(20), most: u64::MAX };
        let began = Instant::now();
        let sample = repeat.tasks(|_| async { Ok(0) }).await.unwrap();
        assert!(sample.tally.in_time > 0);
        // 50 tasks one after another would take a second.
        assert!(sample.seconds < 0.9, "{:?}", began.elapsed());
    }

    #[test]
    fn a_hand_that_begins_late_does_one_thing() {
        let repeat = Repeat { hands: 2, duration: Duration::ZERO, most: u64::MAX };
        assert_eq!(repeat.threads(|_, _| Ok(1)).unwrap().tally.in_time, 2);
    }

    #[test]
    fn what_fails_ends_it_and_the_rest_is_kept() {
        let repeat = Repeat { hands: 1, duration: Duration::from_secs(60), most: u64::MAX };
        let sample = repeat.threads(|_, number| match number {
            0..7 => Ok(1),
            _ => Err(Error::failed("no more")),
        });
        let sample = sample.unwrap();
        assert_eq!((sample.tally.in_time, sample.broken), (7, Some("no more".to_owned())));
    }
}
