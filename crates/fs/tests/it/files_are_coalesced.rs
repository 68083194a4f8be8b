//! What many appends made is rewritten as few compressed blocks, and says the same at all times.

use std::collections::BTreeSet;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, Ino};
use cairn_fs::Piece;
use cairn_fs::ops::coalesce::ReadChunk;
use cairn_fs::rows::{Extent, Place};
use cairn_sim::SimDisk;

use crate::world::{BUCKET, World, root, run};

const KEY: &str = "log";
const LENGTHS: [usize; 5] = [70, 3000, 16 << 10, 90_000, 700_000];

/// Lines of a log.
fn lines(seed: u64, len: usize) -> Bytes {
    let line = |n: u64| format!("{{\"n\":{n},\"path\":\"/{}\"}}\n", (seed ^ n) * 7919 % 10_007);
    (0..).flat_map(|n| line(n).into_bytes()).take(len).collect()
}

async fn append(world: &World, record: &Bytes) -> Ino {
    world.fs.append(&root(), BUCKET, KEY, record.clone()).await.unwrap().1
}

/// Steps until there is nothing left to do. Returns the bytes that were rewritten.
async fn coalesce(world: &World, ino: Ino, grows: bool) -> u64 {
    let size = world.fs.open(&root(), BUCKET, KEY).await.unwrap().size();
    let (mut from, mut bytes) = (Some(0), 0);
    while let Some(at) = from {
        let step = world.fs.coalesce_step(ino, size, at, grows).await.unwrap();
        bytes += step.bytes;
        assert!(step.next.is_none_or(|next| next > at));
        from = step.next;
    }
    bytes
}

async fn extents(world: &World, ino: Ino) -> Vec<Extent> {
    let mut all = Vec::new();
    for chunk in 0..3 {
        let read = world.fs.read(&root(), ReadChunk { ino, chunk }).await.unwrap();
        all.extend(read.unwrap().1);
    }
    all
}

#[test]
fn a_closed_file_is_few_compressed_blocks_and_nothing_else_of_it_changed() {
    run(async {
        let world = World::new(1).await;
        let (mut whole, mut ino) = (Vec::new(), Ino(0));
        for n in 0..110u64 {
            let record = lines(n, [70, 16_000, 20_000, 1 << 20][n as usize % 4]);
            whole.extend_from_slice(&record);
            ino = append(&world, &record).await;
        }
        let before = world.fs.open(&root(), BUCKET, KEY).await.unwrap();
        let count = extents(&world, ino).await.len();
        assert!(count > 50, "{count}");
        assert!(coalesce(&world, ino, false).await > 0);
        let after = world.fs.open(&root(), BUCKET, KEY).await.unwrap();
        assert_eq!(after.inode(), before.inode(), "times, size, ETag");
        assert!(world.get(KEY).await.unwrap() == whole);
        // One that was opened before reads on.
        assert!(before.read_all(0..before.size()).await.unwrap() == whole);
        drop((before, after));
        let left = extents(&world, ino).await;
        assert!(left.len() <= 2 * whole.len().div_ceil(4 << 20), "{}", left.len());
        for extent in &left {
            let Place::Block { group, block, .. } = extent.place else { panic!("{extent:?}") };
            assert!(world.store.is_compressed_now(group, block).unwrap());
        }
        assert_eq!(coalesce(&world, ino, false).await, 0, "there is nothing left to do");
        world.collect().await;
        assert_eq!(world.blocks().await, left.len() as u64, "the former blocks are gone");
        let stored = world.store.usage_now().unwrap().live_bytes;
        assert!(stored < whole.len() as u64 / 2, "{stored}");
        let world = world.killed(2).await;
        assert!(world.get(KEY).await.unwrap() == whole);
        assert_eq!(coalesce(&world, ino, false).await, 0);
    });
}

#[test]
fn the_last_run_of_a_file_that_grows_stays() {
    run(async {
        let world = World::new(1).await;
        let mut ino = Ino(0);
        for n in 0..20u64 {
            ino = append(&world, &lines(n, 300_000)).await;
        }
        let before = extents(&world, ino).await;
        assert_eq!(coalesce(&world, ino, true).await, 13 * 300_000);
        let after = extents(&world, ino).await;
        assert_eq!((after.len(), &after[1..]), (8, &before[13..]));
        assert_eq!(coalesce(&world, ino, true).await, 0);
    });
}

