//! A client that reads much of a long object for long gets one state of it, or an error: never the
//! bytes of another state, nor zeros where there were bytes.

use bytes::{Bytes, BytesMut};
use cairn_base::{Error, Ino, Result, limits};
use cairn_fs::{Object, Piece};
use futures_util::TryStreamExt;

use crate::world::{BUCKET, World, data, root, run};

/// Beyond the extents that are known of every object that is open.
const AT: u64 = 100 << 20;
const SIZE: u64 = 200 << 20;
const LEN: usize = 20_000;

async fn write(world: &World, ino: Ino, at: u64, bytes: &Bytes) {
    let writer = world.fs.writer(ino);
    let block = writer.upload(&root(), &[(at, bytes.clone())]).await.unwrap();
    let pieces = vec![Piece::Block(block)];
    writer.publish(&root(), world.fs.session(), pieces, &mut None).await.unwrap();
}

/// An object of such a size, with bytes at its beginning and at `at`.
async fn put(world: &World, size: u64, at: u64) -> (Ino, Bytes) {
    world.put("k", &data(1, LEN)).await.unwrap();
    let ino = world.fs.open(&root(), BUCKET, "k").await.unwrap().ino();
    world.fs.truncate(&root(), ino, size, false).await.unwrap();
    let bytes = data(2, LEN);
    write(world, ino, at, &bytes).await;
    (ino, bytes)
}

async fn open(world: &World) -> Object {
    let all = |object: &Object| Some(0..object.size());
    world.fs.open_for(&root(), BUCKET, "k", all).await.unwrap()
}

async fn read(object: &Object, at: u64) -> Result<BytesMut> {
    let pieces = object.read(at - 1000..at + LEN as u64);
    let joined = |mut all: BytesMut, piece: Bytes| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    };
    Ok(pieces.try_fold(BytesMut::new(), joined).await?.split_off(1000))
}

#[test]
fn where_the_object_is_deleted_and_collected() {
    run(async {
        let world = World::new(1).await;
        let (_, bytes) = put(&world, SIZE, AT).await;
        let object = open(&world).await;
        // Nobody has said what of it is wanted.
        let other = world.fs.open(&root(), BUCKET, "k").await.unwrap();
        assert!(world.delete("k").await.unwrap());
        for _ in 0..3 {
            world.fs.collect_garbage(&root(), false).await.unwrap();
        }
        assert!(read(&object, AT).await.unwrap() == bytes);
        let gone = read(&other, AT).await;
        assert!(matches!(gone, Err(Error::Conflict(_))), "{gone:?}");
        drop((object, other));
        world.collect().await;
        assert_eq!(world.blocks().await, 0);
    });
}

#[test]
fn where_the_object_is_written_in_place() {
    run(async {
        let world = World::new(2).await;
        let (ino, bytes) = put(&world, SIZE, AT).await;
        let object = open(&world).await;
        let new = data(3, LEN);
        write(&world, ino, AT, &new).await;
        world.fs.append_inode(&root(), ino, data(4, 10)).await.unwrap();
        world.fs.collect_garbage(&root(), false).await.unwrap();
        assert!(read(&object, AT).await.unwrap() == bytes);
        assert_eq!(object.size(), SIZE);
        assert!(read(&open(&world).await, AT).await.unwrap() == new);
        world.fs.truncate(&root(), ino, 0, false).await.unwrap();
        assert!(read(&object, AT).await.unwrap() == bytes);
    });
}

#[test]
fn where_the_object_has_more_parts_than_are_kept() {
    const LONG: u64 = 700 * limits::CHUNK_BYTES;
    const FAR: u64 = 600 * limits::CHUNK_BYTES + 5000;
    run(async {
        let world = World::new(3).await;
        let (ino, bytes) = put(&world, LONG, FAR).await;
        write(&world, ino, AT, &bytes).await;
        let object = open(&world).await;
        assert!(object.is_open_for(&(0..LONG)));
        assert!(read(&object, FAR).await.unwrap() == bytes);
        world.fs.append_inode(&root(), ino, data(4, 10)).await.unwrap();
        let changed = read(&object, FAR).await;
        assert!(matches!(changed, Err(Error::Conflict(_))), "{changed:?}");
        assert!(read(&object, AT).await.unwrap() == bytes);
        let layout = object.layout(100).await;
        assert!(matches!(layout, Err(Error::Conflict(_))), "{layout:?}");
    });
}
