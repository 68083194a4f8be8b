//! Files that a session has open although their last name is gone.

use cairn_base::SessionId;
use cairn_meta::ops::retain::{LetGo, LetGoAll, Retain};
use cairn_meta::ops::sessions::{EndSession, OpenRemoteSession};
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::rows::{BucketKind, SessionState};

use crate::harness::{SESSION, Store, fails};

const OTHER: SessionId = SessionId(SESSION.0 + 1);

#[test]
fn a_retained_file_outlives_its_name_until_it_is_let_go() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "f");
    assert!(store.run(Retain { ino, session: SESSION }).unwrap());
    assert!(!store.run(Retain { ino, session: SESSION }).unwrap());
    store.run(Unlink { parent: top, name: b"f".to_vec() }).unwrap();
    assert_eq!(store.inode(ino).unwrap().nlink, 1);
    assert!(store.run(LetGo { ino, session: SESSION }).unwrap());
    assert!(store.inode(ino).is_none());
    assert!(!store.run(LetGo { ino, session: SESSION }).unwrap());
}

#[test]
fn what_a_session_retained_goes_after_it() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let named = store.file(top, "stays");
    let inodes: Vec<_> = (0..150).map(|at| store.file(top, &format!("f{at}"))).collect();
    for ino in inodes.iter().chain([&named]) {
        store.run(Retain { ino: *ino, session: SESSION }).unwrap();
    }
    for at in 0..150 {
        store.run(Unlink { parent: top, name: format!("f{at}").into_bytes() }).unwrap();
    }
    fails(store.run(LetGoAll { session: SESSION }), "conflict");
    store.session(SessionState::Ended);
    fails(store.run(LetGo { ino: named, session: SESSION }), "unavailable");
    let mut steps = 1;
    while store.run(LetGoAll { session: SESSION }).unwrap() {
        steps += 1;
    }
    assert!(steps > 1, "in steps");
    assert!(inodes.iter().all(|ino| store.inode(*ino).is_none()));
    assert_eq!(store.inode(named).unwrap().nlink, 1);
}

#[test]
fn a_session_goes_on_for_its_owner_only() {
    let mut store = Store::new(3);
    store.run(OpenRemoteSession { session: OTHER, owner: 7 }).unwrap();
    store.run(OpenRemoteSession { session: OTHER, owner: 7 }).unwrap();
    // To anybody else it has ended, as has that of the process beside the master.
    fails(store.run(OpenRemoteSession { session: OTHER, owner: 8 }), "unavailable");
    fails(store.run(OpenRemoteSession { session: SESSION, owner: 7 }), "unavailable");
    store.run(EndSession { session: OTHER, reaped: false }).unwrap();
    fails(store.run(OpenRemoteSession { session: OTHER, owner: 7 }), "unavailable");
}
