//! Each procedure does what it is for, and says what is wrong where it cannot.

use crate::client::{Args, MOUNT};
use crate::world::{World, run};

const PERM: u32 = 1;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const FBIG: u32 = 27;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const NOT_SYNC: u32 = 10_002;
const BADTYPE: u32 = 10_007;

const FILE: u32 = 1;
const DIRECTORY: u32 = 2;

#[test]
fn a_path_is_mounted() {
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        client.call(MOUNT, 0, Args::new()).await.end();
        let top = client.mount("/bucket").await.unwrap();
        assert!(top.len() <= 64);
        let below = client.mkdir(&top, "below").await.unwrap();
        client.create(&top, "file").await.unwrap();
        assert_eq!(client.mount("/bucket/below").await, Ok(below.clone()));
        assert_eq!(client.mount("//bucket/below/").await, Ok(below));
        assert_eq!(client.mount("/bucket/none").await, Err(NOENT));
        assert_eq!(client.mount("/bucket/file").await, Err(NOTDIR));
        assert_eq!(client.mount("bucket").await, Err(NOENT));
        for nothing in ["/", "/none", "/bucket2"] {
            assert_eq!(client.mount(nothing).await, Err(ACCES), "{nothing}");
        }
        assert!(client.mount("/bucket/..").await.is_err());
        let mut exports = client.call(MOUNT, 5, Args::new()).await;
        for name in ["/bucket", "/other"] {
            assert_eq!((exports.number(), exports.bytes()), (1, name.into()));
            assert_eq!((exports.number(), exports.bytes()), (1, "127.0.0.0/8".into()));
            assert_eq!(exports.number(), 0);
        }
        assert_eq!(exports.number(), 0);
        exports.end();
        assert_eq!(client.call(MOUNT, 2, Args::new()).await.number(), 0);
        client.call(MOUNT, 3, Args::new().bytes(b"/bucket")).await.end();
        client.call(MOUNT, 4, Args::new()).await.end();
    });
}

#[test]
fn an_export_says_what_it_is() {
    run(async {
        let world = World::new().await;
        world.quota("bucket", 1 << 20).await;
        let mut client = world.client().await;
        let top = client.mount("/bucket").await.unwrap();
        let shown = client.getattr(&top).await.unwrap();
        assert_eq!((shown.kind, shown.nlink), (DIRECTORY, 2));
        assert_eq!(shown.fsid, shown.ino);
        let (status, mut space) = client.nfs(18, Args::new().bytes(&top)).await;
        assert_eq!((status, space.after().unwrap().ino), (0, shown.ino));
        assert_eq!([space.long(), space.long(), space.long()], [1 << 20; 3]);
        assert!(space.long() > 0 && space.long() > 0 && space.long() > 0);
        assert_eq!(space.number(), 0);
        space.end();
        let (status, mut info) = client.nfs(19, Args::new().bytes(&top)).await;
        assert_eq!((status, info.after().unwrap().ino), (0, shown.ino));
        let mib = 1 << 20;
        for wanted in [mib, mib, 4096, mib, mib, 4096, 65_536] {
            assert_eq!(info.number(), wanted);
        }
        assert_eq!(info.long(), 1 << 50);
        assert_eq!([info.number(), info.number(), info.number()], [0, 1, 27]);
        info.end();
        let (status, mut conf) = client.nfs(20, Args::new().bytes(&top)).await;
        assert_eq!((status, conf.after().unwrap().ino), (0, shown.ino));
        assert_eq!((conf.number(), conf.number()), (u32::MAX, 255));
        assert_eq!([(); 4].map(|()| conf.number()), [1, 1, 0, 1]);
        conf.end();
    });
}

