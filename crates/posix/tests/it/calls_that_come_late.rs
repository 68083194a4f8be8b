//! Calls that were done before: what has their names now is something else.

use cairn_posix::{Attempt, CallId, Intent, RenameMode, Who};

use crate::world::{MODE, Mount, World, run};

fn calling(mount: &Mount, number: u8) -> Who {
    let call = CallId { client: [1; 16], checksum: [number; 16], step: 0 };
    mount.who().for_call(Attempt::new(call))
}

async fn remove(mount: &Mount, number: u8) {
    let at = (mount.top, &b"file"[..]);
    mount.posix.remove_file(calling(mount, number), at).await.unwrap();
}

async fn rename(mount: &Mount, number: u8, source: &str, target: &str) {
    let (source, target) = ((mount.top, source.as_bytes()), (mount.top, target));
    let who = calling(mount, number);
    mount.posix.rename(who, source, target, RenameMode::Replace).await.unwrap();
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
        mount.posix.remove_directory(calling(&mount, 1), name).await.unwrap();
        for directory in ["directory", "source"] {
            mount.mkdir(mount.top, directory).await.unwrap();
        }
        rename(&mount, 2, "source", "directory").await;
        mount.posix.remove_directory(mount.who(), name).await.unwrap();

        let place = (mount.top, "directory");
        let made = mount.posix.make_directory(mount.who(), place, MODE).await.unwrap();
        mount.posix.remove_directory(calling(&mount, 1), name).await.unwrap();
        rename(&mount, 2, "source", "directory").await;
        assert_eq!(mount.stat(made.attributes.ino).await.unwrap().nlink, 2);
    });
}
