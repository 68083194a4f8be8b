//! A master on a test engine, and how to wait for what it does without watching a clock.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::Result;
use cairn_base::clock::RealClock;
use cairn_meta::master::{Config, Stats};
use cairn_meta::{Master, Verb};
use tokio::task::JoinHandle;

use crate::engine::{LateEngine, TestEngine};

pub struct Setup {
    pub engine: Arc<TestEngine>,
    pub master: Master,
}

impl Setup {
    pub fn new(config: Config) -> Setup {
        let engine = TestEngine::new();
        let clock = Arc::new(RealClock::default());
        let master = Master::start(engine.clone(), clock, config).expect("a master");
        Setup { engine, master }
    }

    /// Sets up like `new`, with an engine that decides about commits elsewhere, and later.
    pub fn late(config: Config) -> Setup {
        let engine = TestEngine::new();
        let clock = Arc::new(RealClock::default());
        let late = Arc::new(LateEngine(Arc::clone(&engine)));
        let master = Master::start(late, clock, config).expect("a master");
        Setup { engine, master }
    }

    /// Runs an operation in a task of its own.
    pub fn spawn<V: Verb>(&self, verb: V) -> JoinHandle<Result<V::Reply>> {
        let master = self.master.clone();
        tokio::spawn(async move { master.run(&Caller::system(), verb).await })
    }

    pub async fn run<V: Verb>(&self, verb: V) -> Result<V::Reply> {
        self.master.run(&Caller::system(), verb).await
    }

    pub async fn read<V: Verb>(&self, verb: V) -> Result<V::Reply> {
        self.master.read(&Caller::system(), verb).await
    }

    /// Waits until the master's counters are as wanted.
    pub async fn until(&self, wanted: impl Fn(Stats) -> bool) {
        while !wanted(self.master.stats()) {
            tokio::task::yield_now().await;
        }
    }

    /// An operation in the engine, where it stays until released, and `count` operations accepted
    /// in all.
    pub async fn until_held(&self, count: u64) {
        self.engine.await_commit();
        self.until(|stats| stats.in_flight == count && stats.queued == 0).await;
        // Counted a moment before it is in the queue.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        self.until(|stats| stats.in_flight == count && stats.queued == 0).await;
    }
}

/// Gives everybody else many chances to do something wrong.
pub async fn dawdle() {
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
}
