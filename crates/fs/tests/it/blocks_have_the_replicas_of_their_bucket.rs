//! A bucket may ask for more replicas than others, or fewer: each block of it is written so, on
//! whatever way it comes to be.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, ClusterMap, GroupId, Ino, Owner, Result};
use cairn_blocks::{BlockInfo, Blocks, Store, Usage, Wish};
use cairn_fs::Piece;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::cluster::PutMap;
use parking_lot::Mutex;

use crate::world::{BUCKET, World, data, root, run};

const REPLICAS: u8 = 2;

/// The blocks of a store, and what was wished for each that was written.
pub struct Wishes {
    store: Store,
    pub wishes: Mutex<Vec<u8>>,
}

impl Wishes {
    pub fn new(store: Store) -> Arc<Wishes> {
        Arc::new(Wishes { store, wishes: Mutex::default() })
    }
}

#[async_trait]
impl Blocks for Wishes {
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        self.wishes.lock().push(wish.replicas);
        Blocks::write(&self.store, wish, block, owner, data).await
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        self.store.get(group, block, range).await
    }

    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>> {
        self.store.get_now(group, block, range)
    }

    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        Blocks::delete(&self.store, group, blocks).await
    }

    fn groups(&self) -> Vec<GroupId> {
        Blocks::groups(&self.store)
    }

    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>> {
        self.store.inventory(group, after, limit).await
    }

    async fn usage(&self) -> Result<Usage> {
        self.store.usage().await
    }
}

impl Wishes {
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
        let (world, wishes) = World::with_wishes(1).await;
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
            writer.publish(&caller, world.fs.session(), vec![block]).await.unwrap();
        }
        assert_eq!(wishes.take("a write of a mount"), 3);
        world.fs.compact_chunk(&caller, ino, 0).await.unwrap();
        assert!(wishes.take("compaction") > 0);
    });
}
