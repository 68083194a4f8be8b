//! The body of a request, with a limit on the wait for its next bytes, and a minimum rate while
//! others wait for the room that it holds.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_base::stage::{self, StageGuard};
use cairn_base::{Party, Shares, Stage};
use cairn_fs::Account;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::limits::{self, Limits};
use crate::pacing::{Pacing, PacingAccount, with_held};
use crate::places::{NoPlace, Place};
use crate::pulse::{AwaitedBody, Pulse};

/// A request's body as it arrives.
pub struct Upload {
    incoming: Incoming,
    idle: Duration,
    window: Duration,
    /// Beginning of the wait for bytes, and the timer of its deadline; only during a wait.
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The pace of an upload that holds room which it shares with others.
    pace: Option<Pace>,
    /// The pacing of a user that has a limit of bytes.
    pacing: Option<Pacing>,
    /// Present while bytes are awaited.
    waiting: Option<(StageGuard, AwaitedBody)>,
    /// The connection by which it arrives.
    pulse: Arc<Pulse>,
    is_http2: bool,
    /// The place of its request, if the request has one.
    place: Option<Place>,
    /// Set when bytes are requested from a client that waits for `100 Continue`.
    asked: Option<Arc<AtomicBool>>,
}

/// The reason why a body did not reach its end.
#[derive(Debug)]
pub enum UploadError {
    /// No bytes arrived for this long.
    Idle(Duration),
    /// Fewer bytes arrived in this time than required while others wait for room.
    Slow(Duration, u64),
    /// The connection broke, or the bytes were not a body.
    Broken(hyper::Error),
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UploadError::Idle(idle) => write!(f, "the body stalled for {} s", idle.as_secs()),
            UploadError::Slow(window, least) => write!(
                f,
                "others wait for the room that this upload holds, and fewer than {least} bytes of \
                 it came in {} s: send it again, faster or later",
                window.as_secs()
            ),
            UploadError::Broken(error) => write!(f, "the body was cut short: {error}"),
        }
    }
}

impl std::error::Error for UploadError {}

/// The rate of an upload while its bytes are awaited: time that the store takes for its own work
/// does not count.
struct Pace {
    room: Arc<Shares>,
    party: Party,
    window: Duration,
    /// Beginning of the present wait, and the time waited before in this window.
    since: Option<Instant>,
    waited: Duration,
    /// Bytes that arrived in this window.
    bytes: u64,
    has_begun: bool,
}

impl Pace {
    fn least(&self) -> u64 {
        (self.window.as_secs_f64() * limits::UPLOAD_LEAST_RATE as f64) as u64
    }

    /// Returns the time at which the window ends if nothing arrives.
    fn over(&mut self, now: Instant) -> Instant {
        let since = *self.since.get_or_insert(now);
        since + self.window.saturating_sub(self.waited)
    }

    /// Counts the bytes that arrived after a wait, which may be 0.
    ///
    /// # Errors
    /// `Slow` if the upload is too slow.
    fn count(&mut self, bytes: u64, now: Instant) -> Result<(), UploadError> {
        if let Some(since) = self.since.take() {
            self.waited += now - since;
        }
        self.bytes += bytes;
        self.has_begun |= bytes > 0;
        if self.waited < self.window {
            return Ok(());
        }
        let least = self.least();
        let is_slow = self.has_begun && self.bytes < least;
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        if is_slow && self.room.is_wanted_of(self.party) {
            Err(UploadError::Slow(self.window, least))
        } else {
            Ok(())
        }
    }
}

impl Upload {
    pub(crate) fn new(incoming: Incoming, limits: &Limits, pulse: &Arc<Pulse>) -> Upload {
        Upload {
            incoming,
            pulse: Arc::clone(pulse),
            is_http2: false,
            place: None,
            idle: limits.upload_idle,
            window: limits.upload_window,
            since: None,
            timer: None,
            pace: None,
            pacing: None,
            waiting: None,
            asked: None,
        }
    }

    /// Sets the version of HTTP. In HTTP/2 an unread body blocks no other request.
    pub(crate) fn by_http2(mut self, is_http2: bool) -> Upload {
        self.is_http2 = is_http2;
        self
    }

