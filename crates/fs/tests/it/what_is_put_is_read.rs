use cairn_base::rng::SeededRng;
use cairn_base::{Error, limits};

use crate::world::{BUCKET, World, data, root, run};

#[test]
fn objects_of_all_sizes() {
    run(async {
        let world = World::new(1).await;
        let block = limits::BLOCK_BYTES;
        let sizes = [
            0,
            1,
            limits::INLINE_BYTES,
            limits::INLINE_BYTES + 1,
            block - 1,
            block,
            block + 1,
            3 * block + 12_345,
            limits::CHUNK_BYTES as usize + 5,
        ];
        for (at, size) in sizes.into_iter().enumerate() {
            world.put(&format!("k{at}"), &data(at as u64, size)).await.unwrap();
        }
        let world = world.killed(2).await;
        for (at, size) in sizes.into_iter().enumerate() {
            let found = world.get(&format!("k{at}")).await.unwrap();
            assert!(found == data(at as u64, size), "size {size}");
        }
    });
}

#[test]
fn any_range_is_that_range() {
    run(async {
        let world = World::new(3).await;
        let whole = data(9, 9 << 20);
        world.put("k", &whole).await.unwrap();
        let object = world.fs.open(&root(), BUCKET, "k").await.unwrap();
        let rng = SeededRng::new(4);
        for _ in 0..300 {
            let start = rng.below(whole.len() as u64);
            let end = start + rng.below((whole.len() as u64 - start).min(2 << 20) + 1);
            let found = object.read_all(start..end).await.unwrap();
            assert!(found == whole[start as usize..end as usize], "{start}..{end}");
        }
        let beyond = object.read_all(0..whole.len() as u64 + 1).await;
        assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { .. })));
    });
}

#[test]
fn a_reader_keeps_its_state_while_the_object_is_replaced_and_collected() {
    run(async {
        let world = World::new(5).await;
        let old = data(1, 6 << 20);
        world.put("k", &old).await.unwrap();
        let object = world.fs.open(&root(), BUCKET, "k").await.unwrap();
        world.put("k", &data(2, 100)).await.unwrap();
        for _ in 0..3 {
            world.fs.collect_garbage(&root(), false).await.unwrap();
        }
        assert!(object.read_all(0..old.len() as u64).await.unwrap() == old);
        drop(object);
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
        assert!(world.get("k").await.unwrap() == data(2, 100));
    });
}

#[test]
fn a_flipped_bit_fails_one_object_loudly() {
    run(async {
        let world = World::new(6).await;
        for key in ["a", "b", "c"] {
            world.put(key, &data(7, 100_000)).await.unwrap();
        }
        let disk = world.disk.kill();
        let blocks = cairn_base::Disk::sub(&disk, "blocks").unwrap();
        let names = cairn_base::Disk::list(&*blocks).unwrap();
        let name = names.iter().find(|name| name.ends_with(".seg")).unwrap();
        let file = blocks.open(name).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, 150_000).unwrap();
        file.write_at(&[&[byte[0] ^ 0x10]], 150_000).unwrap();
        let world = World::on(disk, 8).await.unwrap();
        let mut corrupt = 0;
        for key in ["a", "b", "c"] {
            match world.get(key).await {
                Ok(bytes) => assert!(bytes == data(7, 100_000)),
                Err(Error::Corrupt { .. }) => corrupt += 1,
                Err(error) => panic!("{key}: {error}"),
            }
        }
        assert_eq!(corrupt, 1);
    });
}
