//! A bucket may ask for more replicas than others, or fewer: each block of it is written so, on
//! whatever way it comes to be.

use cairn_base::{ClusterMap, Ino};
use cairn_fs::Piece;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::cluster::PutMap;

use crate::watched::Watched;
use crate::world::{BUCKET, World, data, root, run};

const REPLICAS: u8 = 2;

impl Watched {
    /// How many blocks were written since this was asked last, all as the bucket asks.
    fn take(&self, what: &str) -> usize {
        let wishes = std::mem::take(&mut *self.wishes.lock());
        assert!(wishes.iter().all(|wish| *wish == REPLICAS), "{what}: {wishes:?}");
        wishes.len()
    }
}

/// A bucket that asks for replicas: so there must be a map.
async fn ask(world: &World) {
    let map = ClusterMap {
        epoch: 1,
        replicas: 3,
        minimum: 1,
        next_node: 1,
        next_group: 1,
        ..ClusterMap::default()
    };
    world.fs.run(&root(), PutMap { map: map.encode() }).await.unwrap();
    let (name, replicas) = (BUCKET.to_owned(), Some(REPLICAS));
    let update = UpdateBucket { name, replicas, ..UpdateBucket::default() };
    world.fs.run(&root(), update).await.unwrap();
}

#[test]
fn on_every_way_that_writes_blocks() {
    run(async {
        let (world, wishes) = World::watched(1, Default::default()).await;
        ask(&world).await;
        let caller = root();
        world.put("put", &data(1, 100_000)).await.unwrap();
        assert_eq!(wishes.take("a PUT"), 1);
        let append = world.fs.append(&caller, BUCKET, "log", data(2, 50_000)).await;
        let ino: Ino = append.unwrap().1;
        assert_eq!(wishes.take("an append"), 1);
        // Small records lie in the metadata until they are many.
        for _ in 0..40 {
            world.fs.append_inode(&caller, ino, data(3, 16_000)).await.unwrap();
        }
        assert!(wishes.take("inline bytes that become a block") > 0);
        let writer = world.fs.writer(ino);
        for at in 0..3u64 {
            let runs = [(at << 20, data(4, 5000)), ((at << 20) + 10_000, data(5, 5000))];
            let block = Piece::Block(writer.upload(&caller, &runs).await.unwrap());
            writer.publish(&caller, world.fs.session(), vec![block], &mut None).await.unwrap();
        }
        assert_eq!(wishes.take("a write of a mount"), 3);
        world.fs.compact_chunk(&caller, ino, 0).await.unwrap();
        assert!(wishes.take("compaction") > 0);
    });
}
