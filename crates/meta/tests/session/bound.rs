//! A session in the process of the master reads under that master's lease: the next master need not
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_base::{SessionId, UserId};
use cairn_meta::master::host::{Answer, Sender};
use cairn_meta::ops::open_object::OpenObject;
use cairn_meta::session::OwnMaster;
use cairn_meta::session::client::{self, Client};
use cairn_meta::session::{Attach, AttachReply, Bind, Bound, Reply, SessionMethod};
use cairn_meta::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::net::{Cut, LEASE, Net, caller, get, put};

const PEER: u64 = 1;

/// Returns whether an object is answered from memory.
fn is_held(client: &Client) -> bool {
    let verb = OpenObject { bucket: "bucket".into(), key: "a".into() };
    client.read_now(&caller(), &verb).is_some()
}

/// A client in the process of the master, which holds 1 in an object.
async fn beside_master(net: &Arc<Net>) -> (Client, Arc<Cut>, Arc<OwnMaster>) {
    let own = Arc::<OwnMaster>::default();
    own.set(Some(net.master()));
    let config = client::Config { own: Some(Arc::clone(&own)), ..client::Config::default() };
    let (client, cut) = net.client_with(PEER, config).await;
    put(&client, "a", 1).await.unwrap();
    hold(&client).await;
    // It is bound in a moment.
    sleep(LEASE / 8).await;
    (client, cut, own)
}

