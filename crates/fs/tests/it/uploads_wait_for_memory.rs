//! Uploads that together are far longer than the memory that they share: all get on, none takes
//! more than there is, and none ends in pieces that are too small.

use std::sync::atomic::Ordering;

use cairn_auth::{Caller, Rights};
use cairn_base::limits;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::coalesce::ReadChunk;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_fs::{Config, PutRequest};

use crate::world::{BUCKET, World, data, root, run};

/// Memory for all uploads, bytes: less than the blocks of one upload that may be on their way.
const ROOM: usize = 1 << 20;
/// The longest one has more than a chunk.
const LENGTHS: [usize; 4] = [65 << 20, 17 << 20, 17 << 20, 17 << 20];
/// Extents of a chunk, at most: pieces of 128 KiB. The first one is shorter, and the last one.
const EXTENTS: usize = limits::CHUNK_BYTES as usize / (128 << 10) + 2;

async fn user(world: &World, name: &str) -> Caller {
    let (id, user) = (format!("CK{name}"), name.to_owned());
    let key = AddAccessKey { id, sealed: vec![1; 40], user, replace: false };
    Caller::verified(world.fs.run(&Caller::system(), key).await.unwrap())
}

/// Two users who may write: the first one that is made is root.
async fn users(world: &World) -> [Caller; 2] {
    let users = [user(world, "root").await, user(world, "other").await];
    let (name, grant) = (BUCKET.to_owned(), Some(("other".to_owned(), Rights::WRITE)));
    let update = UpdateBucket { name, grant, ..UpdateBucket::default() };
    world.fs.run(&users[0], update).await.unwrap();
    users
}

#[test]
fn all_of_them_get_on_and_none_in_pieces_that_are_too_small() {
    run(async {
        let config = Config { upload_bytes: ROOM, ..Config::default() };
        let (world, blocks) = World::watched(1, config).await;
        let callers = users(&world).await;
        let mut uploads = Vec::new();
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let caller = callers[number % 2].clone();
            let (fs, bytes) = (world.fs.clone(), data(number as u64, length));
            uploads.push(tokio::spawn(async move {
                let mut writer = fs.begin(&caller, BUCKET).await.unwrap();
                let mut rest = bytes.clone();
                while !rest.is_empty() {
                    writer.push(rest.split_to(rest.len().min(100_000))).await.unwrap();
                    assert!(fs.upload_memory().taken() <= ROOM as u64);
                }
                let written = writer.finish().await.unwrap();
                let (bucket, key) = (BUCKET.into(), format!("k{number}"));
                let request = PutRequest { bucket, key, ..PutRequest::default() };
                let put = fs.put_object(&caller, request, written).await.unwrap();
                (put.ino, bytes)
            }));
        }
        for (number, upload) in uploads.into_iter().enumerate() {
            let (ino, bytes) = upload.await.unwrap();
            assert!(world.get(&format!("k{number}")).await.unwrap() == bytes, "k{number}");
            let chunk = world.fs.read(&root(), ReadChunk { ino, chunk: 0 }).await.unwrap();
            let extents = chunk.unwrap().1.len();
            let blocks = bytes.len().div_ceil(limits::BLOCK_BYTES);
            assert!(extents > 2 * blocks, "k{number} had to wait for no memory");
            assert!(extents <= EXTENTS, "k{number} has {extents} extents");
        }
        assert_eq!(world.fs.upload_memory().taken(), 0);
        let most = blocks.writing_most.load(Ordering::SeqCst);
        assert!(most <= ROOM as u64, "{most} bytes were on their way at once");
    });
}

#[test]
fn an_upload_that_lost_a_block_is_never_whole() {
    run(async {
        let config = Config { parallel_blocks: 1, ..Config::default() };
        let (world, blocks) = World::watched(5, config).await;
        blocks.failures.store(1, Ordering::SeqCst);
        let mut writer = world.fs.begin(&root(), BUCKET).await.unwrap();
        let block = data(1, limits::BLOCK_BYTES);
        writer.push(block.clone()).await.unwrap();
        assert!(writer.push(block).await.is_err(), "the first block was lost");
        assert!(writer.finish().await.is_err());
    });
}
