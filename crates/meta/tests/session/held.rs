//! A session goes on reading what former masters have leased to it, until the next master is open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::{Error, SessionId, UserId};
use cairn_meta::engine::Memory;
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::master::{Config, Master};
use cairn_meta::ops::credentials::FindAccessKey;
use cairn_meta::ops::open_object::{OpenObject, OpenedObject};
use cairn_meta::ops::sessions::{Format, OpenRemoteSession};
use cairn_meta::rows::Content;
use cairn_meta::session::SessionMethod::{Attach, AttachHolding, AttachToReplay};
use cairn_meta::session::client::Client;
use cairn_meta::session::{
    self, Acknowledge, AttachReply, Detach, ReadReply, ReadRequest, Renew, RenewReply,
};
use cairn_meta::session::{Recall, Reply, SessionMethod};
use cairn_meta::{WireVerb, keys, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{sleep, timeout};

use crate::net::{Cut, LEASE, Net, caller, get, put};

/// For no longer is it not known that a master is open.
const MOMENT: Duration = Duration::from_millis(200);

/// The number in an object, if that is answered from memory.
fn held(client: &Client, key: &str) -> Option<u64> {
    let verb = OpenObject { bucket: "bucket".into(), key: key.into() };
    let OpenedObject { inode, .. } = client.read_now(&caller(), &verb)?.unwrap();
    let Content::Inline(bytes) = inode.content else { panic!("it is short") };
    Some(u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

fn attached(cut: &Cut) -> Vec<SessionMethod> {
    cut.attached.lock().clone()
}

/// Returns a client that holds 1 in an object, and another that will change it. There is also the
/// session of a dead machine: until its lease ends, no next master opens.
async fn holding(net: &Arc<Net>) -> (Client, Arc<Cut>, Client) {
    let (reader, cut) = net.client(1).await;
    let (writer, _) = net.client(2).await;
    let (gone, dead) = net.client(3).await;
    dead.silent.store(true, Ordering::SeqCst);
    drop(gone);
    put(&writer, "a", 1).await.unwrap();
    assert_eq!(get(&reader, "a").await.unwrap(), 1);
    assert_eq!(held(&reader, "a"), Some(1));
    (reader, cut, writer)
}

/// Another client changes it while the master is not open. When that is acknowledged no read finds
/// what was before. Until then all are answered from memory.
async fn go_on(net: &Arc<Net>, reader: &Client, writer: Client) {
    let changed = tokio::spawn(async move { put(&writer, "a", 2).await });
    let (mut reads, mut missed) = (0, None);
    while !net.sessions().opened_now() {
        match held(reader, "a") {
            Some(number) => assert_eq!(number, 1),
            None => missed = missed.or(Some(Instant::now())),
        }
        assert!(!changed.is_finished());
        reads += 1;
        sleep(Duration::from_millis(2)).await;
    }
    let missed = missed.map_or(Duration::ZERO, |since| since.elapsed());
    assert!(reads > 50 && missed < MOMENT, "{reads} reads; for {missed:?} they were not answered");
    changed.await.unwrap().unwrap();
    assert_ne!(held(reader, "a"), Some(1));
    assert_eq!(get(reader, "a").await.unwrap(), 2);
}

#[tokio::test]
async fn reads_go_on_until_the_next_master_is_open() {
    let net = Net::new().await;
    let (reader, cut, writer) = holding(&net).await;
    net.kill_master().await;
    go_on(&net, &reader, writer).await;
    assert_eq!(attached(&cut), [Attach, AttachHolding]);
    // What was leased since is held as ever.
    get(&reader, "a").await.unwrap();
    assert_eq!(held(&reader, "a"), Some(2));
}

#[tokio::test]
async fn they_go_on_when_that_master_dies_as_well() {
    let net = Net::new().await;
    let (reader, cut, writer) = holding(&net).await;
    for _ in 0..3 {
        net.kill_master().await;
        while !net.sessions().list().iter().any(|(session, ..)| *session == reader.session()) {
            assert_eq!(held(&reader, "a"), Some(1));
            sleep(Duration::from_millis(2)).await;
        }
        assert!(!net.sessions().opened_now());
    }
    go_on(&net, &reader, writer).await;
    assert_eq!(attached(&cut), [Attach, AttachHolding, AttachHolding, AttachHolding]);
}

#[tokio::test]
async fn an_old_master_is_told_that_nothing_is_held() {
    let net = Net::new().await;
    let (reader, cut, writer) = holding(&net).await;
    net.is_old.store(true, Ordering::SeqCst);
    net.kill_master().await;
    while attached(&cut).len() < 3 {
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(attached(&cut), [Attach, AttachHolding, Attach]);
    assert_eq!(held(&reader, "a"), None);
    put(&writer, "a", 2).await.unwrap();
    assert_eq!(get(&reader, "a").await.unwrap(), 2);
}

/// The master goes on, and knows the rows that it has leased: it would not recall others.
#[tokio::test]
async fn to_the_same_master_nothing_is_held() {
    let net = Net::new().await;
    let (reader, cut, writer) = holding(&net).await;
    cut.lose_one_in.store(1, Ordering::SeqCst);
    while attached(&cut).len() < 2 {
        sleep(Duration::from_millis(2)).await;
    }
    cut.lose_one_in.store(0, Ordering::SeqCst);
    put(&writer, "a", 2).await.unwrap();
    assert_eq!(get(&reader, "a").await.unwrap(), 2);
    assert_eq!(attached(&cut)[..2], [Attach, AttachHolding]);
    assert_eq!(attached(&cut).last(), Some(&Attach));
}

#[tokio::test]
async fn nothing_is_held_after_the_lease() {
    let net = Net::new().await;
    let (reader, cut, writer) = holding(&net).await;
    cut.silent.store(true, Ordering::SeqCst);
    sleep(LEASE * 95 / 100).await;
    assert_eq!(held(&reader, "a"), None);
    net.kill_master().await;
    cut.silent.store(false, Ordering::SeqCst);
    put(&writer, "a", 2).await.unwrap();
    assert_eq!(get(&reader, "a").await.unwrap(), 2);
    assert!(attached(&cut).iter().all(|method| *method == Attach));
}

#[tokio::test]
async fn a_client_that_keeps_operations_holds_nothing() {
    let net = Net::new().await;
    let (client, cut) = net.hasty_client(1).await;
    put(&client, "a", 1).await.unwrap();
    assert_eq!(get(&client, "a").await.unwrap(), 1);
    net.kill_master().await;
    while attached(&cut).len() < 2 {
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(get(&client, "a").await.unwrap(), 1);
    assert_eq!(attached(&cut), [AttachToReplay, AttachToReplay]);
}

const FIRST: SessionId = SessionId(1);
const SECOND: SessionId = SessionId(2);

/// A master that takes over two sessions, each of the node of its number.
struct Next(Arc<Sessions>);

fn node(session: SessionId) -> Sender {
    Sender::node(session.0)
}

async fn master(engine: &Arc<Memory>) -> Master {
    let clock = Arc::new(RealClock::default());
    let master = Master::start(engine.clone(), clock, Config::default()).unwrap();
    master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
    master
}

impl Next {
    async fn new() -> Next {
        let engine = Arc::new(Memory::new());
        let former = master(&engine).await;
        for session in [FIRST, SECOND] {
            let found = OpenRemoteSession { session, owner: session.0 };
            former.run(&Caller::system(), found).await.unwrap();
        }
        drop(former);
        let clock = Arc::new(RealClock::default());
        let sessions = Sessions::start(master(&engine).await, clock, LEASE).await.unwrap();
        Next(sessions)
    }

    async fn send(&self, from: &Sender, method: SessionMethod, message: &impl Serialize) -> Answer {
        let message = wire::encode(message).unwrap();
        self.0.handle(from, method, &message).await.unwrap()
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        from: &Sender,
        method: SessionMethod,
        message: &impl Serialize,
    ) -> Reply<R> {
        let (Answer::Bytes(bytes) | Answer::Attached(bytes, _)) =
            self.send(from, method, message).await;
        wire::decode(&bytes).unwrap()
    }

    async fn attach(
        &self,
        method: SessionMethod,
        session: SessionId,
    ) -> (AttachReply, UnboundedReceiver<Recall>) {
        let attach = session::Attach { session };
        let Answer::Attached(bytes, recalls) = self.send(&node(session), method, &attach).await
        else {
            panic!("it is not attached");
        };
        let Reply::Done(attached) = wire::decode(&bytes).unwrap() else { panic!("not done") };
        (attached, recalls)
    }

    async fn is_refused(&self, from: &Sender, session: SessionId) -> bool {
        let attach = session::Attach { session };
        match self.ask::<AttachReply>(from, AttachHolding, &attach).await {
            Reply::Done(_) => false,
            Reply::Failed(Error::Conflict(_)) => true,
            other => panic!("{other:?}"),
        }
    }

    async fn settled(&self, session: SessionId) -> u64 {
        let renew = Renew { session, reads_from: 0 };
        match self.ask(&node(session), SessionMethod::Renew, &renew).await {
            Reply::Done(RenewReply { settled }) => settled,
            other => panic!("{other:?}"),
        }
    }

    async fn acknowledge(&self, session: SessionId, number: u64) {
        let message = Acknowledge { session, number };
        let done = self.ask::<()>(&node(session), SessionMethod::Acknowledge, &message).await;
        assert!(matches!(done, Reply::Done(())), "{done:?}");
    }

    async fn opens(&self) -> bool {
        timeout(MOMENT, self.0.opened()).await.is_ok()
    }
}

#[tokio::test]
async fn only_those_are_told_to_let_go_who_said_that_they_hold() {
    let next = Next::new().await;
    let (first, mut recalls) = next.attach(AttachHolding, FIRST).await;
    let reads_from = next.0.reads_from();
    let (second, mut of_old) = next.attach(Attach, SECOND).await;
    assert!(first.batch == 0 && second.batch > 0 && reads_from == 0);
    assert_eq!(recalls.recv().await, Some(Recall { number: 1, keys: vec![keys::all_rows()] }));
    assert!(!next.opens().await);
    assert_eq!(next.settled(FIRST).await, 0);
    assert_eq!(next.0.reads_from(), 0);
    assert!(next.settled(SECOND).await > 0);
    // It has come too late for that.
    assert!(next.is_refused(&node(FIRST), FIRST).await);
    next.acknowledge(FIRST, 1).await;
    assert!(next.opens().await);
    assert_eq!(of_old.try_recv(), Err(TryRecvError::Empty));
    assert!(next.settled(FIRST).await > 0);
    for session in [FIRST, SECOND, SessionId(3)] {
        assert!(next.is_refused(&node(session), session).await);
    }
    assert_eq!(next.0.list().len(), 2);
}

#[tokio::test]
async fn who_has_let_go_holds_nothing_again() {
    let next = Next::new().await;
    next.attach(Attach, FIRST).await;
    assert!(next.is_refused(&node(FIRST), FIRST).await);
    let mount = Sender::mount(UserId(7));
    assert!(next.is_refused(&mount, SessionId(3)).await);
    // The connection is lost, and it has let go of nothing.
    next.attach(AttachHolding, SECOND).await;
    let (_, mut recalls) = next.attach(Attach, SECOND).await;
    assert!(next.opens().await, "it holds nothing by now");
    assert_eq!(recalls.try_recv(), Err(TryRecvError::Empty));
}

#[tokio::test]
async fn who_is_gone_is_not_waited_for() {
    let next = Next::new().await;
    next.attach(AttachHolding, FIRST).await;
    next.attach(AttachHolding, SECOND).await;
    assert!(!next.opens().await);
    let detach = Detach { session: SECOND };
    next.ask::<()>(&node(SECOND), SessionMethod::Detach, &detach).await;
    assert!(!next.opens().await);
    // It renews, and does not acknowledge: until what it was asked is late, and its lease over.
    let begun = Instant::now();
    while !next.0.opened_now() {
        let renew = Renew { session: FIRST, reads_from: 0 };
        next.ask::<RenewReply>(&node(FIRST), SessionMethod::Renew, &renew).await;
        next.0.tick().await.unwrap();
        sleep(LEASE / 20).await;
    }
    assert!(begun.elapsed() > LEASE && begun.elapsed() < LEASE * 3);
}

/// Rows that it reads before that may be newer than the rows that it holds.
#[tokio::test]
async fn nothing_is_leased_beside_what_is_held() {
    let next = Next::new().await;
    let read = async |session| {
        let fields = wire::encode(&FindAccessKey { id: "CK".into() }).unwrap();
        let (caller, verb) = (caller().to_relayed(), FindAccessKey::NUMBER);
        let message = ReadRequest { session, caller, verb, fields, lease: true };
        match next.ask(&node(session), SessionMethod::Read, &message).await {
            Reply::Done(ReadReply { reply, rows }) => {
                reply.unwrap();
                rows.into_iter().map(|(key, _)| key).collect::<Vec<Bytes>>()
            }
            other => panic!("{other:?}"),
        }
    };
    let (_, mut recalls) = next.attach(AttachHolding, FIRST).await;
    assert!(read(FIRST).await.is_empty());
    next.attach(Attach, SECOND).await;
    recalls.recv().await.unwrap();
    assert!(!read(SECOND).await.is_empty());
    next.acknowledge(FIRST, 1).await;
    assert!(next.opens().await);
    assert!(!read(FIRST).await.is_empty());
}
