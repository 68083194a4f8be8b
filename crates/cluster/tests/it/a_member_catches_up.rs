use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cairn_base::{BlockId, Error, GroupId, NodeId};
use cairn_blocks::Blocks;
use cairn_cluster::data::MapSource;
use cairn_cluster::data::repair::{Options, Report, catch_up};
use tokio::sync::watch;

use crate::support::data::{World, block, data, owner};

const GROUP: GroupId = GroupId(1);

/// A world in which 13 was away while blocks were written, and is back, not in sync.
async fn behind(blocks: u64) -> World {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    for counter in 0..blocks {
        for id in [11, 12, 13] {
            if id != 13 || counter % 3 == 0 {
                put(&world, id, counter).await;
            }
        }
    }
    world.set_sync(1, 13, false);
    world.servers[&13].map.refresh();
    world
}

async fn put(world: &World, id: u64, counter: u64) {
    let bytes = data(counter, 1000 + counter as usize);
    let store = &world.servers[&id].store;
    store.put(GROUP, block(counter), owner(counter), bytes).await.unwrap();
}

fn options(page_blocks: usize) -> (Options, watch::Sender<bool>) {
    let (cancel, canceled) = watch::channel(false);
    (Options { page_blocks, ..Options::new(canceled) }, cancel)
}

async fn run(world: &World, page_blocks: usize) -> Result<Report, Error> {
    let (options, _cancel) = options(page_blocks);
    let server = &world.servers[&13];
    catch_up(&server.chunkserver, GROUP, &server.map.current(), &options).await
}

fn check(world: &World, counters: impl Iterator<Item = u64>) {
    for counter in counters {
        let info = world.servers[&13].store.verify(GROUP, block(counter)).unwrap();
        assert_eq!((info.owner, info.length), (owner(counter), 1000 + counter as u32));
    }
}

#[tokio::test]
async fn all_that_is_lacking_is_copied() {
    for page_blocks in [1, 4, 7, 8192] {
        let world = behind(30).await;
        let (options, _cancel) = options(page_blocks);
        let server = &world.servers[&13];
        let map = server.map.current();
        let report = catch_up(&server.chunkserver, GROUP, &map, &options).await.unwrap();
        assert!(report.is_complete() && report.extra.is_empty(), "{report:?}");
        assert_eq!((report.copied_blocks, report.epoch), (20, map.epoch));
        check(&world, 0..30);
        let progress = &options.progress;
        assert_eq!(progress.listed_blocks.load(Ordering::Relaxed), 30);
        assert_eq!(progress.lacking_blocks.load(Ordering::Relaxed), 20);
        assert_eq!(progress.copied_blocks.load(Ordering::Relaxed), 20);
        assert_eq!(progress.copied_bytes.load(Ordering::Relaxed), report.copied_bytes);
        assert_eq!(progress.lacking_bytes.load(Ordering::Relaxed), report.copied_bytes);
        // Once more there is nothing to do.
        let report = run(&world, page_blocks).await.unwrap();
        assert_eq!((report.copied_blocks, report.is_complete()), (0, true));
        // The sources know by now that they take no writes.
        assert_eq!(world.servers[&11].map.current().epoch, map.epoch);
    }
}

#[tokio::test]
async fn what_nobody_else_has_is_reported() {
    for page_blocks in [2, 5, 8192] {
        let world = behind(9).await;
        for counter in [100, 101, 102, 103, 104, 105, 106] {
            put(&world, 13, counter).await;
        }
        let report = run(&world, page_blocks).await.unwrap();
        let extra: Vec<BlockId> = report.extra.iter().map(|(block, _)| *block).collect();
        assert_eq!(extra, (100..107).map(block).collect::<Vec<_>>());
        assert_eq!(report.extra[0].1, owner(100));
        assert!(report.is_complete());
        check(&world, (0..9).chain(100..107));
    }
}

#[tokio::test]
async fn one_source_is_enough_and_none_is_not() {
    let world = behind(20).await;
    world.servers[&11].kill().await;
    let report = run(&world, 4).await.unwrap();
    assert!(report.is_complete());
    check(&world, 0..20);
    world.servers[&12].kill().await;
    let nobody = run(&world, 4).await;
    assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
    // Nor is one that is itself behind.
    let world = behind(20).await;
    world.set_sync(1, 11, false);
    world.set_up(12, false);
    world.servers[&13].map.refresh();
    let nobody = run(&world, 4).await;
    assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
}

