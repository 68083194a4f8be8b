//! Counts a reply when its last byte was taken, or the client is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cairn_base::Stages;
use http_body::{Frame, SizeHint};
use s3s::{Body, StdError};

use crate::metrics::{Pending, VerbStats};

/// A body that is still being made, and is counted at its end.
struct PendingBody {
    body: Body,
    pending: Pending,
}

/// Counts a reply: now, if all of its body is at hand.
pub(super) fn counted(body: Body, stats: &Arc<VerbStats>, status: u16, stages: &Stages) -> Body {
    if let Some(bytes) = body.bytes() {
        stats.record(status, stages, bytes.len() as u64);
        return body;
    }
    let pending = Pending::new(Arc::clone(stats), status, *stages);
    Body::http_body_unsync(PendingBody { body, pending })
}

impl http_body::Body for PendingBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let PendingBody { body, pending } = &mut *self;
        let polled = pending.poll(|| Pin::new(body).poll_frame(context));
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                pending.bytes_out += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::error!(trace = %pending.stages.trace, error, "a reply is cut off");
                pending.status = 500;
            }
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
