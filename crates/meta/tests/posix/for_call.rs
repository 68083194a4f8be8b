//! An operation for a call of a client is done once.

use cairn_base::{Error, Ino};
use cairn_meta::ops::for_call::{
    CallId, FindCall, ForCall, ForgetCalls, KEPT_NS, Once, SettleCall, SettleOutcome,
};
use cairn_meta::ops::mkdir::Mkdir;
use cairn_meta::ops::setattr::Setattr;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::rows::{BucketKind, Calls};

use crate::harness::Store;

fn call(number: u16, step: u8) -> CallId {
    let [first, second] = number.to_be_bytes();
    let mut checksum = [7; 16];
    (checksum[0], checksum[1]) = (first, second);
    CallId { client: [1; 16], checksum, step }
}

fn mkdir(parent: Ino, name: &str) -> Mkdir {
    Mkdir { parent, name: name.as_bytes().to_vec(), mode: 0o755, umask: 0 }
}

fn rows(store: &Store) -> usize {
    store.rows.keys().filter(|key| key[0] == b'a').count()
}

#[test]
fn a_step_is_done_once_and_no_step_after_a_later_one() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let make = |number| ForCall { call: call(number, 0), verb: mkdir(top, "made") };
    let Once::Done((made, _)) = store.run(make(5)).unwrap() else { panic!("done before") };
    let Once::Before(before) = store.run(make(5)).unwrap() else { panic!("done again") };
    assert_eq!(before, made);
    assert!(matches!(store.run(make(6)), Err(Error::Exists(_))), "another call");
    let set = |mode| {
        let verb = Setattr { ino: made, mode: Some(mode), ..Setattr::default() };
        ForCall { call: call(5, 2), verb }
    };
    assert!(!store.run(FindCall { call: call(5, 1) }).unwrap());
    assert!(matches!(store.run(set(0o700)).unwrap(), Once::Done(_)));
    assert!(store.run(FindCall { call: call(5, 1) }).unwrap());
    assert!(matches!(store.run(set(0o711)).unwrap(), Once::Before(ino) if ino == made));
    assert_eq!(store.inode(made).unwrap().mode, 0o700);
    assert!(matches!(store.run(make(5)).unwrap(), Once::Before(ino) if ino == made));
    // Of another client it is another call.
    let other = CallId { client: [2; 16], ..call(5, 0) };
    let again = store.run(ForCall { call: other, verb: mkdir(top, "made") });
    assert!(matches!(again, Err(Error::Exists(_))));
    assert_eq!(rows(&store), 1, "what fails leaves nothing");
}

fn settle(call: CallId, status: u32, found: u64) -> SettleCall {
    SettleCall { call, status, found: Ino(found) }
}

#[test]
fn a_call_that_was_refused_is_not_done_later() {
    let mut store = Store::new(5);
    let top = store.bucket("bucket", BucketKind::Posix);
    let make = |number| ForCall { call: call(number, 0), verb: mkdir(top, "made") };
    assert_eq!(store.run(settle(call(1, 0), 17, 0)).unwrap(), SettleOutcome::Kept);
    assert!(matches!(store.run(make(1)), Err(Error::PreconditionFailed(_))));
    assert!(!store.run(FindCall { call: call(1, 0) }).unwrap());
    // The first refusal counts, and is no success either.
    for status in [0, 2, 17] {
        assert_eq!(store.run(settle(call(1, 0), status, 7)).unwrap(), SettleOutcome::Refused(17));
    }
    // As long as it would be known that it was done.
    store.now += KEPT_NS - 1_000;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    assert!(matches!(store.run(make(1)), Err(Error::PreconditionFailed(_))));
    store.now += 2_000;
    assert!(matches!(store.run(make(1)).unwrap(), Once::Done(_)));
}

#[test]
fn a_call_that_was_done_meanwhile_is_not_refused() {
    let mut store = Store::new(6);
    let top = store.bucket("bucket", BucketKind::Posix);
    let make = ForCall { call: call(1, 0), verb: mkdir(top, "made") };
    let Once::Done((made, _)) = store.run(make.clone()).unwrap() else { panic!("done before") };
    assert_eq!(store.run(settle(call(1, 0), 17, 0)).unwrap(), SettleOutcome::Done);
    assert!(matches!(store.run(make.clone()).unwrap(), Once::Before(ino) if ino == made));
    // The step after it was refused to somebody that has seen it done.
    assert_eq!(store.run(settle(call(1, 1), 28, 0)).unwrap(), SettleOutcome::Kept);
    assert_eq!(store.run(settle(call(1, 0), 17, 0)).unwrap(), SettleOutcome::Refused(28));
    let verb = Setattr { ino: made, mode: Some(0o700), ..Setattr::default() };
    let set = store.run(ForCall { call: call(1, 2), verb });
    assert!(matches!(set, Err(Error::PreconditionFailed(_))));
}

