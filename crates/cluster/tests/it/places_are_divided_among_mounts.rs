use std::sync::Arc;

use cairn_base::{Error, UserId};
use cairn_cluster::limits::MOUNT_CONNECTIONS;
use cairn_cluster::mount::{self, MountHost};
use cairn_cluster::wire::{Link, NoService, connect};

use crate::mounts_come_in_by_gateways::World;
use crate::support::ends;
use crate::support::pair::End;

/// A connection as the host has it, and the other end.
fn connection() -> (Link, End) {
    let ends = ends();
    (mount::link(Box::new(ends.far), "a mount".into(), mount::always()), ends.near)
}

/// Whether a mount of this user is let in.
async fn comes_in(host: &Arc<MountHost>, user: UserId) -> bool {
    let (link, near) = connection();
    let served = tokio::spawn(Arc::clone(host).serve(user, link, false));
    let to = mount::link(Box::new(near), "the door".into(), mount::always());
    let is_in = connect(to, &mount::terms(), NoService).await.is_ok();
    if !is_in {
        let refused = served.await.unwrap();
        assert!(matches!(&refused, Err(Error::Unavailable(text)) if text.contains("no place")));
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
        let served = tokio::spawn(Arc::clone(host).serve(greedy, link, false));
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