#[test]
fn files_are_made_in_three_ways() {
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        (client.uid, client.gid) = (7, 8);
        let bucket = client.mount("/bucket").await.unwrap();
        assert_eq!(client.create(&bucket, "denied").await, Err(ACCES));
        client.uid = 0;
        client.setattr(&bucket, Args::new().mode(Some(0o777)), None).await.unwrap();
        client.uid = 7;
        let way = |number| Args::new().number(number);
        let (file, shown) =
            client.make(8, (&bucket, "file"), way(1).mode(Some(0o640))).await.unwrap();
        assert_eq!((shown.kind, shown.mode, shown.uid, shown.gid), (FILE, 0o640, 7, 8));
        assert_eq!(client.create(&bucket, "file").await, Err(EXIST));
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        let again = client.make(8, (&bucket, "file"), way(0).mode(Some(0o600))).await.unwrap();
        assert_eq!((&again.0, again.1.size, again.1.mode), (&file, 5, 0o640));
        let cut = client.make(8, (&bucket, "file"), way(0).size(2)).await.unwrap();
        assert_eq!((&cut.0, cut.1.size), (&file, 2));
        let verifier = way(2).long(77);
        let once = client.make(8, (&bucket, "once"), verifier.clone()).await.unwrap();
        assert_eq!(client.make(8, (&bucket, "once"), verifier).await.unwrap().0, once.0);
        let other = client.make(8, (&bucket, "once"), way(2).long(78)).await;
        assert_eq!(other, Err(EXIST));
        client.mkdir(&bucket, "directory").await.unwrap();
        let directory = client.make(8, (&bucket, "directory"), way(0).mode(None)).await;
        assert_eq!(directory, Err(EXIST));
        let long = "x".repeat(256);
        for (name, status) in [(&long[..], NAMETOOLONG), ("a/b", INVAL), ("", INVAL)] {
            assert_eq!(client.create(&bucket, name).await, Err(status), "{name}");
        }
        assert_eq!(client.create(&file, "below").await, Err(NOTDIR));
    });
}

/// `chown` takes 4,294,967,295 for "no change": no program could give it to a file again.
#[test]
fn no_file_has_the_number_that_means_no_owner() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        client.setattr(&top, Args::new().mode(Some(0o777)), None).await.unwrap();
        let file = client.create(&top, "file").await.unwrap();
        let owners = |uid: Option<u32>, gid: Option<u32>| {
            let id = |args: Args, id: Option<u32>| match id {
                Some(id) => args.number(1).number(id),
                None => args.number(0),
            };
            let args = id(id(Args::new().number(0), uid), gid);
            args.number(0).number(0).number(0)
        };
        for (uid, gid) in [(Some(u32::MAX), None), (Some(7), Some(u32::MAX))] {
            assert_eq!(client.setattr(&file, owners(uid, gid), None).await, Err(INVAL));
            let made = client.make(9, (&top, "directory"), owners(uid, gid)).await;
            assert_eq!(made, Err(INVAL));
        }
        let shown = client.getattr(&file).await.unwrap();
        assert_eq!((shown.uid, shown.gid), (0, 0));
        client.setattr(&file, owners(Some(u32::MAX - 1), None), None).await.unwrap();
        (client.uid, client.gid) = (u32::MAX, 8);
        let node = Args::new().number(7).mode(Some(0o600));
        let (_, shown) = client.make(11, (&top, "of nobody"), node.clone()).await.unwrap();
        assert_eq!((shown.uid, shown.gid), (65_534, 65_534));
        (client.uid, client.gid) = (7, u32::MAX);
        let (_, shown) = client.make(11, (&top, "of a group"), node).await.unwrap();
        assert_eq!((shown.uid, shown.gid), (7, 65_534));
    });
}

#[test]
fn other_things_are_made() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let target = Args::new().mode(Some(0o777)).bytes(b"some/where");
        let (link, shown) = client.make(10, (&top, "link"), target).await.unwrap();
        assert_eq!(shown.kind, 5);
        let (status, mut res) = client.nfs(5, Args::new().bytes(&link)).await;
        assert_eq!((status, res.after().unwrap().ino), (0, shown.ino));
        assert_eq!(res.bytes(), b"some/where");
        for (number, kind) in [(6, 6), (7, 7)] {
            let node = Args::new().number(number).mode(Some(0o600));
            let name = format!("node {number}");
            assert_eq!(client.make(11, (&top, &name), node).await.unwrap().1.kind, kind);
        }
        for device in [3, 4] {
            let node = Args::new().number(device).mode(None).long(0);
            assert_eq!(client.make(11, (&top, "device"), node).await, Err(PERM));
        }
        assert_eq!(client.make(11, (&top, "x"), Args::new().number(2)).await, Err(BADTYPE));
        let file = client.create(&top, "file").await.unwrap();
        assert_eq!(client.link(&file, (&top, "name")).await.unwrap().nlink, 2);
        assert_eq!(client.link(&file, (&top, "name")).await, Err(EXIST));
        assert_eq!(client.link(&file, (&file, "name")).await, Err(NOTDIR));
        let directory = client.mkdir(&top, "directory").await.unwrap();
        assert!(client.link(&directory, (&top, "no")).await.is_err());
        let (status, _) = client.nfs(5, Args::new().bytes(&file)).await;
        assert_eq!(status, INVAL);
    });
}

