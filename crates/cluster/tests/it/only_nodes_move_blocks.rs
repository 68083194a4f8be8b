use cairn_base::{Error, NodeId, Pin, Redundancy, Role, Roles};
use cairn_blocks::Blocks;
use cairn_cluster::identity::{NodeKey, Pins};
use cairn_cluster::wire::Dial;
use cairn_cluster::wire::tls::TlsDialer;

use crate::support::data::{World, data};
use crate::support::raw::connect;
use crate::support::{Cluster, GATEWAY, MASTER, Node, denied};

const USAGE: &[u8] = b"GET /usage HTTP/1.1\r\nhost: cairn\r\ncairn-epoch: 1\r\n\r\n";

async fn asks(node: &Node, address: &str) -> Result<String, Error> {
    let dialer = TlsDialer::for_blocks(node.trust.clone())?;
    let mut link = dialer.dial(address).await?;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let refused = |error| Error::Denied(format!("{error}"));
    link.stream.write_all(USAGE).await.map_err(refused)?;
    let mut bytes = vec![0; 15];
    link.stream.read_exact(&mut bytes).await.map_err(refused)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn only_pinned_nodes_with_a_role_get_in() {
    let world = World::new(1, &[(1, &[11])]).await;
    let address = &world.servers[&11].address;
    let cluster = &world.cluster;
    for (id, role) in [(50, Role::Master), (51, Role::Chunkserver), (52, Role::Gateway)] {
        let node = cluster.node(NodeId(id), role);
        assert_eq!(asks(&node, address).await.unwrap(), "HTTP/1.1 200 OK");
    }
    // Of another cluster; removed; with another key; in no role that there is.
    let other = Cluster::new().node(GATEWAY, Role::Gateway);
    denied(asks(&other, address).await, "");
    let removed = cluster.node(NodeId(53), Role::Gateway);
    cluster.map.remove(NodeId(53));
    denied(asks(&removed, address).await, "fatal alert");
    let other_key = cluster.node(NodeId(54), Role::Gateway);
    let key = NodeKey::generate().unwrap().public().hash();
    cluster.map.set(NodeId(54), Pin { key, roles: Role::Gateway.into() });
    denied(asks(&other_key, address).await, "fatal alert");
    let idle = cluster.node(NodeId(55), Role::Gateway);
    let pin = cluster.map.pin(NodeId(55)).unwrap();
    for roles in [Roles::NONE, Roles::from_bits(1 << 9)] {
        cluster.map.set(NodeId(55), Pin { roles, ..pin });
        assert!(asks(&idle, address).await.is_err(), "{roles:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_removed_gets_no_further_answer() {
    let world = World::new(1, &[(1, &[11])]).await;
    let node = world.cluster.node(NodeId(50), Role::Gateway);
    let mut open = connect(&node, &world.servers[&11].address).await;
    open.send(USAGE).await;
    assert!(open.answer().await.starts_with("HTTP/1.1 200"));
    world.cluster.map.remove(NodeId(50));
    open.send(USAGE).await;
    assert!(open.answer().await.starts_with("HTTP/1.1 403"));
    open.send(USAGE).await;
    assert_eq!(open.answer().await, "", "the connection has ended");
}

#[tokio::test]
async fn a_node_that_is_not_whom_it_should_be_gets_nothing() {
    let world = World::new(2, &[(1, &[11])]).await;
    // The map has mixed up their addresses: 12 is a good node, but not the one that is meant.
    let address = world.servers[&12].address.clone();
    world.change(|map| map.nodes.get_mut(&NodeId(11)).unwrap().address = address);
    world.refresh();
    let read = world.read(1, 1, 10).await;
    denied(read, "the address of node 11");
    assert_eq!(world.servers[&12].store.usage().await.unwrap().blocks, 0);
}

#[tokio::test]
async fn a_listener_without_blocks_takes_none() {
    let cluster = Cluster::new();
    let address = cluster.node(MASTER, Role::Master).listen().await;
    assert!(asks(&cluster.node(GATEWAY, Role::Gateway), &address).await.is_err());
    // And where blocks are served, other calls go on as before.
    let world = World::new(1, &[(1, &[11])]).await;
    let dialer = world.gateway.dialer();
    assert!(dialer.dial(&world.servers[&11].address).await.is_ok());
    let wish = cairn_blocks::Wish {
        redundancy: Redundancy::from_number(1),
        ..cairn_blocks::Wish::default()
    };
    world.write_in(wish, 1, &data(1, 10)).await.unwrap();
}
