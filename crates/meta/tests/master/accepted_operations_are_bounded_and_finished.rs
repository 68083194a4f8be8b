use cairn_base::Error;
use cairn_meta::master::Config;

use crate::setup::{Setup, dawdle};
use crate::verbs::{Add, Get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_configured_are_accepted() {
    let setup = Setup::new(Config { accepted_ops: 4, ..Config::default() });
    setup.engine.hold();
    let all: Vec<_> = (0..20).map(|_| setup.spawn(Add("a", 1))).collect();
    setup.until_held(4).await;
    dawdle().await;
    let stats = setup.master.stats();
    assert_eq!((stats.in_flight, stats.queued), (4, 0));
    setup.engine.release();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert_eq!(setup.read(Get(vec!["a"])).await.unwrap().0, [20]);
    setup.until(|stats| stats.in_flight == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_finishes_them_and_refuses_others() {
    // With rows read by the executor, and with operations that wait for rows.
    for inline_us in [0, 1_000_000] {
        let setup = Setup::new(Config { accepted_ops: 10, inline_us, ..Config::default() });
        setup.engine.hold();
        let accepted: Vec<_> = (0..10).map(|_| setup.spawn(Add("a", 1))).collect();
        setup.until_held(10).await;
        let waiting = setup.spawn(Add("a", 1));
        let master = setup.master.clone();
        let stop = std::thread::spawn(move || master.stop());
        assert!(matches!(waiting.await.unwrap(), Err(Error::Unavailable(_))));
        assert!(matches!(setup.run(Add("a", 1)).await, Err(Error::Unavailable(_))));
        setup.engine.release();
        stop.join().unwrap();
        for one in accepted {
            one.await.unwrap().unwrap();
        }
        assert_eq!(setup.master.failed(), None);
        // Again, and reads go on.
        setup.master.stop();
        assert_eq!(setup.read(Get(vec!["a"])).await.unwrap().0, [10]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_clone_stops_it() {
    let setup = Setup::new(Config::default());
    setup.run(Add("a", 1)).await.unwrap();
    let engine = setup.engine.clone();
    drop(setup);
    // All threads have let go of the engine.
    assert_eq!(std::sync::Arc::strong_count(&engine), 1);
}
