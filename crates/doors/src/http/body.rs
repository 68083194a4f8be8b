//! The body of a reply.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cairn_base::{Error, Result, Stages};
use cairn_fs::ByteStream;
use futures_util::{StreamExt, stream};
use http_body::{Frame, SizeHint};

use crate::metrics::{Pending, VerbStats};

/// The body: bytes, or a stream of them. It is a single type, so that bytes in memory need no box.
pub enum Body {
    Full(Bytes),
    Stream(Streaming),
}

/// A stream of exactly `remaining` bytes, if that is known. Any other length ends the connection: a
/// client must never mistake a part for the whole.
pub struct Streaming {
    stream: ByteStream,
    remaining: Option<u64>,
    /// Counts the reply when the last byte was taken, or the client is gone.
    pending: Option<Box<Pending>>,
    /// True if the reply was counted when it began.
    is_followed: bool,
}

impl Body {
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }

    pub fn stream(stream: ByteStream, length: u64) -> Body {
        let remaining = Some(length);
        Body::Stream(Streaming { stream, remaining, pending: None, is_followed: false })
    }

    /// Returns a stream of unknown length; its contents mark their own end.
    pub fn unmeasured(stream: ByteStream) -> Body {
        let remaining = None;
        Body::Stream(Streaming { stream, remaining, pending: None, is_followed: false })
    }

    /// Returns a stream that lasts as long as the client stays. Its duration says nothing about the
    /// server, so the reply is counted when it begins.
    pub fn followed(stream: ByteStream) -> Body {
        let remaining = None;
        Body::Stream(Streaming { stream, remaining, pending: None, is_followed: true })
    }

    /// Waits for the first piece of a stream: if that fails, another reply can still be sent.
    pub(super) async fn primed(self) -> Result<Body> {
        let Body::Stream(mut streaming) = self else { return Ok(self) };
        let first = streaming.stream.next().await.transpose()?;
        let first = stream::iter(first.map(Ok));
        streaming.stream = first.chain(streaming.stream).boxed();
        Ok(Body::Stream(streaming))
    }

    /// Counts the reply with this body: at once if the whole body is in memory.
    pub(super) fn count(&mut self, stats: &Arc<VerbStats>, status: u16, stages: &Stages) {
        match self {
            Body::Full(bytes) => stats.record(status, stages, bytes.len() as u64),
            Body::Stream(Streaming { is_followed: true, .. }) => stats.record(status, stages, 0),
            Body::Stream(streaming) => {
                let pending = Pending::new(Arc::clone(stats), status, *stages);
                streaming.pending = Some(Box::new(pending));
            }
        }
    }

    /// Returns its length, if that is known.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Body::Full(bytes) => Some(bytes.len() as u64),
            Body::Stream(streaming) => streaming.remaining,
        }
    }
}

impl Streaming {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let stream = &mut self.stream;
        let polled = match &mut self.pending {
            Some(pending) => pending.poll(|| stream.poll_next_unpin(context)),
            None => stream.poll_next_unpin(context),
        };
        let next = match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => next,
        };
        let piece = match next {
            None if self.remaining.is_none_or(|left| left == 0) => return Poll::Ready(None),
            None => Err(Error::corrupt("length of a body", "its end", "more bytes")),
            Some(piece) => match (piece, self.remaining) {
                (Ok(piece), Some(left)) if piece.len() as u64 > left => {
                    Err(Error::corrupt("length of a body", piece.len(), left))
                }
                (piece, _) => piece,
            },
        };
        Poll::Ready(Some(self.counted(piece)))
    }

    fn counted(&mut self, piece: Result<Bytes>) -> Result<Bytes> {
        match &piece {
            Ok(bytes) => {
                if let Some(left) = &mut self.remaining {
                    *left -= bytes.len() as u64;
                }
                if let Some(pending) = &mut self.pending {
                    pending.bytes_out += bytes.len() as u64;
                }
            }
            Err(error) => {
                let trace = self.pending.as_ref().map(|pending| pending.stages.trace);
                let trace = trace.map(tracing::field::display);
                tracing::error!(trace, %error, "a reply is cut off in the middle");
                if let Some(pending) = &mut self.pending {
                    pending.status = 500;
                }
            }
        }
        piece
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        match &mut *self {
            Body::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Stream(streaming) => {
                streaming.poll(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
