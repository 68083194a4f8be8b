//! Log lines about nodes that are refused for their version: such nodes try again every other
//! second until they are upgraded.

use std::collections::BTreeMap;

use cairn_base::{Error, NodeId, waits};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::link::PeerIdentity;

/// Nodes that are remembered, at most.
const NODES: usize = 1_000;

/// Last text and time of a refusal, by the refusing node of this process, the refused node, and its
/// address.
type Said = BTreeMap<(NodeId, NodeId, String), (String, Instant)>;

static SAID: Mutex<Said> = Mutex::new(Said::new());

/// Logs that a node is refused, unless the same was logged recently.
pub(super) fn log(own: NodeId, peer: &PeerIdentity, error: &Error) {
    // Without the port, which differs each time.
    let from = peer.address.rsplit_once(':').map_or(&*peer.address, |(host, _)| host);
    let of = (own, peer.node, from.to_owned());
    if is_news(&mut SAID.lock(), of, error.to_string(), Instant::now()) {
        tracing::warn!(address = %peer.address, %error, "refused");
    }
}

fn is_news(said: &mut Said, of: (NodeId, NodeId, String), text: String, now: Instant) -> bool {
    said.retain(|_, (_, at)| now.saturating_duration_since(*at) < waits::REFUSED_AGAIN);
    if said.get(&of).is_some_and(|(before, _)| *before == text) {
        return false;
    }
    // If there are too many, some are logged too often.
    if said.len() < NODES {
        said.insert(of, (text, now));
    }
    true
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_said_once_and_when_it_changes_and_each_minute() {
        let (mut said, begun) = (Said::new(), Instant::now());
        let mut says = |node: u64, host: &str, text: &str, secs: u64| {
            let of = (NodeId(1), NodeId(node), host.to_owned());
            is_news(&mut said, of, text.to_owned(), begun + Duration::from_secs(secs))
        };
        assert!(says(7, "a", "old", 0));
        assert!((2..60).step_by(2).all(|secs| !says(7, "a", "old", secs)));
        // Mounts have no numbers.
        assert!(says(0, "a", "old", 59) && says(0, "b", "old", 59) && says(8, "a", "old", 59));
        assert!(says(7, "a", "old", 60));
        assert!(!says(7, "a", "old", 61));
        assert!(says(7, "a", "another", 62));
        assert!(!says(7, "a", "another", 121) && says(7, "a", "another", 122));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let (mut said, now) = (Said::new(), Instant::now());
        for node in 0..2 * NODES as u64 {
            let of = (NodeId(1), NodeId(node), String::new());
            assert!(is_news(&mut said, of, "old".to_owned(), now));
        }
        assert_eq!(said.len(), NODES);
    }
}