#[test]
fn a_call_that_had_nothing_to_do_does_nothing_later() {
    let mut store = Store::new(7);
    let top = store.bucket("bucket", BucketKind::Posix);
    let found = store.file(top, "file");
    assert_eq!(store.run(settle(call(1, 0), 0, found.0)).unwrap(), SettleOutcome::Kept);
    let make = ForCall { call: call(1, 0), verb: mkdir(top, "made") };
    assert!(matches!(store.run(make).unwrap(), Once::Before(ino) if ino == found));
}

#[test]
fn a_call_is_kept_for_a_while_and_then_forgotten() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    store.file(top, "file");
    let remove =
        || ForCall { call: call(9, 0), verb: Unlink { parent: top, name: b"file".to_vec() } };
    assert!(matches!(store.run(remove()).unwrap(), Once::Done(_)));
    store.now += KEPT_NS - 1_000;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    assert!(matches!(store.run(remove()).unwrap(), Once::Before(_)));
    store.now += 2_000;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    assert_eq!(rows(&store), 0);
    assert!(matches!(store.run(remove()), Err(Error::NotFound(_))));
}

/// Also where nobody has collected garbage since.
#[test]
fn a_call_of_long_ago_is_not_taken_for_done() {
    let mut store = Store::new(4);
    let top = store.bucket("bucket", BucketKind::Posix);
    let make = || ForCall { call: call(9, 0), verb: mkdir(top, "made") };
    assert!(matches!(store.run(make()).unwrap(), Once::Done(_)));
    let done = store.now;
    store.now = done + KEPT_NS - 1_000;
    assert!(matches!(store.run(make()).unwrap(), Once::Before(_)));
    assert!(store.run(FindCall { call: call(9, 0) }).unwrap());
    // Time goes on a little with each operation.
    store.now = done + KEPT_NS;
    assert!(!store.run(FindCall { call: call(9, 0) }).unwrap());
    assert!(matches!(store.run(make()), Err(Error::Exists(_))), "it is done anew");
    assert_eq!(rows(&store), 1, "nobody has forgotten it");
}

#[test]
fn what_is_kept_of_a_client_is_bounded_and_forgotten_page_by_page() {
    let mut store = Store::new(3);
    store.forgetful = false;
    let top = store.bucket("bucket", BucketKind::Posix);
    let ways = Calls::WAYS as u16;
    for number in 0..3 * ways {
        // All of one set.
        let mut call = call(number % 16 * Calls::SETS, 0);
        call.checksum[2] = number as u8;
        store.run(ForCall { call, verb: mkdir(top, &format!("same-{number}")) }).unwrap();
    }
    assert_eq!(rows(&store), 1);
    let row = store.rows.iter().find(|(key, _)| key[0] == b'a').unwrap().1.clone();
    assert!(row.len() < 400, "{} bytes", row.len());
    for number in 0..1200 {
        let verb = mkdir(top, &format!("{number}"));
        store.run(ForCall { call: call(number, 0), verb }).unwrap();
    }
    assert_eq!(rows(&store), 1200);
    store.now += 2 * KEPT_NS;
    let (mut after, mut pages) = (None, 0);
    loop {
        after = store.run(ForgetCalls { after }).unwrap();
        pages += 1;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((rows(&store), pages), (0, 3));
}

/// A call that may have been in it is neither reported as not executed, nor as refused.
#[test]
fn what_was_in_a_damaged_row_is_not_known_until_none_of_it_comes_again() {
    let mut store = Store::new(8);
    let top = store.bucket("bucket", BucketKind::Posix);
    let make = |number| ForCall { call: call(number, 0), verb: mkdir(top, "made") };
    store.run(make(1)).unwrap();
    let key = store.rows.keys().find(|key| key[0] == b'a').unwrap().clone();
    store.rows.insert(key, vec![1, 1, 200].into());
    let unknown = |store: &mut Store| {
        let failed = [
            store.run(make(1)).unwrap_err(),
            store.run(FindCall { call: call(1, 0) }).unwrap_err(),
            store.run(settle(call(1, 0), 2, 0)).unwrap_err(),
        ];
        assert!(failed.iter().all(|error| error.kind() == "corrupt"), "{failed:?}");
    };
    unknown(&mut store);
    // It may have been damaged a moment ago.
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    unknown(&mut store);
    store.now += KEPT_NS - 1_000;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    unknown(&mut store);
    store.now += 2_000;
    assert!(matches!(store.run(make(1)), Err(Error::Exists(_))), "it is taken for a new call");
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    assert_eq!(rows(&store), 0);
}
