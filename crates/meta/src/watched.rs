//! A value, and those who wait for it to change.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// As tokio's `watch`, but who waits longest wakes first, always: so that a simulation can be
/// repeated.
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

    /// Wakes those who wait if `change` says that it changed the value. Says so, too.
    pub fn modify(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = change(&mut self.value.lock());
        if changed {
            self.changed.notify_waiters();
        }
        changed
    }

    /// Waits until `of` makes something of the value.
    pub async fn wait_for<R>(&self, mut of: impl FnMut(&T) -> Option<R>) -> R {
        loop {
            // It hears of changes from here on.
            let changed = self.changed.notified();
            if let Some(made) = of(&self.value.lock()) {
                return made;
            }
            changed.await;
        }
    }
}
