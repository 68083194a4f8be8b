use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_base::{Error, GroupId, NodeId, Redundancy};
use cairn_blocks::{Blocks, Wish};
use cairn_cluster::data::repair::heal;
use cairn_cluster::limits::HEDGE;
use tokio::net::TcpListener;

use crate::support::data::{World, block, data, owner, until};

const TWO_GROUPS: [(u8, &[u64]); 2] = [(2, &[11, 12]), (2, &[13, 14])];

fn in_group(group: u32) -> Wish {
    Wish { redundancy: Redundancy::from_number(2), group: Some(GroupId(group)), ..Wish::default() }
}

#[tokio::test]
async fn a_killed_member_is_suspected_and_another_group_is_taken() {
    let world = World::new(4, &TWO_GROUPS).await;
    world.write_in(in_group(1), 1, &data(1, 5000)).await.unwrap();
    world.servers[&12].kill().await;
    // Whether the dead one is the first or the last of the chain.
    for counter in 2..12 {
        let bytes = data(counter, 5000);
        let group = world.write_in(in_group(1), counter, &bytes).await.unwrap();
        assert_eq!(group, GroupId(2));
        assert_eq!(world.holders(2, counter), [13, 14]);
        only_suspect(&world, 12);
    }
    // One member's part of a block that went elsewhere is deleted.
    until(|| (2..12).all(|counter| world.holders(1, counter).is_empty())).await;
    // The blocks written before are read from the member that is left.
    assert_eq!(world.read(1, 1, 5000).await.unwrap(), data(1, 5000));
}

/// That no other member is suspected. This one is no longer, some time after it was.
fn only_suspect(world: &World, id: u64) {
    let suspects = world.blocks.suspects();
    assert!(suspects.iter().all(|node| *node == NodeId(id)), "{suspects:?}");
}

/// At the address of a member, somebody accepts and never answers.
async fn hang(world: &World, id: u64) -> tokio::task::JoinHandle<()> {
    world.servers[&id].kill().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.change(|map| map.nodes.get_mut(&NodeId(id)).unwrap().address = address);
    world.refresh();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(listener.accept().await.unwrap());
        }
    })
}

#[tokio::test]
async fn a_member_that_hangs_holds_nobody_up_for_long() {
    let world = World::new(4, &TWO_GROUPS).await;
    let bytes = data(1, 200_000);
    world.write_in(in_group(1), 1, &bytes).await.unwrap();
    let hanging = hang(&world, 12).await;
    let group = world.write_in(in_group(1), 2, &bytes).await.unwrap();
    assert_eq!(group, GroupId(2));
    // Not the one that waited for it.
    only_suspect(&world, 12);
    until(|| world.blocks.suspects().is_empty()).await;
    // Readers ask the next member after a while, and then ask it first for some time. On a busy
    // machine any read may take long: not all rounds do.
    const ROUNDS: usize = 50;
    let mut waited = Vec::new();
    while waited.len() < ROUNDS && waited.last().is_none_or(|waited| *waited > 3) {
        waited.push(0);
        for _ in 0..16 {
            let start = Instant::now();
            assert_eq!(world.read(1, 1, bytes.len()).await.unwrap(), bytes);
            *waited.last_mut().unwrap() += u32::from(start.elapsed() >= HEDGE * 4 / 5);
        }
    }
    assert!(waited.last().is_some_and(|waited| *waited <= 3), "{waited:?} reads waited");
    assert!(world.blocks.suspects().is_empty(), "it may take writes");
    hanging.abort();
}

#[tokio::test]
async fn a_disk_that_fails_is_left_out() {
    let world = World::new(4, &TWO_GROUPS).await;
    let fault = cairn_sim::Fault::once(Some(cairn_sim::Call::SyncData), 0).sticky();
    world.servers[&11].disk.add_fault(fault);
    for counter in 0..4 {
        let group = world.write_in(in_group(1), counter, &data(counter, 100)).await.unwrap();
        assert_eq!(group, GroupId(2));
        only_suspect(&world, 11);
    }
}

#[tokio::test]
async fn the_only_group_is_tried_again() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let fault = cairn_sim::Fault::once(Some(cairn_sim::Call::SyncData), 0);
    world.servers[&12].disk.add_fault(fault);
    let bytes = data(1, 5000);
    assert_eq!(world.write(1, &bytes).await.unwrap(), GroupId(1));
    assert_eq!(world.holders(1, 1), [11, 12]);
    // No deletion of the failed attempt comes after it.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.holders(1, 1), [11, 12]);
    assert_eq!(world.read(1, 1, 5000).await.unwrap(), bytes);
}

