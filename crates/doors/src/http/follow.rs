//! GET with `follow`: sends bytes as they are added, for as long as the client stays; as they are,
//! or as one event for each line.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result, UserId};
use cairn_logs::follow::{Checker, Feed, FeedEvent, FollowRequest, From, Position, Sse};
use cairn_logs::limits::{FOLLOW_BYTES, FOLLOW_EVENTS_BYTES, LAST_LINES};
use futures_util::{StreamExt, stream};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Body;
use super::append::X_CAIRN_OFFSET;
use super::error::Failure;
use super::followers::FollowerPlace;
use super::inner::Inner;
use super::parameters::{LINES, OFFSET};
use super::target::Query;
use crate::admit::Admit;
use crate::limits::{FOLLOW_ALIVE, FOLLOW_CHECK};
use crate::serve::{Remote, Seat};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells nginx not to buffer the reply.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Returns the position at which to begin, from the query, or from the last event that a
/// reconnecting client received.
fn from(query: &Query, headers: &HeaderMap) -> Result<From> {
    let seen = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?"));
    let bad = |what: &str| Err(Error::Invalid(what.to_owned()));
    let at = |text: &str| match Position::parse(text) {
        Some(position) => Ok(From::At(position)),
        None => bad("offset, Last-Event-ID: use a number, or DAY:OFFSET of a source"),
    };
    match (query.get(OFFSET), query.get(LINES), seen) {
        (_, _, Some(seen)) if !seen.is_empty() => at(seen),
        (Some(_), Some(_), _) => bad("offset and lines: use one of them"),
        (Some(offset), None, _) => at(offset),
        (None, Some(lines), _) => Ok(From::Lines(count_of(lines)?)),
        (None, None, _) => Ok(From::End),
    }
}

/// Answers a GET with `lines`: the last lines.
pub async fn last_lines(
    door: &Inner,
    parts: &Parts,
    caller: &Caller,
    bucket: &str,
    key: &str,
    lines: &str,
) -> Result<Response<Body>> {
    check_request(parts)?;
    let (fs, count) = (door.fs(), count_of(lines)?);
    let (stream, length) = cairn_logs::follow::last_lines(fs, caller, bucket, key, count).await?;
    Ok(reply(Body::stream(stream, length), "application/octet-stream"))
}

fn count_of(lines: &str) -> Result<usize> {
    match lines.parse() {
        Ok(count @ 0..=LAST_LINES) => Ok(count),
        _ => Err(Error::Invalid(format!("lines: use a number from 0 to {LAST_LINES}"))),
    }
}

