//! Events of pages: one task makes the events of a screen for all pages that show it, as long as
//! there are any.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Followed screens, by their ids.
#[derive(Default)]
pub struct Feeds(Mutex<HashMap<&'static str, Feed>>);

struct Feed {
    latest: watch::Sender<Bytes>,
    task: JoinHandle<()>,
}

impl Feeds {
    /// Follows the events of a screen; each event has all its parts. The first event is empty. If
    /// no page follows the screen yet, `make` becomes a task.
    pub fn follow(
        &self,
        screen: &'static str,
        make: impl Future<Output = ()> + Send + 'static,
    ) -> watch::Receiver<Bytes> {
        let mut feeds = self.0.lock();
        if let Some(feed) = feeds.get(screen)
            && !feed.task.is_finished()
        {
            let mut receiver = feed.latest.subscribe();
            // The page may be older than the last event.
            if !receiver.borrow().is_empty() {
                receiver.mark_changed();
            }
            return receiver;
        }
        let (latest, receiver) = watch::channel(Bytes::new());
        let task = tokio::spawn(make);
        feeds.insert(screen, Feed { latest, task });
        receiver
    }

    /// Returns true if any page still follows a screen. Otherwise removes its feed.
    pub fn is_followed(&self, screen: &str) -> bool {
        let mut feeds = self.0.lock();
        let is_followed = feeds.get(screen).is_some_and(|feed| feed.latest.receiver_count() > 0);
        if !is_followed {
            feeds.remove(screen);
        }
        is_followed
    }

    pub fn tell(&self, screen: &str, event: Bytes) {
        if let Some(feed) = self.0.lock().get(screen) {
            feed.latest.send_if_modified(|known| {
                let is_new = *known != event;
                *known = event;
                is_new
            });
        }
    }
}
