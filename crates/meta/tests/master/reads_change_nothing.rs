use cairn_auth::Caller;
use cairn_base::Error;
use cairn_meta::master::Config;

use crate::setup::Setup;
use crate::verbs::{Add, Delete, Get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_that_does_is_refused() {
    let setup = Setup::new(Config::default());
    // From the engine, then from memory.
    assert!(matches!(setup.read(Add("a", 1)).await, Err(Error::Invalid(_))));
    setup.run(Add("a", 1)).await.unwrap();
    let now = setup.master.read_now(&Caller::system(), &Add("a", 1));
    assert!(matches!(now, Some(Err(Error::Invalid(_)))));
    assert_eq!(setup.read(Get(vec!["a"])).await.unwrap(), (vec![1], 1));
}

/// A row that is not there is remembered as such, until somebody makes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absence_is_cached() {
    let setup = Setup::new(Config::default());
    let get = || Get(vec!["a", "b"]);
    assert!(setup.master.read_now(&Caller::system(), &get()).is_none());
    assert_eq!(setup.read(get()).await.unwrap(), (vec![0, 0], 0));
    let now = || setup.master.read_now(&Caller::system(), &get()).unwrap().unwrap();
    assert_eq!(now(), (vec![0, 0], 0));
    setup.run(Add("b", 1)).await.unwrap();
    assert_eq!(now(), (vec![0, 1], 1));
    setup.run(Delete("b")).await.unwrap();
    assert_eq!(now(), (vec![0, 0], 2));
}