#[test]
fn a_file_that_is_small_or_gone_is_left_alone() {
    run(async {
        let world = World::new(1).await;
        let ino = append(&world, &lines(1, 70)).await;
        assert_eq!(coalesce(&world, ino, false).await, 0);
        let gone = world.fs.coalesce_step(Ino(1 << 40), 100, 0, false).await;
        assert!(gone.is_err(), "{gone:?}");
    });
}

/// Appends and overwrites at any time: each is there, as if nothing was rewritten.
#[test]
fn whatever_is_written_meanwhile_wins() {
    for seed in 0..3 * cairn_sim::scale() {
        run(async {
            let world = World::new(seed).await;
            let rng = SeededRng::new(seed);
            let mut model = lines(seed, 5_000_000).to_vec();
            let ino = append(&world, &Bytes::copy_from_slice(&model[..1_000_000])).await;
            for piece in model[1_000_000..].chunks(400_000) {
                append(&world, &Bytes::copy_from_slice(piece)).await;
            }
            for round in 0..25u64 {
                let at = rng.below(model.len() as u64);
                let size = model.len() as u64;
                let (grows, record) =
                    (rng.below(2) == 0, lines(round, LENGTHS[rng.below(5) as usize]));
                let overwrites = rng.below(3) == 0;
                let write = async {
                    if !overwrites {
                        append(&world, &record).await;
                        return;
                    }
                    let writer = world.fs.writer(ino);
                    let end = (at as usize + 20_000).min(model.len());
                    let bytes = record.slice(..record.len().min(end - at as usize));
                    let piece = Piece::Block(writer.upload(&root(), &[(at, bytes)]).await.unwrap());
                    writer
                        .publish(&root(), world.fs.session(), vec![piece], &mut None)
                        .await
                        .unwrap();
                };
                let rewrite = async {
                    // What changes in between may be gone when it is read.
                    let _ = world.fs.coalesce_step(ino, size, at, grows).await;
                };
                tokio::join!(rewrite, write);
                if overwrites {
                    let end = (at as usize + 20_000).min(model.len());
                    let len = record.len().min(end - at as usize);
                    model[at as usize..at as usize + len].copy_from_slice(&record[..len]);
                } else {
                    model.extend_from_slice(&record);
                }
                assert!(world.get(KEY).await.unwrap() == model, "seed {seed}, round {round}");
                if round % 10 == 9 {
                    world.collect().await;
                }
            }
            coalesce(&world, ino, false).await;
            world.collect().await;
            let world = world.killed(seed).await;
            assert!(world.get(KEY).await.unwrap() == model, "seed {seed}");
            world.collect().await;
            let named =
                extents(&world, ino).await.into_iter().filter_map(|extent| match extent.place {
                    Place::Block { block, .. } => Some(block),
                    _ => None,
                });
            let named: BTreeSet<BlockId> = named.collect();
            assert_eq!(world.blocks().await, named.len() as u64);
        });
    }
}

/// A power cut at any sync point, while a file is appended to and rewritten.
#[test]
fn a_power_cut_loses_nothing_acknowledged() {
    for seed in 0..cairn_sim::scale() {
        let (snapshots, states) = run(async {
            let world = World::new(seed).await;
            let (mut whole, mut states) = (Vec::new(), Vec::new());
            let mut ino = Ino(0);
            for n in 0..8u64 {
                let record = lines(n, 30_000);
                whole.extend_from_slice(&record);
                ino = append(&world, &record).await;
            }
            world.disk.record();
            states.push(Bytes::copy_from_slice(&whole));
            for n in 8..13u64 {
                coalesce(&world, ino, false).await;
                world.collect().await;
                let record = lines(n, [70, 30_000][n as usize % 2]);
                whole.extend_from_slice(&record);
                append(&world, &record).await;
                states.push(Bytes::copy_from_slice(&whole));
                world.disk.mark(states.len() as u64 - 1);
            }
            (world.disk.recorded(), states)
        });
        assert!(snapshots.len() > 20, "{}", snapshots.len());
        for (at, snapshot) in snapshots.iter().enumerate() {
            for cut in 0..2 {
                let image: SimDisk = snapshot.crash_image(seed * 1000 + cut);
                let done = snapshot.mark as usize;
                let found = run(async {
                    let world = World::on(image, 1).await.unwrap();
                    world.get(KEY).await.unwrap()
                });
                let next = &states[(done + 1).min(states.len() - 1)];
                assert!(found == states[done] || found == *next, "seed {seed}, {at}, cut {cut}");
            }
        }
    }
}
