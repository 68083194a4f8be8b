//! Places for pages that receive changes, in a limited number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cairn_base::{Error, UserId};
use cairn_doors::metrics::{Number, counter, gauge};
use parking_lot::Mutex;

use crate::limits::{LISTENERS, LISTENERS_OF_USER};

/// Pages that receive changes now, and counts of what is read for the pages of files and buckets.
#[derive(Default)]
pub struct Listeners {
    counts: Mutex<ListenerCounts>,
    pub looks: AtomicU64,
    pub listings: AtomicU64,
}

#[derive(Default)]
struct ListenerCounts {
    all: usize,
    of_users: HashMap<UserId, usize>,
}

/// Place of one page.
pub struct ListenerPlace {
    listeners: Arc<Listeners>,
    user: UserId,
}

impl Listeners {
    pub fn numbers(&self) -> Vec<Number> {
        let looks = "Looks at rows for pages of the console that hear of changes";
        let listings = "Listings for pages of the console that hear of changes";
        let pages = self.counts.lock().all as u64;
        vec![
            gauge("console_listeners", "Pages of the console that hear of changes now", pages),
            counter("console_looks", looks, self.looks.load(Relaxed)),
            counter("console_listings", listings, self.listings.load(Relaxed)),
        ]
    }

    /// Takes a place for a page.
    ///
    /// # Errors
    /// `Unavailable` if there are too many.
    pub fn take(self: &Arc<Self>, user: UserId) -> Result<ListenerPlace, Error> {
        let mut counts = self.counts.lock();
        let of_user = counts.of_users.get(&user).copied().unwrap_or_default();
        if counts.all >= LISTENERS || of_user >= LISTENERS_OF_USER {
            let text = "too many pages hear of changes, of this user or in all";
            return Err(Error::Unavailable(text.into()));
        }
        counts.all += 1;
        counts.of_users.insert(user, of_user + 1);
        Ok(ListenerPlace { listeners: Arc::clone(self), user })
    }
}

impl Drop for ListenerPlace {
    fn drop(&mut self) {
        let mut counts = self.listeners.counts.lock();
        counts.all -= 1;
        let left = counts.of_users.get(&self.user).map_or(0, |of_user| of_user - 1);
        match left {
            0 => counts.of_users.remove(&self.user),
            left => counts.of_users.insert(self.user, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_has_all_places_and_places_are_given_back() {
        let listeners = Arc::new(Listeners::default());
        let mut held = Vec::new();
        while let Ok(place) = listeners.take(UserId(1)) {
            held.push(place);
        }
        assert_eq!(held.len(), LISTENERS_OF_USER);
        assert!(listeners.take(UserId(2)).is_ok());
        held.pop();
        assert!(listeners.take(UserId(1)).is_ok());
        held.clear();
        let counts = listeners.counts.lock();
        assert_eq!((counts.all, counts.of_users.len()), (0, 0));
    }
}
