use std::time::Duration;

use bytes::Bytes;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{BlockId, Error, GroupId, Redundancy};
use cairn_blocks::{Blocks, Wish};

use crate::support::data::{World, block, data, owner, until};

fn wish(replicas: u8) -> Wish {
    Wish { redundancy: Redundancy::from_number(replicas), ..Wish::default() }
}

#[tokio::test]
async fn what_is_written_is_on_all_members_and_reads_back() {
    let world = World::new(
        5,
        &[(1, &[14]), (2, &[11, 13]), (3, &[12, 11, 15]), (5, &[15, 14, 13, 12, 11])],
    )
    .await;
    let lengths = [1, 2, 1000, (16 << 10) + 1, 155_000, BLOCK_BYTES];
    let mut counter = 0;
    for (replicas, group) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        for length in lengths {
            counter += 1;
            let bytes = data(counter, length);
            let got = world.write_in(wish(replicas), counter, &bytes).await.unwrap();
            assert_eq!(got, GroupId(group));
            assert_eq!(world.holders(group, counter).len(), usize::from(replicas));
            for server in world.servers.values().filter(|s| s.has(group, block(counter))) {
                let info = server.store.verify(GroupId(group), block(counter)).unwrap();
                assert_eq!((info.owner, info.length), (owner(counter), length as u32));
            }
            for range in [0..length, 0..1, length - 1..length, length / 3..length - length / 4] {
                let wanted = range.start as u32..range.end as u32;
                let read = world.blocks.get(got, block(counter), wanted).await.unwrap();
                assert_eq!(read, bytes.slice(range));
            }
            let beyond = world.blocks.get(got, block(counter), 0..length as u32 + 1).await;
            let size = length as u64;
            assert!(matches!(beyond, Err(Error::RangeNotSatisfiable { size: s }) if s == size));
        }
    }
    assert_eq!(world.blocks.usage().await.unwrap().blocks, 6 * (1 + 2 + 3 + 5));
    let groups = [1, 2, 3, 4].map(GroupId);
    assert_eq!(world.blocks.groups(), groups);
    assert!(world.blocks.suspects().is_empty());
}

#[tokio::test]
async fn every_range_reads_back() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let bytes = data(1, 40_000);
    let group = world.write_in(wish(2), 1, &bytes).await.unwrap();
    for start in (0..40_000).step_by(3_333) {
        for end in (start..40_001).step_by(1_777) {
            let wanted = start as u32..end as u32;
            let read = world.blocks.get(group, block(1), wanted).await.unwrap();
            assert_eq!(read, bytes.slice(start..end));
        }
    }
    let reversed = std::ops::Range { start: 5, end: 4 };
    let reversed = world.blocks.get(group, block(1), reversed).await;
    assert!(matches!(reversed, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn nothing_is_acknowledged_before_the_last_member_has_it() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    // Its disk takes nothing: whatever its place in the chain, the writer hears no "done".
    world.servers[&12].disk.set_capacity(Some(0));
    for counter in 0..6 {
        let written = world.write(counter, &data(counter, 100)).await;
        assert!(matches!(written, Err(Error::Full(_))), "{written:?}");
        assert!(!world.holders(1, counter).contains(&12));
    }
    // The others' parts of it go, so that they do not run full as well.
    until(|| (0..6).all(|counter| world.holders(1, counter).is_empty())).await;
    let unused = world.blocks.delete(GroupId(9), &[block(1)]).await;
    assert!(matches!(unused, Err(Error::Unavailable(_))), "{unused:?}");
    world.servers[&12].disk.set_capacity(None);
    world.write(7, &data(7, 100)).await.unwrap();
    assert_eq!(world.holders(1, 7), [11, 12, 13]);
}

#[tokio::test]
async fn a_group_with_room_is_found() {
    let world = World::new(4, &[(2, &[11, 12]), (2, &[13, 14])]).await;
    world.servers[&12].disk.set_capacity(Some(0));
    for counter in 0..10 {
        let group = world.write_in(wish(2), counter, &data(counter, 100)).await.unwrap();
        assert_eq!(group, GroupId(2));
        assert_eq!(world.holders(2, counter), [13, 14]);
    }
}

#[tokio::test]
async fn a_block_is_written_once() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    let bytes = data(1, 3000);
    world.write(1, &bytes).await.unwrap();
    // The same once more is what a writer does that did not hear the answer.
    world.write(1, &bytes).await.unwrap();
    let other = world.write(1, &data(2, 3000)).await;
    assert!(matches!(other, Err(Error::Exists(_))), "{other:?}");
    assert_eq!(world.read(1, 1, 3000).await.unwrap(), bytes);
    let empty = world.write(3, &Bytes::new()).await;
    assert!(matches!(empty, Err(Error::Invalid(_))), "{empty:?}");
    let long = world.write(3, &vec![0; BLOCK_BYTES + 1].into()).await;
    assert!(matches!(long, Err(Error::Invalid(_))), "{long:?}");
}

