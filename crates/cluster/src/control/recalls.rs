//! Forwarding of recalls to the sessions that hold what is recalled.

use std::time::Duration;

use bytes::Bytes;
use cairn_base::Result;
use cairn_meta::session::Recall;
use cairn_meta::wire;
use tokio::sync::mpsc::UnboundedReceiver;

use super::messages::ControlMethod;
use crate::wire::Peer;

/// Deadline of a session's acknowledgement that it received a recall.
const RECALL: Duration = Duration::from_secs(10);

/// Forwards recalls in order until the connection or the session ends. A session that takes no
/// recall loses its connection: otherwise it would go on renewing rows that were recalled.
pub async fn forward(peer: Peer, mut recalls: UnboundedReceiver<Recall>) {
    while let Some(recall) = next(&peer, &mut recalls).await {
        if !send(&peer, wire::encode(&recall)).await {
            return;
        }
    }
}

/// Forwards recalls like [`forward`], as another master has encoded them, until the way to that
/// master ends. The connection is closed then: it is of no use.
pub async fn relay(peer: Peer, mut recalls: UnboundedReceiver<Bytes>) {
    while let Some(recall) = next(&peer, &mut recalls).await {
        if !send(&peer, Ok(recall)).await {
            return;
        }
    }
    peer.close();
}

async fn next<T>(peer: &Peer, recalls: &mut UnboundedReceiver<T>) -> Option<T> {
    tokio::select! {
        biased;
        _ = peer.closed() => None,
        recall = recalls.recv() => recall,
    }
}

/// Sends a recall. Returns false, and closes the connection, if that failed.
async fn send(peer: &Peer, recall: Result<Bytes>) -> bool {
    let sent = match recall {
        Ok(message) => peer.tell(ControlMethod::Recall as u16, message, RECALL).await,
        Err(error) => Err(error),
    };
    if let Err(error) = &sent {
        tracing::warn!(%error, "a recall was not sent: the connection is ended");
        peer.close();
    }
    sent.is_ok()
}
