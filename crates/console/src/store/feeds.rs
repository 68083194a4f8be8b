//! Events of pages: a task makes those of one screen for all pages that show it, as long as there
//! are any.

use std::collections::HashMap;
use std::sync::Weak;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::screen::{Parts, Screen};
use crate::events::Event;
use crate::inner::Inner;

/// The screens that somebody looks at.
#[derive(Default)]
pub struct Feeds(Mutex<HashMap<Screen, Feed>>);

struct Feed {
    latest: watch::Sender<Bytes>,
    task: JoinHandle<()>,
}

impl Feeds {
    /// Events of a screen: each has all its parts. The first one is empty.
    pub fn follow(&self, inner: &Weak<Inner>, screen: Screen) -> watch::Receiver<Bytes> {
        let mut feeds = self.0.lock();
        if let Some(feed) = feeds.get(&screen)
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
        let task = tokio::spawn(run(Weak::clone(inner), screen));
        feeds.insert(screen, Feed { latest, task });
        receiver
    }

    /// Whether anybody follows a screen still. Where nobody does, its feed is gone.
    fn is_followed(&self, screen: Screen) -> bool {
        let mut feeds = self.0.lock();
        let is_followed = feeds.get(&screen).is_some_and(|feed| feed.latest.receiver_count() > 0);
        if !is_followed {
            feeds.remove(&screen);
        }
        is_followed
    }

    fn tell(&self, screen: Screen, event: Bytes) {
        if let Some(feed) = self.0.lock().get(&screen) {
            feed.latest.send_if_modified(|known| {
                let is_new = *known != event;
                *known = event;
                is_new
            });
        }
    }
}

async fn run(inner: Weak<Inner>, screen: Screen) {
    let mut ticks = interval(screen.period());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let feeds = &inner.store.feeds;
        if !feeds.is_followed(screen) {
            return;
        }
        match screen.parts(&inner).await {
            Ok(parts) => feeds.tell(screen, event(&parts)),
            // The page keeps what it has; health says so where it lasts.
            Err(error) => tracing::debug!(%error, ?screen, "a page of the console is not renewed"),
        }
    }
}

/// An event with all parts of a page.
fn event(parts: &Parts) -> Bytes {
    let texts: HashMap<&str, &str> =
        parts.iter().map(|(id, part)| (*id, part.0.as_str())).collect();
    let json = serde_json::to_string(&texts).expect("text can be JSON");
    Event { name: "parts", id: String::new(), data: json }.bytes()
}