#[tokio::test]
async fn deleted_blocks_are_gone_and_their_ids_can_be_used() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    for counter in 0..5 {
        world.write(counter, &data(counter, 100)).await.unwrap();
    }
    let gone: Vec<BlockId> = [1, 3, 99].map(block).to_vec();
    world.blocks.delete(GroupId(1), &gone).await.unwrap();
    for counter in [1, 3] {
        assert!(world.holders(1, counter).is_empty());
        let read = world.read(1, counter, 100).await;
        assert!(matches!(read, Err(Error::NotFound(_))), "{read:?}");
    }
    assert_eq!(world.holders(1, 2), [11, 12, 13]);
    let again = data(1000, 100);
    world.write(1, &again).await.unwrap();
    assert_eq!(world.read(1, 1, 100).await.unwrap(), again);
    // More than fit into one request.
    let many: Vec<BlockId> = (0..2500).map(block).collect();
    world.blocks.delete(GroupId(1), &many).await.unwrap();
    assert_eq!(world.blocks.usage().await.unwrap().blocks, 0);
}

#[tokio::test]
async fn an_inventory_has_what_any_member_has() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    let mut counters: Vec<u64> = Vec::new();
    for counter in 0..40 {
        // Each block is on another choice of members: none, one, two or all.
        let mut is_anywhere = false;
        for (at, server) in world.servers.values().enumerate() {
            if ((counter % 7) >> at) & 1 == 1 {
                let (id, owner) = (block(counter), owner(counter));
                server.store.put(GroupId(1), id, owner, data(counter, 10)).await.unwrap();
                is_anywhere = true;
            }
        }
        counters.extend(is_anywhere.then_some(counter));
    }
    let all: Vec<BlockId> = counters.into_iter().map(block).collect();
    for limit in [1, 2, 3, 7, 39, 40, 100_000] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = world.blocks.inventory(GroupId(1), after, limit).await.unwrap();
            assert!(page.len() <= limit);
            listed.extend(page.iter().map(|info| info.block));
            // A page that is not full is the last.
            let Some(last) = page.last().filter(|_| page.len() == limit) else { break };
            after = Some(last.block);
        }
        assert_eq!(listed, all, "limit {limit}");
    }
    world.servers[&12].kill().await;
    let partial = world.blocks.inventory(GroupId(1), None, 10).await;
    assert!(matches!(partial, Err(Error::Unavailable(_))), "one that is up does not answer");
    world.set_up(12, false);
    world.refresh();
    assert!(world.blocks.inventory(GroupId(1), None, 10).await.is_ok());
}

#[tokio::test]
async fn many_at_once() {
    let world = World::new(3, &[(3, &[11, 12, 13]), (3, &[13, 12, 11]), (2, &[12, 13])]).await;
    let writes = (0..60).map(|counter| {
        let world = &world;
        async move {
            let bytes = data(counter, 1 + counter as usize * 7_000);
            let replicas = 2 + (counter % 2) as u8;
            let group = world.write_in(wish(replicas), counter, &bytes).await.unwrap();
            let length = bytes.len();
            assert_eq!(world.read(group.0, counter, length).await.unwrap(), bytes);
        }
    });
    let all = futures_util::future::join_all(writes);
    tokio::time::timeout(Duration::from_secs(300), all).await.unwrap();
}

/// The numbers that a mount shows as `df`, and a gateway as ready: every byte once, and no promise
/// that the chunkservers that are up cannot keep.
#[tokio::test]
async fn room_counts_a_byte_once_and_those_that_are_away_are_missed() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    world.write_in(wish(3), 1, &data(1, 300_000)).await.unwrap();
    let (all, room) = (world.blocks.usage().await.unwrap(), world.blocks.room().await.unwrap());
    assert!(all.live_bytes > 3 * 300_000, "{all:?}");
    assert_eq!(room.live_bytes, all.live_bytes / 3);
    assert_eq!(room.free_bytes, all.free_bytes / 3);
    assert!(world.blocks.available().is_ok());
    let away = |id: u64, expected: Option<&str>| {
        world.set_up(id, false);
        world.refresh();
        let said = world.blocks.available().err().map(|error| error.to_string());
        assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()));
    };
    away(11, None);
    away(12, Some("1 of 3 chunkservers are up, writes need 2"));
    away(13, Some("1 of 1 groups have no member that is up"));
    assert!(matches!(world.blocks.room().await, Err(Error::Unavailable(_))));
    // A node that is being made has none yet.
    assert!(World::new(0, &[]).await.blocks.available().is_ok());
}
