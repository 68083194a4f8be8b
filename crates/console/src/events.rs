//! Events for open pages, as `text/event-stream`.
//!
//! It is not: a place that knows the subjects of events. A page gives a stream of events, or of
//! their bytes; it is sent here as long as the page is open, the login holds and the server runs.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, TokenHash, hash_token};
use cairn_base::{Timestamp, UserId};
use cairn_doors::serve::Seat;
use cairn_fs::ops::logins::FindLogin;
use cairn_fs::{Fs, Watching};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::inner::{Inner, LoggedIn};
use crate::limits::{IDLE, LISTENER_ALIVE, LISTENER_BEAT, LISTENER_LOGIN};
use crate::listeners::ListenerPlace;
use crate::reply::{self, Reply};

/// An event that is sent to a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub name: &'static str,
    /// Id of the last event that a browser has seen, which it sends when it reconnects; empty for
    /// none. One line.
    pub id: String,
    pub data: String,
}

impl Event {
    pub fn bytes(&self) -> Bytes {
        let mut text = format!("event: {}\n", self.name);
        if !self.id.is_empty() {
            text.push_str(&format!("id: {}\n", self.id));
        }
        for line in self.data.split('\n') {
            text.push_str(&format!("data: {line}\n"));
        }
        text.push('\n');
        text.into()
    }
}

impl From<Event> for Bytes {
    fn from(event: Event) -> Bytes {
        event.bytes()
    }
}

/// The browser reconnects after two seconds.
const BEGIN: &[u8] = b"retry: 2000\n\n";
const ALIVE: &[u8] = b": alive\n\n";
/// The login has ended: the page must not reconnect.
const END: &[u8] = b"event: end\ndata: {\"reason\":\"login\"}\n\n";

/// Sends `source` until it ends, the page is closed, the login ends or the server stops.
///
/// # Errors
/// `Unavailable` if too many pages listen.
pub fn reply(
    inner: &Inner,
    login: &LoggedIn,
    source: impl Stream<Item: Into<Bytes>> + Send + 'static,
) -> Result<Reply, Failure> {
    let place = inner.listeners.take(login.user)?;
    let seat = Seat::default();
    let mut beats = interval(LISTENER_BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listening = Listening {
        source: source.map(Into::into).boxed(),
        login: OpenLogin::of(inner, login),
        beats,
        silent: Duration::ZERO,
        unchecked: Duration::ZERO,
        seat: seat.clone(),
        _place: place,
    };
    let begin = stream::iter([Bytes::from_static(BEGIN)]);
    let events = stream::unfold(Some(listening), |listening| async {
        let (bytes, listening) = listening?.step().await?;
        Some((bytes, listening))
    });
    let mut reply = reply::events(begin.chain(events).boxed());
    reply.extensions_mut().insert(seat);
    Ok(reply)
}

/// Login of an open page.
struct OpenLogin {
    fs: Fs,
    user: UserId,
    hash: TokenHash,
    changes: Watching,
}

impl OpenLogin {
    fn of(inner: &Inner, login: &LoggedIn) -> OpenLogin {
        let (fs, user, hash) = (inner.fs().clone(), login.user, hash_token(login.secret.expose()));
        let changes = fs.watch_login(user, &hash, &login.credential);
        OpenLogin { fs, user, hash, changes }
    }

    /// Returns true if the login still holds. If that is unknown, the page goes on: it gets no news
    /// then.
    async fn holds(&self) -> bool {
        let verb = FindLogin { user: self.user, hash: self.hash };
        match self.fs.read(&Caller::system(), verb).await {
            Ok(Some(found)) => {
                let now = self.fs.clock().now();
                let idle = Timestamp(now.0.saturating_sub(IDLE.as_nanos() as i64));
                now < found.expires && found.seen >= idle
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, "whether a login holds is not known");
                true
            }
        }
    }
}

/// A page that receives events.
struct Listening {
    source: BoxStream<'static, Bytes>,
    login: OpenLogin,
    beats: Interval,
    /// Time since something was sent, and time since the login was checked.
    silent: Duration,
    unchecked: Duration,
    seat: Seat,
    _place: ListenerPlace,
}

/// Events of the wait of a page.
enum Came {
    Event(Option<Bytes>),
    /// The login may have ended.
    Doubt,
    /// Nothing was sent for a long time.
    Silence,
    /// The server stops.
    Stop,
}

impl Listening {
    /// Returns the bytes to send, and the state afterwards; nothing after the last bytes.
    async fn step(mut self) -> Option<(Bytes, Option<Listening>)> {
        loop {
            match self.wait().await {
                Came::Event(Some(event)) => {
                    self.silent = Duration::ZERO;
                    return Some((event, Some(self)));
                }
                Came::Doubt => {
                    self.unchecked = Duration::ZERO;
                    if !self.login.holds().await {
                        return Some((Bytes::from_static(END), None));
                    }
                }
                Came::Silence => {
                    self.silent = Duration::ZERO;
                    return Some((Bytes::from_static(ALIVE), Some(self)));
                }
                // The page reconnects, perhaps to another server.
                Came::Event(None) | Came::Stop => return None,
            }
        }
    }

    async fn wait(&mut self) -> Came {
        let Listening { source, login, beats, silent, unchecked, seat, .. } = self;
        let mut doubt = pin!(login.changes.changed());
        loop {
            tokio::select! {
                biased;
                () = seat.stopped() => return Came::Stop,
                () = &mut doubt => return Came::Doubt,
                _ = beats.tick() => {
                    seat.beat();
                    *silent += LISTENER_BEAT;
                    *unchecked += LISTENER_BEAT;
                    if *unchecked >= LISTENER_LOGIN {
                        return Came::Doubt;
                    }
                    if *silent >= LISTENER_ALIVE {
                        return Came::Silence;
                    }
                }
                event = source.next() => return Came::Event(event),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_lines_with_their_names() {
        let event = Event { name: "changed", id: "7".into(), data: "a\nb".into() };
        assert_eq!(event.bytes(), "event: changed\nid: 7\ndata: a\ndata: b\n\n");
        let plain = Event { name: "tick", id: String::new(), data: String::new() };
        assert_eq!(plain.bytes(), "event: tick\ndata: \n\n");
    }
}
