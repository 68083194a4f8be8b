//! An export holds its clients to its bucket, its user, its networks, and to reading.

use cairn_auth::Network;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::exports::{AddExport, AddExportAt};
use cairn_fs::ops::read_only::SetReadOnly;
use cairn_fs::rows::Squash;

use crate::client::{Args, MOUNT};
use crate::world::{World, export, run, update};

const ACCES: u32 = 13;
const XDEV: u32 = 18;
const ROFS: u32 = 30;
const STALE: u32 = 70;

#[test]
fn nothing_leads_from_one_export_to_another() {
    run(async {
        let (_world, mut client, top) = World::mounted().await;
        let other = client.mount("/other").await.unwrap();
        let file = client.create(&top, "file").await.unwrap();
        assert_eq!(client.rename((&top, "file"), (&other, "file")).await, Err(XDEV));
        assert_eq!(client.link(&file, (&other, "file")).await, Err(XDEV));
        assert_ne!(
            client.getattr(&top).await.unwrap().fsid,
            client.getattr(&other).await.unwrap().fsid
        );
        let (names, _) = client.list(&top, 0, 4096, false).await.unwrap();
        assert_eq!(names.len(), 3);
        assert_eq!(client.lookup(&top, "..").await.unwrap().0, top);
    });
}

#[test]
fn an_export_that_has_ended_is_stale_also_if_there_is_another_one() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        world.unexport("bucket").await;
        assert_eq!(client.getattr(&top).await, Err(STALE));
        assert_eq!(client.create(&top, "x").await, Err(STALE));
        assert_eq!(client.mount("/bucket").await, Err(ACCES));
        world.run(export("bucket", "alice")).await;
        assert_eq!(client.getattr(&top).await, Err(STALE));
        assert!(client.mount("/bucket").await.is_ok());
    });
}

#[test]
fn handles_outlive_the_door() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        let another = world.another_door().await;
        let mut client = another.client().await;
        assert_eq!(client.mount("/bucket").await, Ok(top.clone()));
        assert_eq!(client.lookup(&top, "file").await.unwrap().0, file);
        another.stop().await;
    });
}

#[test]
fn who_is_disabled_exports_nothing() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        world.disable("alice", true).await;
        assert_eq!(client.getattr(&top).await, Err(STALE));
        assert_eq!(client.mount("/bucket").await, Err(ACCES));
        world.disable("alice", false).await;
        assert!(client.getattr(&top).await.is_ok());
    });
}

#[test]
fn only_clients_of_its_networks_get_in() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let clients = vec![Network::parse("10.0.0.0/8").unwrap()];
        world.export_again(AddExport { clients, ..export("other", "alice") }).await;
        assert_eq!(client.mount("/other").await, Err(ACCES));
        let mut exports = client.call(MOUNT, 5, Args::new()).await;
        assert_eq!((exports.number(), exports.bytes()), (1, b"/bucket".to_vec()));
        assert!(client.getattr(&top).await.is_ok());
    });
}

#[test]
fn one_that_is_read_only_is_not_changed() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        let read_only = true;
        let again = AddExport { read_only, ..export("bucket", "alice") };
        world.export_again(again).await;
        let top = client.mount("/bucket").await.unwrap();
        let (file, before) = client.lookup(&top, "file").await.unwrap();
        let mode = || Args::new().mode(Some(0o700));
        assert_eq!(client.setattr(&file, mode(), None).await, Err(ROFS));
        assert_eq!(client.write(&file, 0, b"x", 0).await, Err(ROFS));
        assert_eq!(client.commit(&file).await, Err(ROFS));
        assert_eq!(client.create(&top, "x").await, Err(ROFS));
        assert_eq!(client.mkdir(&top, "x").await, Err(ROFS));
        assert_eq!(client.make(10, (&top, "x"), mode().bytes(b"t")).await, Err(ROFS));
        assert_eq!(client.make(11, (&top, "x"), Args::new().number(7).mode(None)).await, Err(ROFS));
        assert_eq!(client.remove(12, &top, "file").await, Err(ROFS));
        assert_eq!(client.remove(13, &top, "file").await, Err(ROFS));
        assert_eq!(client.rename((&top, "file"), (&top, "x")).await, Err(ROFS));
        assert_eq!(client.link(&file, (&top, "x")).await, Err(ROFS));
        let (_, mut res) = client.nfs(4, Args::new().bytes(&top).number(63)).await;
        res.after();
        assert_eq!(res.number(), 1 | 2);
        assert_eq!(client.lookup(&top, "file").await.unwrap().1, before);
        assert_eq!(client.read(&file, 0, 9).await.unwrap().0, b"bytes");
    });
}

