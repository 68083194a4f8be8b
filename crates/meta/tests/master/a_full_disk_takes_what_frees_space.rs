use cairn_base::{Error, Ino};
use cairn_meta::master::Config;
use cairn_meta::ops::for_call::{CallId, SettleCall};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_refusals_of_calls_of_which_each_client_has_its_part() {
    let setup = Setup::new(Config::default());
    let refuse = |client: u8, number: u32| {
        let mut checksum = [0; 16];
        checksum[..4].copy_from_slice(&number.to_be_bytes());
        let mut address = [0; 16];
        // Both halves: a client has all addresses below one /64.
        (address[0], address[15]) = (client, number as u8);
        let call = CallId { client: address, checksum, step: 0 };
        setup.run(SettleCall { call, status: 17, found: Ino(0) })
    };
    setup.engine.set_low(true);
    let mut kept = 0;
    while refuse(0x20, kept).await.is_ok() {
        kept += 1;
        assert!(kept < 100_000, "it takes all of the reserve");
    }
    assert!(kept > 1000, "{kept}");
    let refused = refuse(0x20, kept).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    assert!(refuse(0x30, kept).await.is_ok(), "another client");
    setup.engine.set_low(false);
    assert!(refuse(0x20, kept).await.is_ok());
}