#[tokio::test]
async fn rotten_bytes_are_read_elsewhere_and_healed() {
    let mut world = World::new(3, &[(3, &[11, 12, 13])]).await;
    let bytes = data(1, 50_000);
    world.write(1, &bytes).await.unwrap();
    world.write(2, &data(2, 50_000)).await.unwrap();
    world.servers[&12].rot(&bytes);
    // With any member asked first, the bytes are right.
    for _ in 0..20 {
        assert_eq!(world.read(1, 1, 50_000).await.unwrap(), bytes);
    }
    assert!(world.blocks.suspects().is_empty(), "it answers: it is not avoided");
    let server = world.servers.get_mut(&12).unwrap();
    let sick = server.sick.recv().await.unwrap();
    assert_eq!((sick.group, sick.block), (GroupId(1), block(1)));
    assert_eq!(server.chunkserver.damaged(), 0);
    assert!(heal(&server.chunkserver, sick.group, sick.block).await.unwrap());
    assert_eq!(server.chunkserver.healed(), 1);
    let info = server.store.verify(GroupId(1), block(1)).unwrap();
    assert_eq!((info.owner, info.length), (owner(1), 50_000));
    assert_eq!(server.store.get(GroupId(1), block(1), 0..50_000).await.unwrap(), bytes);
    // A block that is well is left alone, and so is one that is missing.
    assert!(!heal(&server.chunkserver, GroupId(1), block(2)).await.unwrap());
    assert!(!heal(&server.chunkserver, GroupId(1), block(99)).await.unwrap());
    // It was read many times.
    assert_eq!((server.chunkserver.damaged(), server.chunkserver.healed()), (1, 1));
}

#[tokio::test]
async fn compressed_blocks_are_so_on_all_members_and_stay_so_when_healed() {
    let mut world = World::new(3, &[(3, &[11, 12, 13])]).await;
    let bytes: Bytes =
        (0..).flat_map(|n: u32| format!("line {n}\n").into_bytes()).take(200_000).collect();
    let wish = Wish { compress: true, ..Wish::default() };
    let group = world.write_in(wish, 1, &bytes).await.unwrap();
    world.write(2, &bytes).await.unwrap();
    for server in world.servers.values() {
        assert!(server.store.is_compressed_now(group, block(1)).unwrap());
        assert!(!server.store.is_compressed_now(group, block(2)).unwrap());
        let (usage, plain) = (server.store.usage_now().unwrap(), 200_000);
        assert!(usage.live_bytes < plain + plain / 2, "{usage:?}");
    }
    for (counter, is_compressed) in [(1, true), (2, false)] {
        assert_eq!(world.blocks.is_compressed(group, block(counter)).await.unwrap(), is_compressed);
        for range in [0..200_000, 70_000..70_001, 65_535..131_073] {
            let wanted = range.start as u32..range.end as u32;
            let read = world.blocks.get(group, block(counter), wanted).await.unwrap();
            assert!(read == bytes.slice(range));
        }
    }
    world.blocks.is_compressed(group, block(3)).await.unwrap_err();
    // The table of frames is where the data begin.
    let place = world.servers[&12].store.place(group, block(1)).unwrap();
    let segment = format!("{:08x}.seg", place.segment);
    world.servers[&12].disk.flip_bit(&segment, place.offset + 1000, 3).unwrap();
    assert!(world.servers[&12].store.verify(group, block(1)).is_err());
    for _ in 0..20 {
        assert!(world.read(group.0, 1, 200_000).await.unwrap() == bytes);
    }
    let server = world.servers.get_mut(&12).unwrap();
    let sick = server.sick.recv().await.unwrap();
    assert!(heal(&server.chunkserver, sick.group, sick.block).await.unwrap());
    server.store.verify(group, block(1)).unwrap();
    assert!(server.store.is_compressed_now(group, block(1)).unwrap());
}

#[tokio::test]
async fn what_is_rotten_everywhere_is_said_to_be() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let bytes = data(1, 5000);
    world.write(1, &bytes).await.unwrap();
    world.servers[&11].rot(&bytes);
    world.servers[&12].rot(&bytes);
    let read = world.read(1, 1, 5000).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
    let healed = heal(&world.servers[&11].chunkserver, GroupId(1), block(1)).await;
    assert!(matches!(healed, Err(Error::Corrupt { .. })), "{healed:?}");
    // The block stays: it may be of use to somebody.
    assert!(world.servers[&11].has(1, block(1)));
    // Corrupt says more than that another is dead.
    world.servers[&12].kill().await;
    let read = world.read(1, 1, 5000).await;
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
}

#[tokio::test]
async fn a_member_that_lacks_a_block_is_passed_over() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let bytes = data(1, 5000);
    world.write(1, &bytes).await.unwrap();
    world.servers[&11].store.delete(GroupId(1), &[block(1)]).await.unwrap();
    for _ in 0..10 {
        assert_eq!(world.read(1, 1, 5000).await.unwrap(), bytes);
    }
    let nowhere = world.read(1, 2, 5000).await;
    assert!(matches!(nowhere, Err(Error::NotFound(_))), "{nowhere:?}");
    world.servers[&12].kill().await;
    let nowhere = world.read(1, 2, 5000).await;
    assert!(matches!(nowhere, Err(Error::NotFound(_))), "{nowhere:?}");
    world.servers[&11].kill().await;
    let nobody = world.read(1, 1, 5000).await;
    assert!(matches!(nobody, Err(Error::Unavailable(_))), "{nobody:?}");
}
