//! Counters of the nodes that have blocks. There are as many labels as nodes in the cluster map.

use std::fmt;

use cairn_fs::{NodeCounts, Peers, TimedCount};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::number::{Number, gauge};

/// Returns the number of connections; `None` if no blocks are on other nodes.
pub(super) fn connections(peers: &Peers) -> Option<Number> {
    let help = "Connections for blocks in use to one node, at most";
    (peers.connections > 0).then(|| gauge("peer_connections_limit", help, peers.connections))
}

#[derive(Debug)]
pub(super) struct PeerCollector(pub Peers);

impl Collector for PeerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let count = |spent: TimedCount| spent.count;
        let seconds = |spent: TimedCount| spent.time.as_secs_f64();
        self.encode_each(&mut encoder, "peer_requests", "Blocks asked of a node", count)?;
        let help = "Time of a node to read a block, or to make one durable; waiting for a \
                    connection to it";
        self.encode_each(&mut encoder, "peer_seconds", help, seconds)?;
        let help = "Requests for blocks that a node failed";
        let mut metric =
            encoder.encode_descriptor("peer_failed", help, None, MetricType::Counter)?;
        for NodeCounts { node, failed, .. } in &self.0.nodes {
            let labels = [("node", node.to_string())];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(failed, None)?;
        }
        Ok(())
    }
}

impl PeerCollector {
    fn encode_each<N: EncodeCounterValue>(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        value: fn(TimedCount) -> N,
    ) -> Result<(), fmt::Error> {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for NodeCounts { node, read, write, wait, .. } in &self.0.nodes {
            for (what, spent) in [("read", read), ("write", write), ("wait", wait)] {
                let labels = [("node", node.to_string()), ("what", what.to_owned())];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, N, u64>(&value(*spent), None)?;
            }
        }
        Ok(())
    }
}
