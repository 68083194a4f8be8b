//! Calls that were done before: what has their names now is something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::Error;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::getattr::Getattr;
use cairn_posix::{Attempt, CallId, Changes, Intent, Kind, RenameMode, Step, Who};

use tokio::time::Instant;

use crate::world::{MODE, Mount, World, run, user};

fn calling(mount: &Mount, number: u8) -> Who {
    let call = CallId { client: [1; 16], checksum: [number; 16], step: 0 };
    mount.who().for_call(Attempt::new(call, Instant::now()))
}

#[test]
fn a_call_that_came_long_ago_does_nothing_more() {
    run(async {
        let world = World::new(1).await;
        let mount = world.mount().await;
        let ino = mount.put(mount.top, "file", b"written since").await;
        let call = CallId { client: [1; 16], checksum: [1; 16], step: 0 };
        let came = Instant::now().checked_sub(Duration::from_secs(81)).unwrap();
        let who = mount.who().for_call(Attempt::new(call, came));
        let removed = mount.posix.remove_file(who, mount.top, &b"file"[..]).await;
        assert!(matches!(removed, Err(Error::Unavailable(_))), "{removed:?}");
        assert_eq!(mount.stat(ino).await.unwrap().nlink, 1);
    });
}

async fn remove(mount: &Mount, number: u8) {
    let at = (mount.top, &b"file"[..]);
    mount.posix.remove_file(calling(mount, number), at.0, at.1).await.unwrap();
}

async fn rename(mount: &Mount, number: u8, source: &str, target: &str) {
    let (source, target) = ((mount.top, source.as_bytes()), (mount.top, target));
    let who = calling(mount, number);
    mount
        .posix
        .rename(who, source.0, source.1, target.0, target.1, RenameMode::Replace)
        .await
        .unwrap();
}

#[test]
fn a_late_call_takes_nothing_of_what_was_written_to_a_new_file() {
    run(async {
        for is_served in [true, false] {
            let world = World::new(1).await;
            let mount = if is_served { world.served().await } else { world.mount().await };
            mount.put(mount.top, "file", b"removed").await;
            remove(&mount, 1).await;
            mount.put(mount.top, "file", b"replaced").await;
            mount.put(mount.top, "source", b"moved").await;
            rename(&mount, 2, "source", "file").await;
            mount.unlink(mount.top, "file").await.unwrap();
            for number in [1, 2] {
                let (ino, file) = mount.create(mount.top, "file").await.unwrap();
                mount.write(file, 0, b"written").await;
                match number {
                    1 => remove(&mount, 1).await,
                    _ => rename(&mount, 2, "source", "file").await,
                }
                mount.write(file, 7, b" since").await;
                mount.close(file).await;
                assert_eq!(mount.get(ino).await.unwrap(), "written since", "call {number}");
                // Nothing is kept of it: once its name goes, it is gone.
                mount.unlink(mount.top, "file").await.unwrap();
                assert!(mount.open(ino, Intent::READING).await.is_err(), "call {number}");
            }
        }
    });
}

#[test]
fn a_late_call_says_of_no_new_directory_that_it_is_gone() {
    run(async {
        let world = World::new(2).await;
        let mount = world.mount().await;
        let name = (mount.top, &b"directory"[..]);
        mount.mkdir(mount.top, "directory").await.unwrap();
        mount.posix.remove_directory(calling(&mount, 1), name.0, name.1).await.unwrap();
        for directory in ["directory", "source"] {
            mount.mkdir(mount.top, directory).await.unwrap();
        }
        rename(&mount, 2, "source", "directory").await;
        mount.posix.remove_directory(mount.who(), name.0, name.1).await.unwrap();

        let place = (mount.top, "directory");
        let made = mount.posix.make_directory(mount.who(), place.0, place.1, MODE).await.unwrap();
        mount.posix.remove_directory(calling(&mount, 1), name.0, name.1).await.unwrap();
        rename(&mount, 2, "source", "directory").await;
        assert_eq!(mount.stat(made.attributes.ino).await.unwrap().nlink, 2);
    });
}

/// One attempt finds a file that is to be cut. Before it does so, another one finds none, and makes
/// a new one.
#[test]
fn an_attempt_does_not_cut_what_another_one_has_made() {
    run(async {
        let world = World::new(3).await;
        let (one, other) = (world.mount().await, world.mount().await);
        let make = async |mount: &Mount| {
            let who = calling(mount, 1).ending_with(Step::Names);
            mount.posix.make_node(who, mount.top, "file", Kind::File, MODE).await
        };
        let cut = Changes { size: Some(0), ..Changes::default() };
        one.put(one.top, "file", b"removed").await;
        assert!(matches!(make(&one).await, Err(Error::Exists(_))));
        one.unlink(one.top, "file").await.unwrap();
        let ino = make(&other).await.unwrap().attributes.ino;
        let file = other.open(ino, Intent::WRITING).await.unwrap();
        other.write(file, 0, b"written since").await;
        other.close(file).await;
        let who = calling(&one, 1).ending_with(Step::Size);
        one.posix.set_attributes(who, ino, cut, None).await.unwrap();
        assert_eq!(one.get(ino).await.unwrap(), "written since");
        // And the other way round: what was cut is not made again.
        let who = calling(&one, 2).ending_with(Step::Size);
        one.posix.set_attributes(who, ino, cut, None).await.unwrap();
        one.unlink(one.top, "file").await.unwrap();
        let who = calling(&other, 2).ending_with(Step::Names);
        let made = other.posix.make_node(who, other.top, "file", Kind::File, MODE).await;
        assert!(matches!(made, Err(Error::NotFound(_))), "it is gone");
    });
}

