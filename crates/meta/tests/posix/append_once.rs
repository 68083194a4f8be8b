//! Bytes that are appended for a request of a user are appended once.

use bytes::Bytes;
use cairn_base::{Ino, UserId};
use cairn_meta::ops::append::Append;
use cairn_meta::ops::append_once::{AppendOnce, AppendedOnce, KEPT_ALWAYS_NS};
use cairn_meta::ops::body::Data;
use cairn_meta::ops::for_call::{CallId, ForgetCalls, KEPT_NS, USER_KEPT_NS};
use cairn_meta::rows::{BucketKind, Calls, Row};

use crate::harness::{SESSION, Store};

const USER: UserId = UserId(7);

fn request(number: u16, set: u16) -> CallId {
    let mut checksum = [7; 16];
    checksum[..2].copy_from_slice(&set.to_be_bytes());
    checksum[2..4].copy_from_slice(&number.to_be_bytes());
    CallId::of_user(USER, checksum)
}

fn append(store: &mut Store, ino: Ino, call: CallId) -> AppendOnce {
    let data = Data::Inline(Bytes::from_static(b"a line\n"));
    let spare = store.next_body();
    AppendOnce {
        call,
        append: Append { ino, session: SESSION, opened: true, spare, chunk: 0, data },
    }
}

fn offset(appended: &AppendedOnce) -> (bool, u64) {
    match appended {
        AppendedOnce::Done(appended) => (true, appended.offset),
        AppendedOnce::Before(offset) => (false, *offset),
    }
}

#[test]
fn a_request_that_comes_again_appends_nothing() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "log");
    for number in 0..3 {
        let verb = append(&mut store, ino, request(number, 1));
        assert_eq!(offset(&store.run(verb).unwrap()), (true, u64::from(number) * 7));
    }
    for number in (0..3).rev() {
        let verb = append(&mut store, ino, request(number, 1));
        assert_eq!(offset(&store.run(verb).unwrap()), (false, u64::from(number) * 7));
    }
    let mut other = request(1, 1);
    other.client = CallId::of_user(UserId(8), other.checksum).client;
    let verb = append(&mut store, ino, other);
    assert_eq!(offset(&store.run(verb).unwrap()), (true, 21));
    assert_eq!(store.inode(ino).unwrap().size, 28);
}

#[test]
fn a_request_is_known_for_a_day() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "log");
    let verb = append(&mut store, ino, request(1, 1));
    store.run(verb).unwrap();
    store.now += 2 * KEPT_NS;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    store.now += USER_KEPT_NS - 3 * KEPT_NS;
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    let verb = append(&mut store, ino, request(1, 1));
    assert!(!offset(&store.run(verb).unwrap()).0);
    store.now += 2 * USER_KEPT_NS;
    let verb = append(&mut store, ino, request(1, 1));
    assert!(!offset(&store.run(verb).unwrap()).0, "the clock was set ahead");
    assert_eq!(store.run(ForgetCalls { after: None }).unwrap(), None);
    assert!(!store.rows.keys().any(|key| key[0] == b'a'));
    let verb = append(&mut store, ino, request(1, 1));
    assert!(offset(&store.run(verb).unwrap()).0);
}

#[test]
fn nothing_of_late_is_forgotten_for_others() {
    let mut store = Store::new(3);
    let top = store.bucket("bucket", BucketKind::Posix);
    let ino = store.file(top, "log");
    let most = Calls::USER_WAYS as u16;
    for number in 0..most {
        let verb = append(&mut store, ino, request(number, 1));
        assert!(offset(&store.run(verb).unwrap()).0);
    }
    let verb = append(&mut store, ino, request(most, 1));
    assert_eq!(store.run(verb).unwrap_err().kind(), "unavailable");
    let verb = append(&mut store, ino, request(0, 1));
    assert!(!offset(&store.run(verb).unwrap()).0);
    let verb = append(&mut store, ino, request(most, 2));
    assert!(offset(&store.run(verb).unwrap()).0, "another set");
    let now = store.now;
    store.now -= USER_KEPT_NS;
    let verb = append(&mut store, ino, request(most + 1, 1));
    assert!(offset(&store.run(verb).unwrap()).0, "the clock was set back");
    store.now = now + KEPT_ALWAYS_NS;
    let verb = append(&mut store, ino, request(most, 1));
    assert!(offset(&store.run(verb).unwrap()).0);
    let row = store.rows.iter().find(|(key, _)| key[0] == b'a').unwrap().1;
    assert_eq!(Calls::decode(row).unwrap().done.len(), usize::from(most));
}
