use cairn_base::Error;
use cairn_meta::master::Config;

use crate::engine::Fate;
use crate::setup::{Setup, dawdle};
use crate::verbs::{Get, Make};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_for_its_commit() {
    let setup = Setup::new(Config::default());
    setup.engine.hold();
    let made = setup.spawn(Make("x", 1));
    setup.until_held(1).await;
    let refused = setup.spawn(Make("x", 2));
    let looked = setup.spawn(Get(vec!["x"]));
    setup.until_held(3).await;
    dawdle().await;
    assert!(!made.is_finished() && !refused.is_finished() && !looked.is_finished());
    setup.engine.release();
    assert_eq!(made.await.unwrap().unwrap(), 1);
    assert!(matches!(refused.await.unwrap(), Err(Error::Exists(_))));
    assert_eq!(looked.await.unwrap().unwrap().0, [1]);
    // They changed nothing, so there was nothing more to commit.
    assert_eq!(setup.engine.begun(), 1);
    assert_eq!(setup.master.durable_batch(), 1);
}

/// An error that depends on a batch that was not committed is decided again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn or_are_no_errors_after_all() {
    for (fate, first_made) in
        [(Fate::Full, false), (Fate::UnknownLost, true), (Fate::UnknownDone, true)]
    {
        let setup = Setup::new(Config::default());
        setup.engine.hold();
        setup.engine.plan([fate]);
        let first = setup.spawn(Make("x", 1));
        setup.until_held(1).await;
        let second = setup.spawn(Make("x", 2));
        let looked = setup.spawn(Get(vec!["x"]));
        setup.until_held(3).await;
        setup.engine.release();
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        if first_made {
            assert!(first.is_ok() && matches!(second, Err(Error::Exists(_))), "{fate:?}");
        } else {
            assert!(matches!(first, Err(Error::Full(_))) && second.is_ok(), "{fate:?}");
        }
        let value = if first_made { 1 } else { 2 };
        assert_eq!(setup.read(Get(vec!["x"])).await.unwrap().0, [value], "{fate:?}");
        looked.await.unwrap().unwrap();
    }
}
