//! A call that waits is told of: which it is, who asks, and for how long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::inflight::{self, RequestSnapshot};
use cairn_base::{Stage, UserId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::client::{Args, Client, NFS, call};
use crate::world::{World, run};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

/// As others of this process may be in flight, too.
fn seen(object: &str) -> Option<RequestSnapshot> {
    inflight::seen().into_iter().find(|seen| seen.about.object == object)
}

#[test]
fn a_call_is_in_flight_while_it_waits() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let ino = client.getattr(&top).await.unwrap().ino;
        let object = format!("(inode {ino:x})/waits\\n");
        let args = Args::new().bytes(&top).bytes(b"waits\n").mode(None);
        world.rows.is_held.store(true, Ordering::SeqCst);
        client.send(&call(7, (NFS, 3, 9), (0, 0), &args)).await;
        // It is there as soon as it waits; its user is known a little later.
        let is_known =
            |seen: &RequestSnapshot| seen.about.user.is_some() && seen.stage == Some(Stage::Meta);
        let waiting = async {
            loop {
                match seen(&object).filter(is_known) {
                    Some(seen) => break seen,
                    None => sleep(LOOK).await,
                }
            }
        };
        let waiting = timeout(PATIENCE, waiting).await.expect("it is in the table");
        world.rows.is_held.store(false, Ordering::SeqCst);
        let about = waiting.about;
        assert_eq!((about.door, &*about.operation), ("nfs", "mkdir"));
        assert_eq!((about.user, &*about.client), (Some(UserId(2)), "127.0.0.1, uid 0"));
        assert!(waiting.trace.is_some());
        client.receive().await;
        let is_over = async {
            while seen(&object).is_some() {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, is_over).await.expect("it is over");
    });
}

/// The store stands still, and a client goes on asking for changes by one connection after the
/// other.
#[test]
fn a_client_that_connects_again_and_again_has_no_more_calls_at_work() {
    const CONNECTIONS: usize = 64;
    run(async {
        let (world, mut other, top) = World::mounted().await;
        let ino = other.getattr(&top).await.unwrap().ino;
        let from = [127, 0, 0, 2];
        world.rows.is_held.store(true, Ordering::SeqCst);
        for number in 0..CONNECTIONS {
            let mut client = Client::connect_from(from, world.door.address).await;
            let name = format!("again{number}");
            let args = Args::new().bytes(&top).bytes(name.as_bytes()).mode(None);
            client.send(&call(number as u32, (NFS, 3, 9), (0, 0), &args)).await;
            let object = format!("(inode {ino:x})/{name}");
            let is_at_work = async {
                while seen(&object).is_none() {
                    sleep(LOOK).await;
                }
            };
            timeout(PATIENCE, is_at_work).await.expect("it is at work");
        }
        let closed = async || {
            let mut client = Client::connect_from(from, world.door.address).await;
            let null = call(7, (NFS, 3, 0), (0, 0), &Args::new());
            let mut record = (null.len() as u32 | 1 << 31).to_be_bytes().to_vec();
            record.extend(null);
            let _ = client.stream.write_all(&record).await;
            !matches!(client.stream.read(&mut [0; 4]).await, Ok(4))
        };
        assert!(timeout(PATIENCE, closed()).await.unwrap(), "one connection too many");
        assert!(other.getattr(&top).await.is_ok(), "others are served");
        world.rows.is_held.store(false, Ordering::SeqCst);
        let is_served = async {
            while closed().await {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, is_served).await.expect("its calls have ended");
    });
}
