//! One side of a connection as the program sees it: calls, from many tasks at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result, Role, stage};
use cairn_meta::Watched;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::frame::{HEADER_BYTES, Kind};
use super::hello::Window;
use super::link::PeerIdentity;
use super::outbox::{Outbox, Payload};
use super::program::NodeProgram;
use super::slots::{FreedWindow, OpenCalls};
use crate::limits::PAYLOAD_BYTES;

/// Identity of the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    pub authenticated: PeerIdentity,
    /// Role in which it speaks.
    pub role: Role,
    /// Version of the protocol that both sides speak.
    pub version: u16,
    /// Program that it names.
    pub program: Arc<NodeProgram>,
    /// Number of this connection, among all that this process has had.
    pub connection: u64,
}

impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerIdentity { node, address, .. } = &self.authenticated;
        write!(f, "{} {node} at {address}", self.role)
    }
}

/// A connection to a peer, over which the peer is called. Cheap to clone.
///
/// A dialed connection ends when its last `Peer` is dropped; an accepted connection does not.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<PeerShared>,
    _dialed: Option<Arc<DialedHandle>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.shared.info)
    }
}

/// Ends a dialed connection with its last handle.
struct DialedHandle(Arc<PeerShared>);

impl Drop for DialedHandle {
    fn drop(&mut self) {
        self.0.ask_to_end("closed by this node");
    }
}

/// Reason why a call has no reply.
#[derive(Debug)]
pub enum CallFailure {
    /// The request never left this node: it can be sent elsewhere.
    NotSent(Error),
    /// The peer answered this error, or the outcome is unknown.
    Sent(Error),
}

impl From<CallFailure> for Error {
    fn from(failed: CallFailure) -> Error {
        match failed {
            CallFailure::NotSent(error) | CallFailure::Sent(error) => error,
        }
    }
}

impl Peer {
    pub(super) fn new(shared: &Arc<PeerShared>, dialed: bool) -> Peer {
        let handle = dialed.then(|| Arc::new(DialedHandle(Arc::clone(shared))));
        Peer { shared: Arc::clone(shared), _dialed: handle }
    }

    pub fn info(&self) -> &PeerInfo {
        &self.shared.info
    }

    /// Calls the peer and waits for its reply. Waits for room first if the peer's window is full.
    /// Dropping the future does not take the request back. The request carries the trace of the
    /// request that is being worked on here, if there is one ([`stage::trace`]).
    ///
    /// # Errors
    /// The error that the peer answered. `Unavailable` if no answer came in time or the connection
    /// ended: its text says whether the outcome is unknown or the request was not sent. `TooLarge`.
    pub async fn call(&self, method: u16, payload: Bytes, timeout: Duration) -> Result<Bytes> {
        Ok(self.attempt(method, payload, timeout).await?)
    }

    /// Calls like [`Peer::call`]; the error says whether a failed request was sent.
    pub async fn attempt(
        &self,
        method: u16,
        payload: impl Into<Payload>,
        timeout: Duration,
    ) -> Result<Bytes, CallFailure> {
        let (payload, deadline) = (payload.into(), Instant::now() + timeout);
        let cost = self.shared.room(&payload, deadline).await.map_err(CallFailure::NotSent)?;
        let id = self.shared.send(method, payload, cost, deadline, timeout)?;
        Call { shared: &self.shared, id }.await.map_err(CallFailure::Sent)
    }

    /// Calls the peer without waiting for the reply, only for room. It is never known whether the
    /// request arrives.
    pub async fn tell(&self, method: u16, payload: Bytes, timeout: Duration) -> Result<()> {
        let (payload, deadline) = (Payload::from(payload), Instant::now() + timeout);
        let cost = self.shared.room(&payload, deadline).await?;
        let id = self.shared.send(method, payload, cost, deadline, timeout)?;
        self.shared.state.lock().slots.abandon(id);
        Ok(())
    }

    /// Returns true if a new call can be sent: the connection stands, and the peer takes more.
    pub fn is_usable(&self) -> bool {
        let state = self.shared.state.lock();
        state.ended.is_none() && state.leaving.is_none() && !state.end_asked
    }

