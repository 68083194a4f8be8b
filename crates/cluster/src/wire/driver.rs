//! Driver of a connection: one task that reads, answers, and writes.
//!
//! One task does all three, because then requests that were read at once are answered with one
//! write, and no task waits for a lock on the stream. Reading never stops while the connection
//! stands, since two sides that wait for each other to read would wait indefinitely. Its memory is
//! bounded by the window that this side announced, and a peer that exceeds it is cut off.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::stage::{self, Stages};
use cairn_base::{Error, Result};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::frame::{Frame, HEADER_BYTES, Kind, Parser};
use super::hello::Window;
use super::link::{self, Stream};
use super::outbox::Outbox;
use super::peer::{Peer, PeerShared};
use super::service::Service;
use super::slots::FreedWindow;
use crate::limits::{PAYLOAD_BYTES, WRITE_BYTES};

/// Rounds of reading, answering and writing before other tasks of the runtime have their turn.
const ROUNDS: usize = 32;

/// Timing by which a connection notices that its peer is gone.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Interval of the checks, and precision of the timeouts of calls.
    pub tick: Duration,
    /// Ticks of silence after which a peer is pinged.
    pub ping_ticks: u32,
    /// Ticks after which a peer is dead if it was silent, or took no byte of what waits for it.
    pub dead_ticks: u32,
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive { tick: Duration::from_millis(250), ping_ticks: 4, dead_ticks: 16 }
    }
}

pub(super) struct Driver<S: Service> {
    stream: Box<dyn Stream>,
    shared: Arc<PeerShared>,
    /// The connection for the service; it does not keep the connection open.
    peer: Peer,
    service: S,
    parser: Parser,
    out: Outbox,
    unflushed: bool,
    /// Most that the peer may have outstanding here, and what it has outstanding.
    window: Window,
    taken: UnansweredRequests,
    /// Requests that wait for the outbox to drain.
    deferred: VecDeque<Frame>,
    running: FuturesUnordered<Running<S::Reply>>,
    /// An empty box for the next call.
    spare: Option<Pin<Box<Option<S::Reply>>>>,
    answers: Vec<(u64, Result<Bytes>)>,
    wakers: Vec<Waker>,
    pulse: PulseCount,
    /// Set if other tasks had their turn since this one was woken.
    yielded: bool,
}

impl<S: Service> Drop for Driver<S> {
    /// This runs also if a service panicked, or the runtime stops: no caller may wait indefinitely.
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
        if self.shared.state.lock().ended.is_none() {
            self.shared.end(&Error::Unavailable("the task of the connection was stopped".into()));
        }
        self.service.ended(&self.peer);
    }
}

/// Requests of the peer that are not answered.
#[derive(Default)]
struct UnansweredRequests {
    calls: usize,
    bytes: usize,
}

struct PulseCount {
    keep_alive: KeepAlive,
    tick: Interval,
    heard: bool,
    wrote: bool,
    silent_ticks: u32,
    stuck_ticks: u32,
}

/// A call of the service that was not ready at once.
struct Running<F> {
    id: u64,
    cost: usize,
    stages: Option<Stages>,
    future: Option<Pin<Box<Option<F>>>>,
}

impl<F: Future<Output = Result<Bytes>>> Future for Running<F> {
    type Output = (u64, usize, Result<Bytes>, Option<Pin<Box<Option<F>>>>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Running { id, cost, ref mut stages, ref mut future } = *self;
        match future.as_mut().map(|future| poll_boxed(future, stages, context)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(reply)) => Poll::Ready((id, cost, reply, future.take())),
            None => unreachable!("polled after its end"),
        }
    }
}

/// Polls the future in the box, as a part of the request that it serves if that has a trace.
/// Empties the box when the future is done.
fn poll_boxed<F: Future<Output = Result<Bytes>>>(
    boxed: &mut Pin<Box<Option<F>>>,
    stages: &mut Option<Stages>,
    context: &mut Context<'_>,
) -> Poll<Result<Bytes>> {
    let future = boxed.as_mut().as_pin_mut().expect("a call is in the box");
    let polled = match stages {
        Some(stages) => stage::during(stages, || future.poll(context)),
        None => future.poll(context),
    };
    if polled.is_ready() {
        boxed.set(None);
    }
    polled
}

impl<S: Service> Driver<S> {
    pub fn new(
        stream: Box<dyn Stream>,
        shared: Arc<PeerShared>,
        service: S,
        window: Window,
        keep_alive: KeepAlive,
    ) -> Driver<S> {
        let mut tick = interval_at(Instant::now() + keep_alive.tick, keep_alive.tick);
        // After a pause of this process one tick counts, so that the peer's bytes are read first.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (heard, wrote, silent_ticks, stuck_ticks) = (false, false, 0, 0);
        Driver {
            stream,
            peer: Peer::new(&shared, false),
            shared,
            service,
            parser: Parser::new(PAYLOAD_BYTES),
            out: Outbox::default(),
            unflushed: false,
            window,
            taken: UnansweredRequests::default(),
            deferred: VecDeque::new(),
            running: FuturesUnordered::new(),
            spare: None,
            answers: Vec::new(),
            wakers: Vec::new(),
            pulse: PulseCount { keep_alive, tick, heard, wrote, silent_ticks, stuck_ticks },
            yielded: false,
        }
    }

