//! The needs of an NFS server beyond a mount: making a file once however often it is asked for.

use cairn_base::Error;
use cairn_posix::{Changes, SetTime};

use crate::world::{MODE, World, run};

#[test]
fn the_same_verifier_finds_what_it_made() {
    run(async {
        let world = World::new(1).await;
        // Asked again, another gateway may answer.
        let (one, other) = (world.served().await, world.served().await);
        let verifier = *b"\0\xffverify";
        let make = async |verifier| {
            let mut made = Vec::new();
            for mount in [&one, &other] {
                let place = (mount.top, "file");
                made.push(
                    mount.posix.create_once(mount.who(), place.0, place.1, MODE, verifier).await,
                );
            }
            made
        };
        let made = make(verifier).await;
        let [Ok(first), Ok(second)] = &made[..] else { panic!("{made:?}") };
        assert_eq!(first.attributes.ino, second.attributes.ino);
        for refused in make(*b"\0\xffverifz").await {
            assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
        }
        // The client sets the times, as it must, and the verifier is none any more.
        let now = Some(SetTime::Now);
        let changes = Changes { atime: now, mtime: now, ..Changes::default() };
        let ino = first.attributes.ino;
        let set = one.posix.set_attributes(one.who(), ino, changes, None).await.unwrap();
        assert!(set.mtime.secs() > 1_700_000_000);
        for refused in make(verifier).await {
            assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
        }
    });
}

#[test]
fn what_is_no_file_was_made_by_no_verifier() {
    run(async {
        let world = World::new(2).await;
        let mount = world.served().await;
        mount.mkdir(mount.top, "directory").await.unwrap();
        let place = (mount.top, "directory");
        let refused = mount.posix.create_once(mount.who(), place.0, place.1, MODE, [0; 8]).await;
        assert!(matches!(refused, Err(Error::Exists(_))), "{refused:?}");
    });
}
