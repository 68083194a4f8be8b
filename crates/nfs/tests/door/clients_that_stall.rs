//! A client that does not do its part is not waited for. Time is set here.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, duplex, split};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::client::{Args, NFS, call};
use crate::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// How a connection ends whose client sends `calls`, one in so long a time, and reads nothing; and
/// how long that took.
fn ended(calls: u32, pause: Duration) -> (ErrorKind, Duration) {
    let null = |xid| {
        let null = call(xid, (NFS, 3, 0), (0, 0), &Args::new());
        [&(null.len() as u32 | 1 << 31).to_be_bytes()[..], &null].concat()
    };
    ended_after((0..calls).map(null).collect(), pause)
}

/// The same of a client that sends these bytes.
fn ended_after(parts: Vec<Vec<u8>>, pause: Duration) -> (ErrorKind, Duration) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(async {
        let world = World::new().await;
        tokio::time::pause();
        // Two replies fit into it.
        let (mut client, server) = duplex(64);
        let (_stop, stopped) = watch::channel(false);
        let (address, place) = (IpAddr::from([127, 0, 0, 1]), Arc::new(()));
        let desk = Arc::clone(&world.door.desk);
        let began = Instant::now();
        let (reader, writer) = split(server);
        let served = cairn_nfs::converse(reader, writer, address, place, desk, stopped);
        let asking = async {
            for part in parts {
                if client.write_all(&part).await.is_err() {
                    return;
                }
                sleep(pause).await;
            }
            std::future::pending().await
        };
        let served = tokio::select! {
            served = served => served,
            () = asking => panic!("the connection is closed, and its task goes on"),
        };
        (served.unwrap_err().kind(), began.elapsed())
    })
}

#[test]
fn one_that_takes_no_replies_is_cut_off() {
    let (kind, after) = ended(100, Duration::ZERO);
    assert_eq!(kind, ErrorKind::TimedOut);
    assert!((MINUTE..2 * MINUTE).contains(&after), "{after:?}");
}

#[test]
fn one_that_takes_no_replies_and_goes_on_asking_is_cut_off_too() {
    let (kind, after) = ended(1000, Duration::from_secs(10));
    assert_eq!(kind, ErrorKind::TimedOut);
    assert!((MINUTE..3 * MINUTE).contains(&after), "{after:?}");
}

#[test]
fn one_that_asks_for_nothing_is_cut_off_later() {
    let (kind, after) = ended(1, Duration::ZERO);
    assert_eq!(kind, ErrorKind::TimedOut);
    assert!((15 * MINUTE..16 * MINUTE).contains(&after), "{after:?}");
}

#[test]
fn one_whose_call_comes_byte_by_byte_is_cut_off() {
    let mut call = vec![vec![0x80, 0x10, 0, 0]];
    call.extend((0..1 << 20).map(|_| vec![0]));
    let (kind, after) = ended_after(call, Duration::from_secs(1));
    assert_eq!(kind, ErrorKind::TimedOut);
    assert!((5 * MINUTE..6 * MINUTE).contains(&after), "{after:?}");
}
