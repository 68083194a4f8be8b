//! Events of a page for one browser: a task makes them for all browsers that show it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::Result;
use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval};

use super::screen::{Parts, Screen};
use super::{admit, cluster, doctor, mounts, overview, requests, scrub};
use crate::events::{self, Event};
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::looks::sampler;
use crate::reply::Reply;

/// Answers `GET /store/live?screen=...`.
pub async fn follow(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let query = of.asked.query()?;
    let screen = Screen::of(query.get("screen")).ok_or(Failure::NoPage)?;
    let task = run(Weak::clone(&of.inner.own), screen);
    let latest = of.inner.looks.feeds.follow(screen.id(), task);
    let parts = stream::unfold(latest, |mut latest| async {
        // If its task failed, the browser reconnects.
        latest.changed().await.ok()?;
        let event = latest.borrow_and_update().clone();
        Some((event, latest))
    });
    events::reply(of.inner, of.login, parts)
}

async fn run(inner: Weak<Inner>, screen: Screen) {
    let mut ticks = interval(period(screen));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let feeds = &inner.looks.feeds;
        if !feeds.is_followed(screen.id()) {
            return;
        }
        match parts(screen, &inner).await {
            Ok(parts) => feeds.tell(screen.id(), event(&parts)),
            // The page stays as it is; the page of health shows a lasting failure.
            Err(error) => tracing::debug!(%error, ?screen, "a page of the console is not renewed"),
        }
    }
}

/// Returns the interval at which a page is made anew while a browser shows it.
fn period(screen: Screen) -> Duration {
    match screen {
        Screen::Doctor => doctor::PERIOD,
        _ => sampler::PERIOD,
    }
}

/// Makes the parts of a page.
///
/// # Errors
/// Those of making the page.
async fn parts(screen: Screen, inner: &Arc<Inner>) -> Result<Parts> {
    match screen {
        Screen::Overview => Ok(overview::parts(inner).await),
        Screen::Requests => requests::parts(inner).await,
        Screen::Mounts => mounts::parts(inner).await,
        Screen::Cluster => cluster::parts(inner).await,
        Screen::Scrub => Ok(scrub::parts(inner).await),
        Screen::Doctor => doctor::parts(inner).await,
        // A tail has separate events.
        Screen::Logs => Ok(Parts::new()),
    }
}

/// Makes an event with all parts of a page.
fn event(parts: &Parts) -> Bytes {
    let texts: HashMap<&str, &str> =
        parts.iter().map(|(id, part)| (*id, part.0.as_str())).collect();
    let json = serde_json::to_string(&texts).expect("text can be JSON");
    Event { name: "parts", id: String::new(), data: json }.bytes()
}
