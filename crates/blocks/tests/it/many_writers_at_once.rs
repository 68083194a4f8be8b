use std::sync::Arc;

use cairn_base::{Error, RealDisk};
use cairn_blocks::{Blocks, Durability, Store};
use cairn_sim::SimDisk;
use tokio::task::JoinSet;

use crate::support::{GROUP, config, id, is_there, open, put};

fn len(counter: u64) -> usize {
    1 + (counter * 7919 % 9000) as usize
}

async fn hammer(store: &Store) {
    let mut tasks = JoinSet::new();
    for writer in 0..16u64 {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0..40 {
                let counter = writer * 1000 + n;
                put(&store, counter, len(counter)).await.unwrap();
                assert!(is_there(&store, counter, len(counter)));
                if n % 3 == 0 {
                    store.delete(GROUP, &[id(counter)]).await.unwrap();
                    assert!(!is_there(&store, counter, len(counter)));
                }
            }
        });
    }
    let compacting = store.clone();
    tasks.spawn_blocking(move || {
        for _ in 0..10 {
            compacting.compact(false).unwrap();
        }
    });
    tasks.join_all().await;
}

fn check(store: &Store) {
    for writer in 0..16 {
        for n in 0..40 {
            let counter = writer * 1000 + n;
            assert_eq!(is_there(store, counter, len(counter)), n % 3 != 0);
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap()
}

#[test]
fn lose_nothing() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        runtime().block_on(hammer(&store));
        check(&store);
        check(&open(&disk.crash_image(seed)));
        store.close().unwrap();
        check(&open(&disk.crash_image(seed)));
    }
}

#[test]
fn lose_nothing_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
    for durability in [Durability::Sync, Durability::Async] {
        let disk = RealDisk::open(&dir.path().join(format!("{durability:?}"))).unwrap();
        let disk = Arc::new(disk);
        let mut config = config();
        config.durability = durability;
        let store = Store::open(disk.clone(), config.clone()).unwrap();
        runtime().block_on(hammer(&store));
        store.close().unwrap();
        drop(store);
        let store = Store::open(disk, config).unwrap();
        assert_eq!(store.open_report().scanned_segments, 0);
        check(&store);
    }
    drop(disk);
}

#[test]
fn of_one_block_let_one_win() {
    let store = open(&SimDisk::new(1));
    let won = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..32 {
            let store = store.clone();
            tasks.spawn(async move { put(&store, 1, 5000).await });
        }
        let all = tasks.join_all().await;
        let lost = |result: &&Result<(), Error>| {
            matches!(result, Err(Error::Exists(_) | Error::Conflict(_)))
        };
        assert_eq!(all.iter().filter(lost).count(), 31);
        all.into_iter().filter(Result::is_ok).count()
    });
    assert_eq!(won, 1);
    assert!(is_there(&store, 1, 5000));
}

#[test]
fn asynchronously_survive_the_death_of_the_process() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let mut config = config();
        config.durability = Durability::Async;
        let store = Store::open(Arc::new(disk.clone()), config).unwrap();
        runtime().block_on(hammer(&store));
        check(&open(&disk.kill()));
        store.sync().unwrap();
        check(&open(&disk.crash_image(seed)));
    }
}
