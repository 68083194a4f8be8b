//! Pieces of bodies on their way to clients. For a client that takes none, only few of them wait.
//!
//! ```text
//!   blocks ──► read ahead ──► piece ──► connection ──► system ──► client
//!              while none      the connection has it until the
//!              waits           system has taken all of it
//! ```
//!
//! Bytes that the system has taken are not counted here. The system holds some MiB for each slow
//! connection, so a client loses nothing when nothing is read ahead while a piece still waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use cairn_base::Result;
use futures_util::stream::{BoxStream, FuturesOrdered};
use futures_util::task::AtomicWaker;
use futures_util::{Stream, StreamExt};

use crate::cache::PIECE_BYTES;

/// Number of pieces that are read at the same time for a client that has taken all before them.
const AT_ONCE: usize = 2;

/// The bytes of all bodies that wait for their clients.
#[derive(Debug)]
pub struct Sending {
    most: u64,
    waiting: AtomicU64,
}

impl Sending {
    /// Returns a counter. Beyond `most` bytes, each body has only one piece wait, and not two.
    pub fn new(most: u64) -> Arc<Sending> {
        Arc::new(Sending { most, waiting: AtomicU64::new(0) })
    }

    /// Returns the number of bytes that wait now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The waiting bytes of one body.
#[derive(Debug)]
struct Waiting {
    all: Arc<Sending>,
    bytes: AtomicU64,
    waker: AtomicWaker,
}

impl Waiting {
    /// Returns whether one more piece may wait.
    fn has_room(&self) -> bool {
        match self.bytes.load(Ordering::Acquire) {
            0 => true,
            bytes => bytes <= PIECE_BYTES && self.all.waiting() < self.all.most,
        }
    }

    fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        // A piece may have gone before the waker was registered.
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn hold(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        let len = bytes.len() as u64;
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.all.waiting.fetch_add(len, Ordering::Relaxed);
        Bytes::from_owner(PieceInUse { bytes, waiting: Arc::clone(self) })
    }
}

/// A piece that is still in use.
struct PieceInUse {
    bytes: Bytes,
    waiting: Arc<Waiting>,
}

impl AsRef<[u8]> for PieceInUse {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for PieceInUse {
    fn drop(&mut self) {
        let len = self.bytes.len() as u64;
        self.waiting.all.waiting.fetch_sub(len, Ordering::Relaxed);
        self.waiting.bytes.fetch_sub(len, Ordering::Release);
        self.waiting.waker.wake();
    }
}

/// The pieces that `reads` returns, in order, as fast as they are dropped.
pub(crate) struct PieceStream<F: Future> {
    reads: BoxStream<'static, Result<F>>,
    has_ended: bool,
    reading: FuturesOrdered<F>,
    waiting: Arc<Waiting>,
}

impl<F: Future<Output = Result<Bytes>> + Send + 'static> PieceStream<F> {
    pub(crate) fn new(
        reads: impl Stream<Item = Result<F>> + Send + 'static,
        all: &Arc<Sending>,
    ) -> PieceStream<F> {
        let all = Arc::clone(all);
        let waiting = Waiting { all, bytes: AtomicU64::new(0), waker: AtomicWaker::new() };
        PieceStream {
            reads: reads.boxed(),
            has_ended: false,
            reading: FuturesOrdered::new(),
            waiting: Arc::new(waiting),
        }
    }

    /// Begins the reads that may begin now.
    fn begin(&mut self, context: &mut Context<'_>) -> Result<()> {
        let is_taken = self.waiting.bytes.load(Ordering::Acquire) == 0;
        let most = if is_taken { AT_ONCE } else { 1 };
        while self.reading.len() < most && !self.has_ended {
            match self.reads.poll_next_unpin(context) {
                Poll::Ready(Some(read)) => self.reading.push_back(read?),
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending => break,
            }
        }
        Ok(())
    }
}

impl<F: Future<Output = Result<Bytes>> + Send + 'static> Stream for PieceStream<F> {
    type Item = Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        let this = &mut *self;
        if this.waiting.poll_room(context).is_pending() {
            return Poll::Pending;
        }
        if let Err(error) = this.begin(context) {
            return Poll::Ready(Some(Err(error)));
        }
        match this.reading.poll_next_unpin(context) {
            Poll::Ready(None) if !this.has_ended => Poll::Pending,
            Poll::Ready(Some(Ok(piece))) => Poll::Ready(Some(Ok(this.waiting.hold(piece)))),
            polled => polled,
        }
    }
}
