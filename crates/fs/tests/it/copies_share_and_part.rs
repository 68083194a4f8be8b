use cairn_base::{Ino, limits};
use cairn_fs::ops::copy_object::CopyObject;
use cairn_fs::{PartSource, Piece};

use crate::world::{BUCKET, World, data, root, run};

async fn copy(world: &World, source: &str, target: &str) {
    let verb = CopyObject {
        source_bucket: BUCKET.into(),
        source_key: source.into(),
        source_conditions: Default::default(),
        bucket: BUCKET.into(),
        key: target.into(),
        conditions: Default::default(),
        object: None,
        tags: None,
    };
    world.fs.run(&root(), verb).await.unwrap();
}

#[test]
fn a_copy_moves_no_byte_and_outlives_its_source() {
    run(async {
        let world = World::new(1).await;
        let bytes = data(1, 5 << 20);
        world.put("a", &bytes).await.unwrap();
        let blocks = world.blocks().await;
        copy(&world, "a", "b").await;
        assert_eq!(world.blocks().await, blocks);
        let record = data(2, 50_000);
        world.fs.append(&root(), BUCKET, "b", record.clone()).await.unwrap();
        assert!(world.get("a").await.unwrap() == bytes);
        let longer = [&bytes[..], &record].concat();
        assert!(world.get("b").await.unwrap() == longer);
        world.delete("a").await.unwrap();
        world.collect().await;
        assert!(world.get("b").await.unwrap() == longer);
        copy(&world, "b", "c").await;
        world.delete("b").await.unwrap();
        world.collect().await;
        assert!(world.get("c").await.unwrap() == longer);
        world.delete("c").await.unwrap();
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

/// Parts that cross the borders of chunks, a part copied out of the result, the result deleted:
/// everything that is still named is there, everything else goes.
#[test]
fn parts_become_an_object_and_parts_of_that_another() {
    run(async {
        let world = World::new(2).await;
        let part = |number: u32| data(u64::from(number), (11 << 20) + number as usize);
        let name = world.create_upload("big").await;
        let mut parts = Vec::new();
        for number in 1..=8 {
            parts.push(world.put_part(&name, number, &part(number)).await);
        }
        // One again, and one that will not be used.
        parts[2] = world.put_part(&name, 3, &part(33)).await;
        world.put_part(&name, 9, &part(9)).await;
        let blocks = world.blocks().await;
        // A completion that fails, then one that does not.
        let mut wrong = parts.clone();
        wrong[7].etag = parts[0].etag.clone();
        assert!(world.complete(&name, &wrong).await.is_err());
        let completed = world.complete(&name, &parts).await.unwrap();
        assert_eq!(world.blocks().await, blocks);
        assert!(completed.put.etag.ends_with("-8"));
        let whole: Vec<u8> =
            [1, 2, 33, 4, 5, 6, 7, 8].into_iter().flat_map(|at| part(at).to_vec()).collect();
        assert!(whole.len() as u64 > limits::CHUNK_BYTES);
        assert!(world.get("big").await.unwrap() == whole);

        world.collect().await;
        assert!(world.blocks().await < blocks, "the unused parts go");
        let world = world.killed(3).await;
        assert!(world.get("big").await.unwrap() == whole);

        let name = world.create_upload("slice").await;
        let range = (5_000_000u64, 80_000_000u64);
        let source = PartSource {
            bucket: BUCKET.into(),
            key: "big".into(),
            conditions: Default::default(),
            range: Some(range),
        };
        let copied = world.fs.copy_part(&root(), name.clone(), 1, source, None).await.unwrap();
        let tail = world.put_part(&name, 2, &data(77, 1000)).await;
        let first =
            cairn_fs::ops::multipart::TakenPart { number: 1, etag: copied.etag, ..tail.clone() };
        world.complete(&name, &[first, tail]).await.unwrap();
        world.delete("big").await.unwrap();
        world.collect().await;
        let slice = [&whole[range.0 as usize..=range.1 as usize], &data(77, 1000)].concat();
        assert!(world.get("slice").await.unwrap() == slice);
        world.delete("slice").await.unwrap();
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    run(async {
        let world = World::new(4).await;
        let name = world.create_upload("k").await;
        for number in 1..=3 {
            world.put_part(&name, number, &data(1, 6 << 20)).await;
        }
        let abort = cairn_fs::ops::multipart::AbortUpload { name };
        world.fs.run(&root(), abort).await.unwrap();
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

/// Files that end in a hole are copied as parts with their zeros.
#[test]
fn holes_are_copied_as_zeros() {
    run(async {
        let world = World::new(5).await;
        for (key, bytes) in [("empty", data(1, 0)), ("inline", data(1, 100))] {
            world.put(key, &bytes).await.unwrap();
            let ino = world.fs.open(&root(), BUCKET, key).await.unwrap().ino();
            let size = 300_000;
            let verb = cairn_fs::ops::truncate::Truncate {
                ino,
                session: world.fs.session(),
                opened: false,
                spare: Default::default(),
                size,
            };
            world.fs.run(&root(), verb).await.unwrap();
            let name = world.create_upload("target").await;
            let source = PartSource {
                bucket: BUCKET.into(),
                key: key.into(),
                conditions: Default::default(),
                range: None,
            };
            let copied = world.fs.copy_part(&root(), name.clone(), 1, source, None).await;
            let etag = copied.unwrap().etag;
            let part = cairn_fs::ops::multipart::TakenPart { number: 1, etag, checksum: None };
            world.complete(&name, &[part]).await.unwrap();
            let mut whole = bytes.to_vec();
            whole.resize(size as usize, 0);
            assert!(world.get("target").await.unwrap() == whole, "{key}");
        }
    });
}

/// A file in pieces with holes between them, in more than may be shared.
async fn file_in_pieces(world: &World, key: &str) -> Ino {
    let caller = root();
    world.put(key, &data(1, 100_000)).await.unwrap();
    let ino = world.fs.open(&caller, BUCKET, key).await.unwrap().ino();
    let writer = world.fs.writer(ino);
    for at in 0..4 * 1010 / 101u64 {
        let start = (at / 10 + 1) * limits::CHUNK_BYTES + at % 10 * 101 * 1000;
        let runs: Vec<_> = (0..101).map(|run| (start + run * 1000, data(run, 10))).collect();
        let block = Piece::Block(writer.upload(&caller, &runs).await.unwrap());
        writer.publish(&caller, world.fs.session(), vec![block], &mut None).await.unwrap();
    }
    ino
}

/// The copy is of the same bytes, and the source stays what its owner alone has.
#[test]
fn bytes_of_a_file_in_many_pieces_are_copied() {
    run(async {
        let world = World::new(5).await;
        let ino = file_in_pieces(&world, "pieces").await;
        let size = world.fs.open(&root(), BUCKET, "pieces").await.unwrap().size();
        let copied = CopyObject {
            source_bucket: BUCKET.into(),
            source_key: "pieces".into(),
            source_conditions: Default::default(),
            bucket: BUCKET.into(),
            key: "copy".into(),
            conditions: Default::default(),
            object: None,
            tags: None,
        };
        let blocks = world.blocks().await;
        world.fs.copy_as_is(&root(), copied).await.unwrap();
        assert!(world.blocks().await - blocks >= size / limits::BLOCK_BYTES as u64);
        let name = world.create_upload("part").await;
        let range = Some((0, 6 << 20));
        let (bucket, key, conditions) = (BUCKET.into(), "pieces".into(), Default::default());
        let source = PartSource { bucket, key, conditions, range };
        world.fs.copy_part(&root(), name, 1, source, None).await.unwrap();
        let access = cairn_fs::ops::getattr::Access { ino, wanted: 0 };
        assert!(!world.fs.read(&root(), access).await.unwrap().1, "nothing shares it");
        for range in [90_000..110_000, (64 << 20) - 10..(64 << 20) + 5000, size - 2000..size] {
            let [one, other] = ["pieces", "copy"].map(|key| {
                let range = range.clone();
                let (fs, caller) = (&world.fs, root());
                async move { fs.open(&caller, BUCKET, key).await.unwrap().read_all(range).await }
            });
            assert!(one.await.unwrap() == other.await.unwrap());
        }
    });
}

/// 81 rows for each part of 5 GiB: more than one operation may write, though no byte is stored.
#[test]
fn an_object_is_made_of_many_large_parts() {
    const PARTS: u32 = 60;
    assert_eq!(limits::OBJECT_BYTES, u64::from(limits::PARTS) * (5 << 30));
    run(async {
        let world = World::new(6).await;
        world.put("hole", &data(1, 1)).await.unwrap();
        let ino = world.fs.open(&root(), BUCKET, "hole").await.unwrap().ino();
        world.fs.truncate(&root(), ino, limits::PART_BYTES_MAX, true).await.unwrap();
        let name = world.create_upload("large").await;
        let mut parts = Vec::new();
        for number in 1..=PARTS {
            let (bucket, key, conditions) = (BUCKET.into(), "hole".into(), Default::default());
            let source = PartSource { bucket, key, conditions, range: None };
            let copied = world.fs.copy_part(&root(), name.clone(), number, source, None).await;
            let (etag, checksum) = (copied.unwrap().etag, None);
            parts.push(cairn_fs::ops::multipart::TakenPart { number, etag, checksum });
        }
        world.complete(&name, &parts).await.unwrap();
        let large = world.fs.open(&root(), BUCKET, "large").await.unwrap();
        assert_eq!(large.size(), u64::from(PARTS) * limits::PART_BYTES_MAX);
        let last = large.size() - limits::PART_BYTES_MAX;
        let bytes = large.read_all(last - 1..last + 2).await.unwrap();
        assert_eq!(bytes[..], [0, data(1, 1)[0], 0]);
    });
}
