//! Many calls on one connection are answered, in whatever order, and however late they are read.

use std::collections::HashSet;

use crate::client::{Args, Client, NFS, call};
use crate::world::{World, run};

const CALLS: u32 = 100;
const BYTES: usize = 1 << 20;

#[test]
fn replies_wait_for_a_client_that_reads_late() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        let data: Vec<u8> = (0..BYTES as u32).map(|at| ((at * 7) >> 3) as u8).collect();
        client.write(&file, 0, &data, 2).await.unwrap();
        let args = Args::new().bytes(&file).long(0).number(BYTES as u32);
        // More bytes of replies than a connection keeps, and none of them read.
        for xid in 0..CALLS {
            client.send(&call(xid, (NFS, 3, 6), (0, 0), &args)).await;
        }
        let mut other = world.client().await;
        assert!(other.getattr(&file).await.is_ok(), "others are served");
        let mut answered = HashSet::new();
        for _ in 0..CALLS {
            let (xid, mut res) = client.receive().await;
            assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 0]);
            res.after().unwrap();
            assert_eq!((res.number(), res.number()), (BYTES as u32, 1));
            assert!(res.bytes() == data);
            answered.insert(xid);
        }
        assert_eq!(answered.len(), CALLS as usize);
    });
}

#[test]
fn records_in_fragments_are_calls() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let whole = call(7, (NFS, 3, 1), (0, 0), &Args::new().bytes(&top));
        let mut stream = Vec::new();
        for (at, fragment) in whole.chunks(10).enumerate() {
            let last = (at + 1) * 10 >= whole.len();
            stream.extend((fragment.len() as u32 | u32::from(last) << 31).to_be_bytes());
            stream.extend(fragment);
        }
        use tokio::io::AsyncWriteExt;
        client.stream.write_all(&stream).await.unwrap();
        let (xid, mut res) = client.receive().await;
        assert_eq!((xid, [(); 6].map(|()| res.number())), (7, [1, 0, 0, 0, 0, 0]));
    });
}

/// As if it had asked for that much and more.
#[test]
fn a_client_that_reads_all_it_may_makes_no_other_client_wait() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        let from = [127, 0, 0, 2];
        let mut greedy = Client::connect_from(from, world.door.address).await;
        let room = world.door.desk.room_to_read(from.into(), 12 << 20).await;
        let read = Args::new().bytes(&file).long(0).number(100);
        greedy.send(&call(7, (NFS, 3, 6), (0, 0), &read)).await;
        let list = Args::new().bytes(&top).long(0).long(0).number(4096);
        greedy.send(&call(8, (NFS, 3, 16), (0, 0), &list)).await;
        // What needs no room is answered meanwhile, also to that client.
        greedy.send(&call(9, (NFS, 3, 1), (0, 0), &Args::new().bytes(&top))).await;
        assert_eq!(greedy.receive().await.0, 9);
        assert_eq!(client.read(&file, 0, 100).await.unwrap().0, b"bytes");
        assert_eq!(client.list(&top, 0, 4096, true).await.unwrap().0.len(), 3);
        drop(room);
        let answered = HashSet::from([greedy.receive().await.0, greedy.receive().await.0]);
        assert_eq!(answered, HashSet::from([7, 8]));
    });
}
