//! A call that comes twice acts once, on whatever connection, and at whatever door.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_fs::ops::for_call::ForgetCalls;
use cairn_meta::engine::CommitFault;
use cairn_meta::keys;
use cairn_meta::rows::Calls;

use crate::client::{Args, NFS, Res, call};
use crate::world::{PutRow, World, run};

const NOENT: u32 = 2;
const EXIST: u32 = 17;

#[test]
fn a_call_that_comes_twice_acts_once() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let mut other = world.client().await;
        one.create(&top, "file").await.unwrap();
        let name = |name: &str| Args::new().bytes(&top).bytes(name.as_bytes());
        let moved = {
            let mut both = name("file");
            both.0.extend(name("moved").0);
            both
        };
        let created = name("new").number(1).mode(Some(0o600));
        for (procedure, args, again) in [
            (14, moved, NOENT),
            (12, name("moved"), NOENT),
            (8, created, EXIST),
            (9, name("directory").mode(None), EXIST),
            (13, name("directory"), NOENT),
        ] {
            let bytes = call(1000 + procedure, (NFS, 3, procedure), (0, 0), &args);
            for turn in 0..3 {
                let client = if turn == 1 { &mut other } else { &mut one };
                let mut res = client.ask(&bytes).await;
                assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 0], "{procedure}");
            }
            // Another call with the same arguments is another call, also with the same number.
            let (status, _) = one.nfs(procedure, args.clone()).await;
            assert_eq!(status, again, "{procedure}");
            let same = call(1000 + procedure, (NFS, 3, procedure), (0, 7), &args);
            let mut res = other.ask(&same).await;
            assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, again], "{procedure}");
        }
    });
}

/// What comes behind the xid of a reply that says that all went well.
fn fine(mut res: Res, what: &str) -> Res {
    assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 0], "{what}");
    res
}

fn both(one: &Args, other: &Args) -> Args {
    Args([&one.0[..], &other.0[..]].concat())
}

/// As after a crash, or a fail-over: the other door has never heard of the call.
#[test]
fn a_call_that_comes_again_to_another_door_acts_once() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let file = one.create(&top, "file").await.unwrap();
        let name = |name: &str| Args::new().bytes(&top).bytes(name.as_bytes());
        let made = [
            (8, "guarded", Args::new().number(1).mode(Some(0o600))),
            (8, "once", Args::new().number(2).long(77)),
            (8, "cut", Args::new().number(0).size(5)),
            (9, "directory", Args::new().mode(Some(0o700))),
            (10, "symlink", Args::new().mode(None).bytes(b"target")),
            (11, "fifo", Args::new().number(7).mode(Some(0o600))),
        ];
        for (procedure, called, rest) in made {
            let bytes = call(500, (NFS, 3, procedure), (0, 0), &both(&name(called), &rest));
            let mut handles = Vec::new();
            for client in [&mut one, &mut other] {
                let mut res = fine(client.ask(&bytes).await, called);
                assert_eq!(res.number(), 1, "{called}: a handle");
                handles.push(res.bytes());
            }
            assert_eq!(handles[0], handles[1], "{called}");
        }
        let link = Args::new().bytes(&file).bytes(&top).bytes(b"link");
        let link = call(501, (NFS, 3, 15), (0, 0), &link);
        for client in [&mut one, &mut other] {
            assert_eq!(fine(client.ask(&link).await, "link").after().unwrap().nlink, 2);
        }
        let (_, shown) = other.lookup(&top, "cut").await.unwrap();
        assert_eq!(shown.size, 5);
        another.stop().await;
    });
}

