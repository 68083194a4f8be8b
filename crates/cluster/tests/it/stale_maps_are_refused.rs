use std::sync::Arc;
use std::time::Duration;

use cairn_base::rng::RealRng;
use cairn_base::{Error, GroupId, NodeId, Redundancy};
use cairn_blocks::{Blocks, Wish};
use cairn_cluster::data::MapSource;
use tokio::time::{sleep, timeout};

use crate::support::data::{World, block, data, group, until};

#[tokio::test]
async fn a_writer_with_an_old_map_gets_the_new_one() {
    let world = World::new(4, &[(2, &[11, 12]), (2, &[13, 14])]).await;
    // The chunkservers know that group 1 takes no writes; the writer does not.
    world.set_sync(1, 12, false);
    world.servers.values().for_each(|server| server.map.refresh());
    let wish =
        Wish { redundancy: Redundancy::from_number(2), group: Some(GroupId(1)), ..Wish::default() };
    assert_eq!(world.write_in(wish, 1, &data(1, 100)).await.unwrap(), GroupId(2));
    assert_eq!(world.map.current().epoch, world.truth.lock().epoch);
    assert!(world.holders(1, 1).is_empty());
    assert!(world.blocks.suspects().is_empty());
}

#[tokio::test]
async fn a_chunkserver_with_an_old_map_gets_the_new_one_first() {
    let world = World::new(3, &[(2, &[11, 12])]).await;
    world.change(|map| drop(map.groups.insert(GroupId(2), group(3, &[11, 12, 13]))));
    world.map.refresh();
    assert_eq!(world.write(1, &data(1, 100)).await.unwrap(), GroupId(2));
    let epoch = world.truth.lock().epoch;
    world.servers.values().for_each(|server| assert_eq!(server.map.current().epoch, epoch));
}

#[tokio::test]
async fn a_member_that_was_replaced_takes_nothing_with_the_others() {
    let world = World::new(4, &[(3, &[11, 12, 13])]).await;
    world.write(1, &data(1, 100)).await.unwrap();
    // 14 takes the place of 13, which has not heard of it; nor has the writer, nor 12. A block that
    // went to the three old ones would be missing on 14.
    world.change(|map| drop(map.groups.insert(GroupId(1), group(3, &[11, 12, 14]))));
    world.servers[&11].map.refresh();
    for counter in 2..8 {
        world.write(counter, &data(counter, 100)).await.unwrap();
        let holders = world.holders(1, counter);
        assert!([11, 12, 14].iter().all(|id| holders.contains(id)), "{holders:?}");
    }
}

#[tokio::test]
async fn an_old_map_does_as_long_as_the_group_is_the_same() {
    let world = World::new(3, &[(2, &[11, 12])]).await;
    let old = world.map.current().epoch;
    world.set_up(13, false);
    world.servers.values().for_each(|server| server.map.refresh());
    world.write(1, &data(1, 100)).await.unwrap();
    assert_eq!(world.map.current().epoch, old, "nobody had to ask for a newer one");
    assert_eq!(world.read(1, 1, 100).await.unwrap(), data(1, 100));
}

/// A writer with the map of metadata that were given up would acknowledge blocks that the cluster
/// does not know.
#[tokio::test]
async fn an_old_map_does_not_do_where_metadata_have_begun_anew() {
    let world = World::new(3, &[(2, &[11, 12])]).await;
    world.change(|map| map.generation = map.epoch);
    world.servers.values().for_each(|server| server.map.refresh());
    world.write(1, &data(1, 100)).await.unwrap();
    let truth = world.truth.lock().clone();
    assert_eq!(world.map.current().epoch, truth.epoch, "the writer asked for the newer one");
    assert_eq!(truth.generation, truth.epoch);
}

#[tokio::test]
async fn a_reader_with_an_old_map_finds_the_new_members() {
    let world = World::new(4, &[(2, &[11, 12])]).await;
    let bytes = data(1, 100);
    world.change(|map| drop(map.groups.insert(GroupId(1), group(2, &[13, 14]))));
    world.servers.values().for_each(|server| server.map.refresh());
    let store = &world.servers[&13].store;
    let owner = crate::support::data::owner(1);
    store.put(GroupId(1), block(1), owner, bytes.clone()).await.unwrap();
    assert_eq!(world.read(1, 1, 100).await.unwrap(), bytes);
    // And a group that it has never heard of.
    world.change(|map| drop(map.groups.insert(GroupId(7), group(1, &[14]))));
    let store = &world.servers[&14].store;
    store.put(GroupId(7), block(1), owner, bytes.clone()).await.unwrap();
    assert_eq!(world.read(7, 1, 100).await.unwrap(), bytes);
}

