use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Visibility};
use cairn_base::{Error, GroupId, Owner, Result, UserId, limits};
use cairn_blocks::{Blocks, Wish};
use cairn_cluster::limits::{MOUNT_CONNECTIONS, MOUNTS_PUT_BYTES};
use cairn_cluster::mount::{self, MountHost};
use cairn_cluster::wire::{Link, NoService, connect, require_none};
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::rows::BucketKind;
use futures_util::future::select_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::mounts_come_in_by_gateways::{Mount, World, ids};
use crate::support::ends;
use crate::support::pair::End;

/// A connection as the host has it, and the other end.
fn connection() -> (Link, End) {
    let ends = ends();
    (mount::link(Box::new(ends.far), "a mount".into(), require_none(), mount::always()), ends.near)
}

/// Whether a mount of this user is let in.
async fn comes_in(host: &Arc<MountHost>, user: UserId) -> bool {
    let (link, near) = connection();
    let served = tokio::spawn(Arc::clone(host).serve(Caller::verified(user), link, false));
    let to = mount::link(Box::new(near), "the door".into(), require_none(), mount::always());
    let is_in = connect(to, &mount::terms(), NoService).await.is_ok();
    if !is_in {
        let refused = served.await.unwrap();
        assert!(matches!(&refused, Err(Error::Unavailable(text)) if text.contains("too many \
                connections")));
    }
    is_in
}

#[tokio::test]
async fn no_user_takes_the_last_quarter_of_connections() {
    let world = World::new().await;
    let host = &world.gateways["g1"].host;
    let (greedy, other) = (UserId(7), UserId(8));
    // They say nothing; that takes a place as well as anything.
    let mut held = Vec::new();
    for _ in 0..MOUNT_CONNECTIONS * 3 / 4 {
        let (link, near) = connection();
        let served = tokio::spawn(Arc::clone(host).serve(Caller::verified(greedy), link, false));
        held.push((near, served));
    }
    tokio::task::yield_now().await;
    assert!(!comes_in(host, greedy).await);
    assert!(comes_in(host, other).await);
    let (near, served) = held.pop().unwrap();
    drop(near);
    assert!(served.await.unwrap().is_err());
    assert!(comes_in(host, greedy).await);
}

/// Begins to write a block of a mount.
fn write(mount: &Mount, counter: u64, data: &Bytes) -> JoinHandle<Result<GroupId>> {
    let (block, body) = ids(mount.client.session(), counter);
    let (blocks, data) = (Arc::clone(&mount.blocks), data.clone());
    let owner = Owner { body, chunk: 0 };
    tokio::spawn(async move { blocks.write(Wish::default(), block, owner, data).await })
}

#[tokio::test]
async fn blocks_that_wait_for_a_disk_hold_bounded_memory() {
    let world = World::new().await;
    let other = UserId(7);
    let (name, kind) = ("other".to_owned(), BucketKind::Posix);
    let create = CreateBucket { name, kind, visibility: Visibility::Private };
    world.master.run(&Caller::verified(other), create).await.unwrap();
    let slow = world.blocks.1.write().await;
    let data = Bytes::from(vec![7; limits::BLOCK_BYTES]);
    let room = MOUNTS_PUT_BYTES * 3 / 4 / data.len();
    let mut mounts = Vec::new();
    let mut writes = Vec::new();
    // Each has three connections, on which some 7 such blocks may be on their way.
    for _ in 0..room.div_ceil(3 * 7) {
        let mount = world.mount(UserId::ROOT, &["g1"]).await;
        writes.extend((1..=3 * 7).map(|counter| write(&mount, counter, &data)));
        mounts.push(mount);
    }
    // So many find no room, although none is written.
    let waited = timeout(Duration::from_secs(60), async {
        while writes.iter().filter(|write| write.is_finished()).count() < writes.len() - room {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.expect("what came is held, however much it is");
    // That is no concern of others.
    let mount = world.mount(other, &["g1"]).await;
    let written = write(&mount, 1, &data);
    drop(slow);
    written.await.unwrap().unwrap();
    let (mut done, mut refused) = (0, 0);
    for write in writes {
        match write.await.unwrap() {
            Ok(_) => done += 1,
            // On a slow machine some that were held may have been given up by their mount.
            Err(Error::Unavailable(why)) => {
                refused += usize::from(why.contains("wait to be written"));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(done <= room && refused > 0, "{done} done, {refused} refused");
}

/// A disk that is slow holds the bytes of a block, whether or not anybody still waits for it.
#[tokio::test]
async fn blocks_of_mounts_that_hung_up_hold_their_room_until_they_are_written() {
    let world = World::new().await;
    let slow = world.blocks.1.write().await;
    let data = Bytes::from(vec![7; limits::BLOCK_BYTES]);
    let room = MOUNTS_PUT_BYTES * 3 / 4 / data.len();
    let (mut mounts, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..room.div_ceil(3 * 7) {
        let mount = world.mount(UserId::ROOT, &["g1"]).await;
        writes.extend((1..=3 * 7).map(|counter| write(&mount, counter, &data)));
        mounts.push(mount);
    }
    let (refused, first, _) =
        timeout(Duration::from_secs(60), select_all(&mut writes)).await.unwrap();
    assert_waits(refused.unwrap());
    drop(writes.swap_remove(first));
    for write in writes {
        write.abort();
        let _ = write.await;
    }
    drop(mounts);
    world.gateways["g1"].left().await;
    let mount = world.mount(UserId::ROOT, &["g1"]).await;
    assert_waits(write(&mount, 1, &data).await.unwrap());
    drop(slow);
    let mut counter = 2;
    while write(&mount, counter, &data).await.unwrap().is_err() {
        counter += 1;
    }
}

fn assert_waits(written: Result<GroupId>) {
    assert!(
        matches!(&written, Err(Error::Unavailable(why)) if why.contains("wait to be written")),
        "{written:?}"
    );
}
