//! Bodies on their way to clients: few pieces wait for a client that takes none, nobody waits for
//! another's, and all that was put arrives.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cairn_fs::{ByteStream, Config, PIECE_BYTES};
use futures_util::StreamExt;

use crate::world::{BUCKET, World, data, root, run};

/// The bytes of the object: several blocks, and no whole number of pieces.
const LENGTH: usize = (9 << 20) + 1000;
/// After so long nothing more comes.
const PATIENCE: Duration = Duration::from_millis(300);

async fn send(world: &World) -> ByteStream {
    let object = world.fs.open(&root(), BUCKET, "key").await.unwrap();
    object.send(0..object.size())
}

/// The next piece, if one comes.
async fn next(stream: &mut ByteStream) -> Option<Bytes> {
    tokio::time::timeout(PATIENCE, stream.next()).await.ok().flatten().transpose().unwrap()
}

#[test]
fn two_pieces_wait_and_no_more_is_read() {
    run(async {
        let config = Config { cache_bytes: 0, ..Config::default() };
        let (world, blocks) = World::watched(1, config).await;
        let bytes = data(1, LENGTH);
        world.put("key", &bytes).await.unwrap();
        let mut stream = send(&world).await;
        let mut held = Vec::new();
        while let Some(piece) = next(&mut stream).await {
            held.push(piece);
        }
        assert_eq!(held.len(), 2);
        assert_eq!(world.fs.sending().waiting(), 2 * PIECE_BYTES);
        let reads = blocks.reads.load(Ordering::SeqCst);
        assert!(reads <= 2, "{reads} pieces were read");
        // A part of a piece keeps all of it.
        let mut whole = BytesMut::new();
        held.iter().for_each(|piece| whole.extend_from_slice(piece));
        held[0] = held[0].slice(..1);
        assert!(next(&mut stream).await.is_none());
        drop(held);
        while let Some(piece) = stream.next().await {
            whole.extend_from_slice(&piece.unwrap());
        }
        assert!(whole == bytes);
        assert_eq!(world.fs.sending().waiting(), 0);
    });
}

#[test]
fn a_stream_that_waits_for_room_is_woken() {
    run(async {
        let world = World::new(2).await;
        let bytes = data(2, LENGTH);
        world.put("key", &bytes).await.unwrap();
        let mut stream = send(&world).await;
        let (sender, mut pieces) = tokio::sync::mpsc::channel::<Bytes>(64);
        let taker = tokio::spawn(async move {
            let mut whole = BytesMut::new();
            while let Some(piece) = pieces.recv().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
                whole.extend_from_slice(&piece);
            }
            whole
        });
        while let Some(piece) = stream.next().await {
            sender.send(piece.unwrap()).await.unwrap();
            assert!(world.fs.sending().waiting() <= 2 * PIECE_BYTES);
        }
        drop(sender);
        assert!(taker.await.unwrap() == bytes);
    });
}

#[test]
fn one_piece_of_each_waits_where_all_have_much() {
    run(async {
        let config = Config { sending_bytes: PIECE_BYTES, ..Config::default() };
        let (world, _) = World::watched(3, config).await;
        let bytes = data(3, LENGTH);
        world.put("key", &bytes).await.unwrap();
        let mut stopped = send(&world).await;
        let piece = next(&mut stopped).await;
        assert!(piece.is_some() && next(&mut stopped).await.is_none());
        // Another stream, whose pieces are taken, ends meanwhile.
        let (mut whole, mut stream) = (BytesMut::new(), send(&world).await);
        while let Some(piece) = stream.next().await {
            whole.extend_from_slice(&piece.unwrap());
        }
        assert!(whole == bytes);
        drop(piece);
        assert!(next(&mut stopped).await.is_some());
    });
}
