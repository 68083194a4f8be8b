use cairn_base::Error;
use cairn_meta::master::Config;

use crate::setup::Setup;
use crate::verbs::{Delete, Get, Make};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_nothing_else() {
    let setup = Setup::new(Config::default());
    setup.run(Make("x", 1)).await.unwrap();
    setup.engine.set_low(true);
    assert!(matches!(setup.master.check_space(), Err(Error::Full(_))));
    let refused = setup.run(Make("y", 2)).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    assert_eq!(setup.read(Get(vec!["x", "y"])).await.unwrap().0, [1, 0]);
    setup.run(Delete("x")).await.unwrap();
    assert_eq!(setup.engine.rows().len(), 0);
    setup.engine.set_low(false);
    setup.master.check_space().unwrap();
    setup.run(Make("y", 2)).await.unwrap();
    assert_eq!(setup.read(Get(vec!["x", "y"])).await.unwrap().0, [0, 2]);
}
