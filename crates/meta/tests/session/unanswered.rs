//! No master answers for long: whoever waits hears of it, and what comes after it stays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::{Error, Ino, Result};
use cairn_meta::ops::getattr::Getattr;
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::session::client::Client;
use tokio::time::{pause, resume, sleep, timeout};

use crate::delegated::until_delegated;
use crate::net::{LEASE, Net, bucket, caller, find_in, make_in};

/// Longer than anybody waits; time goes on on its own while it is paused.
const LONG: Duration = Duration::from_secs(300);

async fn change_mode(client: &Client, ino: Ino, mode: u32) -> Result<()> {
    let verb = Setattr { ino, mode: Some(mode), ..Setattr::default() };
    client.run(&caller(), verb).await.map(drop)
}

async fn mode(client: &Client, ino: Ino) -> u32 {
    let (inode, _) = client.read_anew(&caller(), Getattr { ino }).await.unwrap();
    inode.mode & 0o777
}

fn text(result: Result<()>) -> String {
    match result {
        Err(Error::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_sent_is_answered_and_undoes_nothing_that_comes_after() {
    let net = Net::new().await;
    let (client, cut) = net.client(1).await;
    let root = bucket(&client).await.unwrap();
    let ino = make_in(&client, root, 1).await.unwrap();
    cut.silent.store(true, Ordering::SeqCst);
    pause();
    let first = timeout(LONG, change_mode(&client, ino, 0o700)).await.expect("it is answered");
    let first = text(first);
    assert!(first.contains("outcome unknown"), "{first}");
    // It waits for the first one, and is not sent.
    let second = timeout(LONG, change_mode(&client, ino, 0o711)).await.expect("it is answered");
    let second = text(second);
    assert!(second.contains("not done"), "{second}");
    let third = tokio::spawn({
        let client = client.clone();
        async move { change_mode(&client, ino, 0o755).await }
    });
    sleep(Duration::from_millis(1)).await;
    resume();
    cut.overtake.store(true, Ordering::SeqCst);
    cut.silent.store(false, Ordering::SeqCst);
    third.await.unwrap().unwrap();
    assert_eq!(mode(&client, ino).await, 0o755);
    sleep(LEASE).await;
    assert_eq!(mode(&client, ino).await, 0o755);
}

#[tokio::test]
async fn a_directory_that_is_filled_without_a_master_is_full_at_last() {
    let net = Net::new().await;
    let (client, cut) = net.hasty_client(1).await;
    let root = bucket(&client).await.unwrap();
    let verb = Mkdir { parent: root, name: b"directory".to_vec(), mode: 0o755, umask: 0 };
    let (directory, _) = client.run(&caller(), verb).await.unwrap();
    until_delegated(&client, directory).await;
    cut.silent.store(true, Ordering::SeqCst);
    pause();
    let fill = async {
        for number in 3000.. {
            if let Err(error) = make_in(&client, directory, number).await {
                return text(Err(error));
            }
        }
        unreachable!()
    };
    let said = timeout(LONG, fill).await.expect("it is answered");
    assert!(said.contains("no master answered"), "{said}");
    resume();
    cut.silent.store(false, Ordering::SeqCst);
    client.flush().await.unwrap();
    make_in(&client, directory, 0).await.unwrap();
}

/// Nobody waits for credentials to hold again: neither for what was never sent, nor behind it.
#[tokio::test]
async fn refused_credentials_are_told_to_everybody_who_asks_until_they_hold_again() {
    let net = Net::new().await;
    let (client, cut) = net.hasty_client(1).await;
    let root = bucket(&client).await.unwrap();
    let verb = Mkdir { parent: root, name: b"directory".to_vec(), mode: 0o755, umask: 0 };
    let (directory, _) = client.run(&caller(), verb).await.unwrap();
    until_delegated(&client, directory).await;
    let check = async |is_posted: bool| {
        pause();
        cut.silent.store(true, Ordering::SeqCst);
        if is_posted {
            make_in(&client, directory, 1).await.unwrap();
        }
        cut.refused.store(true, Ordering::SeqCst);
        let (read, change) = tokio::join!(
            async { text(client.read_anew(&caller(), Getattr { ino: root }).await.map(drop)) },
            async { text(change_mode(&client, root, 0o700).await) },
        );
        for said in [read, change, text(client.flush().await)] {
            assert!(said.contains("the credentials are refused"), "{is_posted}: {said}");
        }
        resume();
        cut.refused.store(false, Ordering::SeqCst);
        cut.silent.store(false, Ordering::SeqCst);
        while !client.is_attached() {
            sleep(Duration::from_millis(10)).await;
        }
        client.flush().await.unwrap();
        change_mode(&client, root, 0o755).await.unwrap();
        assert_eq!(mode(&client, root).await, 0o755);
    };
    check(true).await;
    check(false).await;
    assert!(find_in(&client, directory, 1).await.unwrap().is_some());
}
