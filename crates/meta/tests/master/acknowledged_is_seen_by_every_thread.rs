use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_meta::Master;
use cairn_meta::master::Config;

use crate::engine::TestEngine;
use crate::verbs::{Add, Get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_after_another() {
    let engine = TestEngine::new();
    let master =
        Master::start(engine.clone(), Arc::new(RealClock::default()), Config::default()).unwrap();
    let caller = Caller::system();
    for turn in 1..=2000 {
        let (sum, batch) = master.run(&caller, Add("a", 1)).await.unwrap();
        assert_eq!(sum, turn);
        assert!(master.durable_batch() >= batch);
        let (reader, caller) = (master.clone(), caller.clone());
        let read = tokio::spawn(async move { reader.read(&caller, Get(vec!["a"])).await });
        assert_eq!(read.await.unwrap().unwrap(), (vec![turn], batch));
    }
    master.stop();
}
