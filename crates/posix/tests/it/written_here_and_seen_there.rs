//! Write-back and recall: what one session does is seen by another one, which is told.

use std::sync::atomic::Ordering;

use cairn_base::Ino;
use cairn_posix::{Intent, Posix, RenameMode};

use crate::world::{Mount, World, data, run};

fn told_of(mount: &Mount, ino: Ino) -> usize {
    mount.told.attributes.lock().iter().filter(|told| **told == ino).count()
}

#[test]
fn what_was_written_is_seen_when_it_is_written_back() {
    run(async {
        let world = World::new(1).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let ino = one.put(one.top, "file", b"old bytes").await;
        let there = other.open(ino, Intent::READING).await.unwrap();
        assert_eq!(other.read(there, 0, 100).await.unwrap(), "old bytes");
        let before = told_of(&other, ino);
        let here = one.open(ino, Intent::BOTH).await.unwrap();
        one.write(here, 0, b"new").await;
        assert_eq!(one.read(here, 0, 100).await.unwrap(), "new bytes");
        assert_eq!(other.read(there, 0, 100).await.unwrap(), "old bytes", "not written back");
        assert_eq!(told_of(&other, ino), before);
        one.posix.flush(here, 0).await.unwrap();
        assert!(told_of(&other, ino) > before, "told before it was acknowledged");
        assert_eq!(other.read(there, 0, 100).await.unwrap(), "new bytes");
    });
}

/// Each byte that is read is of the one write or of the other, and of the last one in the end.
#[test]
fn runs_of_two_sessions_meet() {
    run(async {
        let world = World::new(2).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let ino = one.put(one.top, "file", &vec![0; 300_000]).await;
        let (here, there) = (
            one.open(ino, Intent::BOTH).await.unwrap(),
            other.open(ino, Intent::BOTH).await.unwrap(),
        );
        let mut expected = vec![0; 300_000];
        for round in 0..20_u64 {
            let (mount, file) = if round % 2 == 0 { (&one, here) } else { (&other, there) };
            let (at, bytes) = (round as usize * 13_000, data(round, 20_000));
            mount.write(file, at as u64, &bytes).await;
            expected[at..at + 20_000].copy_from_slice(&bytes);
            mount.posix.flush(file, 0).await.unwrap();
        }
        for (mount, file) in [(&one, here), (&other, there)] {
            assert!(mount.read(file, 0, 300_000).await.unwrap() == expected[..]);
        }
    });
}

#[test]
fn names_are_seen_at_once_and_told() {
    run(async {
        let world = World::new(3).await;
        let (one, other) = (world.mount().await, world.mount().await);
        // In a directory that one session has made, and that the other one then looks into.
        let directory = one.mkdir(one.top, "directory").await.unwrap();
        assert!(other.find(directory, "file").await.is_none(), "it is known to be absent");
        let told = other.told.names.load(Ordering::SeqCst);
        let ino = one.put(directory, "file", b"bytes").await;
        assert!(other.told.names.load(Ordering::SeqCst) > told);
        assert_eq!(other.find(directory, "file").await.unwrap().attributes.ino, ino);
        one.posix
            .rename(one.who(), directory, &b"file"[..], one.top, "moved", RenameMode::Replace)
            .await
            .unwrap();
        assert!(other.find(directory, "file").await.is_none());
        assert_eq!(other.find(one.top, "moved").await.unwrap().attributes.ino, ino);
    });
}

#[test]
fn what_is_removed_elsewhere_is_read_a_while_by_who_has_it_open() {
    run(async {
        let world = World::new(4).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let bytes = data(4, 200_000);
        let ino = one.put(one.top, "file", &bytes).await;
        let there = other.open(ino, Intent::READING).await.unwrap();
        one.unlink(one.top, "file").await.unwrap();
        assert!(other.read(there, 0, 300_000).await.unwrap() == bytes[..]);
        assert_eq!(other.stat(ino).await.unwrap().nlink, 0);
    });
}

/// In a directory that was made here, operations are done here, and are there for all later.
#[test]
fn a_directory_of_its_own_is_everybodys_when_somebody_looks() {
    run(async {
        let world = World::new(5).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let directory = one.mkdir(one.top, "own").await.unwrap();
        for number in 0..50 {
            one.put(directory, &format!("file {number}"), format!("{number}").as_bytes()).await;
        }
        for number in (0..50).step_by(2) {
            one.unlink(directory, &format!("file {number}")).await.unwrap();
        }
        let names = other.names(directory, 1000).await;
        assert_eq!(names.len(), 25);
        for (name, ino) in names {
            assert_eq!(other.get(ino).await.unwrap(), name.trim_start_matches("file "));
        }
    });
}

/// More than may wait is written back while more is written.
#[test]
fn much_is_written_back_before_it_is_asked_for() {
    run(async {
        let world = World::new(6).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let (ino, file) = one.create(one.top, "file").await.unwrap();
        let bytes = data(6, 20 << 20);
        for (at, piece) in bytes.chunks(1 << 20).enumerate() {
            one.write(file, (at as u64) << 20, piece).await;
        }
        one.close(file).await;
        let stats = one.posix.stats();
        assert_eq!((stats.bytes_dirty, stats.files_open), (0, 0));
        assert_eq!(stats.bytes_written_back, 20 << 20);
        assert!(other.get(ino).await.unwrap() == bytes[..]);
    });
}

#[test]
fn what_was_forgotten_by_a_keeper_is_not_remembered() {
    run(async {
        let world = World::new(7).await;
        let mount = world.mount().await;
        let known = |posix: &Posix| posix.stats().inodes_known;
        let before = known(&mount.posix);
        let ino = mount.put(mount.top, "file", b"").await;
        mount.find(mount.top, "file").await.unwrap();
        assert_eq!(known(&mount.posix), before + 1);
        mount.posix.forget(ino, 1);
        assert_eq!(known(&mount.posix), before + 1, "it was told twice");
        mount.posix.forget(ino, 1);
        assert_eq!(known(&mount.posix), before);
        let served = world.served().await;
        served.find(served.top, "file").await.unwrap();
        assert_eq!(known(&served.posix), 0, "nobody would say that it is forgotten");
    });
}