async fn hold(client: &Client) {
    while !is_held(client) {
        get(client, "a").await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_next_master_does_not_wait_for_a_process_that_died_with_its_master() {
    let net = Net::new().await;
    let (client, cut, _own) = beside_master(&net).await;
    cut.silent.store(true, Ordering::SeqCst);
    net.kill_master().await;
    assert!(net.sessions().opened_now());
    // A process that goes on without its master reads nothing of what it holds.
    assert!(!is_held(&client));
    assert_eq!(client.lease_left(), Duration::ZERO);
    let (other, _) = net.client(2).await;
    put(&other, "a", 2).await.unwrap();
    assert!(!is_held(&client));
}

#[tokio::test]
async fn it_waits_for_any_other_session() {
    let net = Net::new().await;
    let (client, cut) = net.client(PEER).await;
    put(&client, "a", 1).await.unwrap();
    hold(&client).await;
    cut.silent.store(true, Ordering::SeqCst);
    net.kill_master().await;
    assert!(!net.sessions().opened_now() && is_held(&client));
}

/// It reads what the second master has leased to it, in another process: the third one waits.
#[tokio::test]
async fn a_session_that_another_master_attached_is_waited_for() {
    let net = Net::new().await;
    let (client, cut, own) = beside_master(&net).await;
    net.kill_master().await;
    hold(&client).await;
    assert_eq!(client.session(), net.sessions().list()[0].0, "the same session goes on");
    cut.silent.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    net.kill_master().await;
    assert!(!net.sessions().opened_now() && is_held(&client));
    while !net.sessions().opened_now() {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(begun.elapsed() > LEASE * 9 / 10 && !is_held(&client));
    // The master in its process serves again.
    own.set(Some(net.master()));
    cut.silent.store(false, Ordering::SeqCst);
    hold(&client).await;
    sleep(LEASE / 8).await;
    cut.silent.store(true, Ordering::SeqCst);
    net.kill_master().await;
    assert!(net.sessions().opened_now() && !is_held(&client));
}

#[tokio::test]
async fn it_stays_bound_when_the_connection_to_the_same_master_is_lost() {
    let net = Net::new().await;
    let (client, cut, _own) = beside_master(&net).await;
    let attached = || cut.attached.lock().len();
    cut.lose_one_in.store(1, Ordering::SeqCst);
    while attached() < 2 {
        sleep(Duration::from_millis(2)).await;
    }
    cut.lose_one_in.store(0, Ordering::SeqCst);
    hold(&client).await;
    cut.silent.store(true, Ordering::SeqCst);
    net.kill_master().await;
    assert!(net.sessions().opened_now() && !is_held(&client));
}

/// A process of a node that was killed, and its successor, which holds the lock of its directory.
#[tokio::test]
async fn a_successor_ends_what_a_process_that_died_has_left() {
    let net = Net::new().await;
    let sole = || client::Config { is_sole: true, ..client::Config::default() };
    let (former, cut) = net.client_with(PEER, sole()).await;
    put(&former, "a", 1).await.unwrap();
    hold(&former).await;
    let (other, _) = net.client(2).await;
    let count = || net.sessions().list().len();
    assert_eq!(count(), 2);
    // Its connection ends, and it says nothing more.
    cut.die();
    drop(former);
    let (successor, _) = net.client_with(PEER, sole()).await;
    let began = Instant::now();
    put(&other, "a", 2).await.unwrap();
    assert!(began.elapsed() < LEASE / 2, "a change waited for a process that has ended");
    assert_eq!((get(&successor, "a").await.unwrap(), count()), (2, 2));
    // The next master finds a session of a process that died with the former one.
    let session = successor.session();
    drop(successor);
    net.kill_master().await;
    assert!(!net.sessions().opened_now());
    let (last, _) = net.client_with(PEER, sole()).await;
    get(&other, "a").await.unwrap();
    assert!(net.sessions().opened_now());
    assert!(last.session() != session && count() == 2);
}

/// Somebody has copied the directory of a node: its process runs, so nothing of it is ended.
#[tokio::test]
async fn a_process_that_is_connected_has_no_successor() {
    let net = Net::new().await;
    let sole = || client::Config { is_sole: true, ..client::Config::default() };
    let (first, _) = net.client_with(PEER, sole()).await;
    put(&first, "a", 1).await.unwrap();
    hold(&first).await;
    let (second, _) = net.client_with(PEER, sole()).await;
    sleep(LEASE / 4).await;
    put(&second, "a", 2).await.unwrap();
    assert_eq!(get(&first, "a").await.unwrap(), 2);
    assert_eq!(net.sessions().list().len(), 2);
}

async fn ask<R: DeserializeOwned>(
    net: &Net,
    from: &Sender,
    method: SessionMethod,
    message: &impl Serialize,
) -> Reply<R> {
    let message = wire::encode(message).unwrap();
    let answer = net.sessions().handle(from, method, &message).await.unwrap();
    let (Answer::Bytes(bytes) | Answer::Attached(bytes, _)) = answer;
    wire::decode(&bytes).unwrap()
}

#[tokio::test]
async fn only_the_session_of_a_node_is_bound_and_only_to_the_master_that_is_asked() {
    let net = Net::new().await;
    let (session, epoch) = (SessionId(7), net.master().epoch());
    let (node, mount) = (Sender::node(9), Sender::mount(UserId(9)));
    let bind = |session, epoch| Bind { session, epoch };
    let asked = ask::<Bound>(&net, &node, SessionMethod::Bind, &bind(session, epoch)).await;
    assert!(matches!(asked, Reply::NotAttached), "{asked:?}");
    for (from, session) in [(&node, session), (&mount, SessionId(8))] {
        let attach = Attach { session };
        let attached = ask::<AttachReply>(&net, from, SessionMethod::Attach, &attach).await;
        assert!(matches!(attached, Reply::Done(_)), "{attached:?}");
    }
    let asked = ask::<Bound>(&net, &mount, SessionMethod::Bind, &bind(SessionId(8), epoch)).await;
    assert!(matches!(asked, Reply::Failed(_)), "{asked:?}");
    for other in [epoch - 1, epoch + 1] {
        let asked = ask::<Bound>(&net, &node, SessionMethod::Bind, &bind(session, other)).await;
        assert!(matches!(asked, Reply::Done(Bound { epoch: its }) if its == epoch), "{asked:?}");
    }
    net.kill_master().await;
    assert!(!net.sessions().opened_now(), "nothing was noted");
}
