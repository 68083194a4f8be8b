//! The body of a request, with a limit on how long its next bytes may take.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::Stage;
use cairn_base::stage::{self, Entered};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use crate::limits;

/// A request's body as it comes in.
pub struct Upload {
    incoming: Incoming,
    idle: Duration,
    /// Only while bytes are waited for.
    timer: Option<Pin<Box<Sleep>>>,
    /// As long as there is one.
    waiting: Option<Entered>,
    /// Told when bytes are asked for, of a client that waits for that.
    asked: Option<Arc<AtomicBool>>,
}

/// Why a body did not come to its end.
#[derive(Debug)]
pub enum UploadError {
    /// No bytes came for this long.
    Idle(Duration),
    /// The connection broke, or what came was no body.
    Broken(hyper::Error),
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UploadError::Idle(idle) => write!(f, "the body stalled for {} s", idle.as_secs()),
            UploadError::Broken(error) => write!(f, "the body was cut short: {error}"),
        }
    }
}

impl std::error::Error for UploadError {}

impl Upload {
    pub fn new(incoming: Incoming, idle: Duration) -> Upload {
        Upload { incoming, idle, timer: None, waiting: None, asked: None }
    }

    /// Becomes true once `100 Continue` was sent. It never is for an empty body.
    pub fn watch_continue(&mut self) -> Arc<AtomicBool> {
        Arc::clone(self.asked.get_or_insert_default())
    }

    /// The length the client announced; `None` if it sends until it is done.
    pub fn announced(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// Reads what is left of a refused upload in the background, for a while. Not for a client
    /// that waits for `100 Continue`: this would ask for the body. `false`: there is too much of
    /// it, so the connection ends, and the client should be told.
    pub fn linger(mut self) -> bool {
        if self.is_end_stream() {
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
            // Either way the body is dropped, and with it the connection if it is not at its end.
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
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            (self.timer, self.waiting) = (None, None);
            return Poll::Ready(frame.map(|frame| frame.map_err(UploadError::Broken)));
        }
        self.waiting.get_or_insert_with(|| stage::enter(Stage::Receive));
        let idle = self.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle)));
        timer.as_mut().poll(context).map(|()| Some(Err(UploadError::Idle(idle))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