#[test]
fn a_bucket_or_a_store_that_is_read_only_is_not_changed() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        let file = client.create(&top, "file").await.unwrap();
        client.write(&file, 0, b"bytes", 2).await.unwrap();
        for bucket in [Some("bucket".to_owned()), None] {
            let set = |read_only| SetReadOnly { bucket: bucket.clone(), read_only };
            world.run(set(true)).await;
            let mode = || Args::new().mode(Some(0o700));
            assert_eq!(client.setattr(&file, mode(), None).await, Err(ROFS));
            assert_eq!(client.write(&file, 0, b"x", 2).await, Err(ROFS));
            assert_eq!(client.create(&top, "x").await, Err(ROFS));
            assert_eq!(client.mkdir(&top, "x").await, Err(ROFS));
            assert_eq!(client.remove(12, &top, "file").await, Err(ROFS));
            assert_eq!(client.rename((&top, "file"), (&top, "x")).await, Err(ROFS));
            assert_eq!(client.link(&file, (&top, "x")).await, Err(ROFS));
            let (_, mut res) = client.nfs(4, Args::new().bytes(&top).number(63)).await;
            res.after();
            assert_eq!(res.number(), 1 | 2, "ACCESS");
            assert_eq!(client.read(&file, 0, 9).await.unwrap().0, b"bytes");
            world.run(set(false)).await;
            client.write(&file, 0, b"bytes", 2).await.unwrap();
        }
    });
}

#[test]
fn the_rights_of_its_user_decide() {
    run(async {
        let world = World::new().await;
        let (id, sealed, user) = ("KEYbob".into(), vec![1], "bob".into());
        let verb = cairn_fs::ops::credentials::AddAccessKey { id, sealed, user, replace: false };
        world.run(verb).await;
        let mut client = world.client().await;
        world.export_again(export("bucket", "bob")).await;
        assert_eq!(client.mount("/bucket").await, Err(ACCES), "bob may not look into it");
        let rights = cairn_auth::Rights::READ;
        let grant = Some(("bob".into(), rights));
        world.run(UpdateBucket { grant, ..update("bucket") }).await;
        let top = client.mount("/bucket").await.unwrap();
        assert!(client.getattr(&top).await.is_ok());
        assert_eq!(client.create(&top, "x").await, Err(ACCES));
        let grant = Some(("bob".into(), cairn_auth::Rights::NONE));
        world.run(UpdateBucket { grant, ..update("bucket") }).await;
        assert_eq!(client.getattr(&top).await, Err(ACCES));
    });
}

#[test]
fn clients_are_squashed() {
    run(async {
        let (world, mut client, top) = World::mounted().await;
        client.setattr(&top, Args::new().mode(Some(0o777)), None).await.unwrap();
        for (squash, uid, owner) in [
            (Squash::None, 0, 0),
            (Squash::Root, 0, 65_534),
            (Squash::Root, 7, 7),
            (Squash::All, 7, 65_534),
            (Squash::All, 0, 65_534),
        ] {
            let again = AddExport { squash, ..export("bucket", "alice") };
            world.export_again(again).await;
            client.uid = uid;
            let top = client.mount("/bucket").await.unwrap();
            let name = format!("{squash:?} {uid}");
            let file = client.create(&top, &name).await.unwrap();
            assert_eq!(client.getattr(&file).await.unwrap().uid, owner, "{name}");
        }
    });
}

#[test]
fn an_export_of_a_directory_reaches_nothing_beyond_it() {
    run(async {
        let world = World::new().await;
        let mut client = world.client().await;
        let whole = client.mount("/bucket").await.unwrap();
        let outside = client.mkdir(&whole, "outside").await.unwrap();
        let a = client.mkdir(&whole, "a").await.unwrap();
        let b = client.mkdir(&a, "b").await.unwrap();
        client.create(&a, "beside").await.unwrap();
        client.mkdir(&b, "deep").await.unwrap();
        world.unexport("bucket").await;
        let path =
            |path: &str| AddExportAt { export: export("bucket", "alice"), path: path.into() };
        for bad in ["", "a/", "/a", "a/../a", "a/./b", "none", "a/beside"] {
            assert!(world.try_run(path(bad)).await.is_err(), "{bad:?}");
        }
        world.run(path("a/b")).await;
        for not_there in ["/bucket", "/bucket/a", "/bucket/a/c", "/bucket/a/b/../..", "/a/b"] {
            assert!(client.mount(not_there).await.is_err(), "{not_there}");
        }
        let top = client.mount("/bucket/a/b").await.unwrap();
        let deep = client.mount("/bucket/a/b/deep").await.unwrap();
        assert_eq!(client.lookup(&top, "..").await.unwrap().0, top);
        assert_eq!(client.lookup(&deep, "..").await.unwrap().0, top);
        assert_eq!(client.lookup(&top, "deep").await.unwrap().0, deep);
        // Those of the former export open nothing.
        for former in [&whole, &outside, &a, &b] {
            assert_eq!(client.getattr(former).await, Err(STALE));
        }
        let file = client.create(&deep, "file").await.unwrap();
        assert_eq!(client.rename((&deep, "file"), (&a, "file")).await, Err(STALE));
        assert_eq!(client.link(&file, (&outside, "file")).await, Err(STALE));
        client.rename((&deep, "file"), (&top, "file")).await.unwrap();
        // A directory that others move out of it is beyond it from then on, with all below.
        let below = client.mkdir(&deep, "below").await.unwrap();
        world.rename("bucket", "a/b/deep", "outside/deep").await;
        for moved in [&deep, &below] {
            assert_eq!(client.getattr(moved).await, Err(STALE));
            assert_eq!(client.create(moved, "x").await, Err(STALE));
        }
        client.create(&top, "stays").await.unwrap();
    });
}
