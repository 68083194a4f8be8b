use cairn_meta::master::Config;

use crate::setup::Setup;
use crate::verbs::{Add, Get};

/// With a cache, and without one to speak of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_after_another() {
    for cache_bytes in [16 << 20, 0] {
        let setup = Setup::new(Config { cache_bytes, ..Config::default() });
        for turn in 1..=500 {
            let (sum, batch) = setup.run(Add("a", 1)).await.unwrap();
            assert_eq!(sum, turn);
            assert!(setup.master.durable_batch() >= batch);
            let reader = setup.master.clone();
            let caller = cairn_auth::Caller::system();
            let read = tokio::spawn(async move { reader.read(&caller, Get(vec!["a"])).await });
            assert_eq!(read.await.unwrap().unwrap(), (vec![turn], batch));
        }
        let stats = setup.master.stats();
        assert_eq!(stats.reads_cached == 500, cache_bytes > 0, "{stats:?}");
    }
}
