//! Recalls on their way to who holds what is recalled.

use std::time::Duration;

use bytes::Bytes;
use cairn_base::Result;
use cairn_meta::session::Recall;
use cairn_meta::wire;
use tokio::sync::mpsc::UnboundedReceiver;

use super::messages::ControlMethod;
use crate::wire::Peer;

/// How long a session may take to take a recall.
const RECALL: Duration = Duration::from_secs(10);

/// Sends recalls on, in their order, until the connection or the session ends. A session that takes
/// none loses its connection: it would go on renewing what it was not told to let go of.
pub async fn forward(peer: Peer, mut recalls: UnboundedReceiver<Recall>) {
    while let Some(recall) = next(&peer, &mut recalls).await {
        if !send(&peer, wire::encode(&recall)).await {
            return;
        }
    }
}

/// As [`forward`], of recalls as another master sent them. They come for as long as there is a way
/// to it: without, the connection is of no use.
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

/// Whether it was sent; if not, the connection is ended.
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
