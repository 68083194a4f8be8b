use bytes::Bytes;
use cairn_base::Role;
use cairn_cluster::wire::{Peer, accept, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, Instant};

use crate::strange_bytes_end_the_connection::Raw;
use crate::support::pair::link;
use crate::support::{GATEWAY, MASTER, SECOND, echo, ends, pair, terms, unavailable};

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_dropped_and_its_calls_fail() {
    let mut raw = Raw::with(echo).await;
    let start = Instant::now();
    let call = {
        let peer = raw.peer.clone();
        tokio::spawn(async move { peer.call(1, Bytes::new(), 3600 * SECOND).await })
    };
    // It is pinged first.
    let mut heads = [0; 64];
    raw.stream.read_exact(&mut heads).await.unwrap();
    assert_eq!((heads[4], heads[36]), (1, 5), "a request, then a ping");
    unavailable(call.await.unwrap(), "silent for 4s; whether the call was carried out is unknown");
    let took = start.elapsed();
    assert!(took >= 4 * SECOND && took < 5 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_stays() {
    let (gateway, master) = pair(echo).await;
    tokio::time::sleep(3600 * SECOND).await;
    assert!(gateway.is_usable() && master.is_usable());
    gateway.call(1, Bytes::new(), SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_dropped_though_it_speaks() {
    let mut raw = Raw::with(echo).await;
    let peer = raw.peer.clone();
    let call =
        tokio::spawn(async move { peer.call(1, vec![0; 1 << 20].into(), 3600 * SECOND).await });
    let pong = cairn_cluster::wire::frame::header(cairn_cluster::wire::frame::Kind::Pong, 0, 0, 0);
    let talk = async {
        while raw.stream.write_all(&pong).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        failed = call => unavailable(failed.unwrap(), "took no bytes for 4s"),
        () = talk => panic!("the connection ended before the call failed"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_that_ends_in_time_harms_nothing() {
    let ends = ends();
    let (mut near, mut far) = (ends.near, ends.far);
    // A network between the two that stands still for three seconds in each ten.
    let (outer, inner) = (crate::support::ends(), crate::support::ends());
    let (gateway_end, mut left) = (outer.near, outer.far);
    let (mut right, master_end) = (inner.near, inner.far);
    tokio::spawn(async move { tokio::io::copy_bidirectional(&mut left, &mut near).await });
    tokio::spawn(async move {
        let mut buffer = [[0; 1000]; 2];
        let start = Instant::now();
        loop {
            let within = start.elapsed().as_millis() % 10_000;
            if within >= 7000 {
                tokio::time::sleep(Duration::from_millis(10_000 - within as u64)).await;
            }
            let [one, two] = &mut buffer;
            tokio::select! {
                read = far.read(one) => match read.unwrap() {
                    0 => return,
                    n => right.write_all(&one[..n]).await.unwrap(),
                },
                read = right.read(two) => match read.unwrap() {
                    0 => return,
                    n => far.write_all(&two[..n]).await.unwrap(),
                },
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    });
    let (to_master, to_gateway) =
        (link(gateway_end, MASTER, Role::Master), link(master_end, GATEWAY, Role::Gateway));
    let (near_terms, far_terms) = (terms(GATEWAY, Role::Gateway), terms(MASTER, Role::Master));
    let (gateway, master) =
        tokio::join!(connect(to_master, &near_terms, echo), accept(to_gateway, &far_terms, echo));
    let (gateway, _master): (Peer, Peer) = (gateway.unwrap(), master.unwrap());
    let start = Instant::now();
    while start.elapsed() < 60 * SECOND {
        let payload = Bytes::from(vec![5; 3000]);
        assert_eq!(gateway.call(1, payload.clone(), 30 * SECOND).await.unwrap(), payload);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_service_that_panics_ends_its_connection_and_no_call_hangs() {
    let service = |_: &Peer, _: u16, _: Bytes| -> std::future::Ready<cairn_base::Result<Bytes>> {
        panic!("a mistake in a service: this text belongs to the test")
    };
    let (gateway, master) = pair(service).await;
    let call = gateway.call(1, Bytes::new(), 60 * SECOND);
    unavailable(call.await, "closed by the peer; whether the call was carried out is unknown");
    unavailable(master.call(1, Bytes::new(), SECOND).await, "not sent");
}
