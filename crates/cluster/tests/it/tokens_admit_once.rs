use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Role, Roles, Secret};
use cairn_cluster::identity::{JoinToken, NodeKey};
use cairn_cluster::wire::join;

use crate::a_node_joins_by_its_token::issue;
use crate::support::{Cluster, MASTER, denied, echo};

/// Issues a token, changes the world, and joins with what `change` made of the token.
async fn check(change: impl FnOnce(&Cluster, &mut JoinToken), expect: Result<(), &str>) -> Cluster {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let address = master.listen_with(Some(cluster.desk()), echo).await;
    let mut token = cluster.token(vec![address], Role::Chunkserver.into());
    issue(&cluster, &token).await;
    change(&cluster, &mut token);
    let key = NodeKey::generate().unwrap();
    let joined = join(&token, &key, Arc::clone(&cluster.clock) as _).await;
    match expect {
        Ok(()) => assert!(joined.is_ok(), "{joined:?}"),
        Err(word) => {
            denied(joined, word);
            assert_eq!(cluster.map.len(), 1, "nobody joined");
        }
    }
    cluster
}

#[tokio::test]
async fn a_token_is_good_for_what_it_was_issued() {
    check(|_, _| {}, Ok(())).await;
    check(|cluster, _| cluster.clock.advance(Duration::from_secs(599)), Ok(())).await;
    let expire = |cluster: &Cluster, _: &mut JoinToken| {
        cluster.clock.advance(Duration::from_secs(600));
    };
    check(expire, Err("expired")).await;
    check(|_, token| token.secret = Secret::new([1; 32]), Err("secret is wrong")).await;
    check(|_, token| token.id.0 ^= 1, Err("did not issue it")).await;
    check(|_, token| token.roles = Role::Master.into(), Err("not for master")).await;
    let more = |_: &Cluster, token: &mut JoinToken| {
        token.roles = Roles::from(Role::Chunkserver).with(Role::Master);
    };
    check(more, Err("it is for chunkserver, not for master, chunkserver")).await;
    check(|_, token| token.authority.0[0] ^= 1, Err("another cluster")).await;
    check(|_, token| token.cluster.0 ^= 1, Err("of cluster")).await;
}

#[tokio::test]
async fn of_many_that_join_with_one_token_one_is_admitted() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let address = master.listen_with(Some(cluster.desk()), echo).await;
    let token = cluster.token(vec![address], Role::Gateway.into());
    issue(&cluster, &token).await;
    let joining = (0..20).map(|_| {
        let (token, clock) = (token.clone(), Arc::clone(&cluster.clock));
        tokio::spawn(async move { join(&token, &NodeKey::generate().unwrap(), clock as _).await })
    });
    let mut admitted = 0;
    for joined in futures_util::future::join_all(joining).await {
        match joined.unwrap() {
            Ok(_) => admitted += 1,
            Err(error) => assert!(matches!(error, Error::Denied(_)), "{error}"),
        }
    }
    assert_eq!((admitted, cluster.map.len()), (1, 2));
}
