//! Many calls on one connection are answered, in whatever order, and however late they are read.

use std::collections::HashSet;

use crate::client::{Args, NFS, call};
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
