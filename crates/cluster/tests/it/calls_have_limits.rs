use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cairn_base::Role;
use cairn_cluster::wire::{Peer, Window};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::support::{GATEWAY, MASTER, SECOND, echo, pair_with, terms, unavailable};

/// A service that holds every call until there is a permit, and counts what it holds.
#[derive(Clone)]
struct Holding {
    permits: Arc<Semaphore>,
    calls: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Holding {
    fn new() -> Holding {
        Holding {
            permits: Arc::new(Semaphore::new(0)),
            calls: Arc::default(),
            most: Arc::default(),
        }
    }

    async fn pair(&self, window: Window) -> (Peer, Peer) {
        let mut far = terms(MASTER, Role::Master);
        far.window = window;
        let this = self.clone();
        let service = move |_: &Peer, _: u16, payload: Bytes| {
            let this = this.clone();
            async move {
                let now = this.calls.fetch_add(1, Ordering::Relaxed) + 1;
                this.most.fetch_max(now, Ordering::Relaxed);
                this.permits.acquire().await.unwrap().forget();
                this.calls.fetch_sub(1, Ordering::Relaxed);
                Ok(payload)
            }
        };
        pair_with(terms(GATEWAY, Role::Gateway), far, echo, service).await
    }

    async fn held(&self, count: usize) {
        while self.calls.load(Ordering::Relaxed) < count {
            tokio::task::yield_now().await;
        }
    }
}

async fn check(window: Window, payload: usize, expect: usize) {
    let holding = Holding::new();
    let (gateway, _master) = holding.pair(window).await;
    let all = tokio::spawn(async move {
        let calls = (0..50).map(|_| gateway.call(1, vec![1; payload].into(), 600 * SECOND));
        for reply in join_all(calls).await {
            assert_eq!(reply.unwrap().len(), payload);
        }
    });
    holding.held(expect).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(holding.calls.load(Ordering::Relaxed), expect, "{window:?}");
    holding.permits.add_permits(50);
    all.await.unwrap();
    assert_eq!(holding.most.load(Ordering::Relaxed), expect, "{window:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_is_asked_at_once_than_the_peer_allows() {
    check(Window { calls: 10, bytes: 1 << 20 }, 100, 10).await;
    check(Window { calls: 1000, bytes: 1000 }, 218, 4).await;
    // Longer than the window: one at a time.
    check(Window { calls: 1000, bytes: 1000 }, 5000, 1).await;
    check(Window { calls: 0, bytes: 0 }, 5, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_room_in_time_was_not_sent() {
    let holding = Holding::new();
    let (gateway, _master) = holding.pair(Window { calls: 2, bytes: 1 << 20 }).await;
    let held = [1, 2].map(|_| {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.call(1, Bytes::new(), 60 * SECOND).await })
    });
    holding.held(2).await;
    let waits = gateway.call(1, Bytes::new(), 3 * SECOND);
    unavailable(waits.await, "waited for answers for too long; this call was not sent");
    holding.permits.add_permits(2);
    for call in held {
        call.await.unwrap().unwrap();
    }
    holding.permits.add_permits(1);
    gateway.call(1, Bytes::new(), SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn late_calls_keep_their_room_until_they_are_answered() {
    let holding = Holding::new();
    let (gateway, _master) = holding.pair(Window { calls: 2, bytes: 1 << 20 }).await;
    for _ in 0..2 {
        unavailable(gateway.call(1, Bytes::new(), SECOND).await, "carried out is unknown");
    }
    unavailable(gateway.call(1, Bytes::new(), SECOND).await, "not sent");
    assert_eq!(holding.calls.load(Ordering::Relaxed), 2);
    holding.permits.add_permits(3);
    gateway.call(1, Bytes::new(), SECOND).await.unwrap();
}

#[tokio::test]
async fn replies_that_nobody_reads_stop_the_service() {
    // Each reply is 512 KiB: after some the service is not asked any more.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let service = move |_: &Peer, _: u16, _: Bytes| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(Bytes::from(vec![0; 512 << 10])))
    };
    let mut raw = crate::strange_bytes_end_the_connection::Raw::with(service).await;
    for id in 0..500u64 {
        raw.request(id, &[]).await;
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let begun = asked.load(Ordering::Relaxed);
    assert!((1..=4).contains(&begun), "{begun} replies wait in memory");
    raw.skip(500 * (32 + (512 << 10))).await;
    assert_eq!(asked.load(Ordering::Relaxed), 500);
}
