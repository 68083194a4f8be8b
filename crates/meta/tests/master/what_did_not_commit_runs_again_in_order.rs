use cairn_base::Error;
use cairn_meta::master::Config;

use crate::engine::Fate;
use crate::setup::Setup;
use crate::verbs::{Add, Get};

/// Batch 1 holds one addition, batch 2 the others, executed one after another.
async fn check(
    setup: Setup,
    fate: Fate,
    expected_first: Option<(u64, u64)>,
    expected: [(u64, u64); 3],
) {
    setup.engine.hold();
    setup.engine.plan([fate]);
    let first = setup.spawn(Add("a", 1));
    setup.until_held(1).await;
    let mut later = Vec::new();
    for (count, amount) in [(2, 10), (3, 100), (4, 1000)] {
        later.push(setup.spawn(Add("a", amount)));
        setup.until_held(count).await;
    }
    setup.engine.release();
    match (first.await.expect("an answer"), expected_first) {
        (Ok(got), Some(expected)) => assert_eq!(got, expected, "{fate:?}"),
        (Err(Error::Unavailable(text)), None) => assert!(text.contains("nothing was changed")),
        (got, _) => panic!("{fate:?}: {got:?}"),
    }
    for (later, expected) in later.into_iter().zip(expected) {
        let got = later.await.expect("an answer").expect("a sum");
        assert_eq!(got, expected, "{fate:?}");
    }
    let read = setup.read(Get(vec!["a"])).await.expect("a number");
    assert_eq!(read.0, [expected[2].0], "{fate:?}");
    assert_eq!(setup.master.failed(), None);
    setup.master.stop();
    assert_eq!(setup.master.stats().in_flight, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_every_way_to_fail() {
    for setup in [Setup::new, Setup::late] {
        let setup = || setup(Config::default());
        let all = [(11, 2), (111, 2), (1111, 2)];
        check(setup(), Fate::Fine, Some((1, 1)), all).await;
        check(setup(), Fate::UnknownDone, Some((1, 1)), all).await;
        let again = [(11, 1), (111, 1), (1111, 1)];
        check(setup(), Fate::UnknownLost, Some((1, 1)), again).await;
        check(setup(), Fate::Broken, None, [(10, 1), (110, 1), (1110, 1)]).await;
    }
}
