use bytes::Bytes;
use cairn_base::rng::SeededRng;
use std::collections::BTreeMap;

use crate::world::{BUCKET, World, data, root, run};

#[test]
fn what_was_never_published_goes_at_once_or_after_a_crash() {
    run(async {
        let world = World::new(1).await;
        let mut writer = world.fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(data(1, 9 << 20)).await.unwrap();
        drop(writer.finish().await.unwrap());
        let mut writer = world.fs.begin(&root(), BUCKET).await.unwrap();
        writer.push(data(2, 9 << 20)).await.unwrap();
        let forgotten = writer.finish().await.unwrap();
        world.collect().await;
        assert!(world.blocks().await > 0, "the second one may still be published");
        std::mem::forget(forgotten);
        let world = world.killed(2).await;
        let dry = world.fs.collect_garbage(&root(), true).await.unwrap();
        assert_eq!(dry.orphans, 3);
        assert!(world.blocks().await > 0, "a dry run changes nothing");
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

/// Random changes with kills in between; in the end only what is named is there.
#[test]
fn churn_with_crashes_leaks_and_loses_nothing() {
    (11..11 + cairn_sim::scale()).for_each(churn);
}

fn churn(seed: u64) {
    run(async {
        let rng = SeededRng::new(seed);
        let mut world = World::new(seed).await;
        let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
        for step in 0..400u64 {
            let key = format!("d{}/k{}", rng.below(3), rng.below(8));
            match rng.below(10) {
                0..=4 => {
                    let len = [100, 20_000, 200_000, 5 << 20][rng.below(4) as usize];
                    let bytes = data(step, len);
                    world.put(&key, &bytes).await.unwrap();
                    model.insert(key, bytes);
                }
                5..=6 => {
                    let existed = world.delete(&key).await.unwrap();
                    assert_eq!(existed, model.remove(&key).is_some());
                }
                7 => {
                    let record = data(step, 30_000);
                    world.fs.append(&root(), BUCKET, &key, record.clone()).await.unwrap();
                    let bytes = model.entry(key).or_default();
                    *bytes = [&bytes[..], &record].concat().into();
                }
                8 => {
                    world.fs.collect_garbage(&root(), false).await.unwrap();
                    tokio::task::block_in_place(|| world.store.compact(false)).unwrap();
                }
                _ => world = world.killed(step).await,
            }
        }
        world.collect().await;
        for (key, bytes) in &model {
            assert!(world.get(key).await.unwrap() == bytes, "{key}, seed {seed}");
        }
        for key in model.keys() {
            world.delete(key).await.unwrap();
        }
        world.collect().await;
        assert_eq!(world.blocks().await, 0, "seed {seed}");
    });
}
