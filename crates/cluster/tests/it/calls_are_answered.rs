use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result, Role};
use cairn_cluster::wire::Peer;
use futures_util::future::{join_all, ready};
use tokio::sync::Notify;

use crate::support::{Cluster, GATEWAY, MASTER, PATIENCE, SECOND, echo, pair, unavailable};

#[tokio::test]
async fn ten_thousand_at_once_each_get_their_own_answer() {
    // Every third is not ready at once.
    let service = |_: &Peer, method: u16, payload: Bytes| async move {
        if method.is_multiple_of(3) {
            tokio::task::yield_now().await;
        }
        Ok(payload)
    };
    let (gateway, _master) = pair(service).await;
    let calls = (0..10_000u32).map(|number| {
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let payload = Bytes::from(vec![number as u8; (number % 300) as usize]);
            let asked = [&number.to_le_bytes()[..], &payload].concat();
            let reply = gateway.call(number as u16, asked.clone().into(), PATIENCE).await;
            assert_eq!(reply.unwrap(), asked);
        })
    });
    for done in join_all(calls).await {
        done.unwrap();
    }
}

#[tokio::test]
async fn both_sides_ask_over_one_connection() {
    let cluster = Cluster::new();
    let master = cluster.node(MASTER, Role::Master);
    // The master asks back before it answers.
    let service = |peer: &Peer, method: u16, payload: Bytes| {
        let peer = peer.clone();
        async move { peer.call(method, [&b"recall "[..], &payload].concat().into(), PATIENCE).await }
    };
    let address = master.listen_with(None, service).await;
    let gateway = cluster.node(GATEWAY, Role::Gateway);
    let peer = gateway.dial(&address).await.unwrap();
    assert_eq!(peer.info().authenticated.node, MASTER);
    assert_eq!((peer.info().role, peer.info().version), (Role::Master, 2));
    let reply = peer.call(1, "lease".into(), PATIENCE).await.unwrap();
    assert_eq!(reply, "recall lease");
}

#[tokio::test]
async fn payloads_of_any_length_pass() {
    let cluster = Cluster::new();
    let address = cluster.node(MASTER, Role::Master).listen().await;
    let peer = cluster.node(GATEWAY, Role::Gateway).dial(&address).await.unwrap();
    let lengths = [0, 1, 31, 16 << 10, (16 << 10) + 1, 65_535, 1 << 20, 8 << 20];
    let calls = lengths.iter().flat_map(|length| [*length; 2]).map(async |length| {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
        let payload = Bytes::from(bytes);
        assert_eq!(peer.call(1, payload.clone(), PATIENCE).await.unwrap(), payload);
    });
    join_all(calls).await;
    let long = peer.call(1, vec![0; (8 << 20) + 1].into(), PATIENCE).await;
    assert!(matches!(long, Err(Error::TooLarge(_))));
}

#[tokio::test]
async fn errors_are_of_the_same_kind_on_the_other_side() {
    let service = |_: &Peer, method: u16, payload: Bytes| {
        let text = String::from_utf8(payload.to_vec()).unwrap();
        ready(match method {
            1 => Err(Error::NotFound(text)),
            2 => Err(Error::corrupt(text, 1, 2)),
            3 => Err(Error::RangeNotSatisfiable { size: 77 }),
            _ => Ok(vec![0; (8 << 20) + 1].into()),
        })
    };
    let (gateway, _master) = pair(service).await;
    let ask = |method| gateway.call(method, "it".into(), PATIENCE);
    assert!(matches!(ask(1).await, Err(Error::NotFound(text)) if text == "it"));
    assert!(matches!(ask(2).await, Err(Error::Corrupt { what, got, expected })
        if (what.as_str(), got.as_str(), expected.as_str()) == ("it", "1", "2")));
    assert!(matches!(ask(3).await, Err(Error::RangeNotSatisfiable { size: 77 })));
    assert!(matches!(ask(4).await, Err(Error::TooLarge(_))), "a reply that is too long");
    assert!(ask(1).await.is_err(), "and the connection goes on");
}

#[tokio::test]
async fn a_cancelled_call_harms_no_other() {
    let gate = Arc::new(Notify::new());
    let waiting = Arc::clone(&gate);
    let service = move |_: &Peer, method: u16, payload: Bytes| {
        let gate = Arc::clone(&waiting);
        async move {
            if method == 1 {
                gate.notified().await;
            }
            Ok(payload)
        }
    };
    let (gateway, _master) = pair(service).await;
    for round in 0..100 {
        let held = gateway.call(1, "held".into(), PATIENCE);
        let cancelled = tokio::time::timeout(Duration::from_millis(1), held).await;
        assert!(cancelled.is_err(), "round {round}: nobody answered");
        let reply = gateway.call(2, "quick".into(), PATIENCE).await;
        assert_eq!(reply.unwrap(), "quick");
    }
    // The answers that come now find nobody, and that is fine.
    gate.notify_waiters();
    for _ in 0..100 {
        assert_eq!(gateway.call(2, "after".into(), PATIENCE).await.unwrap(), "after");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_unavailable_with_an_unknown_outcome() {
    let service = |_: &Peer, method: u16, payload: Bytes| async move {
        tokio::time::sleep(Duration::from_secs(method.into())).await;
        Ok(payload)
    };
    let (gateway, _master) = pair(service).await;
    let (late, early) = tokio::join!(
        gateway.call(9, "late".into(), 5 * SECOND),
        gateway.call(4, "early".into(), 5 * SECOND)
    );
    unavailable(late, "no answer within 5000 ms; whether the call was carried out is unknown");
    assert_eq!(early.unwrap(), "early");
}

#[tokio::test]
async fn what_is_told_arrives() {
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let service = move |_: &Peer, method: u16, payload: Bytes| {
        if method == 5 {
            count.fetch_add(1, Ordering::Relaxed);
        }
        ready(if method == 5 { Err(Error::Invalid("nobody hears".into())) } else { Ok(payload) })
    };
    let (gateway, _master) = pair(service).await;
    for _ in 0..10_000 {
        gateway.tell(5, Bytes::new(), PATIENCE).await.unwrap();
    }
    // Answered in order, so all were told before.
    gateway.call(1, Bytes::new(), PATIENCE).await.unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 10_000);
}

#[tokio::test]
async fn a_service_learns_of_its_peers() {
    #[derive(Clone, Default)]
    struct Counts(Arc<(AtomicUsize, AtomicUsize)>);
    impl cairn_cluster::wire::Service for Counts {
        type Reply = std::future::Ready<Result<Bytes>>;
        fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
            echo(peer, method, payload)
        }
        fn connected(&self, _: &Peer) {
            self.0.0.fetch_add(1, Ordering::Relaxed);
        }
        fn ended(&self, _: &Peer) {
            self.0.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Counts::default();
    let now = || (counts.0.0.load(Ordering::Relaxed), counts.0.1.load(Ordering::Relaxed));
    let (gateway, master) = pair(counts.clone()).await;
    gateway.call(1, Bytes::new(), PATIENCE).await.unwrap();
    assert_eq!(now(), (1, 0));
    drop(gateway);
    master.closed().await;
    tokio::task::yield_now().await;
    assert_eq!(now(), (1, 1), "the last handle of the one who dialed ends the connection");
}