#[test]
fn bytes_are_taken_over_nothing_that_their_opener_never_saw() {
    run(async {
        let world = World::new(3).await;
        let (here, there) = (world.served().await, world.mount().await);
        here.posix.never_overwrite(|_| {});
        let ino = here.put(here.top, "file", b"0000").await;
        let early = here.open(ino, Intent::BOTH).await.unwrap();
        let elsewhere = there.open(ino, Intent::BOTH).await.unwrap();
        there.write(elsewhere, 0, b"1111").await;
        there.close(elsewhere).await;
        // Written back from here, over what was written elsewhere.
        let other = here.open(ino, Intent::BOTH).await.unwrap();
        here.write(other, 0, b"2").await;
        here.close(other).await;
        assert_eq!(here.get(ino).await.unwrap(), "2111");
        here.write(early, 0, b"3333").await;
        here.close(early).await;
        assert_eq!(here.get(ino).await.unwrap(), "2111");
        // What was opened since is over what is there.
        let late = here.open(ino, Intent::BOTH).await.unwrap();
        here.write(late, 1, b"44").await;
        here.close(late).await;
        assert_eq!(here.get(ino).await.unwrap(), "2441");
    });
}

#[test]
fn bytes_that_are_over_those_of_others_are_shown_nowhere() {
    run(async {
        let world = World::new(4).await;
        let (here, there) = (world.served().await, world.mount().await);
        let dropped = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&dropped);
        here.posix.never_overwrite(move |_| {
            told.fetch_add(1, Ordering::SeqCst);
        });
        let ino = here.put(here.top, "file", b"0000").await;
        let file = here.open(ino, Intent::BOTH).await.unwrap();
        here.write(file, 0, b"written here").await;
        assert_eq!(here.find(here.top, "file").await.unwrap().attributes.size, 12);
        let cut = there.cut(ino, 2).await.unwrap();
        let listed = here.posix.list_after(here.who(), here.top, 0, 100, true).await.unwrap();
        let listed = listed.entries.into_iter().find(|entry| entry.name == "file").unwrap();
        assert!(listed.entry.is_none(), "whoever wants to know asks for it");
        let found = here.find(here.top, "file").await.unwrap().attributes;
        assert_eq!((found.size, found.mtime), (2, cut.mtime));
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "nothing is written back");
        here.write(file, 0, b"again").await;
        there.cut(ino, 1).await.unwrap();
        let mode = Changes { mode: Some(0o600), ..Changes::default() };
        let set = here.posix.set_attributes(here.who(), ino, mode, None).await.unwrap();
        assert_eq!((set.size, set.mode & 0o777), (1, 0o600));
        here.close(file).await;
        assert_eq!(here.get(ino).await.unwrap(), "0");
    });
}

/// What was published of several runs before one failed is not what others wrote.
#[test]
fn bytes_of_which_some_were_written_back_are_written_back_later() {
    run(async {
        let world = World::new(5).await;
        let here = world.served().await;
        here.posix.never_overwrite(|_| panic!("bytes are dropped"));
        let ino = here.put(here.top, "file", b"0000").await;
        let quota = async |bytes| {
            let quota = UpdateBucket {
                name: "bucket".into(),
                visibility: None,
                cache_control: None,
                grant: None,
                tags: None,
                replicas: None,
                redirect: None,
                quota_objects: None,
                quota_bytes: Some(bytes),
            };
            here.posix.fs().run(&user(), quota).await.unwrap();
        };
        let file = here.open(ino, Intent::BOTH).await.unwrap();
        quota(100).await;
        here.write(file, 0, b"1").await;
        here.write(file, 1000, b"2").await;
        let failed = here.posix.sync(file).await;
        assert!(matches!(failed, Err(Error::Full(_))), "{failed:?}");
        let published = here.posix.fs().read(&user(), Getattr { ino }).await.unwrap().0;
        assert_eq!(published.size, 4);
        quota(10_000).await;
        here.close(file).await;
        let bytes = here.get(ino).await.unwrap();
        assert_eq!((bytes.len(), &bytes[..4], bytes[1000]), (1001, &b"1000"[..], b'2'));
    });
}