    /// Tells the peer to send no more requests here, because of `reason`. Its requests are still
    /// answered; the peer ends the connection when it has all answers. A caller that does not want
    /// to wait for that calls [`Peer::close`] later.
    pub fn go_away(&self, reason: &Error) {
        let mut state = self.shared.state.lock();
        if state.ended.is_some() {
            return;
        }
        state.out.push(Kind::GoAway, 0, 0, reason.to_bytes());
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Ends the connection now. Calls that wait fail; answers not yet written are lost.
    pub fn close(&self) {
        self.shared.ask_to_end("closed by this node");
    }

    /// Waits for the end of the connection, and returns its reason.
    pub async fn closed(&self) -> Error {
        self.shared.has_ended.wait_for(|ended| ended.then_some(())).await;
        self.shared.why_not_sent()
    }
}

/// The state that a connection's driver and its callers share.
pub(super) struct PeerShared {
    pub info: PeerInfo,
    /// Most that the peer allows to be outstanding.
    window: Window,
    /// Set if requests to the peer may have traces.
    reads_traces: bool,
    calls: Semaphore,
    bytes: Semaphore,
    pub state: Mutex<PeerState>,
    pub has_ended: Watched<bool>,
}

#[derive(Default)]
pub(super) struct PeerState {
    pub slots: OpenCalls,
    pub out: Outbox,
    /// Wakes the driver, if it sleeps.
    pub driver: Option<Waker>,
    /// Reason why the peer wants no further requests, if so.
    pub leaving: Option<Error>,
    /// Set when the driver is to end the connection.
    pub end_asked: bool,
    /// Reason why the connection has ended, if so.
    pub ended: Option<String>,
}

impl PeerShared {
    pub fn new(info: PeerInfo, window: Window, reads_traces: bool) -> PeerShared {
        // A window of nothing would stop everything; a single request may exceed it.
        let window = Window { calls: window.calls.max(1), bytes: window.bytes.max(1) };
        PeerShared {
            info,
            window,
            reads_traces,
            calls: Semaphore::new(window.calls as usize),
            bytes: Semaphore::new(window.bytes as usize),
            state: Mutex::default(),
            has_ended: Watched::new(false),
        }
    }

    /// Waits until the window of the peer has room for this request. Returns its cost, which the
    /// answer gives back.
    async fn room(&self, payload: &Payload, deadline: Instant) -> Result<u32> {
        if payload.len() > PAYLOAD_BYTES {
            let text = format!("a request of {} bytes, at most {PAYLOAD_BYTES}", payload.len());
            return Err(Error::TooLarge(text));
        }
        // A call that exceeds the whole window waits until nothing else is outstanding.
        let cost = ((HEADER_BYTES + payload.len()) as u32).min(self.window.bytes);
        let (call, bytes) = match (self.calls.try_acquire(), self.bytes.try_acquire_many(cost)) {
            (Ok(call), Ok(bytes)) => (call, bytes),
            _ => {
                let waited = timeout_at(deadline, self.wait_for_room(cost)).await;
                waited.map_err(|_| self.no_room())??
            }
        };
        call.forget();
        bytes.forget();
        Ok(cost)
    }

    async fn wait_for_room(&self, cost: u32) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        let call = self.calls.acquire().await.map_err(|_| self.why_not_sent())?;
        let bytes = self.bytes.acquire_many(cost).await.map_err(|_| self.why_not_sent())?;
        Ok((call, bytes))
    }

    fn no_room(&self) -> Error {
        let Window { calls, .. } = self.window;
        Error::Unavailable(format!(
            "{}: {calls} calls, or their bytes, have waited for answers for too long; this \
                call was not sent",
            self.info
        ))
    }

    fn why_not_sent(&self) -> Error {
        let state = self.state.lock();
        let why = match (&state.ended, &state.leaving) {
            (Some(reason), _) => reason.clone(),
            (None, Some(reason)) => format!("{} goes away: {reason}", self.info),
            (None, None) => format!("{}: closed by this node", self.info),
        };
        Error::Unavailable(format!("{why}; not sent"))
    }

    fn send(
        &self,
        method: u16,
        payload: Payload,
        cost: u32,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<u64, CallFailure> {
        let trace = stage::trace().filter(|_| self.reads_traces);
        let mut state = self.state.lock();
        if state.ended.is_some() || state.leaving.is_some() || state.end_asked {
            drop(state);
            self.release(FreedWindow { calls: 1, bytes: cost as usize });
            return Err(CallFailure::NotSent(self.why_not_sent()));
        }
        let id = state.slots.begin(cost, deadline, timeout);
        state.out.push_request(method, id, trace.as_ref(), payload);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        Ok(id)
    }

    /// Gives room back.
    pub fn release(&self, freed: FreedWindow) {
        if freed.calls > 0 {
            self.calls.add_permits(freed.calls);
            self.bytes.add_permits(freed.bytes);
        }
    }

    fn ask_to_end(&self, why: &str) {
        let mut state = self.state.lock();
        if state.ended.is_none() && !state.end_asked {
            tracing::debug!(peer = %self.info, why, "connection is to end");
            state.end_asked = true;
        }
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    /// Notes that the connection has ended, and fails the calls that wait for answers and for room.
    pub fn end(&self, reason: &Error) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state.lock();
            let text = format!("connection to {} ended: {reason}", self.info);
            state.slots.fail(&text, &mut wakers);
            state.out.clear();
            state.driver = None;
            state.ended = Some(text);
        }
        self.calls.close();
        self.bytes.close();
        wakers.into_iter().for_each(Waker::wake);
        self.has_ended.set(true);
    }
}

/// Waits for the answer to a call that was sent.
struct Call<'a> {
    shared: &'a PeerShared,
    id: u64,
}

impl Future for Call<'_> {
    type Output = Result<Bytes>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Bytes>> {
        self.shared.state.lock().slots.poll(self.id, context.waker())
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().slots.abandon(self.id);
    }
}
