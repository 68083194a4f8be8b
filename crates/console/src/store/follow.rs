//! The events of a page, to one browser, for as long as its user may see them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Party, Share, UserId};
use cairn_doors::serve::{Remote, Seat};
use futures_util::stream;
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::admit;
use super::screen::Screen;
use crate::failure::Failure;
use crate::inner::{For, Inner};
use crate::limits;
use crate::reply::{self, Reply};

/// Nothing was said for long: the connection is alive.
pub const ALIVE: Bytes = Bytes::from_static(b": alive\n\n");
/// The login is over, or is no more than that: the page is to be loaded again.
const END: Bytes = Bytes::from_static(b"event: end\ndata: {\"reason\":\"login\"}\n\n");

/// `GET /store/live?screen=...`
pub async fn follow(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let query = of.asked.query()?;
    let screen = Screen::of(query.get("screen")).ok_or(Failure::NoPage)?;
    let held = place(of)?;
    let latest = of.inner.store.feeds.follow(&of.inner.own, screen);
    let mut checks = interval(limits::LIVE_CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let seat = Seat::default();
    let follower = Follower {
        standing: Standing::of(of)?,
        latest,
        checks,
        silent: Duration::ZERO,
        seat: seat.clone(),
        _place: held,
    };
    let events = stream::unfold(Some(follower), |follower| async { follower?.step().await });
    let mut reply = reply::events(events);
    reply.extensions_mut().insert(seat);
    Ok(reply)
}

/// A place among the pages that get events.
///
/// # Errors
/// `Unavailable` where there are too many of them.
pub fn place(of: &For<'_>) -> Result<Share, Error> {
    let place = of.inner.store.places.take_now(Party::User(of.login.user), 1);
    place.ok_or_else(|| {
        Error::Unavailable("too many pages of the store are open: close some of them".into())
    })
}

struct Follower {
    standing: Standing,
    latest: watch::Receiver<Bytes>,
    checks: Interval,
    /// How long nothing was sent.
    silent: Duration,
    seat: Seat,
    _place: Share,
}

/// By what one may go on.
pub struct Standing {
    inner: Arc<Inner>,
    headers: HeaderMap,
    peer: Remote,
    user: UserId,
}

impl Standing {
    pub fn of(of: &For<'_>) -> Result<Standing, Failure> {
        let inner = of.inner.own.upgrade().ok_or(Failure::NoPage)?;
        let headers = of.asked.parts.headers.clone();
        Ok(Standing { inner, headers, peer: of.asked.peer, user: of.login.user })
    }

    /// Whether the login is there still, and its user may. That is no use of the login: a page that
    /// is left open does not keep it. While the store does not answer nobody knows, and nothing
    /// comes either.
    pub async fn holds(&self) -> bool {
        match self.inner.find_login(&self.headers, self.peer).await {
            Ok(Some((login, _))) => login.user == self.user && admit(&login).is_ok(),
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, "whether a login goes on is not known");
                true
            }
        }
    }
}

impl Follower {
    /// The next bytes, and the rest; nothing when the server stops.
    async fn step(mut self) -> Option<(Bytes, Option<Follower>)> {
        loop {
            tokio::select! {
                biased;
                () = self.seat.stopped() => return None,
                _ = self.checks.tick() => {
                    self.seat.beat();
                    if !self.standing.holds().await {
                        return Some((END, None));
                    }
                    self.silent += limits::LIVE_CHECK;
                    if self.silent >= limits::LIVE_ALIVE {
                        self.silent = Duration::ZERO;
                        return Some((ALIVE, Some(self)));
                    }
                }
                changed = self.latest.changed() => {
                    // Its task failed: the browser comes again.
                    changed.ok()?;
                    let event = self.latest.borrow_and_update().clone();
                    self.silent = Duration::ZERO;
                    return Some((event, Some(self)));
                }
            }
        }
    }
}
