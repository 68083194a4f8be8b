//! A gateway forgets which blocks it told a mount of: when the user may not read them any more, or
//! when there are too many. The mount then asks again, whatever it has leased.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Caller, Rights};
use cairn_base::clock::RealClock;
use cairn_base::{GroupId, Ino, Result, UserId, limits};
use cairn_blocks::Blocks;
use cairn_fs::{Fs, Piece};
use cairn_meta::Meta;
use cairn_meta::ops::buckets::UpdateBucket;
use cairn_meta::ops::coalesce::ReadChunk;
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::rows::{Extent, Place};

use crate::mounts_come_in_by_gateways::{Mount, World};
use crate::support::denied;

/// The second one: extents of the first come with the inode.
const CHUNK: u32 = 1;
const START: u64 = limits::CHUNK_BYTES;
const STEP: u64 = 1 << 20;
const LEN: u64 = 20_000;

async fn user(world: &World, name: &str) -> UserId {
    let (id, user) = (format!("CK{name}"), name.to_owned());
    let key = AddAccessKey { id, sealed: vec![1; 40], user, replace: false };
    world.master.run(&Caller::system(), key).await.unwrap()
}

async fn grant(world: &World, rights: Rights) {
    let (name, grant) = ("bucket".to_owned(), Some(("other".to_owned(), rights)));
    let update = UpdateBucket { name, grant, ..UpdateBucket::default() };
    world.master.run(&Caller::verified(UserId::ROOT), update).await.unwrap();
}

fn over(mount: &Mount) -> Fs {
    let blocks = Arc::clone(&mount.blocks) as Arc<dyn Blocks>;
    let (meta, clock) = (Meta::Remote(mount.client.clone()), Arc::new(RealClock::default()));
    Fs::over(meta, blocks, clock, Default::default())
}

fn data(number: u64) -> Bytes {
    vec![number as u8; LEN as usize].into()
}

async fn extents(world: &World, ino: Ino) -> Vec<Extent> {
    let chunk = ReadChunk { ino, chunk: CHUNK };
    world.master.read(&Caller::system(), chunk).await.unwrap().unwrap().1
}

async fn read(fs: &Fs, user: &Caller, ino: Ino, number: u64, anew: bool) -> Result<Bytes> {
    let object = if anew {
        fs.open_inode_anew(user, ino, true).await?
    } else {
        fs.open_inode(user, ino, true).await?
    };
    let start = START + number * STEP;
    object.read_all(start..start + LEN).await
}

#[tokio::test]
async fn blocks_beyond_the_first_chunk_are_asked_for_again() {
    let world = World::new().await;
    // The first user is root.
    assert_eq!(user(&world, "root").await, UserId::ROOT);
    let other = user(&world, "other").await;
    grant(&world, Rights::ALL).await;
    let (one, two) = (world.mount(UserId::ROOT, &["g1"]).await, world.mount(other, &["g2"]).await);
    let (ino, ..) = one.client.run(&one.user, world.made("a")).await.unwrap();
    let (writes, reads) = (over(&one), over(&two));
    let writer = writes.writer(ino);
    for number in 0..4 {
        let runs = [(START + number * STEP, data(number))];
        let block = Piece::Block(writer.upload(&one.user, &runs).await.unwrap());
        writer.publish(&one.user, writes.session(), vec![block], &mut None).await.unwrap();
    }
    let extents_before = extents(&world, ino).await;
    assert_eq!(extents_before.len(), 4);
    let Place::Block { block, .. } = extents_before[3].place else { panic!("{extents_before:?}") };
    assert_eq!(read(&reads, &two.user, ino, 0, false).await.unwrap(), data(0));
    let forget = async || {
        grant(&world, Rights::NONE).await;
        denied(two.blocks.get(GroupId(5), block, 0..10).await, "open the file again");
        grant(&world, Rights::ALL).await;
    };
    forget().await;
    // The leased rows say where they are: so the gateway is not asked, and tells of none.
    denied(read(&reads, &two.user, ino, 1, false).await, "open the file again");
    assert_eq!(read(&reads, &two.user, ino, 1, true).await.unwrap(), data(1));
    forget().await;
    reads.compact_chunk(&two.user, ino, CHUNK).await.unwrap();
    assert_eq!(extents(&world, ino).await.len(), 1, "they are one block now");
    for number in 0..4 {
        assert_eq!(read(&writes, &one.user, ino, number, true).await.unwrap(), data(number));
    }
}