#[tokio::test]
async fn a_rotten_source_is_passed_over() {
    let world = behind(10).await;
    world.servers[&11].rot(&data(4, 1004));
    world.servers[&12].rot(&data(5, 1005));
    let report = run(&world, 8192).await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    check(&world, 0..10);
    // A block that nobody can give is reported, and the rest is copied.
    let world = behind(10).await;
    world.servers[&11].rot(&data(4, 1004));
    world.servers[&12].rot(&data(4, 1004));
    let report = run(&world, 8192).await.unwrap();
    assert!(!report.is_complete());
    assert!(matches!(&report.failed[..], [(id, Error::Corrupt { .. })] if *id == block(4)));
    check(&world, (0..10).filter(|counter| *counter != 4));
}

#[tokio::test]
async fn a_block_of_another_length_is_replaced() {
    let world = behind(4).await;
    let store = &world.servers[&13].store;
    store.put(GROUP, block(1), owner(9), data(9, 10)).await.unwrap();
    let report = run(&world, 8192).await.unwrap();
    assert!(report.is_complete() && report.extra.is_empty(), "{report:?}");
    check(&world, 0..4);
}

/// A disk that was replaced has nothing, and proves nothing, until the map tells of it.
#[tokio::test]
async fn a_new_disk_is_no_source() {
    let world = behind(9).await;
    for id in [11, 12, 13] {
        world.set_disk(id, 7);
    }
    world.refresh();
    let error = run(&world, 8192).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("its disk is new"), "{error}");
    assert_eq!(world.read(1, 3, 1003).await.unwrap(), data(3, 1003));
    let missing = world.read(1, 9, 1009).await.unwrap_err();
    assert!(matches!(missing, Error::Unavailable(_)), "{missing}");
}

#[tokio::test]
async fn a_full_disk_ends_it() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    put(&world, 11, 1).await;
    world.servers[&13].disk.set_capacity(Some(0));
    let full = run(&world, 8192).await;
    assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
}

#[tokio::test]
async fn it_is_paced_and_can_be_stopped() {
    let world = Arc::new(behind(40).await);
    let (options, cancel) = options(8192);
    let options = Options { bytes_per_second: 2_000, ..options };
    let progress = Arc::clone(&options.progress);
    let start = Instant::now();
    let running = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let server = &world.servers[&13];
            let map = server.map.current();
            catch_up(&server.chunkserver, GROUP, &map, &options).await.unwrap()
        })
    };
    crate::support::data::until(|| progress.copied_blocks.load(Ordering::Relaxed) >= 6).await;
    assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
    cancel.send_replace(true);
    let report = running.await.unwrap();
    assert!(report.canceled && !report.is_complete() && report.copied_blocks < 40, "{report:?}");
    let report = run(&world, 8192).await.unwrap();
    assert!(report.is_complete());
    check(&world, 0..40);
}

#[tokio::test]
async fn a_block_that_is_deleted_meanwhile_does_not_come_back() {
    let world = Arc::new(behind(60).await);
    world.refresh();
    let all: Vec<BlockId> = (0..60).map(block).collect();
    let running = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { run(&world, 8192).await.unwrap() })
    };
    for ids in all.chunks(3) {
        world.blocks.delete(GROUP, ids).await.unwrap();
    }
    let report = running.await.unwrap();
    assert!(report.is_complete(), "{report:?}");
    for counter in 0..60 {
        assert!(world.holders(1, counter).is_empty(), "block {counter}");
    }
}

#[tokio::test]
async fn a_member_that_has_caught_up_serves_and_takes_writes() {
    let world = behind(10).await;
    run(&world, 8192).await.unwrap();
    world.set_sync(1, 13, true);
    world.refresh();
    assert_eq!(world.write(100, &data(100, 50)).await.unwrap(), GROUP);
    assert_eq!(world.holders(1, 100), [11, 12, 13]);
    world.set_up(11, false);
    world.change(|map| map.nodes.get_mut(&NodeId(12)).unwrap().is_up = false);
    world.refresh();
    for server in [11, 12] {
        world.servers[&server].kill().await;
    }
    for counter in 0..10 {
        let length = 1000 + counter as usize;
        assert_eq!(world.read(1, counter, length).await.unwrap(), data(counter, length));
    }
    let usage = world.servers[&13].store.usage().await.unwrap();
    assert_eq!(usage.blocks, 11);
}
