use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, NodeId, Result, Role};
use cairn_cluster::wire::{Dial, Link, NoService, Peer, Reconnect, Retry, accept};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::pair::link;
use crate::support::{GATEWAY, SECOND, ends, terms, unavailable};

/// The method on which a master hangs up instead of answering.
const HANG_UP: u16 = 2;

/// Masters in this process, each under its name, up or down. Each answers with its number.
#[derive(Clone, Default)]
struct Masters {
    hung_up: Arc<AtomicUsize>,
    up: Arc<Mutex<BTreeMap<String, NodeId>>>,
    dialed: Arc<Mutex<Vec<String>>>,
    peers: Arc<Mutex<Vec<Peer>>>,
}

impl Masters {
    fn set_up(&self, name: &str, node: u64) {
        self.up.lock().insert(name.to_owned(), NodeId(node));
    }

    fn take_down(&self, name: &str) {
        let node = self.up.lock().remove(name);
        for peer in self.peers.lock().extract_if(.., |_| true) {
            assert!(node.is_some());
            peer.close();
        }
    }

    fn dialed(&self) -> Vec<String> {
        std::mem::take(&mut *self.dialed.lock())
    }

    fn reconnect(&self) -> Reconnect<NoService> {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let terms = terms(GATEWAY, Role::Gateway);
        let rng = Arc::new(SeededRng::new(5));
        let retry = Retry::default();
        Reconnect::new(Arc::new(self.clone()), names, terms, NoService, rng, retry)
    }
}

#[async_trait]
impl Dial for Masters {
    async fn dial(&self, address: &str) -> Result<Link> {
        self.dialed.lock().push(address.to_owned());
        let node = self.up.lock().get(address).copied();
        let node = node.ok_or_else(|| Error::Unavailable(format!("{address} is down")))?;
        let ends = ends();
        let (peers, hung_up) = (Arc::clone(&self.peers), Arc::clone(&self.hung_up));
        tokio::spawn(async move {
            let service = move |peer: &Peer, method: u16, _: Bytes| {
                if method == HANG_UP {
                    hung_up.fetch_add(1, Ordering::Relaxed);
                    peer.close();
                }
                async move {
                    match method {
                        HANG_UP => std::future::pending().await,
                        _ => Ok(Bytes::from(node.to_string())),
                    }
                }
            };
            let from = link(ends.far, GATEWAY, Role::Gateway);
            let peer = accept(from, &terms(node, Role::Master), service).await.unwrap();
            peers.lock().push(peer);
        });
        Ok(link(ends.near, node, Role::Master))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

async fn ask(client: &Reconnect<NoService>) -> Result<Bytes> {
    client.call(1, Bytes::new(), 30 * SECOND).await
}

#[tokio::test(start_paused = true)]
async fn the_next_address_is_tried_and_the_one_that_answered_remembered() {
    let masters = Masters::default();
    masters.set_up("b", 11);
    let client = masters.reconnect();
    assert_eq!(ask(&client).await.unwrap(), "11");
    assert_eq!(masters.dialed(), ["a", "b"]);
    ask(&client).await.unwrap();
    assert!(masters.dialed().is_empty(), "the connection is kept");
    masters.set_up("a", 10);
    masters.take_down("b");
    masters.set_up("b", 12);
    tokio::time::sleep(SECOND).await;
    assert_eq!(ask(&client).await.unwrap(), "12");
    assert_eq!(masters.dialed(), ["b"], "it begins with the one that answered last");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_when_somebody_serves() {
    let masters = Masters::default();
    masters.set_up("a", 1);
    let client = Arc::new(masters.reconnect());
    ask(&client).await.unwrap();
    masters.take_down("a");
    tokio::time::sleep(SECOND).await;
    masters.dialed();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { ask(&client).await })
        })
        .collect();
    tokio::time::sleep(10 * SECOND).await;
    let tries = masters.dialed();
    assert!((9..=45).contains(&tries.len()), "one dials for all, with pauses: {}", tries.len());
    masters.set_up("c", 3);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "3");
    }
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_in_time_and_says_what_each_said() {
    let client = Masters::default().reconnect();
    let start = Instant::now();
    let failed = client.call(1, Bytes::new(), 5 * SECOND).await;
    assert!(start.elapsed() <= 5 * SECOND);
    unavailable(failed, "a: unavailable, try again later: a is down; b: ");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stands_by_is_left_for_the_next() {
    let masters = Masters::default();
    masters.set_up("a", 1);
    masters.set_up("b", 2);
    let client = masters.reconnect();
    let peer = client.peer(Instant::now() + SECOND).await.unwrap();
    assert_eq!(peer.info().authenticated.node, NodeId(1));
    client.leave(&peer);
    client.leave(&peer);
    assert_eq!(ask(&client).await.unwrap(), "2", "left once, though two said so");
    assert_eq!(masters.dialed(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_sent_is_not_sent_again() {
    let masters = Masters::default();
    masters.set_up("a", 1);
    let client = masters.reconnect();
    let failed = client.call(HANG_UP, Bytes::new(), 30 * SECOND).await;
    unavailable(failed, "whether the call was carried out is unknown");
    assert_eq!(masters.hung_up.load(Ordering::Relaxed), 1);
    assert_eq!(ask(&client).await.unwrap(), "1", "the next request finds a new connection");
    assert_eq!(masters.dialed(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_goes_away_is_left_before_anything_is_lost() {
    let masters = Masters::default();
    masters.set_up("a", 1);
    masters.set_up("b", 2);
    let client = masters.reconnect();
    assert_eq!(ask(&client).await.unwrap(), "1");
    let peer = masters.peers.lock()[0].clone();
    masters.up.lock().remove("a");
    peer.go_away(&Error::Unavailable("this node stops".into()));
    for _ in 0..100 {
        let reply = ask(&client).await.unwrap();
        assert!(reply == "1" || reply == "2");
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&client).await.unwrap(), "2");
}
