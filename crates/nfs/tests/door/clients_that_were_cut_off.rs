//! A client that was stopped, or cut off from the store, writes afterwards what it had wanted to
//! write before. Version 3 has no openings and no leases, so a WRITE that comes late is a WRITE.
//! Here is what is refused all the same, what the client is told, and what nobody can refuse.

use cairn_nfs::Outcome;

use crate::client::{Args, Attributes, Client};
use crate::world::{World, export, run};

const STALE: u32 = 70;
const NOT_SYNC: u32 = 10_002;
const ROFS: u32 = 30;
const ACCES: u32 = 13;

const UNSTABLE: u32 = 0;
const STABLE: u32 = 2;

/// Writes, and returns the attributes from right before that, as the reply has them.
async fn write_over(client: &mut Client, file: &[u8], data: &[u8]) -> Option<(u64, (u32, u32))> {
    let args = Args::new().bytes(file).long(0).number(data.len() as u32);
    let (status, mut res) = client.nfs(7, args.number(STABLE).bytes(data)).await;
    assert_eq!(status, 0);
    res.before()
}

/// A file with a client that knows it, and another client.
async fn known(world: &World, name: &str) -> (Client, Client, Vec<u8>, Vec<u8>, Attributes) {
    let (mut one, mut other) = (world.client().await, world.client().await);
    let top = one.mount("/bucket").await.unwrap();
    other.mount("/bucket").await.unwrap();
    let file = one.create(&top, name).await.unwrap();
    one.write(&file, 0, b"former", STABLE).await.unwrap();
    let shown = one.getattr(&file).await.unwrap();
    (one, other, top, file, shown)
}

#[test]
fn a_file_that_was_replaced_is_not_written_to() {
    run(async {
        let world = World::new().await;
        let (one, mut other, top, file, _) = known(&world, "file").await;
        drop(one);
        let newer = other.create(&top, "newer").await.unwrap();
        other.write(&newer, 0, b"newer!", STABLE).await.unwrap();
        other.rename((&top, "newer"), (&top, "file")).await.unwrap();
        // The client is back.
        let mut one = world.client().await;
        for how in [UNSTABLE, STABLE] {
            assert_eq!(one.write(&file, 0, b"late", how).await, Err(STALE));
        }
        assert_eq!(one.setattr(&file, Args::new().size(0), None).await, Err(STALE));
        let (found, _) = other.lookup(&top, "file").await.unwrap();
        assert_eq!(found, newer);
        assert_eq!(other.read(&found, 0, 100).await.unwrap().0, b"newer!");
    });
}

/// What it had written was not committed, and so is held here for a while.
#[test]
fn a_file_that_was_replaced_while_its_bytes_were_held_is_another_one() {
    run(async {
        let world = World::new().await;
        let (mut one, mut other, top, file, _) = known(&world, "file").await;
        one.write(&file, 0, b"unstable", UNSTABLE).await.unwrap();
        drop(one);
        let newer = other.create(&top, "newer").await.unwrap();
        other.write(&newer, 0, b"newer!", STABLE).await.unwrap();
        other.rename((&top, "newer"), (&top, "file")).await.unwrap();
        let mut one = world.client().await;
        // It goes into the former file, which has no name any more.
        for how in [UNSTABLE, STABLE] {
            let late = one.write(&file, 0, b"late", how).await;
            assert!(late.is_ok() || late == Err(STALE), "{late:?}");
        }
        let (found, _) = other.lookup(&top, "file").await.unwrap();
        assert_eq!(found, newer);
        assert_eq!(other.read(&found, 0, 100).await.unwrap().0, b"newer!");
    });
}

#[test]
fn a_late_write_in_place_is_done_and_the_client_is_told_of_what_came_in_between() {
    run(async {
        let world = World::new().await;
        let (mut one, mut other, _, file, known) = known(&world, "file").await;
        other.write(&file, 0, b"between", STABLE).await.unwrap();
        let between = other.getattr(&file).await.unwrap();
        assert_ne!(between.times[2], known.times[2]);
        // Nobody can tell it from a client that has just decided to write this.
        let before = write_over(&mut one, &file, b"late").await;
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"lateeen");
        // These are not the attributes that the client knew: it drops what it kept of the file.
        if let Some((size, ctime)) = before {
            assert_eq!((size, ctime), (between.size, between.times[2]));
        }
        assert!(one.getattr(&file).await.unwrap().times[2] > between.times[2]);
    });
}

#[test]
fn a_change_that_names_the_state_it_is_for_is_refused() {
    run(async {
        let world = World::new().await;
        let (mut one, mut other, top, file, known) = known(&world, "file").await;
        other.write(&file, 0, b"between", STABLE).await.unwrap();
        let guard = Some(known.times[2]);
        assert_eq!(one.setattr(&file, Args::new().size(0), guard).await, Err(NOT_SYNC));
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"between");
        // Names that somebody else has made meanwhile are not taken.
        other.create(&top, "taken").await.unwrap();
        assert_eq!(one.create(&top, "taken").await, Err(17));
    });
}

/// The bytes were answered UNSTABLE, and others wrote at another door before the COMMIT.
#[test]
fn bytes_that_were_not_committed_do_not_overwrite_what_came_later_elsewhere() {
    run(async {
        let world = World::new().await;
        let (mut one, _, _, file, _) = known(&world, "file").await;
        let another = world.another_door().await;
        let mut elsewhere = another.client().await;
        let (_, verifier) = one.write(&file, 0, b"unstable", UNSTABLE).await.unwrap();
        drop(one);
        elsewhere.write(&file, 0, b"newer!", STABLE).await.unwrap();
        // The client is back.
        let mut one = world.client().await;
        assert_ne!(one.commit(&file).await.unwrap(), verifier, "it is told to look again");
        assert_eq!(elsewhere.read(&file, 0, 100).await.unwrap().0, b"newer!");
        another.stop().await;
    });
}

/// The only way to keep a client out for sure that was cut off: its export changes.
#[test]
fn an_export_that_was_taken_away_refuses_what_comes_late() {
    run(async {
        let world = World::new().await;
        let (mut one, mut other, _, file, _) = known(&world, "file").await;
        world.export_again(export("bucket", "alice")).await;
        assert_eq!(one.write(&file, 0, b"late", STABLE).await, Err(STALE), "mounted before");
        let mut shut = export("bucket", "alice");
        shut.clients = vec![cairn_auth::Network::parse("10.0.0.0/8").unwrap()];
        world.export_again(shut).await;
        assert_eq!(one.mount("/bucket").await, Err(ACCES));
        let mut read_only = export("bucket", "alice");
        read_only.read_only = true;
        world.export_again(read_only).await;
        let top = other.mount("/bucket").await.unwrap();
        let (file, _) = other.lookup(&top, "file").await.unwrap();
        assert_eq!(other.write(&file, 0, b"late", STABLE).await, Err(ROFS));
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"former");
        let refused = world.door.ran.lock().unwrap().iter().filter(|ran| ran.is_refused).count();
        assert!(refused > 0, "the audit has them");
        let late = world.door.ran.lock().unwrap().last().map(|ran| ran.outcome);
        assert_eq!(late, Some(Outcome::Refused));
    });
}
