//! A session that nobody wants any more is not attached again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::net::{LEASE, Net, get, put};

const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_closed_stays_closed() {
    let net = Net::new().await;
    for hasty in [false, true] {
        let (client, _) = if hasty { net.hasty_client(1).await } else { net.client(2).await };
        put(&client, "key", 1).await.unwrap();
        client.close().await;
        assert!(net.sessions().list().is_empty());
        let asked = async { (put(&client, "key", 2).await, get(&client, "key").await) };
        let (written, read) = timeout(PATIENCE, asked).await.unwrap();
        assert!(written.is_err() && read.is_err());
        sleep(LEASE / 2).await;
        assert!(net.sessions().list().is_empty() && !client.is_attached());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_lapses() {
    let net = Net::new().await;
    let (client, _) = net.hasty_client(1).await;
    let other = client.clone();
    drop(client);
    put(&other, "key", 1).await.unwrap();
    assert_eq!(net.sessions().list().len(), 1);
    drop(other);
    let lapsed = async {
        while !net.sessions().list().is_empty() {
            sleep(LEASE / 8).await;
        }
    };
    timeout(PATIENCE, lapsed).await.unwrap();
}

/// Blocks of the session may be where metadata that began anew know of nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_does_not_go_on_where_metadata_began_anew() {
    let net = Net::new().await;
    for (peer, hasty) in [(1, false), (2, true)] {
        let (client, cut) =
            if hasty { net.hasty_client(peer).await } else { net.client(peer).await };
        put(&client, "key", 1).await.unwrap();
        let first = client.session();
        net.kill_master().await;
        put(&client, "key", 2).await.unwrap();
        assert_eq!(client.session(), first, "another master of the same metadata");
        cut.generation.store(7, Ordering::SeqCst);
        net.kill_master().await;
        let moved = async {
            while client.session() == first || put(&client, "key", 3).await.is_err() {
                sleep(LEASE / 8).await;
            }
        };
        timeout(PATIENCE, moved).await.unwrap();
        let second = client.session();
        net.kill_master().await;
        put(&client, "key", 4).await.unwrap();
        assert_eq!(client.session(), second);
        client.close().await;
    }
}
