//! How many pages hear of changes at the same time.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::{Error, UserId};
use parking_lot::Mutex;

use crate::limits::{LISTENERS, LISTENERS_OF_USER};

/// The pages that hear of changes now.
#[derive(Default)]
pub struct Listeners(Mutex<ListenerCounts>);

#[derive(Default)]
struct ListenerCounts {
    all: usize,
    of_users: HashMap<UserId, usize>,
}

/// The place of one page.
pub struct ListenerPlace {
    listeners: Arc<Listeners>,
    user: UserId,
}

impl Listeners {
    /// # Errors
    /// `Unavailable` if there are too many.
    pub fn take(self: &Arc<Self>, user: UserId) -> Result<ListenerPlace, Error> {
        let mut counts = self.0.lock();
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
        let mut counts = self.listeners.0.lock();
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
        let counts = listeners.0.lock();
        assert_eq!((counts.all, counts.of_users.len()), (0, 0));
    }
}