    /// Drives the connection to its end.
    pub async fn run(mut self) {
        self.service.connected(&self.peer);
        let reason = std::future::poll_fn(|context| self.poll(context)).await;
        tracing::debug!(peer = %self.shared.info, %reason, "connection ended");
        self.wakers.drain(..).for_each(Waker::wake);
        self.shared.end(&reason);
        // Notifies a peer that still reads, and does not wait for any other.
        let _ = tokio::time::timeout(self.pulse.keep_alive.tick, self.stream.shutdown()).await;
    }

    /// Ready with the reason of the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        // The first caller woke this task, and more are about to call. The runtime runs a task that
        // was just woken before all others, so each request would be written on its own.
        self.yielded = !self.yielded && self.shared.expects_more();
        if self.yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            match self.round(context) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(reason) => return Poll::Ready(reason),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Runs one round. Returns false if there is nothing to do until the task is woken.
    fn round(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let mut moved = self.read(context)?;
        self.begin_deferred(context);
        self.finish_running(context);
        self.shared.take_queued(&mut self.out);
        let wrote = self.write(context)?;
        moved |= wrote;
        self.look_at_pulse(context)?;
        if moved {
            return Ok(true);
        }
        self.sleep(context)
    }

    /// Reads what has arrived, at most one buffer of it. Returns false if nothing had.
    fn read(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let read = pin!(self.stream.read_buf(self.parser.room())).poll(context);
        match read {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => {
                return Err(match self.shared.state.lock().leaving.take() {
                    Some(reason) => reason,
                    None => Error::Unavailable("closed by the peer".into()),
                });
            }
            Poll::Ready(Ok(_)) => self.pulse.heard = true,
            Poll::Ready(Err(error)) => return Err(link::lost("reading")(error)),
        }
        // Frames that came before an error count.
        let taken = self.take_frames(context);
        self.give_answers()?;
        taken.map(|()| true)
    }

    fn take_frames(&mut self, context: &mut Context<'_>) -> Result<()> {
        while let Some(frame) = self.parser.next_frame()? {
            match frame.kind {
                Kind::Request => self.take_request(frame, context)?,
                Kind::Reply => self.answers.push((frame.id, Ok(frame.payload))),
                Kind::Error => {
                    let error = Error::from_bytes(&frame.payload)?;
                    self.answers.push((frame.id, Err(error)));
                }
                Kind::Ping => self.out.push(Kind::Pong, 0, frame.id, Bytes::new()),
                Kind::Pong => {}
                Kind::GoAway => {
                    let reason = Error::from_bytes(&frame.payload)?;
                    tracing::debug!(peer = %self.shared.info, %reason, "peer goes away");
                    self.shared.state.lock().leaving.get_or_insert(reason);
                }
            }
        }
        Ok(())
    }

