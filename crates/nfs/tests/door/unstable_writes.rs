//! Bytes that were answered UNSTABLE are durable after COMMIT, or the client hears that they are
//! not.

use std::time::Duration;

use crate::client::Client;
use crate::world::{World, run};

const NOSPC: u32 = 28;

#[test]
fn bytes_are_seen_here_at_once_and_elsewhere_after_commit() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let file = one.create(&top, "file").await.unwrap();
        let (how, verifier) = one.write(&file, 0, b"unstable", 0).await.unwrap();
        assert_eq!(how, 0);
        assert_eq!(one.read(&file, 0, 100).await.unwrap().0, b"unstable");
        assert_eq!(one.commit(&file).await, Ok(verifier));
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"unstable");
        // A client that moves on to this door hears another verifier, and writes again.
        let elsewhere = other.commit(&file).await.unwrap();
        assert_ne!(elsewhere, verifier);
        let (how, stable) = one.write(&file, 0, b"durable!", 2).await.unwrap();
        assert_eq!((how, stable), (2, verifier));
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"durable!");
        another.stop().await;
    });
}

/// As of a door that was cut off: its client went on at another one.
#[test]
fn what_was_written_elsewhere_since_is_not_overwritten() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let elsewhere = one.mount("/other").await.unwrap();
        let fine = one.create(&elsewhere, "fine").await.unwrap();
        let (_, fine_verifier) = one.write(&fine, 0, b"unstable", 0).await.unwrap();
        for (turn, how) in [2, 0].into_iter().enumerate() {
            let file = one.create(&top, &format!("file {turn}")).await.unwrap();
            let (_, verifier) = one.write(&file, 0, b"former", 0).await.unwrap();
            let (_, there) = other.write(&file, 0, b"newer!", how).await.unwrap();
            assert_eq!(other.commit(&file).await, Ok(there), "nothing else came in between");
            // Whatever asks first.
            match turn {
                0 => assert_eq!(one.commit(&file).await.map(|now| now == verifier), Ok(false)),
                _ => assert_eq!(one.read(&file, 0, 100).await.unwrap().0, b"newer!"),
            }
            assert_ne!(one.commit(&file).await.unwrap(), verifier, "it is to be written again");
            for client in [&mut one, &mut other] {
                assert_eq!(client.read(&file, 0, 100).await.unwrap().0, b"newer!");
            }
            // From here on it is over what is there now.
            let (_, verifier) = one.write(&file, 0, b"later", 0).await.unwrap();
            assert_eq!(one.commit(&file).await, Ok(verifier));
            assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"later!");
            one.write(&file, 0, b"stable", 2).await.unwrap();
        }
        assert_eq!(one.commit(&fine).await, Ok(fine_verifier), "in another bucket");
        another.stop().await;
    });
}

#[test]
fn what_was_not_committed_is_durable_when_the_door_stops() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let file = one.create(&top, "file").await.unwrap();
        other.write(&file, 0, b"unstable", 0).await.unwrap();
        another.stop().await;
        assert_eq!(one.read(&file, 0, 100).await.unwrap().0, b"unstable");
    });
}

#[test]
fn a_full_bucket_is_said_at_commit_and_the_verifier_changes_when_bytes_are_dropped() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let (full, fine) = (
            client.create(&top, "full").await.unwrap(),
            client.create(&top, "fine").await.unwrap(),
        );
        world.quota("bucket", 1000).await;
        let (_, verifier) = client.write(&full, 0, &[7; 5000], 0).await.unwrap();
        assert_eq!(client.commit(&full).await, Err(NOSPC));
        assert_eq!(client.write(&full, 0, &[7; 5000], 2).await, Err(NOSPC));
        // A client that never asked again must hear of it at its next COMMIT of anything.
        let mut tries = 0;
        while client.getattr(&full).await.unwrap().size > 0 && tries < 3000 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            tries += 1;
        }
        assert_eq!(client.getattr(&full).await.unwrap().size, 0);
        let now = client.commit(&fine).await.unwrap();
        assert_ne!(now, verifier);
        client.write(&fine, 0, b"fits", 0).await.unwrap();
        assert_eq!(client.commit(&fine).await, Ok(now));
    });
}

/// One address fills its part of the memory with bytes that cannot be written back.
#[test]
fn a_client_that_fills_memory_makes_no_other_client_wait() {
    const PART: usize = 32 << 20;
    const BYTES: usize = 1 << 20;
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        let mut other = Client::connect_from([127, 0, 0, 2], world.door.address).await;
        let top = client.mount("/bucket").await.unwrap();
        let fine = other.mount("/other").await.unwrap();
        let fine = other.create(&fine, "fine").await.unwrap();
        let full = client.create(&top, "full").await.unwrap();
        world.quota("bucket", 1000).await;
        let data = vec![7; BYTES];
        let mut taken = 0;
        let refused = loop {
            match client.write(&full, taken as u64, &data, 0).await {
                Ok(_) if taken < 2 * PART => taken += BYTES,
                Ok(_) => panic!("{taken} bytes of one client are kept"),
                Err(status) => break status,
            }
        };
        assert_eq!((refused, taken), (NOSPC, PART));
        let (how, _) = other.write(&fine, 0, &data, 0).await.unwrap();
        assert_eq!(how, 0, "there is room for others");
    });
}
