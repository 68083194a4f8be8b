//! Bodies of requests and answers: sending and reading them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use cairn_base::{Error, Result};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::mpsc;

/// A body to send. Its length is always known.
#[derive(Debug)]
pub(super) enum Outgoing {
    Whole(Bytes),
    /// Sent on while it is received.
    Relay {
        pieces: mpsc::UnboundedReceiver<Bytes>,
        left: u64,
    },
}

impl Outgoing {
    /// Makes a body of `length` bytes that come in pieces. It fails if the sender is dropped before
    /// its end.
    pub(super) fn relay(length: usize) -> (mpsc::UnboundedSender<Bytes>, Outgoing) {
        // Bounded all the same: by the length of the body that is received.
        let (sender, pieces) = mpsc::unbounded_channel();
        (sender, Outgoing::Relay { pieces, left: length as u64 })
    }

    fn left(&self) -> u64 {
        match self {
            Outgoing::Whole(bytes) => bytes.len() as u64,
            Outgoing::Relay { left, .. } => *left,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Outgoing::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Outgoing::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Outgoing::Relay { left: 0, .. } => Poll::Ready(None),
            Outgoing::Relay { pieces, left } => pieces.poll_recv(cx).map(|piece| match piece {
                Some(piece) => {
                    *left = left.saturating_sub(piece.len() as u64);
                    Some(Ok(Frame::data(piece)))
                }
                None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// Reads a body of exactly `length` bytes, and hands each piece to `relay` as it comes.
pub(super) async fn read(
    body: &mut Incoming,
    length: usize,
    relay: Option<mpsc::UnboundedSender<Bytes>>,
) -> Result<Bytes> {
    let mut whole = BytesMut::with_capacity(length);
    while let Some(frame) = body.frame().await {
        let broken = |error: hyper::Error| {
            Error::Unavailable(format!("the body of a message ended early: {error}"))
        };
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        if piece.len() > length - whole.len() {
            return Err(Error::Invalid(format!(
                "the body of a message is longer than the announced {length} bytes"
            )));
        }
        whole.extend_from_slice(&piece);
        if let Some(relay) = &relay {
            // A relay that does not accept it has failed; the error is seen when its answer is
            // awaited.
            let _ = relay.send(piece);
        }
    }
    if whole.len() != length {
        let got = whole.len();
        return Err(Error::Unavailable(format!(
            "the body of a message ended after {got} of {length} bytes"
        )));
    }
    Ok(whole.freeze())
}

/// Reads and drops the rest of a body, so that its sender gets to read the answer.
pub(super) async fn drain(body: &mut Incoming, mut limit: usize) {
    while limit > 0 {
        match body.frame().await {
            Some(Ok(frame)) => {
                limit = limit.saturating_sub(frame.data_ref().map_or(1, Bytes::len));
            }
            _ => return,
        }
    }
}