#[test]
fn names_are_looked_up_and_nothing_is_above_the_top() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let below = client.mkdir(&top, "below").await.unwrap();
        let file = client.create(&below, "file").await.unwrap();
        assert_eq!(client.lookup(&top, "below").await.unwrap().0, below);
        assert_eq!(client.lookup(&below, "file").await.unwrap().0, file);
        assert_eq!(client.lookup(&below, ".").await.unwrap().0, below);
        assert_eq!(client.lookup(&below, "..").await.unwrap().0, top);
        assert_eq!(client.lookup(&top, "..").await.unwrap().0, top);
        assert_eq!(client.lookup(&below, "none").await, Err(NOENT));
        assert_eq!(client.lookup(&file, "x").await, Err(NOTDIR));
        assert_eq!(client.lookup(&file, ".").await, Err(NOTDIR));
        assert_eq!(client.lookup(&top, &"x".repeat(256)).await, Err(NAMETOOLONG));
        client.remove(12, &below, "file").await.unwrap();
        client.remove(13, &top, "below").await.unwrap();
        assert_eq!(client.lookup(&below, "file").await, Err(STALE));
        assert_eq!(client.getattr(&below).await, Err(STALE));
    });
}

#[test]
fn rights_are_told_and_hold() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        client.setattr(&top, Args::new().mode(Some(0o755)), None).await.unwrap();
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        client.setattr(&file, Args::new().mode(Some(0o604)), None).await.unwrap();
        (client.uid, client.gid) = (7, 7);
        let access = async |client: &mut crate::client::Client, handle: &[u8]| {
            let (status, mut res) = client.nfs(4, Args::new().bytes(handle).number(63)).await;
            assert_eq!((status, res.after().is_some()), (0, true));
            res.number()
        };
        // To read; to read and to look up.
        assert_eq!(access(&mut client, &file).await, 1);
        assert_eq!(access(&mut client, &top).await, 1 | 2);
        assert_eq!(client.read(&file, 0, 9).await.unwrap(), (b"bytes".to_vec(), true));
        assert_eq!(client.write(&file, 0, b"x", 0).await, Err(ACCES));
        assert_eq!(client.setattr(&file, Args::new().size(0), None).await, Err(ACCES));
        assert_eq!(client.setattr(&file, Args::new().mode(Some(0o777)), None).await, Err(1));
        assert_eq!(client.remove(12, &top, "file").await, Err(ACCES));
        client.uid = 0;
        client.setattr(&file, Args::new().mode(Some(0o600)), None).await.unwrap();
        client.uid = 7;
        assert_eq!(client.read(&file, 0, 9).await, Err(ACCES), "from one call to the next");
        client.uid = 0;
        assert_eq!(access(&mut client, &top).await, 1 | 2 | 4 | 8 | 16);
    });
}

#[test]
fn the_owner_goes_on_whatever_the_mode() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        client.setattr(&top, Args::new().mode(Some(0o777)), None).await.unwrap();
        client.uid = 7;
        let mode = Args::new().number(1).mode(Some(0));
        let (file, _) = client.make(8, (&top, "file"), mode).await.unwrap();
        client.write(&file, 0, b"bytes", 0).await.unwrap();
        client.commit(&file).await.unwrap();
        client.setattr(&file, Args::new().size(3), None).await.unwrap();
        assert_eq!(client.read(&file, 0, 9).await.unwrap(), (b"byt".to_vec(), true));
        client.uid = 8;
        assert_eq!(client.write(&file, 0, b"x", 0).await, Err(ACCES));
        assert_eq!(client.read(&file, 0, 9).await, Err(ACCES));
        client.uid = 7;
        client.setattr(&file, Args::new().mode(Some(0o711)), None).await.unwrap();
        client.uid = 8;
        // A program that may be run is read by who runs it.
        assert!(client.read(&file, 0, 9).await.is_ok());
        assert_eq!(client.write(&file, 0, b"x", 0).await, Err(ACCES));
    });
}

