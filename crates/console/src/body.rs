//! Bodies of replies: a page that is in memory, or events that come as they happen.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::Full;

/// The body of a reply.
pub enum Body {
    Whole(Full<Bytes>),
    Live(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    pub fn whole(bytes: impl Into<Bytes>) -> Body {
        Body::Whole(Full::new(bytes.into()))
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::Whole(Full::default())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Whole(body) => Pin::new(body).poll_frame(context),
            Body::Live(stream) => {
                let next = stream.as_mut().poll_next(context);
                next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(body) => body.is_end_stream(),
            Body::Live(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(body) => body.size_hint(),
            Body::Live(_) => SizeHint::default(),
        }
    }
}
