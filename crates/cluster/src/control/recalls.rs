//! Recalls on their way to who holds what is recalled.

use std::time::Duration;

use cairn_meta::session::Recall;
use cairn_meta::wire;
use tokio::sync::mpsc::UnboundedReceiver;

use super::messages::Method;
use crate::wire::Peer;

/// How long a session may take to take a recall.
const RECALL: Duration = Duration::from_secs(10);

/// Sends recalls on, in their order, until the connection or the session ends. A session that takes
/// none loses its connection: it would go on renewing what it was not told to let go of.
pub async fn forward(peer: Peer, mut recalls: UnboundedReceiver<Recall>) {
    loop {
        let recall = tokio::select! {
            biased;
            _ = peer.closed() => return,
            recall = recalls.recv() => recall,
        };
        let Some(recall) = recall else { return };
        let sent = match wire::encode(&recall) {
            Ok(message) => peer.tell(Method::Recall as u16, message, RECALL).await,
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "a recall was not sent: the connection is ended");
            return peer.close();
        }
    }
}
