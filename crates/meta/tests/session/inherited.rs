//! A master that takes over shows nothing to anybody before the sessions that it found have come or
//! lapsed: they may still show what was before.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::{Error, SessionId};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::master::{Config, Master};
use cairn_meta::ops::buckets::GetBucket;
use cairn_meta::ops::credentials::FindAccessKey;
use cairn_meta::ops::sessions::{Format, ListSessions, OpenRemoteSession, OpenSession};
use cairn_meta::session::{Attach, ReadReply, ReadRequest, Reply, SessionMethod};
use cairn_meta::{Meta, WireVerb, wire};
use tokio::time::{sleep, timeout};

use crate::net::{LEASE, caller};

const OWN: SessionId = SessionId(1);
const INHERITED: SessionId = SessionId(2);

async fn master(engine: &Arc<Memory>) -> Master {
    let clock = Arc::new(RealClock::default());
    let master = Master::start(engine.clone(), clock, Config::default()).unwrap();
    master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
    master
}

#[tokio::test]
async fn doors_beside_the_master_wait_too() {
    let engine = Arc::new(Memory::new());
    let former = master(&engine).await;
    let system = Caller::system();
    let found = OpenRemoteSession { session: INHERITED, owner: 7 };
    former.run(&system, found).await.unwrap();
    former.run(&system, OpenSession { session: OWN }).await.unwrap();
    drop(former);

    let master = master(&engine).await;
    let clock = Arc::new(RealClock::default());
    let sessions = Sessions::start(master.clone(), clock, LEASE).await.unwrap();
    let meta = Meta::Local { master, session: OWN, sessions: Some(sessions.clone()) };
    let verb = || GetBucket { name: "none".into() };
    assert!(meta.read_now(&caller(), &verb()).is_none());
    assert!(timeout(Duration::from_millis(50), meta.read(&caller(), verb())).await.is_err());
    // The store's own work goes on: sessions come by it.
    meta.read(&system, ListSessions { after: None, limit: 9 }).await.unwrap();

    while !sessions.opened_now() {
        sleep(LEASE / 4).await;
        sessions.tick().await.unwrap();
    }
    assert!(matches!(meta.read(&caller(), verb()).await, Err(Error::NotFound(_))));
    assert!(meta.read_now(&caller(), &verb()).is_some());
}

#[tokio::test]
async fn gateways_find_out_who_comes_before_that() {
    let engine = Arc::new(Memory::new());
    let former = master(&engine).await;
    let found = OpenRemoteSession { session: INHERITED, owner: 7 };
    former.run(&Caller::system(), found).await.unwrap();
    drop(former);

    let clock = Arc::new(RealClock::default());
    let sessions = Sessions::start(master(&engine).await, clock, LEASE).await.unwrap();
    let (gateway, session) = (Sender::node(8), SessionId(3));
    let attach = wire::encode(&Attach { session }).unwrap();
    sessions.handle(&gateway, SessionMethod::Attach, &attach).await.unwrap();
    let read = |verb: u16, fields: Bytes| {
        let caller = caller().to_relayed();
        let message =
            wire::encode(&ReadRequest { session, caller, verb, fields, lease: true }).unwrap();
        let sessions = Arc::clone(&sessions);
        async move { sessions.handle(&gateway, SessionMethod::Read, &message).await.unwrap() }
    };
    // The mount whose session is waited for shows its credentials to the gateway first.
    let key = wire::encode(&FindAccessKey { id: "CK".into() }).unwrap();
    let Answer::Bytes(found) = read(FindAccessKey::NUMBER, key).await else { panic!("attached") };
    assert!(matches!(wire::decode(&found).unwrap(), Reply::Done(ReadReply { reply: Ok(_), .. })));
    let bucket = wire::encode(&GetBucket { name: "none".into() }).unwrap();
    let waits = read(GetBucket::NUMBER, bucket);
    assert!(timeout(Duration::from_millis(50), waits).await.is_err());
    assert!(!sessions.opened_now());
}
