//! The trait for the side that answers requests.

use std::future::Future;

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::peer::Peer;

/// Answers the requests of peers. Any `Fn(&Peer, u16, Bytes) -> impl Future` is a service too.
///
/// A call is polled on the task of its connection, and answered at once if it is ready then. It
/// must not block; long computations belong into a task of their own. A call is dropped, wherever
/// it is, when its connection ends. If the request carries a trace, that is the trace that is being
/// worked on ([`cairn_base::stage::trace`]).
pub trait Service: Clone + Send + Sync + 'static {
    type Reply: Future<Output = Result<Bytes>> + Send + 'static;

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply;

    /// Called when a connection has begun: its peer can be called from now on.
    fn connected(&self, _: &Peer) {}

    /// Called when a connection has ended, once for each [`Service::connected`].
    fn ended(&self, _: &Peer) {}
}

impl<F, R> Service for F
where
    F: Fn(&Peer, u16, Bytes) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Bytes>> + Send + 'static,
{
    type Reply = R;

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> R {
        self(peer, method, payload)
    }
}

/// Answers nothing: for a side that only calls.
#[derive(Clone, Copy, Debug)]
pub struct NoService;

impl Service for NoService {
    type Reply = std::future::Ready<Result<Bytes>>;

    fn call(&self, _: &Peer, method: u16, _: Bytes) -> Self::Reply {
        std::future::ready(Err(Error::NotImplemented(format!(
            "method {method} at this end of the connection"
        ))))
    }
}
