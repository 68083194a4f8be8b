//! Locks of sessions.

use cairn_auth::{Caller, Posix};
use cairn_base::{Ino, SessionId};
use cairn_meta::keys;
use cairn_meta::ops::lock::{ReleaseAll, ReleaseLock, TakeLock, TestLock};
use cairn_meta::ops::sessions::{EndSession, OpenSession};
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::rows::{BucketKind, Lock, Space};

use crate::harness::{OWNER, SESSION, Store, fails};

const OTHER: SessionId = SessionId(SESSION.0 + 1);

fn lock(session: SessionId, exclusive: bool, start: u64, last: u64) -> Lock {
    Lock { session, owner: 1, pid: 9, exclusive, start, last, space: Space::Fcntl }
}

fn store() -> (Store, Ino, Ino) {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    store.run(OpenSession { session: OTHER }).unwrap();
    (store, top, ino)
}

/// No row says anything of locks.
fn is_clean(store: &Store) -> bool {
    store.rows.keys().all(|key| keys::locks_of(key).is_none() && keys::locked_parts(key).is_none())
}

#[test]
fn who_is_in_the_way_is_told() {
    let (mut store, _, ino) = store();
    let held = lock(SESSION, true, 10, 19);
    assert_eq!(store.run(TakeLock { ino, lock: held }).unwrap(), None);
    let wanted = lock(OTHER, false, 0, 10);
    assert_eq!(store.run(TestLock { ino, lock: wanted }).unwrap(), Some(held));
    assert_eq!(store.run(TakeLock { ino, lock: wanted }).unwrap(), Some(held));
    let beside = lock(OTHER, true, 20, u64::MAX);
    assert_eq!(store.run(TakeLock { ino, lock: beside }).unwrap(), None);
    // By flock(2) it is another lock.
    let flock = Lock { space: Space::Flock, ..lock(OTHER, true, 0, u64::MAX) };
    assert_eq!(store.run(TakeLock { ino, lock: flock }).unwrap(), None);
    // Shared ones go together, and the holder may change its own.
    let shared = lock(SESSION, false, 10, 19);
    assert_eq!(store.run(TakeLock { ino, lock: shared }).unwrap(), None);
    assert_eq!(store.run(TakeLock { ino, lock: wanted }).unwrap(), None);
    assert_eq!(store.run(TakeLock { ino, lock: held }).unwrap(), Some(wanted));
    for session in [SESSION, OTHER] {
        let lock = Lock { space: Space::Both, ..lock(session, false, 0, u64::MAX) };
        store.run(ReleaseLock { ino, lock }).unwrap();
    }
    assert!(is_clean(&store));
}

#[test]
fn the_locks_of_a_session_end_with_it() {
    let (mut store, top, ino) = store();
    let inodes: Vec<_> = (0..100).map(|at| store.file(top, &format!("f{at}"))).collect();
    for ino in inodes.iter().chain([&ino]) {
        let lock = lock(OTHER, true, 0, u64::MAX);
        assert_eq!(store.run(TakeLock { ino: *ino, lock }).unwrap(), None);
    }
    fails(store.run(ReleaseAll { session: OTHER }), "conflict");
    store.run(EndSession { session: OTHER, reaped: false }).unwrap();
    fails(store.run(TakeLock { ino, lock: lock(OTHER, true, 0, 0) }), "unavailable");
    // At once, although its rows are there.
    let mine = lock(SESSION, true, 0, 0);
    assert_eq!(store.run(TakeLock { ino, lock: mine }).unwrap(), None);
    store.run(Unlink { parent: top, name: b"f0".to_vec() }).unwrap();
    let mut steps = 1;
    while store.run(ReleaseAll { session: OTHER }).unwrap() {
        steps += 1;
    }
    assert!(steps > 1, "in steps");
    assert_eq!(store.run(TestLock { ino, lock: lock(OTHER, true, 0, 0) }).unwrap(), Some(mine));
    store.run(ReleaseLock { ino, lock: mine }).unwrap();
    assert!(is_clean(&store));
}

#[test]
fn a_lock_needs_the_right_to_do_what_it_holds_up() {
    let (mut store, top, ino) = store();
    store.caller = Caller::anonymous().with_posix(Posix { uid: 1, gid: 1, groups: Vec::new() });
    fails(store.run(TakeLock { ino, lock: lock(SESSION, false, 0, 0) }), "denied");
    store.caller = Caller::verified(OWNER);
    assert_eq!(store.run(TakeLock { ino, lock: lock(SESSION, true, 0, 0) }).unwrap(), None);
    fails(store.run(TakeLock { ino, lock: lock(SESSION, true, 1, 0) }), "invalid");
    fails(store.run(TakeLock { ino: top, lock: lock(SESSION, true, 0, 0) }), "invalid");
    // The root is in no bucket, and everybody may read it.
    fails(store.run(TakeLock { ino: Ino::ROOT, lock: lock(SESSION, false, 0, 0) }), "invalid");
    fails(store.run(TakeLock { ino: Ino::ROOT, lock: lock(SESSION, true, 0, 0) }), "denied");
    fails(store.run(TestLock { ino: Ino::ROOT, lock: lock(SESSION, false, 0, 0) }), "invalid");
    assert!(store.rows.keys().all(|key| keys::locks_of(key) != Some(Ino::ROOT)));
    let gone = Ino(ino.0 + 1000);
    fails(store.run(TakeLock { ino: gone, lock: lock(SESSION, true, 0, 0) }), "not_found");
}

#[test]
fn a_file_has_so_many_locks_and_no_more() {
    let (mut store, _, ino) = store();
    let take = |at: u64| TakeLock { ino, lock: lock(SESSION, true, 2 * at, 2 * at) };
    for at in 0..1024 {
        assert_eq!(store.run(take(at)).unwrap(), None);
    }
    fails(store.run(take(1024)), "too_large");
    store.run(ReleaseLock { ino, lock: lock(SESSION, true, 0, 0) }).unwrap();
    assert_eq!(store.run(take(1024)).unwrap(), None);
}
