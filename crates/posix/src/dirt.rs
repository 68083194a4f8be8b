//! How much was written and not written back, of all files.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

pub struct Dirt {
    bytes: AtomicU64,
    /// Beyond that, writers wait.
    most: u64,
    written_back: AtomicU64,
    is_less: Notify,
}

impl Dirt {
    pub fn new(most: u64) -> Dirt {
        let (bytes, written_back) = (AtomicU64::new(0), AtomicU64::new(0));
        Dirt { bytes, most, written_back, is_less: Notify::new() }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Of all time.
    pub fn written_back(&self) -> u64 {
        self.written_back.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.bytes() >= self.most
    }

    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many were counted twice: they took the place of others.
    pub fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// So many were written back.
    pub fn less(&self, bytes: u64) {
        self.uncount(bytes);
        self.written_back.fetch_add(bytes, Ordering::Relaxed);
        self.is_less.notify_waiters();
    }

    /// Returns when there is less than there was when this was called.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        self.is_less.notified()
    }
}
