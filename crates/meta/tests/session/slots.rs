//! An operation that is sent again is done once.

use std::sync::atomic::Ordering;

use cairn_auth::Visibility;
use cairn_base::Error;
use cairn_meta::ops::buckets::CreateBucket;
use cairn_meta::rows::BucketKind;

use crate::net::{Net, caller, get, put};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_are_given_again() {
    let net = Net::new().await;
    let (client, cut) = net.client(1).await;
    cut.lose_one_in.store(3, Ordering::SeqCst);
    for at in 0..300 {
        // Made twice, it would be refused the second time.
        let name = format!("bucket-{at}");
        let kind = BucketKind::S3;
        let verb = CreateBucket { name, kind, visibility: Visibility::Private };
        client.run(&caller(), verb).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_lapsed_is_told_that_the_outcome_is_unknown() {
    let net = Net::new().await;
    let (client, cut) = net.client(1).await;
    put(&client, "key", 1).await.unwrap();
    let session = client.session();
    let late = tokio::spawn({
        let client = client.clone();
        let cut = cut.clone();
        async move {
            cut.silent.store(true, Ordering::SeqCst);
            put(&client, "key", 2).await
        }
    });
    while net.sessions().list().iter().any(|(known, ..)| *known == session) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    cut.silent.store(false, Ordering::SeqCst);
    match late.await.unwrap() {
        Err(Error::Unavailable(text)) => assert!(text.contains("outcome unknown"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&client, "key").await.unwrap(), 1);
    put(&client, "key", 3).await.unwrap();
    assert_eq!(get(&client, "key").await.unwrap(), 3);
    assert_ne!(client.session(), session);
}
