use std::sync::Arc;

use cairn_base::{Clock, Error, NodeId, Role, Roles, Timestamp};
use cairn_cluster::identity::{JoinResult, JoinToken, NodeKey, Tokens};
use cairn_cluster::wire::join;

use crate::support::{Cluster, MASTER, Node, denied, echo};

/// A cluster with a master that admits nodes.
async fn world() -> (Cluster, String) {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let address = master.listen_with(Some(cluster.desk()), echo).await;
    (cluster, address)
}

pub async fn issue(cluster: &Cluster, token: &JoinToken) {
    let expires = Timestamp::from_secs(cluster.clock.now().secs() + 600);
    cluster.map.issue(token.id, token.grant(expires)).await.unwrap();
}

async fn joining(cluster: &Cluster, token: &JoinToken, key: &NodeKey) -> Result<JoinResult, Error> {
    join(token, key, Arc::clone(&cluster.clock) as _).await
}

#[tokio::test]
async fn with_a_token_a_node_becomes_one_of_the_cluster() {
    let (cluster, address) = world().await;
    let token = cluster.token(vec![address.clone()], Role::Gateway.into());
    issue(&cluster, &token).await;
    let text = token.to_text();
    let carried = JoinToken::from_text(text.expose()).unwrap();
    let key = NodeKey::generate().unwrap();
    let joined = joining(&cluster, &carried, &key).await.unwrap();
    assert_eq!(joined.authority.certificate(), cluster.authority().certificate());
    let masters: Vec<NodeId> = joined.masters.iter().map(|known| known.node).collect();
    assert_eq!((masters, joined.roles), (vec![MASTER], Role::Gateway.into()));
    let node: Node = cluster.node_with(joined.node, Role::Gateway, key, joined.certificate);
    let peer = node.dial_and_call(&address).await.unwrap();
    assert_eq!(peer.info().authenticated.node, MASTER);
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let (cluster, address) = world().await;
    let token = cluster.token(vec![address], Role::Gateway.into());
    issue(&cluster, &token).await;
    let key = NodeKey::generate().unwrap();
    let first = joining(&cluster, &token, &key).await.unwrap();
    let again = joining(&cluster, &token, &key).await.unwrap();
    assert_eq!(again.node, first.node);
    assert_eq!(cluster.map.len(), 2, "one node joined");
    let other = NodeKey::generate().unwrap();
    denied(joining(&cluster, &token, &other).await, "has used it");
}

#[tokio::test]
async fn the_first_master_that_answers_admits() {
    let (cluster, address) = world().await;
    let token = cluster.token(vec!["127.0.0.1:1".into(), address], Role::Gateway.into());
    issue(&cluster, &token).await;
    joining(&cluster, &token, &NodeKey::generate().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_server_of_another_cluster_never_sees_the_secret() {
    let (cluster, _) = world().await;
    let (other, address) = world().await;
    // The token of the one, at the address of the other, which knows it too and would admit.
    let token = cluster.token(vec![address], Role::Gateway.into());
    issue(&other, &token).await;
    let refused = joining(&cluster, &token, &NodeKey::generate().unwrap()).await;
    denied(refused, "belongs to another cluster than the token");
    assert_eq!(other.map.len(), 1, "nobody joined");
}

#[tokio::test]
async fn a_node_that_is_no_master_never_sees_the_secret() {
    let cluster = Cluster::new();
    let gateway = cluster.node(NodeId(5), Role::Gateway);
    let address = gateway.listen_with(Some(cluster.desk()), echo).await;
    let token = cluster.token(vec![address], Role::Gateway.into());
    issue(&cluster, &token).await;
    let refused = joining(&cluster, &token, &NodeKey::generate().unwrap()).await;
    denied(refused, "the server is no master");
    assert_eq!(cluster.map.len(), 1);
}

#[tokio::test]
async fn a_joining_node_gets_no_further_than_the_desk() {
    let (cluster, address) = world().await;
    // It has a key and a certificate that nobody signed, as one that joins has.
    let key = NodeKey::generate().unwrap();
    let token = cluster.token(vec![address.clone()], Roles::from(Role::Master));
    // The token was never issued.
    denied(joining(&cluster, &token, &key).await, "did not issue it");
    let other = Cluster::new();
    let certificate = other.issue(NodeId(7), Role::Gateway, &key);
    let stranger = other.node_with(NodeId(7), Role::Gateway, key, certificate);
    assert!(stranger.dial_and_call(&address).await.is_err());
}
