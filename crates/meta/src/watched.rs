//! A value whose changes tasks can wait for.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value like tokio's `watch`. The task that has waited longest always wakes first, so that a
/// simulation can be repeated.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Watched<T> {
    pub fn new(value: T) -> Watched<T> {
        Watched { value: Mutex::new(value), changed: Notify::new() }
    }

    pub fn get(&self) -> T {
        self.value.lock().clone()
    }

    pub fn set(&self, value: T) {
        self.modify(|old| {
            *old = value;
            true
        });
    }

    /// Changes the value. Wakes the waiting tasks if `change` returns that it did; returns the
    /// same.
    pub fn modify(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = change(&mut self.value.lock());
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Waits until `of` returns a result for the value.
    pub async fn wait_for<R>(&self, mut of: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            // Changes are noticed from here on.
            let changed = self.changed.notified();
            if let Some(made) = of(&self.value.lock()) {
                return made;
            }
            changed.await;
        }
    }
}
