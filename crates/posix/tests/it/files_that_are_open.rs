//! Files that are open: what becomes of them when their names go, and of what was written.

use std::time::Duration;

use cairn_base::Error;
use cairn_posix::{Changes, Intent, RenameMode, SetTime, Sought, Source, Who, Writing};

use crate::world::{MODE, World, data, run};

#[test]
fn a_file_that_is_open_outlives_its_name() {
    run(async {
        let world = World::new(1).await;
        let mount = world.mount().await;
        let bytes = data(1, 100_000);
        let ino = mount.put(mount.top, "file", &bytes).await;
        let file = mount.open(ino, Intent::BOTH).await.unwrap();
        mount.unlink(mount.top, "file").await.unwrap();
        assert!(mount.find(mount.top, "file").await.is_none());
        assert_eq!(mount.stat(ino).await.unwrap().nlink, 0);
        mount.write(file, 50_000, b"more").await;
        mount.posix.sync(file).await.unwrap();
        let mut expected = bytes;
        expected[50_000..50_004].copy_from_slice(b"more");
        assert!(mount.read(file, 0, 200_000).await.unwrap() == expected[..]);
        mount.close(file).await;
        let gone = mount.stat(ino).await;
        assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
    });
}

#[test]
fn a_file_that_is_open_outlives_another_in_its_place() {
    run(async {
        let world = World::new(2).await;
        let mount = world.mount().await;
        let old = mount.put(mount.top, "target", b"old").await;
        let new = mount.put(mount.top, "source", b"new").await;
        let file = mount.open(old, Intent::READING).await.unwrap();
        let renamed = mount.posix.rename(
            mount.who(),
            mount.top,
            &b"source"[..],
            mount.top,
            "target",
            RenameMode::Replace,
        );
        renamed.await.unwrap();
        assert_eq!(mount.find(mount.top, "target").await.unwrap().attributes.ino, new);
        assert_eq!(mount.read(file, 0, 100).await.unwrap(), "old");
        mount.close(file).await;
        assert!(matches!(mount.stat(old).await, Err(Error::NotFound(_))));
        assert_eq!(mount.get(new).await.unwrap(), "new");
    });
}

/// A name that could not go after all is kept, and with it the file.
#[test]
fn a_file_whose_name_stays_is_still_there_when_it_is_closed() {
    run(async {
        let world = World::new(3).await;
        let mount = world.mount().await;
        let ino = mount.put(mount.top, "file", b"bytes").await;
        let directory = mount.mkdir(mount.top, "directory").await.unwrap();
        let file = mount.open(ino, Intent::READING).await.unwrap();
        let renamed = mount
            .posix
            .rename(
                mount.who(),
                mount.top,
                &b"directory"[..],
                mount.top,
                "file",
                RenameMode::Replace,
            )
            .await;
        assert!(matches!(renamed, Err(Error::NotDirectory(_))), "{renamed:?}");
        assert_eq!(mount.stat(ino).await.unwrap().nlink, 1);
        mount.close(file).await;
        assert_eq!(mount.get(ino).await.unwrap(), "bytes");
        assert_eq!(mount.find(mount.top, "directory").await.unwrap().attributes.ino, directory);
    });
}

/// Until it is known whether a name goes, what is written to the file belongs to it.
#[test]
fn a_file_that_is_closed_while_its_name_might_go_keeps_what_was_written() {
    run(async {
        let world = World::new(3).await;
        let mount = world.mount().await;
        mount.mkdir(mount.top, "directory").await.unwrap();
        for round in 0..60 {
            let name = format!("file-{round}");
            let ino = mount.put(mount.top, &name, b"old").await;
            let file = mount.open(ino, Intent::BOTH).await.unwrap();
            mount.write(file, 0, b"new").await;
            let renamed = mount.posix.rename(
                mount.who(),
                mount.top,
                &b"directory"[..],
                mount.top,
                &name[..],
                RenameMode::Replace,
            );
            let renamed = tokio::spawn(async move { renamed.await });
            tokio::time::sleep(Duration::from_micros(20 * round)).await;
            mount.close(file).await;
            let renamed = renamed.await.unwrap();
            assert!(matches!(renamed, Err(Error::NotDirectory(_))), "{renamed:?}");
            assert_eq!(mount.get(ino).await.unwrap(), "new", "round {round}");
        }
    });
}

