//! Kept rows are recalled before a change is acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_meta::keys;
use cairn_meta::ops::open_object::OpenObject;
use cairn_meta::session::client::Client;

use crate::net::{LEASE, Net, bucket, caller, get, is_made, make, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_object_takes_no_call_and_is_never_stale() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, _) = net.client(2).await;
    for number in 1..50 {
        put(&writer, "dir/key", number).await.unwrap();
        assert_eq!(get(&reader, "dir/key").await.unwrap(), number);
        let calls = reader.stats().calls;
        for _ in 0..10 {
            assert_eq!(get(&reader, "dir/key").await.unwrap(), number);
        }
        assert_eq!(reader.stats().calls, calls);
        assert_eq!(get(&writer, "dir/key").await.unwrap(), number);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absence_is_leased_too() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, _) = net.client(2).await;
    assert_eq!(get(&reader, "a/b").await.unwrap(), 0);
    let calls = reader.stats().calls;
    assert_eq!(get(&reader, "a/b").await.unwrap(), 0);
    assert_eq!(reader.stats().calls, calls);
    put(&writer, "a/b", 7).await.unwrap();
    assert_eq!(get(&reader, "a/b").await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_cannot_be_reached_delays_a_write_by_its_lease_at_most() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, cut) = net.client(2).await;
    put(&writer, "key", 1).await.unwrap();
    assert_eq!(get(&reader, "key").await.unwrap(), 1);
    // On a machine that is busy anything may take as long as a lease: not each time.
    for number in 2.. {
        let holds = || net.sessions().list().iter().any(|(known, ..)| *known == reader.session());
        cut.silent.store(true, Ordering::SeqCst);
        // A row that nobody holds is not held up.
        put(&writer, "other", number).await.unwrap();
        let unhindered = holds();
        put(&writer, "key", number).await.unwrap();
        assert!(!holds(), "it could still show what was");
        cut.silent.store(false, Ordering::SeqCst);
        assert_eq!(get(&reader, "key").await.unwrap(), number);
        if unhindered {
            return;
        }
        assert!(number < 20, "a write waits for a session that does not hold what it changes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_a_recall_that_is_late() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, cut) = net.client(2).await;
    let (third, _) = net.client(3).await;
    put(&writer, "key", 1).await.unwrap();
    assert_eq!(get(&reader, "key").await.unwrap(), 1);
    cut.no_recalls.store(true, Ordering::SeqCst);
    let write = tokio::spawn({
        let writer = writer.clone();
        async move { put(&writer, "key", 2).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Nobody sees the new number before the old one is gone everywhere.
    assert_eq!(get(&third, "key").await.unwrap(), 1);
    assert_eq!(get(&reader, "key").await.unwrap(), 1);
    assert!(!write.is_finished());
    cut.no_recalls.store(false, Ordering::SeqCst);
    write.await.unwrap().unwrap();
    for client in [&third, &reader] {
        assert_eq!(get(client, "key").await.unwrap(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_keeps_what_it_read_hears_when_its_own_change_is_over() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, cut) = net.client(2).await;
    bucket(&writer).await.unwrap();
    assert!(!is_made(&reader, 1).await.unwrap());
    let heard = Arc::new(AtomicU64::new(0));
    let hears = Arc::clone(&heard);
    writer.set_on_forget(Box::new(move |_| {
        hears.fetch_add(1, Ordering::SeqCst);
    }));
    cut.no_recalls.store(true, Ordering::SeqCst);
    let change = tokio::spawn({
        let writer = writer.clone();
        async move { make(&writer, 1).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!is_made(&writer, 1).await.unwrap());
    let before = heard.load(Ordering::SeqCst);
    assert!(!change.is_finished());
    cut.no_recalls.store(false, Ordering::SeqCst);
    change.await.unwrap().unwrap();
    assert!(heard.load(Ordering::SeqCst) > before, "it would keep what is not true any more");
}

/// A session has died, and a row that it holds is changed: others read what it was meanwhile, all
/// rows of a change alike, and do not keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_waits_for_a_dead_session_keeps_no_reader_waiting() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (dead, cut) = net.client(2).await;
    let (third, _) = net.client(3).await;
    put(&writer, "key", 1).await.unwrap();
    assert_eq!(get(&dead, "key").await.unwrap(), 1);
    assert_eq!(get(&dead, "absent").await.unwrap(), 0);
    cut.no_recalls.store(true, Ordering::SeqCst);
    let writes = tokio::spawn({
        let writer = writer.clone();
        async move {
            let (first, second) = tokio::join!(put(&writer, "key", 2), put(&writer, "absent", 3));
            first.and(second).unwrap();
            put(&writer, "key", 4).await.unwrap();
        }
    });
    tokio::time::sleep(LEASE / 4).await;
    assert_eq!(get(&third, "key").await.unwrap(), 1);
    assert_eq!(get(&third, "absent").await.unwrap(), 0);
    assert_eq!(get(&third, "key").await.unwrap(), 1);
    assert!(!writes.is_finished());
    cut.silent.store(true, Ordering::SeqCst);
    writes.await.unwrap();
    assert_eq!(get(&third, "key").await.unwrap(), 4);
    assert_eq!(get(&third, "absent").await.unwrap(), 3);
}

/// The end of the writer's session waits for its change, which waits for the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lapses_although_the_end_of_another_waits_for_it() {
    let net = Net::new().await;
    let (writer, writer_cut) = net.client(1).await;
    let (reader, reader_cut) = net.client(2).await;
    let (third, _) = net.client(3).await;
    put(&writer, "key", 1).await.unwrap();
    assert_eq!(get(&reader, "key").await.unwrap(), 1);
    reader_cut.no_recalls.store(true, Ordering::SeqCst);
    tokio::spawn(async move { put(&writer, "key", 2).await });
    tokio::time::sleep(LEASE / 4).await;
    writer_cut.silent.store(true, Ordering::SeqCst);
    tokio::time::sleep(LEASE * 2).await;
    reader_cut.silent.store(true, Ordering::SeqCst);
    let written = tokio::time::timeout(LEASE * 100, put(&third, "key", 3)).await;
    written.expect("the key is not deaf").unwrap();
    assert_eq!(get(&third, "key").await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_watch_a_row_hear_of_changes_from_anywhere() {
    let net = Net::new().await;
    let (writer, _) = net.client(1).await;
    let (reader, _) = net.client(2).await;
    put(&writer, "key", 1).await.unwrap();
    for (number, client) in [(2, &writer), (3, &reader)] {
        // The row that names the object, as it is before the change.
        let key = object_row(&reader).await;
        let mut watches = [reader.watch(key.clone()), writer.watch(key)];
        assert_eq!(get(&writer, "key").await.unwrap(), number - 1);
        assert_eq!(get(&reader, "key").await.unwrap(), number - 1);
        put(client, "key", number).await.unwrap();
        for watch in &mut watches {
            watch.changed().await;
        }
        assert_eq!(get(&reader, "key").await.unwrap(), number);
    }
}

/// The key of the row of the object `key`.
async fn object_row(client: &Client) -> Bytes {
    let verb = OpenObject { bucket: "bucket".into(), key: "key".into() };
    keys::inode(client.read(&caller(), verb).await.unwrap().ino)
}