    /// Sets the place of the request.
    pub(crate) fn takes(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Counts the request by its user from here on, once the user has been verified.
    ///
    /// # Errors
    /// The user has its full part of the places already. The request should be refused.
    pub fn admit(&self, caller: &Caller) -> Result<(), NoPlace> {
        match (&self.place, caller.principal()) {
            (Some(place), Principal::User(user)) => place.admit(user),
            (Some(place), _) => place.disown(),
            (None, _) => Ok(()),
        }
    }

    /// Counts the request as anonymous, as its credentials are wrong.
    ///
    /// # Errors
    /// There is no place for a further anonymous request from this address: the reply should not be
    /// delayed.
    pub fn disown(&self) -> Result<(), NoPlace> {
        self.place.as_ref().map_or(Ok(()), Place::disown)
    }

    /// Makes the upload share `room`: then it has to arrive fast enough while others wait for room.
    pub fn shares(&mut self, room: &Arc<Shares>, party: Party) {
        self.pace = Some(Pace {
            room: Arc::clone(room),
            party,
            window: self.window,
            since: None,
            waited: Duration::ZERO,
            bytes: 0,
            has_begun: false,
        });
    }

    /// Sets the account whose limit of bytes this counts against.
    pub(crate) fn counts_for(&mut self, account: Arc<Account>) {
        self.pacing = Some(PacingAccount::new(account).begin());
    }

    /// Counts a frame that has come.
    fn counted(
        &mut self,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<Frame<Bytes>, UploadError>> {
        let has_waited = self.since.is_some();
        (self.timer, self.waiting, self.since) = (None, None, None);
        let frame = match frame? {
            Ok(frame) => frame,
            Err(error) => return Some(Err(UploadError::Broken(error))),
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.pulse.count(bytes);
        if let Some(pace) = &mut self.pace {
            if has_waited {
                if let Err(slow) = pace.count(bytes, Instant::now()) {
                    return Some(Err(slow));
                }
            } else {
                pace.bytes += bytes;
                pace.has_begun |= bytes > 0;
            }
        }
        Some(Ok(frame))
    }

    /// Returns the next bytes, as they arrive.
    fn poll_incoming(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            return Poll::Ready(self.counted(frame));
        }
        let pulse = &self.pulse;
        self.waiting
            .get_or_insert_with(|| (stage::enter(Stage::Receive), Pulse::await_body(pulse)));
        self.poll_late(context).map(|late| Some(Err(late)))
    }

    /// Returns the number of bytes that have arrived and wait because of the user's limit.
    fn held(&self) -> u64 {
        self.pacing.as_ref().map_or(0, Pacing::held)
    }

    /// Waits for the next bytes, but not indefinitely.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<UploadError> {
        loop {
            let now = Instant::now();
            let since = *self.since.get_or_insert(now);
            let idle = since + self.idle;
            let until = self.pace.as_mut().map_or(idle, |pace| pace.over(now).min(idle));
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
            let now = Instant::now();
            if now >= idle {
                return Poll::Ready(UploadError::Idle(self.idle));
            }
            if let Some(Err(slow)) = self.pace.as_mut().map(|pace| pace.count(0, now)) {
                return Poll::Ready(slow);
            }
        }
    }

    /// Returns a flag that becomes true once `100 Continue` was sent. It never does for an empty
    /// body.
    pub fn watch_continue(&mut self) -> Arc<AtomicBool> {
        Arc::clone(self.asked.get_or_insert_default())
    }

    /// Returns the length that the client announced; `None` if the body ends when the client is
    /// done.
    pub fn announced(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// Reads the rest of a refused upload in the background, for a while. Must not be called for a
    /// client that waits for `100 Continue`: this would ask for the body. Returns false if the rest
    /// is too long: then the connection ends, and the client should be notified. A request of
    /// HTTP/2 ends alone.
    pub fn linger(mut self) -> bool {
        if self.is_end_stream() || self.is_http2 {
            return true;
        }
        let ends = self.announced().unwrap_or(0) <= limits::LINGER_BYTES;
        tokio::spawn(async move {
            let drained = async {
                let mut left = limits::LINGER_BYTES;
                while let Some(Ok(frame)) = self.frame().await {
                    let taken = frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
                    match left.checked_sub(taken) {
                        Some(rest) => left = rest,
                        None => return,
                    }
                }
            };
            // Either way the body is dropped, and with it the connection if the body has not
            // reached its end.
            let _ = timeout(limits::LINGER, drained).await;
        });
        ends
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(asked) = self.asked.take() {
            asked.store(!self.incoming.is_end_stream(), Ordering::Relaxed);
        }
        // Bytes that wait because of the user's limit are not late.
        let Some(mut pacing) = self.pacing.take() else { return self.poll_incoming(context) };
        let polled = pacing.poll_frame(context, |context| self.poll_incoming(context));
        self.pacing = Some(pacing);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.held() == 0 && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_held(self.incoming.size_hint(), self.held())
    }
}
