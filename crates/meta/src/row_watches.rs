//! Watches of rows, for tasks that wait until a row changes, at the master or in a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch::{Receiver, Sender};

/// The rows that are watched in this process: mostly none.
#[derive(Default)]
pub struct RowWatches {
    rows: Mutex<HashMap<Bytes, Sender<()>>>,
    /// Number of rows.
    count: AtomicUsize,
}

/// Notices the changes of one row since it was made. It may also wake without a change.
pub struct RowWatch {
    watches: Arc<RowWatches>,
    key: Bytes,
    changes: Receiver<()>,
}

impl RowWatches {
    pub fn watch(self: &Arc<Self>, key: Bytes) -> RowWatch {
        let mut rows = self.rows.lock();
        let sender = rows.entry(key.clone()).or_insert_with(|| Sender::new(()));
        let changes = sender.subscribe();
        self.count.store(rows.len(), Ordering::SeqCst);
        RowWatch { watches: Arc::clone(self), key, changes }
    }

    /// Returns whether no row is watched.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Wakes the watches of rows that have changed, or will have when they are read.
    pub fn wake<'a>(&self, keys: impl IntoIterator<Item = &'a Bytes>) {
        if self.is_empty() {
            return;
        }
        let rows = self.rows.lock();
        keys.into_iter().filter_map(|key| rows.get(key)).for_each(|row| row.send_replace(()));
    }

    /// Wakes all watches, as any row may have changed.
    pub fn wake_all(&self) {
        if !self.is_empty() {
            self.rows.lock().values().for_each(|row| row.send_replace(()));
        }
    }
}

impl RowWatch {
    /// Waits for a change since the last call returned, or since this was made. A dropped call
    /// loses no change.
    pub async fn changed(&mut self) {
        // The sender exists as long as this watch.
        let _ = self.changes.changed().await;
    }
}

impl Drop for RowWatch {
    fn drop(&mut self) {
        let mut rows = self.watches.rows.lock();
        if rows.get(&self.key).is_some_and(|row| row.receiver_count() == 1) {
            rows.remove(&self.key);
        }
        self.watches.count.store(rows.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn has_changed(watch: &mut RowWatch) -> bool {
        pin!(watch.changed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn changes_are_heard_once_by_each_who_waits() {
        let watches = Arc::new(RowWatches::default());
        let [a, b] = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        watches.wake([&a]);
        let (mut one, mut two) = (watches.watch(a.clone()), watches.watch(a.clone()));
        let mut other = watches.watch(b.clone());
        assert!(!has_changed(&mut one), "it changed before");
        watches.wake([&a]);
        watches.wake([&a]);
        assert!(has_changed(&mut one) && !has_changed(&mut one));
        assert!(has_changed(&mut two) && !has_changed(&mut other));
        watches.wake_all();
        assert!(has_changed(&mut one) && has_changed(&mut other));
        drop((one, other));
        watches.wake([&a]);
        assert!(has_changed(&mut two) && !watches.is_empty());
        drop(two);
        assert!(watches.is_empty());
    }
}