/// What others did in between stays.
#[test]
fn a_call_that_comes_again_later_undoes_nothing() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let name = |name: &str| Args::new().bytes(&top).bytes(name.as_bytes());
        for file in ["removed", "moved", "cut"] {
            one.create(&top, file).await.unwrap();
        }
        one.mkdir(&top, "directory").await.unwrap();
        let moved = both(&name("moved"), &name("elsewhere"));
        let cut = both(&name("cut"), &Args::new().number(0).size(0));
        let calls = [(12, name("removed")), (14, moved), (13, name("directory")), (8, cut)];
        let calls = calls.map(|(of, args)| call(600 + of, (NFS, 3, of), (0, 0), &args));
        for call in &calls {
            fine(one.ask(call).await, "first");
        }
        let new = both(&name("new"), &Args::new().number(0).size(0));
        let new = call(700, (NFS, 3, 8), (0, 0), &new);
        fine(one.ask(&new).await, "first");
        for file in ["removed", "moved"] {
            one.create(&top, file).await.unwrap();
        }
        one.mkdir(&top, "directory").await.unwrap();
        let (cut, _) = one.lookup(&top, "cut").await.unwrap();
        one.write(&cut, 0, b"written since", 2).await.unwrap();
        let (file, _) = one.lookup(&top, "new").await.unwrap();
        one.write(&file, 0, b"written since", 2).await.unwrap();
        for call in calls.iter().chain([&new]) {
            fine(other.ask(call).await, "again");
        }
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"written since");
        for kept in ["removed", "moved", "elsewhere", "directory"] {
            other.lookup(&top, kept).await.unwrap();
        }
        assert_eq!(other.read(&cut, 0, 100).await.unwrap().0, b"written since");
        // Calls that were done of late are not forgotten.
        world.system(ForgetCalls { after: None }).await;
        fine(other.ask(&calls[0]).await, "once more");
        another.stop().await;
    });
}

/// What is told to try later takes another number, and finds done what it has asked for.
#[test]
fn a_call_of_which_nothing_is_known_is_attempted_until_it_is() {
    /// Attempts that come to nothing: more than are made at once.
    const ATTEMPTS: u64 = 7;
    run(async {
        let (world, mut client, top) = World::mounted().await;
        client.create(&top, "file").await.unwrap();
        let args = Args::new().bytes(&top).bytes(b"file");
        let remove = call(800, (NFS, 3, 12), (0, 0), &args);
        for attempt in 0..ATTEMPTS {
            world.rows.memory.fail_commit(attempt, CommitFault::Failed);
        }
        for _ in 0..2 {
            fine(client.ask(&remove).await, "once and again");
        }
        assert_eq!(client.lookup(&top, "file").await, Err(NOENT));
    });
}

/// The status of a reply.
fn status(mut res: Res) -> u32 {
    assert_eq!([(); 5].map(|()| res.number()), [1, 0, 0, 0, 0]);
    res.number()
}

/// A call is refused at one door, and a copy of it comes to another one when it could act.
#[test]
fn a_call_that_was_refused_does_not_act_later_at_another_door() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        one.create(&top, "there").await.unwrap();
        one.mkdir(&top, "full").await.unwrap();
        let full = one.lookup(&top, "full").await.unwrap().0;
        one.create(&full, "file").await.unwrap();
        let name = |name: &str| Args::new().bytes(&top).bytes(name.as_bytes());
        let calls = [
            (12, name("absent"), NOENT),
            (13, name("full"), 66),
            (14, both(&name("absent"), &name("moved")), NOENT),
            (8, both(&name("there"), &Args::new().number(1).mode(Some(0o600))), EXIST),
            (9, name("there").mode(None), EXIST),
            (
                2,
                both(&Args::new().bytes(&full).mode(Some(0o700)), &Args::new().number(1).long(7)),
                10_002,
            ),
        ];
        let calls = calls
            .map(|(of, args, expected)| (call(900 + of, (NFS, 3, of), (0, 0), &args), expected));
        for (call, expected) in &calls {
            assert_eq!(status(other.ask(call).await), *expected, "refused");
        }
        one.remove(12, &full, "file").await.unwrap();
        one.remove(12, &top, "there").await.unwrap();
        one.create(&top, "absent").await.unwrap();
        for (call, expected) in &calls {
            assert_eq!(status(one.ask(call).await), *expected, "as before");
        }
        one.lookup(&top, "absent").await.unwrap();
        one.lookup(&top, "full").await.unwrap();
        for gone in ["there", "moved"] {
            assert_eq!(one.lookup(&top, gone).await, Err(NOENT));
        }
        another.stop().await;
    });
}

