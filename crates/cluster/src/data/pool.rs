//! Connections to chunkservers that are kept while they are in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_base::{ClusterMap, Error, NodeId, Result};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::Outgoing;
use crate::limits::{DATA_BUFFER_BYTES, IDLE, IDLE_CONNECTIONS};
use crate::wire::Dial;

/// Asks chunkservers for blocks. There is one for all requests of a process.
pub struct Pool {
    dialer: Arc<dyn Dial>,
    idle: Mutex<BTreeMap<NodeId, Vec<Connection>>>,
}

/// An open connection that is idle, or used by one request.
pub(super) struct Connection {
    sender: SendRequest<Outgoing>,
    node: NodeId,
    address: String,
    since: Instant,
}

/// An answer whose head has arrived. The connection is kept once the body has arrived.
pub(super) type Answered = (Response<Incoming>, Connection);

impl Pool {
    /// Makes a pool; `dialer` is like [`crate::wire::tls::TlsDialer::for_blocks`].
    pub fn new(dialer: Arc<dyn Dial>) -> Arc<Pool> {
        Arc::new(Pool { dialer, idle: Mutex::default() })
    }

    /// Sends a request that may be sent twice. If a kept connection turns out to be closed, the
    /// request is sent over a new one.
    pub(super) async fn send(
        &self,
        map: &ClusterMap,
        node: NodeId,
        make: impl Fn() -> Request<Outgoing>,
    ) -> Result<Answered> {
        let address = address(map, node)?;
        if let Some(mut kept) = self.kept(node, address).await
            && let Ok(response) = kept.sender.send_request(make()).await
        {
            return Ok((response, kept));
        }
        self.send_fresh(node, address, make()).await
    }

    /// Sends a request that can be sent once only.
    pub(super) async fn send_once(
        &self,
        map: &ClusterMap,
        node: NodeId,
        request: Request<Outgoing>,
    ) -> Result<Answered> {
        let address = address(map, node)?;
        match self.kept(node, address).await {
            Some(mut kept) => {
                let answer = kept.sender.send_request(request).await;
                Ok((answer.map_err(|error| gone(&error))?, kept))
            }
            None => self.send_fresh(node, address, request).await,
        }
    }

    async fn send_fresh(
        &self,
        node: NodeId,
        address: &str,
        request: Request<Outgoing>,
    ) -> Result<Answered> {
        let mut fresh = self.dial(node, address).await?;
        let answer = fresh.sender.send_request(request).await;
        Ok((answer.map_err(|error| gone(&error))?, fresh))
    }

    async fn dial(&self, node: NodeId, address: &str) -> Result<Connection> {
        let link = self.dialer.dial(address).await?;
        if link.peer.node != node {
            let there = link.peer.node;
            return Err(Error::Denied(format!(
                "node {there} answers at {address}, the address of node {node}: check the \
                    addresses of both"
            )));
        }
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(DATA_BUFFER_BYTES)
            .handshake(TokioIo::new(link.stream))
            .await
            .map_err(|error| gone(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%node, %error, "connection for blocks ended");
            }
        });
        Ok(Connection { sender, node, address: address.to_owned(), since: Instant::now() })
    }

    /// Returns a kept connection that is still open, as far as can be known.
    async fn kept(&self, node: NodeId, address: &str) -> Option<Connection> {
        loop {
            let mut kept = self.idle.lock().get_mut(&node)?.pop()?;
            let fits = kept.address == address && kept.since.elapsed() < IDLE;
            if fits && kept.sender.ready().await.is_ok() {
                return Some(kept);
            }
        }
    }

    /// Keeps a connection for the next request: the answer was read to its end.
    pub(super) fn keep(&self, mut connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        connection.since = Instant::now();
        let mut idle = self.idle.lock();
        let kept = idle.entry(connection.node).or_default();
        if kept.len() >= IDLE_CONNECTIONS {
            kept.retain(|kept| !kept.sender.is_closed() && kept.since.elapsed() < IDLE);
        }
        if kept.len() < IDLE_CONNECTIONS {
            kept.push(connection);
        }
    }
}

fn address(map: &ClusterMap, node: NodeId) -> Result<&str> {
    let unknown = || {
        Error::Unavailable(
            "the cluster map has no address of the node: has it started since it joined?".into(),
        )
    };
    let found = map.nodes.get(&node).ok_or_else(unknown)?;
    if found.address.is_empty() { Err(unknown()) } else { Ok(&found.address) }
}

/// Makes an error for a connection that broke. The caller adds the node.
pub(super) fn gone(error: &hyper::Error) -> Error {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    Error::Unavailable(format!("{error}{}", cause.unwrap_or_default()))
}
