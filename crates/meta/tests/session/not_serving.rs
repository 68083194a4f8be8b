//! A master that may have been replaced tells its sessions to look for another, and lets nobody
//! read on from what it knows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::{Clock, Result, SessionId};
use cairn_meta::engine::{Change, CommitError, Engine, Fence, Lease, Memory, Snapshot};
use cairn_meta::master::host::{Answer, Sender, Sessions};
use cairn_meta::master::{Config, Master};
use cairn_meta::ops::sessions::{Format, ListSessions, OpenRemoteSession, OpenSession};
use cairn_meta::session::{
    Attach, AttachReply, ReadReply, ReadRequest, Renew, RenewReply, Reply, Run, SessionMethod,
};
use cairn_meta::{WireVerb, wire};

/// Lease of sessions.
const LENGTH: Duration = Duration::from_secs(600);
const LEASE: Duration = Duration::from_secs(2);
const SESSION: SessionId = SessionId(7);
const PEER: Sender = Sender::node(1);

/// Rows in memory, and a lease that is as long as this test wants.
struct Leased {
    memory: Memory,
    lease: Arc<Lease>,
}

impl Engine for Leased {
    fn fence(&self) -> Result<Fence> {
        self.memory.fence()
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        self.memory.take_over_at(batch)
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        Some(Arc::clone(&self.lease))
    }

    fn give_up(&self) {
        self.lease.give_up();
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.memory.snapshot()
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        self.memory.commit(expected, changes)
    }
}

/// The requests to a master, among them all that it answers from memory.
struct Rig {
    master: Master,
    sessions: Arc<Sessions>,
    lease: Arc<Lease>,
    clock: Arc<RealClock>,
}

impl Rig {
    async fn new() -> Rig {
        Rig::with(&[]).await
    }

    /// With sessions that a former master knew.
    async fn with(inherited: &[SessionId]) -> Rig {
        let clock = Arc::new(RealClock::default());
        let begun = clock.monotonic();
        let lease = Arc::new(Lease::new("rig".into(), LEASE, clock.clone(), begun));
        let engine = Arc::new(Leased { memory: Memory::new(), lease: Arc::clone(&lease) });
        let master = Master::start(engine, clock.clone(), Config::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        for session in inherited.iter().copied() {
            // Of another node than `PEER`.
            let open = OpenRemoteSession { session, owner: 2 };
            master.run(&Caller::system(), open).await.unwrap();
        }
        let sessions = Sessions::start(master.clone(), clock.clone(), LENGTH).await.unwrap();
        Rig { master, sessions, lease, clock }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: SessionMethod,
        message: &impl serde::Serialize,
    ) -> Reply<T> {
        let message = wire::encode(message).unwrap();
        match self.sessions.handle(&PEER, method, &message).await.unwrap() {
            Answer::Bytes(bytes) | Answer::Attached(bytes, _) => wire::decode(&bytes).unwrap(),
        }
    }

    async fn renew(&self) -> Reply<RenewReply> {
        self.ask(SessionMethod::Renew, &Renew { session: SESSION, reads_from: 0 }).await
    }

    async fn read(&self, lease: bool) -> Reply<ReadReply> {
        let (verb, fields) = encoded(&list());
        let caller = Caller::system().to_relayed();
        let read = ReadRequest { session: SESSION, caller, verb, fields, lease };
        self.ask(SessionMethod::Read, &read).await
    }

    /// Asks again for something that is done.
    async fn run(&self) -> Reply<Bytes> {
        let (verb, fields) = encoded(&OpenSession { session: SESSION });
        let caller = Caller::system().to_relayed();
        let run = Run { session: SESSION, slot: 0, sequence: 1, caller, verb, fields };
        self.ask(SessionMethod::Run, &run).await
    }
}

fn list() -> ListSessions {
    ListSessions { after: None, limit: 10 }
}

fn encoded<V: WireVerb>(verb: &V) -> (u16, Bytes) {
    (V::NUMBER, wire::encode(verb).unwrap())
}

#[tokio::test]
async fn while_the_lease_is_lost_nothing_is_answered_from_memory() {
    let rig = Rig::new().await;
    let system = Caller::system();
    let attach = Attach { session: SESSION };
    assert!(matches!(rig.ask::<AttachReply>(SessionMethod::Attach, &attach).await, Reply::Done(_)));
    for lease in [false, true] {
        assert!(matches!(rig.read(lease).await, Reply::Done(ReadReply { reply: Ok(_), .. })));
    }
    assert!(matches!(rig.run().await, Reply::Done(_)));
    assert!(matches!(rig.renew().await, Reply::Done(_)));
    let cluster = Format { cluster: 1 };
    let memo = rig.master.read_memo(&system, &cluster).unwrap().unwrap();
    assert!(rig.master.is_current(&memo));

    while rig.lease.is_held() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(matches!(rig.renew().await, Reply::NotServing(_)));
    for lease in [false, true] {
        assert!(matches!(rig.read(lease).await, Reply::NotServing(_)), "{lease}");
    }
    assert!(matches!(rig.run().await, Reply::NotServing(_)));
    assert!(matches!(
        rig.ask::<AttachReply>(SessionMethod::Attach, &attach).await,
        Reply::NotServing(_)
    ));
    assert!(!rig.master.is_current(&memo));
    let refused = rig.master.read_now(&system, &cluster).unwrap().unwrap_err();
    assert!(refused.to_string().contains("not the active master"), "{refused}");
    assert_eq!(rig.master.run(&system, cluster.clone()).await.unwrap_err().kind(), "unavailable");
    // The engine takes it, and so proves that nobody took over.
    let other = SessionId(8);
    rig.master.run(&system, OpenSession { session: other }).await.unwrap();

    rig.lease.extend(rig.clock.monotonic());
    assert!(matches!(rig.read(true).await, Reply::Done(ReadReply { reply: Ok(_), .. })));
    assert!(matches!(rig.renew().await, Reply::Done(_)));
    assert_eq!(rig.master.read(&system, cluster).await.unwrap(), (1, false));
    assert_eq!(rig.master.failed(), None);
}

#[tokio::test]
async fn who_is_fenced_fails_and_who_stops_gives_up() {
    let rig = Rig::new().await;
    rig.lease.fence("another master took over".into());
    assert!(rig.master.wait_failed().await.contains("another master took over"));
    assert_eq!(rig.master.read(&Caller::system(), list()).await.unwrap_err().kind(), "unavailable");
    let rig = Rig::new().await;
    rig.master.stop();
    assert!(!rig.lease.is_held());
}

/// The session of a former master does not come: whoever waits for that is not left waiting when
/// yet another master is to serve.
#[tokio::test]
async fn calls_that_wait_when_a_master_hands_over_are_refused() {
    let rig = Rig::with(&[SessionId(8)]).await;
    let attach = Attach { session: SESSION };
    assert!(matches!(rig.ask::<AttachReply>(SessionMethod::Attach, &attach).await, Reply::Done(_)));
    let mut reading = pin!(rig.read(true));
    let mut running = pin!(rig.run());
    let moment = tokio::time::sleep(Duration::from_millis(50));
    tokio::select! {
        biased;
        read = &mut reading => panic!("{read:?}"),
        ran = &mut running => panic!("{ran:?}"),
        () = moment => {}
    }
    rig.master.stop();
    rig.master.end("it hands over");
    assert!(matches!(reading.await, Reply::NotServing(_)));
    assert!(matches!(running.await, Reply::NotServing(_)));
    assert!(matches!(rig.renew().await, Reply::NotServing(_)));
}
