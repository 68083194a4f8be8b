use std::sync::Arc;

use cairn_auth::{Caller, Posix, Rights};
use cairn_base::{Error, Ino};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::UpdateBucket;
use cairn_fs::ops::create::Create;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::setattr::Setattr;

use crate::world::{BUCKET, World, data, root, run};

async fn bucket(world: &World) -> Ino {
    let lookup = Lookup { parent: Ino::ROOT, name: BUCKET.into() };
    world.fs.read(&root(), lookup).await.unwrap().0
}

async fn file(world: &World, name: &str) -> Ino {
    let (parent, name) = (bucket(world).await, name.into());
    let create = Create { parent, name, mode: 0o640, umask: 0, exclusive: true };
    world.fs.run(&root(), create).await.unwrap().0
}

fn mode(ino: Ino, mode: u32) -> Setattr {
    Setattr { ino, mode: Some(mode), uid: None, gid: None, atime: None, mtime: None }
}

/// The mode that is told, and whether the reply is the one that was kept.
fn told(fs: &Fs, caller: &Caller, ino: Ino) -> (u32, bool) {
    let ask = || fs.read_kept_now(caller, &Getattr { ino }).unwrap().unwrap();
    let (one, other) = (ask(), ask());
    (other.0.mode, Arc::ptr_eq(&one, &other))
}

#[test]
fn a_reply_is_made_once_and_anew_when_its_inode_has_changed() {
    run(async {
        let world = World::new(1).await;
        let ino = file(&world, "a").await;
        let first = world.fs.read_kept(&root(), Getattr { ino }).await.unwrap();
        for round in 0..10 {
            // Others change, and the reply stays.
            world.put("other", &data(round, 100)).await.unwrap();
            let again = world.fs.read_kept_now(&root(), &Getattr { ino }).unwrap().unwrap();
            assert!(Arc::ptr_eq(&first, &again));
        }
        for round in 0..10 {
            world.fs.run(&root(), mode(ino, 0o600 + round)).await.unwrap();
            assert_eq!(told(&world.fs, &root(), ino), (0o600 + round, true));
        }
    });
}

#[test]
fn a_name_is_looked_up_anew_when_it_means_something_else() {
    run(async {
        let world = World::new(2).await;
        let parent = bucket(&world).await;
        let find = async || {
            let lookup = Lookup { parent, name: b"k".to_vec() };
            world.fs.read_kept(&root(), lookup).await.map(|found| found.0)
        };
        let mut former = None;
        for round in 0..10 {
            world.put("k", &data(round, 100)).await.unwrap();
            let found = world.fs.open(&root(), BUCKET, "k").await.unwrap().ino();
            assert_eq!(find().await.unwrap(), found);
            assert_eq!(find().await.unwrap(), found, "the kept one");
            assert_ne!(former.replace(found), Some(found), "a PUT makes another inode");
        }
        world.delete("k").await.unwrap();
        assert!(matches!(find().await, Err(Error::NotFound(_))));
    });
}

#[test]
fn nobody_is_given_the_reply_of_somebody_else() {
    run(async {
        let world = World::new(3).await;
        let mut alice = Caller::anonymous();
        for user in ["root", "alice"] {
            let (id, user) = (format!("KEY{user}"), user.to_owned());
            let key = AddAccessKey { id, sealed: vec![1], user, replace: false };
            alice = Caller::verified(world.fs.run(&Caller::system(), key).await.unwrap());
        }
        let grant = |rights| UpdateBucket {
            name: BUCKET.into(),
            grant: Some(("alice".into(), rights)),
            ..UpdateBucket::default()
        };
        let ino = file(&world, "a").await;
        let ask = |caller: &Caller| world.fs.read_kept_now(caller, &Getattr { ino }).unwrap();
        for _ in 0..3 {
            ask(&root()).unwrap();
            assert!(matches!(ask(&alice), Err(Error::Denied(_))));
            world.fs.run(&root(), grant(Rights::READ)).await.unwrap();
            ask(&alice).unwrap();
            ask(&alice).unwrap();
            world.fs.run(&root(), grant(Rights::NONE)).await.unwrap();
        }
    });
}

#[test]
fn each_identity_of_a_user_has_its_own() {
    run(async {
        let world = World::new(4).await;
        let parent = bucket(&world).await;
        world.fs.run(&root(), mode(parent, 0o750)).await.unwrap();
        file(&world, "a").await;
        let find = async |uid, groups: &[u32]| {
            let posix = Posix { uid, gid: 7, groups: groups.to_vec() };
            let lookup = Lookup { parent, name: b"a".to_vec() };
            world.fs.read_kept(&root().with_posix(posix), lookup).await.is_ok()
        };
        for _ in 0..3 {
            // The directory is root's, and of its group.
            assert!(find(0, &[]).await && find(9, &[0]).await);
            assert!(!find(9, &[]).await && !find(9, &[1]).await);
        }
    });
}