    /// Gives the received answers to the waiting callers.
    fn give_answers(&mut self) -> Result<()> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let mut freed = FreedWindow::default();
        {
            let mut state = self.shared.state.lock();
            for (id, answer) in self.answers.drain(..) {
                state.slots.answer(id, answer, &mut freed, &mut self.wakers)?;
            }
        }
        self.shared.release(freed);
        self.wakers.drain(..).for_each(Waker::wake);
        Ok(())
    }

    fn take_request(&mut self, frame: Frame, context: &mut Context<'_>) -> Result<()> {
        let cost = HEADER_BYTES + frame.payload.len();
        let alone = self.taken.calls == 0;
        self.taken.calls += 1;
        self.taken.bytes += cost;
        let fits = self.taken.calls <= self.window.calls as usize
            && self.taken.bytes <= self.window.bytes as usize;
        if !fits && !alone {
            return Err(Error::Invalid(
                "the peer has more calls or bytes unanswered than the agreed window".into(),
            ));
        }
        if self.out.len() < WRITE_BYTES && self.deferred.is_empty() {
            self.begin(frame, context);
        } else {
            self.deferred.push_back(frame);
        }
        Ok(())
    }

    /// Begins a call of the service; it is answered at once if it is ready.
    fn begin(&mut self, frame: Frame, context: &mut Context<'_>) {
        let (id, cost) = (frame.id, HEADER_BYTES + frame.payload.len());
        let mut stages = frame.trace.map(Stages::start);
        let future = self.service.call(&self.peer, frame.method, frame.payload);
        let mut boxed = self.spare.take().unwrap_or_else(|| Box::pin(None));
        boxed.set(Some(future));
        match poll_boxed(&mut boxed, &mut stages, context) {
            Poll::Ready(reply) => {
                self.spare = Some(boxed);
                self.answer(id, cost, reply);
            }
            Poll::Pending => self.running.push(Running { id, cost, stages, future: Some(boxed) }),
        }
    }

    fn answer(&mut self, id: u64, cost: usize, reply: Result<Bytes>) {
        self.taken.calls -= 1;
        self.taken.bytes -= cost;
        let reply = match reply {
            Ok(payload) if payload.len() > PAYLOAD_BYTES => {
                let text = format!("a reply of {} bytes, at most {PAYLOAD_BYTES}", payload.len());
                Err(Error::TooLarge(text))
            }
            reply => reply,
        };
        match reply {
            Ok(payload) => self.out.push(Kind::Reply, 0, id, payload),
            Err(error) => self.out.push(Kind::Error, 0, id, error.to_bytes()),
        }
    }

    fn finish_running(&mut self, context: &mut Context<'_>) {
        while !self.running.is_empty()
            && let Poll::Ready(Some((id, cost, reply, boxed))) =
                self.running.poll_next_unpin(context)
        {
            self.spare = boxed;
            self.answer(id, cost, reply);
        }
    }

    fn begin_deferred(&mut self, context: &mut Context<'_>) {
        while self.out.len() < WRITE_BYTES
            && let Some(frame) = self.deferred.pop_front()
        {
            self.begin(frame, context);
        }
    }

    /// Writes what it can. Returns true if anything was written.
    fn write(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let mut wrote = false;
        while !self.out.is_empty() {
            let (slices, count) = self.out.slices();
            let slices = slices.get(..count).unwrap_or_default();
            match Pin::new(&mut *self.stream).poll_write_vectored(context, slices) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    return Err(Error::Unavailable(
                        "writing: the connection takes no more bytes".into(),
                    ));
                }
                Poll::Ready(Ok(written)) => {
                    self.out.advance(written);
                    wrote = true;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => return Err(link::lost("writing")(error)),
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut *self.stream).poll_flush(context)
        {
            flushed.map_err(link::lost("writing"))?;
            self.unflushed = false;
            self.pulse.wrote = true;
        }
        self.pulse.wrote |= wrote;
        Ok(wrote)
    }

    /// Counts ticks of silence, and expires calls.
    fn look_at_pulse(&mut self, context: &mut Context<'_>) -> Result<()> {
        while self.pulse.tick.poll_tick(context).is_ready() {
            let waits = !self.out.is_empty() || self.unflushed;
            let pulse = &mut self.pulse;
            let KeepAlive { tick, ping_ticks, dead_ticks } = pulse.keep_alive;
            let heard = std::mem::take(&mut pulse.heard);
            let stuck = waits && !std::mem::take(&mut pulse.wrote);
            pulse.silent_ticks = if heard { 0 } else { pulse.silent_ticks + 1 };
            pulse.stuck_ticks = if stuck { pulse.stuck_ticks + 1 } else { 0 };
            let dead =
                |what| Err(Error::Unavailable(format!("{what} for {:?}", tick * dead_ticks)));
            if pulse.silent_ticks >= dead_ticks {
                return dead("the peer was silent");
            }
            if pulse.stuck_ticks >= dead_ticks {
                return dead("the peer took no bytes");
            }
            if pulse.silent_ticks == ping_ticks {
                self.out.push(Kind::Ping, 0, 0, Bytes::new());
                self.write(context)?;
            }
            (self.shared.info.authenticated.standing)()?;
            self.shared.state.lock().slots.expire(Instant::now(), &mut self.wakers);
            self.wakers.drain(..).for_each(Waker::wake);
        }
        Ok(())
    }

    /// Registers the task to be woken, unless there is something to do. Returns true if there is.
    fn sleep(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let mut state = self.shared.state.lock();
        if state.end_asked {
            return Err(Error::Unavailable("closed by this node".into()));
        }
        if !state.out.is_empty() && self.out.is_empty() {
            return Ok(true);
        }
        let idle = state.slots.outstanding() == 0
            && self.taken.calls == 0
            && self.out.is_empty()
            && !self.unflushed;
        if let Some(reason) = state.leaving.take_if(|_| idle) {
            return Err(reason);
        }
        if !state.driver.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            state.driver = Some(context.waker().clone());
        }
        Ok(false)
    }
}

impl PeerShared {
    /// Returns true if something is to be sent, and several calls are open.
    fn expects_more(&self) -> bool {
        let state = self.state.lock();
        !state.out.is_empty() && state.slots.outstanding() > 1
    }

    /// Moves what callers want sent behind `out`, if there is little in it.
    fn take_queued(&self, out: &mut Outbox) {
        if out.len() < WRITE_BYTES {
            let mut state = self.state.lock();
            if !state.out.is_empty() {
                out.take(&mut state.out);
            }
        }
    }
}
