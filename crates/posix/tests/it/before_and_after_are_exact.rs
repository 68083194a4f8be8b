//! Attributes before and after a change: exact, or those from before are left out.

use std::sync::Arc;

use cairn_base::Ino;
use cairn_posix::{Around, RenameMode};

use crate::world::{MODE, Mount, World, run, run_seeds};

/// Makes a directory, and says how its parent was before and after.
async fn make(mount: &Mount, parent: Ino, name: &str) -> Around {
    let work = mount.posix.make_directory(mount.who(), parent, name, MODE);
    let (made, [around]) = mount.posix.around(&mount.who(), [parent], work).await;
    made.unwrap();
    around
}

#[test]
fn who_is_alone_knows_both() {
    run(async {
        let world = World::new(1).await;
        let mount = world.served().await;
        let mut last = None;
        for round in 0..5 {
            let around = make(&mount, mount.top, &format!("directory {round}")).await;
            let (before, after) = (around.before.unwrap(), around.after.unwrap());
            assert_eq!(after.nlink, before.nlink + 1);
            assert!(after.ctime > before.ctime);
            if let Some(last) = last {
                assert_eq!(before, last, "nothing happened in between");
            }
            last = Some(after);
        }
    });
}

#[test]
fn several_are_known_at_once() {
    run(async {
        let world = World::new(2).await;
        let mount = world.served().await;
        let changes = mount.mkdir(mount.top, "changes").await.unwrap();
        let stays = mount.mkdir(mount.top, "stays").await.unwrap();
        let work = mount.posix.make_directory(mount.who(), changes, "new", MODE);
        let (made, around) = mount.posix.around(&mount.who(), [changes, stays], work).await;
        made.unwrap();
        let [changed, stayed] = around;
        let (before, after) = (changed.before.unwrap(), changed.after.unwrap());
        assert_eq!((after.nlink, before.ctime < after.ctime), (before.nlink + 1, true));
        assert!(stayed.before.is_some() && stayed.before == stayed.after);
    });
}

#[test]
fn a_file_is_known_around_a_write_that_is_written_back() {
    run(async {
        let world = World::new(4).await;
        let mount = world.served().await;
        let (ino, file) = mount.create(mount.top, "file").await.unwrap();
        for (at, bytes) in [(0, "first"), (5, "second"), (2, "third")] {
            let work = async {
                mount.write(file, at, bytes.as_bytes()).await;
                mount.posix.sync(file).await.unwrap();
            };
            let ((), [around]) = mount.posix.around(&mount.who(), [ino], work).await;
            let (before, after) = (around.before.unwrap(), around.after.unwrap());
            let end = at + bytes.len() as u64;
            assert_eq!(after.size, before.size.max(end));
            assert!(before.mtime < after.mtime && before.change != after.change);
        }
    });
}

/// It sees them in the turn of the operation, also what it does not lease.
#[test]
fn a_master_in_this_process_knows_both() {
    run(async {
        let world = World::new(6).await;
        let (mount, other) = (world.local().await, world.served().await);
        let made = make(&mount, mount.top, "directory").await;
        make(&other, mount.top, "other").await;
        let work = mount.posix.rename(
            mount.who(),
            mount.top,
            &b"directory"[..],
            mount.top,
            "moved",
            RenameMode::Replace,
        );
        let (moved, [renamed]) = mount.posix.around(&mount.who(), [mount.top], work).await;
        moved.unwrap();
        for around in [made, renamed] {
            assert!(around.before.unwrap().ctime < around.after.unwrap().ctime);
        }
        assert_eq!(made.after.unwrap().nlink, made.before.unwrap().nlink + 1);
        assert_eq!(renamed.after.unwrap().nlink, renamed.before.unwrap().nlink);
        assert_eq!(renamed.before.unwrap().nlink, made.after.unwrap().nlink + 1);
        let work = mount.posix.make_directory(mount.who(), mount.top, "moved", MODE);
        let (refused, [around]) = mount.posix.around(&mount.who(), [mount.top], work).await;
        assert!(refused.is_err() && around.before.is_none() && around.after.is_some());
    });
}

/// Others may change what is not leased, and nobody hears of it.
#[test]
fn what_is_not_leased_is_left_out() {
    run(async {
        let world = World::new(5).await;
        let served = world.served().await;
        make(&served, served.top, "directory").await;
        let work = served.posix.rename(
            served.who(),
            served.top,
            &b"directory"[..],
            served.top,
            "moved",
            RenameMode::Replace,
        );
        let (moved, [around]) = served.posix.around(&served.who(), [served.top], work).await;
        moved.unwrap();
        let after = around.after.unwrap();
        assert!(around.before.is_none_or(|before| before.ctime < after.ctime));
    });
}

#[test]
fn what_is_gone_has_no_attributes_after() {
    run(async {
        let world = World::new(3).await;
        let mount = world.served().await;
        let ino = mount.put(mount.top, "file", b"bytes").await;
        let work = mount.posix.remove_file(mount.who(), mount.top, b"file");
        let (removed, [file, top]) = mount.posix.around(&mount.who(), [ino, mount.top], work).await;
        removed.unwrap();
        assert!(file.after.is_none() && top.after.is_some());
    });
}

/// Each exact pair spans one change of its own, so no two of them overlap, whoever makes them.
async fn together(seed: u64) {
    let world = World::new(seed).await;
    let mut mounts = Vec::new();
    for _ in 0..3 {
        mounts.push(Arc::new(world.served().await));
    }
    mounts.push(Arc::new(world.local().await));
    let top = mounts[0].top;
    let mut makers = Vec::new();
    // Two of them in one session, and two in the process of the master.
    for maker in [0, 1, 2, 3, 3, 0] {
        let mount = Arc::clone(&mounts[maker]);
        let maker = makers.len();
        makers.push(tokio::spawn(async move {
            let mut pairs = Vec::new();
            for round in 0..25 {
                let around = make(&mount, top, &format!("{maker}-{round}")).await;
                pairs.extend(around.before.zip(around.after));
            }
            pairs
        }));
    }
    let mut pairs = Vec::new();
    for maker in makers {
        pairs.extend(maker.await.unwrap());
    }
    pairs.sort_by_key(|(before, _)| before.ctime);
    for (before, after) in &pairs {
        assert_eq!(after.nlink, before.nlink + 1, "another one was made in between");
    }
    for window in pairs.windows(2) {
        assert!(window[0].1.ctime <= window[1].0.ctime, "{window:?}");
    }
}

#[test]
fn exact_ones_do_not_overlap() {
    run_seeds(4, together);
}