/// The kernel does not ask for that, other clients do.
#[test]
fn a_name_that_is_moved_onto_itself_stays() {
    run(async {
        let world = World::new(13).await;
        let mount = world.mount().await;
        let (ino, file) = mount.create(mount.top, "file").await.unwrap();
        let directory = mount.mkdir(mount.top, "directory").await.unwrap();
        mount.write(file, 0, b"bytes").await;
        for name in ["file", "directory"] {
            let moved = mount.posix.rename(
                mount.who(),
                mount.top,
                name.as_bytes(),
                mount.top,
                name,
                RenameMode::Replace,
            );
            moved.await.unwrap();
        }
        mount.close(file).await;
        assert_eq!(mount.get(ino).await.unwrap(), "bytes");
        assert!(mount.stat(directory).await.unwrap().nlink > 0);
    });
}

#[test]
fn what_is_written_and_not_written_back_is_shown() {
    run(async {
        let world = World::new(4).await;
        let mount = world.mount().await;
        let (ino, file) = mount.create(mount.top, "file").await.unwrap();
        mount.write(file, 10, b"bytes").await;
        let shown = mount.posix.attributes(mount.who(), ino, false).await.unwrap().0;
        assert_eq!((shown.size, mount.posix.stats().bytes_dirty), (15, 5));
        assert_eq!(mount.read(file, 0, 100).await.unwrap(), "\0\0\0\0\0\0\0\0\0\0bytes");
        // Its times stay from here on.
        let stays = mount.stat(ino).await.unwrap();
        assert_eq!(mount.posix.stats().bytes_dirty, 0);
        assert_eq!(mount.posix.stats().bytes_written_back, 5);
        mount.close(file).await;
        let later = mount.stat(ino).await.unwrap();
        assert_eq!((later.mtime, later.ctime, later.size), (stays.mtime, stays.ctime, 15));
    });
}

