//! A chunk of many extents is rewritten in few, and says the same.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::{Error, Ino};
use cairn_fs::Piece;
use cairn_fs::ops::coalesce::ReadChunk;

use crate::world::{BUCKET, World, data, root, run};

/// A file in several runs, with holes between them, and what it says.
async fn written(world: &World) -> (Ino, Bytes) {
    let caller = root();
    world.put("file", &data(1, 100_000)).await.unwrap();
    let ino = world.fs.open(&caller, BUCKET, "file").await.unwrap().ino();
    let writer = world.fs.writer(ino);
    for at in 0..3u64 {
        let runs = [(at << 20, data(4, 5000)), ((at << 20) + 10_000, data(5, 5000))];
        let block = Piece::Block(writer.upload(&caller, &runs).await.unwrap());
        writer.publish(&caller, world.fs.session(), vec![block], &mut None).await.unwrap();
    }
    (ino, world.get("file").await.unwrap())
}

async fn extents(world: &World, ino: Ino) -> usize {
    let chunk = world.fs.read(&root(), ReadChunk { ino, chunk: 0 }).await.unwrap();
    chunk.unwrap().1.len()
}

#[test]
fn a_block_that_a_server_forgot_is_asked_for_again() {
    run(async {
        let world = World::new(1).await;
        let (ino, whole) = written(&world).await;
        let (world, blocks) = world.killed_and_watched(2).await;
        let before = extents(&world, ino).await;
        assert!(before > 4, "{before}");
        // Once is what being told again mends; what is refused then is refused.
        blocks.refusals.store(1000, Ordering::SeqCst);
        let refused = world.fs.compact_chunk(&root(), ino, 0).await;
        assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
        assert_eq!(extents(&world, ino).await, before);
        blocks.refusals.store(1, Ordering::SeqCst);
        world.fs.compact_chunk(&root(), ino, 0).await.unwrap();
        assert_eq!(blocks.refusals.load(Ordering::SeqCst), 0);
        assert_eq!(extents(&world, ino).await, 1);
        assert!(world.get("file").await.unwrap() == whole);
    });
}
