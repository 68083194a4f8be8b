//! Nodes that look for a master while this one stands by.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cairn_base::NodeId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A node without a master beats several times in this time, to each master in turn.
const ROUND: Duration = Duration::from_millis(1500);
/// Pause without any beat after which earlier beats belong to another election.
const GAP: Duration = Duration::from_secs(5);

/// Times at which nodes have beaten in vain while no master serves.
#[derive(Default)]
pub(super) struct Callers(Mutex<BTreeMap<NodeId, Calls>>);

#[derive(Clone, Copy)]
struct Calls {
    first: Instant,
    last: Instant,
}

impl Callers {
    /// Notes that a node has beaten while this master does not serve.
    pub fn add(&self, node: NodeId) {
        let now = Instant::now();
        let mut all = self.0.lock();
        if all.values().all(|calls| now - calls.last > GAP) {
            all.clear();
        }
        all.entry(node).or_insert(Calls { first: now, last: now }).last = now;
    }

    /// Returns the nodes that have beaten within the last round, if nodes have beaten in vain for a
    /// whole round: all other nodes are silent. Forgets all calls.
    pub fn take(&self) -> Option<BTreeSet<NodeId>> {
        let now = Instant::now();
        let all = std::mem::take(&mut *self.0.lock());
        let first = all.values().map(|calls| calls.first).min()?;
        let recent = all.iter().filter(|(_, calls)| now - calls.last < ROUND);
        (now - first >= ROUND).then(|| recent.map(|(node, _)| *node).collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_look_for_a_master_for_a_round_is_silent() {
        let callers = Callers::default();
        assert_eq!(callers.take(), None);
        let half = Duration::from_millis(800);
        callers.add(NodeId(1));
        callers.add(NodeId(2));
        sleep(half).await;
        callers.add(NodeId(1));
        sleep(half).await;
        assert_eq!(callers.take(), Some([NodeId(1)].into()));
        assert_eq!(callers.take(), None, "they are forgotten");
        callers.add(NodeId(1));
        sleep(half).await;
        callers.add(NodeId(2));
        assert_eq!(callers.take(), None, "too little time for node 2");
        callers.add(NodeId(1));
        sleep(GAP * 2).await;
        callers.add(NodeId(2));
        assert_eq!(callers.take(), None, "an election of before does not count");
    }
}
