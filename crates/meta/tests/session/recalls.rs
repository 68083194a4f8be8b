//! What is kept is recalled before a change is acknowledged.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::net::{LEASE, Net, get, put};

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
    cut.silent.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    // One that nobody holds is not held up.
    put(&writer, "other", 1).await.unwrap();
    let unhindered = begun.elapsed();
    put(&writer, "key", 2).await.unwrap();
    assert!(unhindered < LEASE / 2, "{unhindered:?}");
    assert!(begun.elapsed() >= LEASE / 3, "{:?}", begun.elapsed());
    cut.silent.store(false, Ordering::SeqCst);
    assert_eq!(get(&reader, "key").await.unwrap(), 2);
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
    // Nobody sees the new number before the old one is gone everywhere.
    let read = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        get(&third, "key").await
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(get(&reader, "key").await.unwrap(), 1);
    assert!(!write.is_finished() && !read.is_finished());
    cut.no_recalls.store(false, Ordering::SeqCst);
    write.await.unwrap().unwrap();
    assert_eq!(read.await.unwrap().unwrap(), 2);
    assert_eq!(get(&reader, "key").await.unwrap(), 2);
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
    let written = tokio::time::timeout(LEASE * 20, put(&third, "key", 3)).await;
    written.expect("the key is not deaf").unwrap();
    assert_eq!(get(&third, "key").await.unwrap(), 3);
}