fn check_request(parts: &Parts) -> Result<()> {
    if parts.method != Method::GET {
        return Err(Error::Invalid("follow, lines: use GET".into()));
    }
    let conditions =
        [RANGE, IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
    match conditions.iter().find(|name| parts.headers.contains_key(*name)) {
        None => Ok(()),
        Some(name) => {
            Err(Error::Invalid(format!("{name} with follow or lines: use offset or lines")))
        }
    }
}

/// Returns whether the client asks for events.
fn wants_events(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}

pub async fn follow(
    door: &Inner,
    peer: Remote,
    parts: &Parts,
    caller: &Caller,
    bucket: &str,
    key: &str,
    query: &Query,
) -> Result<Response<Body>, Failure> {
    check_request(parts)?;
    let from = from(query, &parts.headers)?;
    let shares = door.followers.take(caller, peer)?;
    let feed = Feed::new(&door.tails, FollowRequest { caller, bucket, key, from }).await?;
    let place = FollowerPlace::new(shares, door.tails.counts());
    let is_events = wants_events(&parts.headers);
    let (seat, begin) = (Seat::default(), feed.begin());
    let mut looks = interval(FOLLOW_CHECK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let headers = parts.headers.clone();
    let following = Following {
        checks: Checks {
            admit: Arc::clone(&door.admit),
            headers,
            user: (!caller.is_anonymous()).then(|| caller.user()),
            checker: feed.checker(),
        },
        feed,
        events: is_events.then(Sse::default),
        looks,
        silent: Duration::ZERO,
        seat: seat.clone(),
        has_begun: false,
        _place: place,
    };
    let bytes = stream::unfold(Some(following), |following| async {
        let (bytes, rest) = following?.step().await?;
        Some((bytes, rest))
    });
    let kind = if is_events { "text/event-stream" } else { "application/octet-stream" };
    let mut reply = reply(Body::followed(bytes.boxed()), kind);
    reply.extensions_mut().insert(seat);
    if let Some(begin) = begin {
        reply.headers_mut().insert(X_CAIRN_OFFSET, HeaderValue::from(begin));
    }
    Ok(reply)
}

/// Returns a reply that browsers neither run as a program nor cache.
fn reply(body: Body, kind: &'static str) -> Response<Body> {
    let mut reply = Response::new(body);
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (X_ACCEL_BUFFERING, "no"),
        (VARY, "authorization, accept"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// The state of one follower.
struct Following {
    feed: Feed,
    checks: Checks,
    /// The conversion to events, if the client asked for them.
    events: Option<Sse>,
    looks: Interval,
    /// Time since something was last sent.
    silent: Duration,
    seat: Seat,
    has_begun: bool,
    _place: FollowerPlace,
}

/// The checks whether a client may go on.
struct Checks {
    admit: Arc<Admit>,
    headers: HeaderMap,
    /// `None` for a client without credentials.
    user: Option<UserId>,
    checker: Checker,
}

impl Checks {
    /// Returns the reason why the client may not go on. If that is unknown, the client goes on:
    /// nothing can be read then, either.
    async fn ended(&self) -> Option<&'static str> {
        if let Some(user) = self.user
            && matches!(self.admit.holds(&self.headers, user).await, Ok(false))
        {
            return Some("denied");
        }
        match self.checker.check().await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::debug!(%error, "whether somebody may follow is not known");
                None
            }
        }
    }
}

/// Bytes to send, and the state to continue with; `None` after the last bytes.
type Step = (Result<Bytes>, Option<Following>);

impl Following {
    async fn step(mut self) -> Option<Step> {
        if !self.has_begun {
            self.has_begun = true;
            if self.events.is_some() {
                return Some((Ok(Sse::begin().into()), Some(self)));
            }
        }
        loop {
            match self.wait().await {
                Came::Event(Ok(FeedEvent::End(why))) | Came::Ended(why) => return self.end(why),
                Came::Event(Ok(event)) => {
                    let bytes = self.shown(event);
                    if !bytes.is_empty() {
                        self.silent = Duration::ZERO;
                        return Some((Ok(bytes), Some(self)));
                    }
                }
                Came::Event(Err(Error::Denied(_))) => return self.end("denied"),
                Came::Event(Err(error)) => return Some((Err(error), None)),
                Came::Silence => {
                    return Some((Ok(Sse::alive().into()), Some(self)));
                }
                // The client will reconnect, perhaps to another server.
                Came::Stop => return None,
            }
        }
    }

    /// Waits for something to send. Looks meanwhile whether the client may go on.
    async fn wait(&mut self) -> Came {
        let Following { feed, checks, events, looks, silent, seat, .. } = self;
        let most = if events.is_some() { FOLLOW_EVENTS_BYTES } else { FOLLOW_BYTES };
        let mut next = Box::pin(feed.next(most));
        loop {
            tokio::select! {
                biased;
                () = seat.stopped() => return Came::Stop,
                _ = looks.tick() => {
                    seat.beat();
                    if let Some(why) = checks.ended().await {
                        return Came::Ended(why);
                    }
                    *silent += FOLLOW_CHECK;
                    if *silent >= FOLLOW_ALIVE && events.is_some() {
                        *silent = Duration::ZERO;
                        return Came::Silence;
                    }
                }
                event = &mut next => return Came::Event(event),
            }
        }
    }

    fn shown(&mut self, event: FeedEvent) -> Bytes {
        match (&mut self.events, event) {
            (None, FeedEvent::Bytes { bytes, .. }) => bytes,
            (None, _) | (_, FeedEvent::End(_)) => Bytes::new(),
            (Some(events), FeedEvent::Opened { day, at }) => events.opened(day, at).into(),
            (Some(events), FeedEvent::Bytes { day, bytes }) => events.bytes(day, &bytes).into(),
            (Some(events), FeedEvent::Closed { day }) => {
                events.closed(day);
                Bytes::new()
            }
        }
    }

    fn end(self, why: &'static str) -> Option<Step> {
        self.events.is_some().then(|| (Ok(Sse::end(why).into()), None))
    }
}

/// The event that ended a follower's wait.
enum Came {
    Event(Result<FeedEvent>),
    /// The follower may not go on, for this reason.
    Ended(&'static str),
    /// Nothing was sent for long.
    Silence,
    /// The server stops.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_begin_is_said_once() {
        let seen = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LAST_EVENT_ID, HeaderValue::from_str(text).unwrap());
            headers
        };
        let begin = |query: &str, headers: &HeaderMap| {
            super::from(&Query::parse(Some(query)).unwrap(), headers)
        };
        let none = HeaderMap::new();
        assert_eq!(begin("follow", &none).unwrap(), From::End);
        assert_eq!(begin("follow&lines=10", &none).unwrap(), From::Lines(10));
        let at = |at| From::At(Position::Offset(at));
        assert_eq!(begin("follow&offset=7", &none).unwrap(), at(7));
        // A browser sends the same query again.
        assert_eq!(begin("follow&lines=10", &seen("9")).unwrap(), at(9));
        assert_eq!(begin("follow&lines=10", &seen("")).unwrap(), From::Lines(10));
        for bad in ["lines=x", "lines=-1", "lines=10001", "offset=", "offset=1&lines=1"] {
            assert!(begin(bad, &none).is_err(), "{bad}");
        }
        assert!(begin("follow", &seen("x")).is_err());
    }

    #[test]
    fn events_are_asked_for_by_their_type() {
        let accepts = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(value));
            wants_events(&headers)
        };
        assert!(accepts("text/event-stream") && accepts("a/b, Text/Event-Stream;q=1"));
        assert!(!accepts("*/*") && !wants_events(&HeaderMap::new()));
    }
}
