use std::sync::Arc;

use cairn_base::NodeId;
use cairn_base::rng::RealRng;
use cairn_blocks::{Blocks, NodeCounts, TimedCount};
use cairn_cluster::data::{Loads, ReplicatedBlocks};
use cairn_cluster::limits::NODE_REQUESTS;
use futures_util::future::join_all;

use crate::support::data::{World, block, data, pool};

fn sum(nodes: &[NodeCounts], of: fn(&NodeCounts) -> TimedCount) -> u64 {
    nodes.iter().map(|peer| of(peer).count).sum()
}

#[tokio::test]
async fn each_node_says_how_long_it_took() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    for counter in 0..4 {
        world.write(counter, &data(counter, 5000)).await.unwrap();
        world.read(1, counter, 5000).await.unwrap();
    }
    let peers = world.blocks.counted().peers;
    assert_eq!(peers.connections, NODE_REQUESTS as u64);
    let known: Vec<NodeId> = peers.nodes.iter().map(|peer| peer.node).collect();
    assert_eq!(known, [11, 12, 13].map(NodeId));
    for peer in &peers.nodes {
        assert_eq!(peer.write.count, 4, "{peer:?}");
        assert!(!peer.write.time.is_zero(), "{peer:?}");
    }
    assert_eq!(sum(&peers.nodes, |peer| peer.read), 4);
    assert_eq!(sum(&peers.nodes, |peer| peer.wait), 0);
    assert!(peers.nodes.iter().all(|peer| peer.failed == 0), "{peers:?}");
}

#[tokio::test]
async fn who_finds_no_connection_waits_for_it() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let bytes = data(1, 100_000);
    let group = world.write(1, &bytes).await.unwrap();
    let (map, rng) = (Arc::clone(&world.map) as _, Arc::new(RealRng));
    let one = ReplicatedBlocks::limited(map, pool(&world.gateway), Loads::default(), rng, 1);
    let reads = (0..8).map(|_| one.get(group, block(1), 0..100_000));
    for read in join_all(reads).await {
        assert_eq!(read.unwrap(), bytes);
    }
    let peers = one.counted().peers;
    assert_eq!(peers.connections, 1);
    assert_eq!(sum(&peers.nodes, |peer| peer.read), 8);
    // At each of two members one of them finds a connection.
    let waited = sum(&peers.nodes, |peer| peer.wait);
    assert!((6..=7).contains(&waited), "{peers:?}");
    assert!(peers.nodes.iter().all(|peer| peer.wait.count == 0 || !peer.wait.time.is_zero()));
}

#[tokio::test]
async fn a_node_that_fails_is_told() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let fault = cairn_sim::Fault::once(Some(cairn_sim::Call::SyncData), 0);
    world.servers[&12].disk.add_fault(fault);
    world.write(1, &data(1, 5000)).await.unwrap();
    let nodes = world.blocks.counted().peers.nodes;
    let failed: Vec<(u64, u64)> = nodes.iter().map(|peer| (peer.node.0, peer.failed)).collect();
    assert_eq!(failed, [(11, 0), (12, 1)]);
}
