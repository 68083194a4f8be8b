use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, Clock, Error, GroupId, Timestamp};
use cairn_fs::ops::buckets::CreateBucket;
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::holds::{AddHold, ListHolds, RemoveHold, RenewHold};
use cairn_fs::ops::sessions::Format;
use cairn_fs::rows::BucketKind;
use cairn_fs::{Config, Fs, PutRequest};
use cairn_meta::Master;
use cairn_meta::engine::Memory;

use crate::world::{BUCKET, World, data, root, run};

const HOLD: u64 = 7;

fn hold() -> AddHold {
    AddHold { id: HOLD, owner: "a backup".into(), seconds: 600 }
}

/// Blocks that were deleted in three passes of the collector, and those that are kept.
async fn collect(fs: &Fs) -> (u64, u64) {
    let (mut deleted, mut waiting) = (0, 0);
    for _ in 0..3 {
        let report = fs.collect_garbage(&root(), false).await.unwrap();
        (deleted, waiting) = (deleted + report.blocks_deleted, report.blocks_waiting);
    }
    (deleted, waiting)
}

async fn read(fs: &Fs, block: BlockId, length: u32) -> Result<Bytes, Error> {
    fs.read_block(&root(), GroupId::LOCAL, block, length).await
}

#[test]
fn through_collections_compactions_and_a_crash() {
    run(async {
        let world = World::new(1).await;
        let bytes = data(1, 3 << 20);
        world.put("held", &bytes).await.unwrap();
        let [info] = world.store.inventory_now(GroupId::LOCAL, None, 9)[..] else { panic!() };
        world.fs.run(&root(), hold()).await.unwrap();
        world.delete("held").await.unwrap();
        // Segments become worth compacting.
        for seed in 2..12 {
            world.put("other", &data(seed, 3 << 20)).await.unwrap();
        }
        world.delete("other").await.unwrap();
        let (deleted, waiting) = collect(&world.fs).await;
        assert_eq!((deleted, waiting), (0, 11), "all were freed since the hold was made");
        world.store.blocking(|store| store.compact(false)).await.unwrap();
        assert_eq!(read(&world.fs, info.block, info.length).await.unwrap(), bytes);
        let world = world.killed(2).await;
        assert_eq!(collect(&world.fs).await.0, 0);
        assert_eq!(read(&world.fs, info.block, info.length).await.unwrap(), bytes);
        world.fs.run(&root(), RemoveHold { id: HOLD }).await.unwrap();
        // Since its session ended with the crash, each block was put up for freeing once more.
        let (deleted, waiting) = collect(&world.fs).await;
        assert!(deleted >= 11 && waiting == 0, "{deleted} deleted, {waiting} waiting");
        let gone = read(&world.fs, info.block, info.length).await;
        assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
        let report = world.store.blocking(|store| store.compact(false)).await.unwrap();
        assert!(report.segments_removed > 0);
    });
}

#[test]
fn what_was_freed_before_is_not_held() {
    run(async {
        let world = World::new(3).await;
        world.put("before", &data(1, 1 << 20)).await.unwrap();
        world.put("after", &data(2, 1 << 20)).await.unwrap();
        world.delete("before").await.unwrap();
        // Its blocks are put up for freeing by the collector: a hold covers what that does later.
        assert_eq!(collect(&world.fs).await, (1, 0));
        world.fs.run(&root(), hold()).await.unwrap();
        world.delete("after").await.unwrap();
        assert_eq!(collect(&world.fs).await, (0, 1));
    });
}

/// A clock that is set, seconds.
#[derive(Default)]
struct SetClock(AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0.load(Ordering::Relaxed) as i64)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

#[test]
fn until_it_ends_unless_it_is_renewed() {
    run(async {
        let world = World::new(4).await;
        let clock = Arc::new(SetClock::default());
        let engine = Arc::new(Memory::new());
        let master = Master::start(engine, clock.clone(), Default::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let (blocks, rng) = (Arc::clone(world.fs.blocks()), SeededRng::new(4));
        let fs = Fs::start(master, blocks, clock.clone(), &rng, Config::default()).await.unwrap();
        let (name, kind) = (BUCKET.into(), BucketKind::S3);
        let bucket = CreateBucket { name, kind, visibility: Visibility::Private };
        fs.run(&root(), bucket).await.unwrap();
        let mut writer = fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(data(1, 1 << 20)).await.unwrap();
        let written = writer.finish().await.unwrap();
        let request = PutRequest { bucket: BUCKET.into(), key: "a".into(), ..Default::default() };
        fs.put_object(&root(), request, written).await.unwrap();
        fs.run(&root(), hold()).await.unwrap();
        let (bucket, key) = (BUCKET.into(), "a".into());
        let delete = DeleteObject { bucket, key, conditions: Default::default() };
        fs.run(&root(), delete).await.unwrap();
        clock.0.store(599, Ordering::Relaxed);
        assert_eq!(collect(&fs).await, (0, 1));
        fs.run(&root(), RenewHold { id: HOLD, seconds: 600 }).await.unwrap();
        clock.0.store(1198, Ordering::Relaxed);
        assert_eq!(collect(&fs).await, (0, 1));
        clock.0.store(1200, Ordering::Relaxed);
        assert_eq!(collect(&fs).await, (1, 0));
        // It has no row any more: nobody can renew it and believe that it has held all the time.
        assert!(fs.read(&root(), ListHolds).await.unwrap().is_empty());
        clock.0.store(600, Ordering::Relaxed);
        let renewed = fs.run(&root(), RenewHold { id: HOLD, seconds: 600 }).await;
        assert!(matches!(renewed, Err(Error::NotFound(_))), "{renewed:?}");
    });
}