/// It was there when the call was answered.
#[test]
fn a_file_that_was_found_is_not_made_later_at_another_door() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        one.create(&top, "file").await.unwrap();
        let args = Args::new().bytes(&top).bytes(b"file").number(0).mode(None);
        let found = call(950, (NFS, 3, 8), (0, 0), &args);
        fine(other.ask(&found).await, "found");
        fine(one.ask(&found).await, "found here, too");
        one.remove(12, &top, "file").await.unwrap();
        let third = world.another_door().await;
        let mut client = third.client().await;
        assert_eq!(status(client.ask(&found).await), NOENT, "it is gone");
        assert_eq!(one.lookup(&top, "file").await, Err(NOENT));
        another.stop().await;
        third.stop().await;
    });
}

#[test]
fn a_guard_that_the_call_itself_has_broken_does_not_refuse_it() {
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let file = one.create(&top, "file").await.unwrap();
        let (secs, nanos) = one.getattr(&file).await.unwrap().times[2];
        let guard = Args::new().number(1).number(secs).number(nanos);
        let args = both(&both(&Args::new().bytes(&file), &Args::new().mode(Some(0o600))), &guard);
        let bytes = call(700, (NFS, 3, 2), (0, 0), &args);
        fine(one.ask(&bytes).await, "first");
        fine(other.ask(&bytes).await, "again");
        let same = call(701, (NFS, 3, 2), (0, 0), &args);
        let mut res = other.ask(&same).await;
        assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, 10_002], "another call");
        another.stop().await;
    });
}

/// Nobody knows whether the call was done: it fails at once, at all doors, and does nothing.
#[test]
fn a_call_of_a_damaged_row_fails() {
    const IO: u32 = 5;
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        one.create(&top, "file").await.unwrap();
        let mut client = [0; 16];
        client[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        let args = Args::new().bytes(&top).bytes(b"file");
        let missing = Args::new().bytes(&top).bytes(b"missing");
        let calls = [(12, &args), (12, &missing), (13, &missing)];
        let calls = calls.map(|(of, args)| call(900 + of, (NFS, 3, of), (0, 0), args));
        for call in &calls {
            let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, call);
            let set = u16::from_be_bytes([sum.as_ref()[0], sum.as_ref()[1]]) % Calls::SETS;
            let (row, damaged) = (keys::calls(client, set), Bytes::from_static(&[1, 1, 200]));
            world.system(PutRow(row, damaged)).await;
        }
        for call in &calls {
            for client in [&mut one, &mut other] {
                let mut res = client.ask(call).await;
                assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, IO]);
                world.system(ForgetCalls { after: None }).await;
            }
        }
        one.remove(12, &top, "file").await.expect("another call, of another row");
        another.stop().await;
    });
}

/// What is refused for want of space is refused for good, and what makes space is done.
#[test]
fn a_full_store_refuses_calls_for_good() {
    const NOSPC: u32 = 28;
    run(async {
        let (world, mut one, top) = World::mounted().await;
        let another = world.another_door().await;
        let mut other = another.client().await;
        let file = one.create(&top, "file").await.unwrap();
        world.rows.is_low.store(true, Ordering::SeqCst);
        let args = Args::new().bytes(&top).bytes(b"new").number(1).mode(Some(0o600));
        let create = call(800, (NFS, 3, 8), (0, 0), &args);
        let mut res = one.ask(&create).await;
        assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, NOSPC]);
        assert_eq!(one.write(&file, 0, b"bytes", 2).await, Err(NOSPC));
        let (_, verifier) = one.write(&file, 0, b"bytes", 0).await.unwrap();
        assert_eq!(one.commit(&file).await, Err(NOSPC));
        assert_eq!(other.mkdir(&top, "directory").await, Err(NOSPC));
        assert_eq!(one.rename((&top, "file"), (&top, "moved")).await, Err(NOSPC));
        world.rows.is_low.store(false, Ordering::SeqCst);
        assert_eq!(one.commit(&file).await, Ok(verifier), "nothing was dropped");
        assert_eq!(other.read(&file, 0, 100).await.unwrap().0, b"bytes");
        // Sent once more, it gets the same answer, and acts nowhere.
        let mut res = other.ask(&create).await;
        assert_eq!([(); 6].map(|()| res.number()), [1, 0, 0, 0, 0, NOSPC]);
        assert_eq!(other.lookup(&top, "new").await.unwrap_err(), NOENT);
        world.rows.is_low.store(true, Ordering::SeqCst);
        one.remove(12, &top, "file").await.unwrap();
        another.stop().await;
    });
}
