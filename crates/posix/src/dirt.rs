//! Counts the bytes that were written and not written back, over all files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cairn_base::Party;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub struct Dirt {
    bytes: AtomicU64,
    /// Number of bytes from which on writers wait.
    most: u64,
    /// Number of bytes of one party from which on its writers wait.
    most_each: u64,
    accounts: Mutex<HashMap<Party, Weak<Account>>>,
    written_back: AtomicU64,
    is_less: Notify,
}

/// The bytes that one party wrote and that are not written back. A file counts for the party that
/// was the first to write to it since it was last written back completely.
#[derive(Default)]
pub struct Account(AtomicU64);

impl Account {
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn less(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Dirt {
    pub fn new(most: u64, most_each: u64) -> Dirt {
        let (bytes, written_back) = (AtomicU64::new(0), AtomicU64::new(0));
        let (accounts, is_less) = (Mutex::default(), Notify::new());
        Dirt { bytes, most, most_each, accounts, written_back, is_less }
    }

    /// Returns the account of a party.
    pub fn account(&self, party: Party) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        if let Some(account) = accounts.get(&party).and_then(Weak::upgrade) {
            return account;
        }
        accounts.retain(|_, account| account.strong_count() > 0);
        let account = Arc::new(Account::default());
        accounts.insert(party, Arc::downgrade(&account));
        account
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes written back since the process started.
    pub fn written_back(&self) -> u64 {
        self.written_back.load(Ordering::Relaxed)
    }

    /// Returns whether a writer of this account has to wait.
    pub fn is_full(&self, account: &Account) -> bool {
        self.bytes() >= self.most || account.0.load(Ordering::Relaxed) >= self.most_each
    }

    /// Counts bytes that `keep` then keeps; `keep` returns by how many its bytes have grown. The
    /// bytes are counted first, as they may be written back as soon as they are kept.
    pub fn take(&self, bytes: u64, keep: impl FnOnce() -> u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.uncount(bytes - keep());
    }

    fn uncount(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were written back.
    pub fn less(&self, bytes: u64) {
        self.uncount(bytes);
        self.written_back.fetch_add(bytes, Ordering::Relaxed);
        self.is_less.notify_waiters();
    }

    /// Waits until bytes are written back after this call.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        self.is_less.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_back_while_it_is_taken_is_not_less_than_nothing() {
        let dirt = Dirt::new(100, 100);
        dirt.take(10, || {
            dirt.less(10);
            assert_eq!(dirt.bytes(), 0);
            assert!(!dirt.is_full(&Account::default()));
            10
        });
        assert_eq!((dirt.bytes(), dirt.written_back()), (0, 10));
        // Four of them take the place of others.
        dirt.take(10, || 6);
        assert_eq!(dirt.bytes(), 6);
    }
}
