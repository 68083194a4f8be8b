use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Role};
use cairn_cluster::wire::{Peer, serve};
use tokio::sync::{Notify, watch};

use crate::support::{Cluster, GATEWAY, MASTER, PATIENCE, SECOND, pair, unavailable};

/// Answers method 1 when the gate opens, everything else at once.
fn gated(gate: &Arc<Notify>) -> impl cairn_cluster::wire::Service + use<> {
    let gate = Arc::clone(gate);
    move |_: &Peer, method: u16, payload: Bytes| {
        let gate = Arc::clone(&gate);
        async move {
            if method == 1 {
                gate.notified().await;
            }
            Ok(payload)
        }
    }
}

#[tokio::test]
async fn what_is_in_flight_is_answered_and_nothing_new_is_sent() {
    let gate = Arc::new(Notify::new());
    let (gateway, master) = pair(gated(&gate)).await;
    let held = {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.call(1, "held".into(), PATIENCE).await })
    };
    gateway.call(2, Bytes::new(), PATIENCE).await.unwrap();
    master.go_away(&Error::Unavailable("to be upgraded".into()));
    while gateway.is_usable() {
        tokio::task::yield_now().await;
    }
    let refused = gateway.call(2, Bytes::new(), PATIENCE).await;
    unavailable(refused, "goes away: unavailable, try again later: to be upgraded; not sent");
    assert!(master.is_usable(), "it still waits for the answer");
    gate.notify_one();
    assert_eq!(held.await.unwrap().unwrap(), "held");
    assert!(gateway.closed().await.to_string().contains("to be upgraded"));
    master.closed().await;
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_has_and_drops_who_stays_too_long() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let gate = Arc::new(Notify::new());
    let listener = Arc::new(master.listener(None).await);
    let address = listener.local_address().unwrap().to_string();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve(listener, master.terms(), gated(&gate), SECOND, stopped));
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let [idle, prompt, hanging] = [
        gateway.dial_and_call_with(2, &address).await,
        gateway.dial_and_call_with(2, &address).await,
        gateway.dial_and_call_with(2, &address).await,
    ];
    let ask = |peer: &Peer| {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(1, "held".into(), PATIENCE).await })
    };
    let answered = ask(&prompt);
    prompt.call(2, Bytes::new(), PATIENCE).await.unwrap();
    stop.send_replace(true);
    idle.closed().await;
    gate.notify_one();
    assert_eq!(answered.await.unwrap().unwrap(), "held");
    // A peer that was asked to go and still waits for an answer that never comes.
    drop(hanging);
    tokio::time::timeout(PATIENCE, serving).await.expect("it is dropped").unwrap();
    assert!(gateway.dial(&address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_call_that_is_never_answered_does_not_keep_the_server_from_stopping() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    let gate = Arc::new(Notify::new());
    let listener = Arc::new(master.listener(None).await);
    let address = listener.local_address().unwrap().to_string();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve(listener, master.terms(), gated(&gate), SECOND, stopped));
    let peer = cluster.node(GATEWAY, Role::Gateway).dial_and_call_with(2, &address).await;
    let held = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(1, "held".into(), PATIENCE).await })
    };
    peer.call(2, Bytes::new(), PATIENCE).await.unwrap();
    stop.send_replace(true);
    serving.await.unwrap();
    unavailable(held.await.unwrap(), "whether the call was carried out is unknown");
}
