use cairn_base::Error;
use cairn_meta::master::Config;

use crate::setup::Setup;
use crate::verbs::{Add, Get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_the_master_goes_on() {
    for inline_us in [0, 1_000_000] {
        let setup = Setup::new(Config { inline_us, ..Config::default() });
        setup.run(Add("a", 1)).await.unwrap();
        setup.engine.fail_snapshots(true);
        assert!(matches!(setup.run(Add("b", 1)).await, Err(Error::Unavailable(_))));
        assert!(matches!(setup.read(Get(vec!["b"])).await, Err(Error::Unavailable(_))));
        // In memory.
        assert_eq!(setup.run(Add("a", 1)).await.unwrap().0, 2);
        assert_eq!(setup.read(Get(vec!["a"])).await.unwrap().0, [2]);
        setup.engine.fail_snapshots(false);
        assert_eq!(setup.run(Add("b", 1)).await.unwrap().0, 1);
        assert_eq!(setup.master.failed(), None);
    }
}
