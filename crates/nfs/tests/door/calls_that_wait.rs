//! A call that waits is told of: which it is, who asks, and for how long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cairn_base::inflight::{self, Seen};
use cairn_base::{Stage, UserId};
use tokio::time::{sleep, timeout};

use crate::client::{Args, NFS, call};
use crate::world::{World, run};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);

/// As others of this process may be in flight, too.
fn seen(object: &str) -> Option<Seen> {
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
        let is_known = |seen: &Seen| seen.about.user.is_some() && seen.stage == Some(Stage::Meta);
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
