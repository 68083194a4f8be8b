use cairn_auth::Caller;
use cairn_base::Error;
use cairn_meta::master::Config;
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View};

use crate::engine::Fate;
use crate::setup::Setup;
use crate::verbs::{Add, Get};

fn unknown<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unavailable(text)) if text.starts_with("outcome unknown: ") => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_unknown_outcome() {
    for fate in [Fate::Poisoned, Fate::Fenced, Fate::UnknownForever] {
        // A thread waits for rows when it happens.
        for inline_us in [0, 1_000_000] {
            let setup = Setup::new(Config { accepted_ops: 3, inline_us, ..Config::default() });
            setup.run(Add("a", 1)).await.unwrap();
            let failed = tokio::spawn(setup.master.wait_failed());
            setup.engine.plan([fate]);
            setup.engine.hold();
            let committing = setup.spawn(Add("a", 1));
            setup.until_held(1).await;
            let executed = setup.spawn(Add("a", 1));
            let missing = setup.spawn(Add("b", 1));
            setup.until_held(3).await;
            let not_accepted = setup.spawn(Add("a", 1));
            setup.engine.release();
            let text = unknown(committing.await.unwrap());
            for other in [executed, missing, not_accepted] {
                assert_eq!(unknown(other.await.unwrap()), text);
            }
            assert_eq!(unknown(setup.run(Add("a", 1)).await), text);
            assert_eq!(unknown(setup.read(Get(vec!["a"])).await), text);
            assert_eq!(setup.master.failed(), Some(text.clone()), "{fate:?}");
            assert_eq!(failed.await.unwrap(), text);
            assert_eq!(setup.master.wait_failed().await, text);
            setup.master.stop();
        }
    }
}

/// Breaks the master.
struct Panic;

impl VerbNeeds for Panic {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Panic {
    type Reply = ();
    const NAME: &'static str = "panic";

    fn apply(&self, _: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        panic!("as planned by a test");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_panic_too() {
    let setup = Setup::new(Config::default());
    setup.engine.hold();
    let committing = setup.spawn(Add("a", 1));
    setup.until_held(1).await;
    let panicked = setup.spawn(Panic);
    unknown(panicked.await.unwrap());
    unknown(setup.run(Add("a", 1)).await);
    assert!(setup.master.wait_failed().await.contains("panicked"));
    setup.engine.release();
    // Its batch was durable nevertheless.
    assert_eq!(committing.await.unwrap().unwrap(), (1, 1));
    setup.master.stop();
}

/// Reads that would go on indefinitely with nothing to publish what they saw.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_too() {
    let setup = Setup::new(Config::default());
    setup.run(Add("a", 1)).await.unwrap();
    setup.engine.plan([Fate::Poisoned]);
    unknown(setup.run(Add("a", 1)).await);
    setup.master.wait_failed().await;
    let now = setup.master.read_now(&Caller::system(), &Get(vec!["a"]));
    unknown(now.expect("an answer"));
}