/// Each state of a file has another number, written back or not.
#[test]
fn no_two_states_have_the_same_number() {
    run(async {
        let world = World::new(5).await;
        let mount = world.mount().await;
        let (ino, file) = mount.create(mount.top, "file").await.unwrap();
        let mut seen = Vec::new();
        for round in 0..40_u64 {
            mount.write(file, round * 3, b"abc").await;
            let shown = mount.posix.attributes(mount.who(), ino, false).await.unwrap().0;
            seen.push((shown.change, shown.size));
            match round % 4 {
                0 => mount.posix.sync(file).await.unwrap(),
                1 => drop(mount.cut(ino, shown.size + 1).await.unwrap()),
                _ => continue,
            }
            let shown = mount.posix.attributes(mount.who(), ino, false).await.unwrap().0;
            seen.push((shown.change, shown.size));
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup_by_key(|(change, _)| *change);
        assert_eq!(seen.len(), all);
    });
}

#[test]
fn who_may_not_open_a_file_does_not() {
    run(async {
        let world = World::new(6).await;
        let mount = world.mount().await;
        let ino = mount.put(mount.top, "file", b"bytes").await;
        let changes =
            Changes { mode: Some(0o640), uid: Some(7), gid: Some(8), ..Changes::default() };
        mount.posix.set_attributes(mount.who(), ino, changes, None).await.unwrap();
        let open = async |who: Who, intent| mount.posix.open(who, ino, intent).await.is_ok();
        let owner = || Who::new(7, 1, &[]);
        assert!(open(owner(), Intent::BOTH).await);
        assert!(open(Who::new(9, 1, &[3, 8]), Intent::READING).await, "in its group");
        assert!(!open(Who::new(9, 1, &[3, 8]), Intent::WRITING).await);
        assert!(!open(Who::new(9, 1, &[3]), Intent::READING).await);
        // Groups that are looked for where they matter.
        let sought = |process| Who::process(9, 1, process, |process| vec![process]);
        assert!(open(sought(8), Intent::READING).await);
        assert!(!open(sought(3), Intent::READING).await);
        let rights = mount.posix.rights(Who::new(9, 8, &[]), ino).await.unwrap();
        assert_eq!((rights.reads, rights.writes, rights.executes), (true, false, false));
        let rights = mount.posix.rights(owner(), ino).await.unwrap();
        assert_eq!((rights.reads, rights.writes, rights.executes), (true, true, false));
    });
}

#[test]
fn holes_are_found() {
    run(async {
        let world = World::new(7).await;
        let mount = world.mount().await;
        let (_, file) = mount.create(mount.top, "file").await.unwrap();
        mount.write(file, 1 << 20, &data(7, 100_000)).await;
        let seek =
            async |at, sought| mount.posix.seek(Source::File(file), at, sought).await.unwrap();
        assert_eq!(seek(0, Sought::Hole).await, Some(0));
        assert_eq!(seek(0, Sought::Data).await, Some(1 << 20));
        assert_eq!(seek((1 << 20) + 5, Sought::Hole).await, Some((1 << 20) + 100_000));
        assert_eq!(seek((1 << 20) + 100_000, Sought::Data).await, None);
    });
}

#[test]
fn a_copy_by_reference_is_a_copy() {
    run(async {
        let world = World::new(8).await;
        let mount = world.mount().await;
        let bytes = data(8, 300_000);
        let (_, source) = mount.create(mount.top, "source").await.unwrap();
        let (_, target) = mount.create(mount.top, "target").await.unwrap();
        mount.write(source, 0, &bytes).await;
        let copied = mount.posix.copy_range(source, 0, target, 0, mount.who(), 1 << 30).await;
        assert_eq!(copied.unwrap(), 300_000);
        mount.write(source, 0, b"changed").await;
        assert!(mount.read(target, 0, 400_000).await.unwrap() == bytes[..]);
        let read_only = mount
            .open(mount.find(mount.top, "target").await.unwrap().attributes.ino, Intent::READING)
            .await
            .unwrap();
        let refused = mount.posix.copy_range(source, 0, read_only, 0, mount.who(), 10).await;
        assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
    });
}

#[test]
fn appended_bytes_go_to_the_end_wherever_that_is() {
    run(async {
        let world = World::new(9).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let (ino, here) = one.create(one.top, "log").await.unwrap();
        let appending = Intent { appends: true, ..Intent::WRITING };
        let there = other.open(ino, appending).await.unwrap();
        let writing = Writing { appends: true, ..Writing::default() };
        for round in 0..10 {
            let line = format!("line {round}\n");
            let (mount, file) = if round % 2 == 0 { (&one, here) } else { (&other, there) };
            mount.posix.write(file, 0, line.as_bytes(), writing).await.unwrap();
        }
        let expected: String = (0..10).map(|round| format!("line {round}\n")).collect();
        assert_eq!(one.get(ino).await.unwrap(), expected);
        assert_eq!(other.get(ino).await.unwrap(), expected);
    });
}

#[test]
fn times_are_set_and_writing_changes_them() {
    run(async {
        let world = World::new(10).await;
        let mount = world.mount().await;
        let (ino, file) = mount.create(mount.top, "file").await.unwrap();
        let then = SetTime::At(cairn_base::Timestamp::from_secs(-5));
        let changes = Changes { mtime: Some(then), atime: Some(then), ..Changes::default() };
        let set = mount.posix.set_attributes(mount.who(), ino, changes, Some(file)).await.unwrap();
        assert_eq!((set.mtime.secs(), set.atime.secs()), (-5, -5));
        mount.write(file, 0, b"x").await;
        let written = mount.stat(ino).await.unwrap();
        assert!(written.mtime.secs() > 0 && written.ctime > set.ctime);
    });
}

#[test]
fn a_directory_that_was_removed_is_shown_until_it_is_forgotten() {
    run(async {
        let world = World::new(11).await;
        let mount = world.mount().await;
        let ino = mount.mkdir(mount.top, "directory").await.unwrap();
        let place = (mount.top, &b"directory"[..]);
        mount.posix.remove_directory(mount.who(), place.0, place.1).await.unwrap();
        assert_eq!(mount.stat(ino).await.unwrap().nlink, 0, "a program is in it");
        mount.posix.forget(ino, 1);
        assert!(matches!(mount.stat(ino).await, Err(Error::NotFound(_))));
    });
}

#[test]
fn special_files_symlinks_and_attributes_are_what_was_made() {
    run(async {
        let world = World::new(12).await;
        let mount = world.mount().await;
        let (posix, top) = (&mount.posix, mount.top);
        let kind = cairn_posix::Kind::Fifo;
        let fifo = posix.make_node(mount.who(), top, "fifo", kind, MODE).await.unwrap();
        assert_eq!(fifo.attributes.kind, kind);
        let link = posix.make_symlink(mount.who(), top, "link", b"to/somewhere").await.unwrap();
        let target = posix.read_link(mount.who(), link.attributes.ino).await.unwrap();
        assert_eq!(target, "to/somewhere");
        let ino = mount.put(top, "file", b"").await;
        let mode = cairn_posix::XattrMode::Set;
        posix.set_xattr(mount.who(), ino, b"user.a", b"value", mode).await.unwrap();
        assert_eq!(posix.get_xattr(mount.who(), ino, b"user.a").await.unwrap(), "value");
        assert_eq!(posix.list_xattrs(mount.who(), ino).await.unwrap(), ["user.a"]);
        posix.remove_xattr(mount.who(), ino, b"user.a").await.unwrap();
        let none = posix.get_xattr(mount.who(), ino, b"user.a").await;
        assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");
        let refused = posix.set_xattr(mount.who(), ino, b"system.x", b"", mode).await;
        assert!(matches!(refused, Err(Error::NotImplemented(_))), "{refused:?}");
    });
}
