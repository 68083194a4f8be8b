//! Signs of life of a connection, at the cost of one store per reply.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use cairn_base::{Party, Shares};
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Signs of life of one connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    beat: AtomicBool,
    in_progress: AtomicU32,
    /// Number of bodies of requests whose next bytes are awaited.
    awaited: AtomicU32,
    /// True while the other end takes no more bytes.
    is_blocked: AtomicBool,
    /// Number of bytes of bodies that arrived, and of bytes that the other end took.
    moved: AtomicU64,
    /// Rooms that bodies of replies hold.
    held: Mutex<Vec<Weak<HeldRoom>>>,
    /// Becomes true when the server stops.
    stopped: watch::Receiver<bool>,
}

/// The connection as seen by the body of a reply that has this as an extension: for bodies that may
/// have nothing to send for long.
#[derive(Clone, Debug, Default)]
pub struct Seat {
    pulse: Arc<OnceLock<Arc<Pulse>>>,
    held: Option<Weak<HeldRoom>>,
}

/// Room that the body of a reply has as long as it is there.
pub struct HeldRoom {
    of: Arc<Shares>,
    party: Party,
}

impl HeldRoom {
    pub fn new(of: &Arc<Shares>, party: Party) -> HeldRoom {
        HeldRoom { of: Arc::clone(of), party }
    }
}

impl std::fmt::Debug for HeldRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "room of {:?}", self.party)
    }
}

impl Seat {
    /// Returns the seat of a body that holds room: while others wait for that room, its connection
    /// ends if its client is slow.
    pub fn holding(room: &Arc<HeldRoom>) -> Seat {
        Seat { held: Some(Arc::downgrade(room)), ..Seat::default() }
    }

    /// Notes that the connection is alive although nothing is sent. It does not count while nothing
    /// can be sent.
    pub fn beat(&self) {
        if let Some(pulse) = self.pulse.get() {
            pulse.beat();
        }
    }

    /// Returns when the server stops.
    pub async fn stopped(&self) {
        match self.pulse.get() {
            Some(pulse) => drop(pulse.stopped.clone().wait_for(|stop| *stop).await),
            None => std::future::pending().await,
        }
    }
}

/// A request that is being worked on.
pub(crate) struct InProgress(Arc<Pulse>);

/// A body whose next bytes are awaited.
pub(crate) struct AwaitedBody(Arc<Pulse>);

/// The pace of a connection, as its watchdog sees it.
#[derive(Debug, Default)]
pub(crate) struct Gait {
    moved: u64,
    /// Number of looks in a row at which the server waited for the client, and too few bytes had
    /// moved since the look before.
    slow: u32,
}

impl Gait {
    /// Looks again. Returns the number of looks in a row at which the client was slow: fewer bytes
    /// than `least` since the look before, while the server waited only for the client.
    pub(crate) fn look(&mut self, pulse: &Pulse, least: u64) -> u32 {
        let moved = pulse.moved.load(Relaxed);
        let is_slow = pulse.waits_for_client() && moved.wrapping_sub(self.moved) < least;
        self.moved = moved;
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        self.slow
    }
}

impl Pulse {
    pub(crate) fn new(stopped: watch::Receiver<bool>) -> Pulse {
        Pulse {
            beat: AtomicBool::default(),
            in_progress: AtomicU32::default(),
            awaited: AtomicU32::default(),
            is_blocked: AtomicBool::default(),
            moved: AtomicU64::default(),
            held: Mutex::default(),
            stopped,
        }
    }

    /// Notes that the next bytes of a body are awaited, until the returned value is dropped.
    pub(crate) fn await_body(pulse: &Arc<Pulse>) -> AwaitedBody {
        pulse.awaited.fetch_add(1, Relaxed);
        AwaitedBody(Arc::clone(pulse))
    }

    /// Returns the number of requests that are being worked on.
    pub(crate) fn in_progress(&self) -> u32 {
        self.in_progress.load(Relaxed)
    }

    fn waits_for_client(&self) -> bool {
        self.awaited.load(Relaxed) > 0 || self.is_blocked.load(Relaxed)
    }

    /// Counts bytes of bodies that arrived, or bytes that the other end took.
    pub(crate) fn count(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Relaxed);
    }

    fn beat(&self) {
        if !self.beat.load(Relaxed) {
            self.beat.store(true, Relaxed);
        }
    }

    pub(crate) fn begin(pulse: &Arc<Pulse>) -> InProgress {
        pulse.beat();
        pulse.in_progress.fetch_add(1, Relaxed);
        InProgress(Arc::clone(pulse))
    }

    /// Returns whether others wait for room that bodies on this connection hold.
    pub(crate) fn holds_what_is_wanted(&self) -> bool {
        let held = self.held.lock();
        let mut rooms = held.iter().filter_map(Weak::upgrade);
        rooms.any(|room| room.of.is_wanted_of(room.party))
    }

    /// Returns whether there was a sign of life since the last call.
    pub(crate) fn take(&self) -> bool {
        self.beat.swap(false, Relaxed) || self.in_progress.load(Relaxed) > 0
    }
}

impl InProgress {
    pub(crate) fn give(&self, seat: &Seat) {
        // A reply is given once.
        let _ = seat.pulse.set(Arc::clone(&self.0));
        if let Some(held) = &seat.held {
            let mut all = self.0.held.lock();
            all.retain(|held| held.strong_count() > 0);
            all.push(held.clone());
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.beat();
        self.0.in_progress.fetch_sub(1, Relaxed);
    }
}

impl Drop for AwaitedBody {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Relaxed);
    }
}

/// A stream whose pulse beats with every byte that the other end takes. Bytes that the other end
/// sends do not count: a client that trickles its headers is not alive.
pub(crate) struct PulsedStream<T> {
    stream: T,
    pulse: Arc<Pulse>,
}

impl<T> PulsedStream<T> {
    pub(crate) fn new(stream: T, pulse: Arc<Pulse>) -> PulsedStream<T> {
        PulsedStream { stream, pulse }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let pulse = &self.pulse;
        if let Poll::Ready(Ok(bytes)) = &written {
            pulse.count(*bytes as u64);
        }
        if written.is_ready() {
            pulse.beat();
        }
        if pulse.is_blocked.load(Relaxed) != written.is_pending() {
            pulse.is_blocked.store(written.is_pending(), Relaxed);
        }
        written
    }
}

impl<T: Read + Unpin> Read for PulsedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for PulsedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
