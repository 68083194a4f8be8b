use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::Error;
use cairn_base::rng::SeededRng;

use crate::world::{BUCKET, World, data, root, run};

/// Records of several appenders at once: each is there once, whole, where the reply said.
#[test]
fn every_record_stands_once_where_it_was_said() {
    run(async {
        let world = World::new(1).await;
        let mut tasks = tokio::task::JoinSet::new();
        for appender in 0..8u64 {
            let fs = world.fs.clone();
            tasks.spawn(async move {
                let rng = SeededRng::new(appender);
                let mut records: Vec<(u64, Bytes)> = Vec::new();
                for number in 0..40 {
                    let len = [10, 1000, 16 << 10, 20_000, 300_000][rng.below(5) as usize];
                    let record = data(appender << 32 | number, len);
                    let appended = fs.append(&root(), BUCKET, "log", record.clone()).await;
                    records.push((appended.unwrap().0, record));
                }
                records
            });
        }
        let mut records = Vec::new();
        while let Some(done) = tasks.join_next().await {
            records.extend(done.unwrap());
        }
        records.sort_by_key(|(offset, _)| *offset);
        let whole: Vec<u8> = records.iter().flat_map(|(_, record)| record.to_vec()).collect();
        assert!(world.get("log").await.unwrap() == whole);
        let world = world.killed(2).await;
        assert!(world.get("log").await.unwrap() == whole);
        world.collect().await;
        assert!(world.get("log").await.unwrap() == whole);
        world.delete("log").await.unwrap();
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

#[test]
fn an_append_may_be_sent_again_while_no_block_can_be_written() {
    run(async {
        let (world, blocks) = World::watched(1, Default::default()).await;
        let (caller, record) = (root(), data(1, 16 << 10));
        let (_, ino, _) = world.fs.append(&caller, BUCKET, "log", record.clone()).await.unwrap();
        blocks.takes_none.store(true, Ordering::SeqCst);
        let refused = loop {
            if let Err(error) = world.fs.append(&caller, BUCKET, "log", record.clone()).await {
                break error;
            }
        };
        assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
        let refused = world.fs.append_inode(&caller, ino, record.clone()).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        blocks.takes_none.store(false, Ordering::SeqCst);
        world.fs.append(&caller, BUCKET, "log", record).await.unwrap();
    });
}
