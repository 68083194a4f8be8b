//! Sessions that are answered when an operation has run. Such changes stay done, others see them
//! when they are durable, and lost ones are reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::Ino;
use cairn_base::Rng;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::CommitFault;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::session::client::Client;
use tokio::time::{sleep, timeout};

use crate::net::{LEASE, Net, bucket, caller, find_in, is_made, make, make_in};

/// Longer than anything takes that waits for nothing.
const WHILE: Duration = Duration::from_millis(100);

async fn mkdir(client: &Client, parent: Ino, name: &str) -> Ino {
    let verb = Mkdir { parent, name: name.as_bytes().to_vec(), mode: 0o755, umask: 0 };
    client.run(&caller(), verb).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn done_before_it_is_durable() {
    let net = Net::new().await;
    let (hasty, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let (second, _) = net.hasty_client(3).await;
    let mut root = Ino::ROOT;
    for client in [&hasty, &other, &second] {
        root = bucket(client).await.unwrap();
    }
    let apart = mkdir(&second, root, "apart").await;
    second.flush().await.unwrap();
    net.disk().hold();
    for number in 0..500 {
        make(&hasty, number).await.unwrap();
        assert!(is_made(&hasty, number).await.unwrap());
    }
    assert!(!is_made(&hasty, 1000).await.unwrap());
    // Nobody else is shown what may be lost, nor told that something is done on top of it.
    assert!(timeout(WHILE, is_made(&other, 7)).await.is_err());
    assert!(timeout(WHILE, is_made(&second, 7)).await.is_err());
    assert!(timeout(WHILE, make_in(&second, root, 2000)).await.is_err());
    assert!(timeout(WHILE, make_in(&other, root, 3000)).await.is_err());
    // Not even apart from it: what the first one did may hang on what the second one changes.
    assert!(timeout(WHILE, make_in(&second, apart, 1)).await.is_err());
    assert!(timeout(WHILE, hasty.flush()).await.is_err());
    net.disk().go_on();
    hasty.flush().await.unwrap();
    for number in (0..500).chain([2000, 3000]) {
        assert!(is_made(&other, number).await.unwrap(), "{number}");
    }
    assert_eq!(hasty.lost() + second.lost(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_early_on_what_others_may_lose() {
    let net = Net::new().await;
    let (hasty, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&other).await.unwrap();
    net.disk().hold();
    assert!(timeout(WHILE, make_in(&other, root, 1)).await.is_err());
    let name = b"1".to_vec();
    let unlink = tokio::spawn({
        let hasty = hasty.clone();
        async move { hasty.run(&caller(), Unlink { parent: root, name }).await }
    });
    sleep(WHILE).await;
    assert!(!unlink.is_finished());
    net.disk().go_on();
    unlink.await.unwrap().unwrap();
    assert!(!is_made(&other, 1).await.unwrap());
    assert_eq!(hasty.lost(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn done_again_after_the_master_was_killed() {
    let net = Net::new().await;
    let (hasty, _) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    let root = bucket(&hasty).await.unwrap();
    make(&other, 1).await.unwrap();
    net.disk().hold();
    let directory = mkdir(&hasty, root, "directory").await;
    let mut inos = Vec::new();
    for number in 0..300 {
        inos.push(make_in(&hasty, directory, number).await.unwrap());
    }
    let gone = Unlink { parent: directory, name: b"13".to_vec() };
    hasty.run(&caller(), gone).await.unwrap();
    net.kill_master().await;
    for (number, ino) in inos.iter().enumerate() {
        let expected = (number != 13).then_some(*ino);
        assert_eq!(find_in(&other, directory, number as u64).await.unwrap(), expected);
    }
    hasty.flush().await.unwrap();
    assert_eq!(hasty.lost(), 0);
    // Numbers are not used again.
    let next = make_in(&other, directory, 1000).await.unwrap();
    assert!(inos.iter().all(|ino| ino.0 < next.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_too_early_hears_of_it() {
    let net = Net::new().await;
    let (hasty, _) = net.hasty_client(1).await;
    make(&hasty, 1).await.unwrap();
    hasty.flush().await.unwrap();
    net.disk().hold();
    net.engine.fail_commit(0, CommitFault::Failed);
    make(&hasty, 2).await.unwrap();
    assert!(is_made(&hasty, 2).await.unwrap());
    net.disk().go_on();
    hasty.flush().await.unwrap();
    assert_eq!(hasty.lost(), 1);
    // It does not go on showing what is not there.
    while is_made(&hasty, 2).await.unwrap() {
        sleep(WHILE / 20).await;
    }
    make(&hasty, 2).await.unwrap();
    hasty.flush().await.unwrap();
    assert_eq!(hasty.lost(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_unknown_outcome_is_no_loss() {
    let net = Net::new().await;
    let (hasty, _) = net.hasty_client(1).await;
    for (number, fault) in (0..).zip([
        CommitFault::UnknownLost,
        CommitFault::UnknownCommitted,
        CommitFault::UnknownLost,
    ]) {
        net.disk().hold();
        net.engine.fail_commit(0, fault);
        for step in 0..50 {
            make(&hasty, 100 * number + step).await.unwrap();
        }
        net.disk().go_on();
        hasty.flush().await.unwrap();
        for step in 0..50 {
            assert!(is_made(&hasty, 100 * number + step).await.unwrap());
        }
    }
    assert_eq!(hasty.lost(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_lapsed_hears_what_was_lost() {
    let net = Net::new().await;
    let (hasty, cut) = net.hasty_client(1).await;
    let (other, _) = net.client(2).await;
    bucket(&other).await.unwrap();
    make(&hasty, 1).await.unwrap();
    hasty.flush().await.unwrap();
    net.disk().hold();
    make(&hasty, 2).await.unwrap();
    make(&hasty, 3).await.unwrap();
    cut.silent.store(true, Ordering::SeqCst);
    net.kill_master().await;
    sleep(LEASE * 2).await;
    assert!(!is_made(&other, 2).await.unwrap());
    cut.silent.store(false, Ordering::SeqCst);
    hasty.flush().await.unwrap();
    assert_eq!(hasty.lost(), 2);
    assert!(!is_made(&hasty, 3).await.unwrap());
    assert!(is_made(&hasty, 1).await.unwrap());
}

/// Two clients that are answered early and another client make files and look for each other's,
/// while answers are lost and masters are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_see_what_anybody_was_told_is_done() {
    const FILES: u64 = 400;
    let net = Net::new().await;
    let rng = SeededRng::new(7);
    let (first, cut) = net.hasty_client(1).await;
    let (second, _) = net.hasty_client(2).await;
    let (third, _) = net.client(3).await;
    cut.lose_one_in.store(40, Ordering::SeqCst);
    let clients = [first, second, third];
    // Each makes files of numbers of its own, and counts those that it was told are made.
    let made: Arc<[AtomicU64; 3]> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let root = bucket(&clients[0]).await.unwrap();
    let (mut makers, mut seekers) = (Vec::new(), Vec::new());
    for (at, client) in clients.iter().enumerate() {
        let (client, made, seen) = (client.clone(), made.clone(), made.clone());
        makers.push(tokio::spawn({
            let client = client.clone();
            async move {
                for number in 0..FILES {
                    make_in(&client, root, at as u64 * 10_000 + number).await?;
                    made[at].store(number + 1, Ordering::SeqCst);
                    sleep(Duration::from_millis(1)).await;
                }
                client.flush().await
            }
        }));
        let (ended, rng) = (ended.clone(), SeededRng::new(at as u64));
        seekers.push(tokio::spawn(async move {
            while !ended.load(Ordering::SeqCst) {
                let whose = rng.next_u64() % 3;
                let known = seen[whose as usize].load(Ordering::SeqCst);
                if known > 0 {
                    let number = whose * 10_000 + known - 1 - rng.next_u64() % known.min(5);
                    let found = find_in(&client, root, number).await?;
                    assert!(found.is_some(), "{number} of {known}, as client {at} sees it");
                }
                sleep(Duration::from_millis(1)).await;
            }
            Ok::<(), cairn_base::Error>(())
        }));
    }
    net.disturb(&rng).await;
    for maker in makers {
        maker.await.unwrap().unwrap();
    }
    ended.store(true, Ordering::SeqCst);
    for seeker in seekers {
        seeker.await.unwrap().unwrap();
    }
    for (at, client) in clients.iter().enumerate() {
        client.flush().await.unwrap();
        assert_eq!(client.lost(), 0);
        for number in 0..FILES {
            assert!(find_in(client, root, at as u64 * 10_000 + number).await.unwrap().is_some());
        }
    }
}