#[tokio::test]
async fn an_old_map_deletes_nothing() {
    let world = World::new(2, &[(2, &[11, 12])]).await;
    world.write(1, &data(1, 100)).await.unwrap();
    let old = world.map.current();
    world.change(|_| {});
    world.servers.values().for_each(|server| server.map.refresh());
    let pool = crate::support::data::pool(&world.gateway);
    // A member that cannot get the new map is kept off.
    struct Stuck(Arc<cairn_base::ClusterMap>);
    #[async_trait::async_trait]
    impl MapSource for Stuck {
        fn current(&self) -> Arc<cairn_base::ClusterMap> {
            Arc::clone(&self.0)
        }
        async fn at_least(&self, _: u64) -> cairn_base::Result<Arc<cairn_base::ClusterMap>> {
            Err(Error::Unavailable("no master".into()))
        }
    }
    let stuck = Arc::new(Stuck(old));
    let stuck = cairn_cluster::data::ReplicatedBlocks::new(
        stuck,
        pool,
        Default::default(),
        Arc::new(RealRng),
    );
    let deleted = stuck.delete(GroupId(1), &[block(1)]).await;
    assert!(matches!(deleted, Err(Error::Unavailable(_))), "{deleted:?}");
    assert_eq!(world.holders(1, 1), [11, 12]);
    // A member that can, deletes by the new one.
    world.blocks.delete(GroupId(1), &[block(1)]).await.unwrap();
    assert!(world.holders(1, 1).is_empty());
}

#[tokio::test]
async fn a_writer_waits_for_a_group_and_says_what_is_missing() {
    let world = World::new(3, &[(3, &[11, 12, 13])]).await;
    world.set_up(12, false);
    world.set_up(13, false);
    world.refresh();
    let bytes = data(1, 100);
    let refused = world.write(1, &bytes).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)));
    let text = refused.to_string();
    let missing = "no group of at least 2 in-sync replicas takes writes: 1 of 3 chunkservers is up";
    assert!(text.contains(missing), "{text}");
    // A smaller group is made while another writer waits.
    let later = async {
        sleep(Duration::from_millis(700)).await;
        world.change(|map| {
            map.nodes.get_mut(&NodeId(12)).unwrap().is_up = true;
            map.groups.insert(GroupId(2), group(3, &[11, 12]));
        });
    };
    let (written, ()) = tokio::join!(world.write(2, &bytes), later);
    assert_eq!(written.unwrap(), GroupId(2));
}

#[tokio::test]
async fn an_inventory_waits_for_the_puts_of_older_maps() {
    let world = Arc::new(World::new(3, &[(2, &[11, 12])]).await);
    // A PUT to 11 that does not come to its end: its writer sends half of it.
    let order = crate::support::raw::put_head(&world, 1, 1, 1000, &[11, 12]);
    let mut open = crate::support::raw::connect(&world.gateway, &world.servers[&11].address).await;
    let bytes = data(1, 1000);
    open.send(order.as_bytes()).await;
    open.send(&bytes[..500]).await;
    // By the same map nobody waits.
    let list = |limit| world.blocks.inventory(GroupId(1), None, limit);
    until(|| [11, 12].iter().all(|id| world.servers[id].chunkserver.puts_in_progress() == 1)).await;
    assert!(list(5).await.unwrap().is_empty());
    // By a newer one, all wait until it has ended.
    world.change(|_| {});
    world.map.refresh();
    assert!(timeout(Duration::from_millis(300), list(6)).await.is_err(), "it waits");
    let listing = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.blocks.inventory(GroupId(1), None, 7).await.unwrap() })
    };
    sleep(Duration::from_millis(100)).await;
    // Writes that begin under the newer map are not waited for.
    world.write(2, &data(2, 100)).await.unwrap();
    assert!(!listing.is_finished());
    open.send(&bytes[500..]).await;
    assert!(open.answer().await.starts_with("HTTP/1.1 200"));
    let listed: Vec<_> = listing.await.unwrap().into_iter().map(|info| info.block).collect();
    assert!(listed.contains(&block(1)), "{listed:?}");
    until(|| world.holders(1, 1) == [11, 12]).await;
}