#[test]
fn attributes_are_set_and_guarded() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        let before = client.getattr(&file).await.unwrap();
        let all = Args::new().number(1).number(0o4711).number(1).number(7).number(1).number(8);
        let all = all.number(1).long(1000).number(2).number(5).number(6).number(1);
        client.setattr(&file, all, Some(before.times[2])).await.unwrap();
        let after = client.getattr(&file).await.unwrap();
        assert_eq!((after.uid, after.gid, after.size), (7, 8, 1000));
        assert_eq!(after.times[0], (5, 6));
        assert!(after.times[2] > before.times[2]);
        let mode = Args::new().mode(Some(0o600));
        let guard = Some(before.times[2]);
        assert_eq!(client.setattr(&file, mode.clone(), guard).await, Err(NOT_SYNC));
        assert_eq!(client.getattr(&file).await.unwrap(), after);
        let bad = (0..4).fold(Args::new(), |args, _| args.number(0));
        let bad = bad.number(2).number(1).number(1_000_000_000).number(0);
        assert_eq!(client.setattr(&file, bad, None).await, Err(INVAL));
        assert_eq!(client.setattr(&file, Args::new().size(u64::MAX), None).await, Err(FBIG));
        assert_eq!(client.getattr(&file).await.unwrap(), after);
    });
}

#[test]
fn bytes_are_written_and_read() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|at| (at * 7) as u8).collect();
        for (at, part) in data.chunks(100_001).enumerate() {
            let how = client.write(&file, at as u64 * 100_001, part, 2 * (at as u32 % 2)).await;
            assert_eq!(how.unwrap().0, 2 * (at as u32 % 2));
        }
        assert_eq!(client.getattr(&file).await.unwrap().size, 300_000);
        assert_eq!(client.read(&file, 0, 1 << 20).await.unwrap(), (data.clone(), true));
        let part = (data[100_000..100_005].to_vec(), false);
        assert_eq!(client.read(&file, 100_000, 5).await.unwrap(), part);
        assert_eq!(client.read(&file, 300_000, 5).await.unwrap(), (vec![], true));
        assert_eq!(client.read(&file, u64::MAX, 5).await.unwrap(), (vec![], true));
        client.commit(&file).await.unwrap();
        assert_eq!(client.write(&file, u64::MAX, b"x", 0).await, Err(FBIG));
        assert_eq!(client.write(&file, 1 << 50, b"x", 0).await, Err(FBIG));
        assert_eq!(client.read(&top, 0, 5).await, Err(ISDIR));
        assert!(client.write(&top, 0, b"x", 0).await.is_err());
        client.remove(12, &top, "file").await.unwrap();
    });
}

#[test]
fn names_go_and_move() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let (one, other) =
            (client.mkdir(&top, "one").await.unwrap(), client.mkdir(&top, "other").await.unwrap());
        let file = client.create(&one, "file").await.unwrap();
        client.rename((&one, "file"), (&other, "moved")).await.unwrap();
        assert_eq!(client.lookup(&other, "moved").await.unwrap().0, file);
        client.rename((&other, "moved"), (&other, "again")).await.unwrap();
        assert_eq!(client.rename((&other, "moved"), (&one, "x")).await, Err(NOENT));
        assert_eq!(client.rename((&top, "other"), (&other, "x")).await, Err(INVAL));
        assert_eq!(client.rename((&top, "one"), (&other, "again")).await, Err(NOTDIR));
        assert_eq!(client.rename((&other, "again"), (&top, "one")).await, Err(ISDIR));
        assert_eq!(client.remove(13, &top, "other").await, Err(NOTEMPTY));
        assert_eq!(client.remove(13, &other, "again").await, Err(NOTDIR));
        assert_eq!(client.remove(12, &top, "one").await, Err(ISDIR));
        assert_eq!(client.remove(12, &one, "none").await, Err(NOENT));
        client.remove(12, &other, "again").await.unwrap();
        client.remove(13, &top, "other").await.unwrap();
        assert_eq!(client.remove(12, &other, "again").await, Err(STALE));
        assert_eq!(client.getattr(&file).await, Err(STALE));
    });
}
