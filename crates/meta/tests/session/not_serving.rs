//! A master that may have been replaced tells its sessions to look for another, and lets nobody
//! read on from what it knows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::clock::RealClock;
use cairn_base::{Result, SessionId};
use cairn_meta::engine::{Change, CommitError, Engine, Fence, Lease, Memory, Snapshot};
use cairn_meta::master::{Config, Master};
use cairn_meta::ops::buckets::GetBucket;
use cairn_meta::ops::sessions::{Format, OpenSession};
use cairn_meta::session::host::{Answer, Peer, Sessions};
use cairn_meta::session::{Attach, Attached, Method, Read, ReadReply, Renew, Renewed, Reply, Run};
use cairn_meta::{Verb, WireVerb, wire};

const LENGTH: Duration = Duration::from_secs(600);
const SESSION: SessionId = SessionId(7);
const PEER: Peer = Peer { id: 1 };

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

/// What a master is asked, all that it answers from memory among it.
struct Rig {
    master: Master,
    sessions: Arc<Sessions>,
    lease: Arc<Lease>,
}

impl Rig {
    async fn new() -> Rig {
        let lease = Arc::new(Lease::new("rig".into(), LENGTH, Instant::now()));
        let engine = Arc::new(Leased { memory: Memory::new(), lease: Arc::clone(&lease) });
        let clock = Arc::new(RealClock::default());
        let master = Master::start(engine, clock.clone(), Config::default()).unwrap();
        master.run(&Caller::system(), Format { cluster: 1 }).await.unwrap();
        let sessions = Sessions::start(master.clone(), clock, LENGTH).await.unwrap();
        Rig { master, sessions, lease }
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: Method,
        message: &impl serde::Serialize,
    ) -> Reply<T> {
        let message = wire::encode(message).unwrap();
        match self.sessions.handle(&PEER, method, &message).await.unwrap() {
            Answer::Bytes(bytes) | Answer::Attached(bytes, _) => wire::decode(&bytes).unwrap(),
        }
    }

    async fn renew(&self) -> Reply<Renewed> {
        self.ask(Method::Renew, &Renew { session: SESSION, reads_from: 0 }).await
    }

    async fn read(&self, lease: bool) -> Result<Bytes, Option<String>> {
        let (verb, fields) = encoded(&lookup());
        let caller = Caller::system().relay();
        let read = Read { session: SESSION, caller, verb, fields, lease };
        match self.ask::<ReadReply>(Method::Read, &read).await {
            Reply::Done(ReadReply { reply: Err(error), .. }) => Err(Some(error.to_string())),
            Reply::Done(ReadReply { reply: Ok(bytes), .. }) => Ok(bytes),
            Reply::NotServing(_) => Err(None),
            other => panic!("{other:?}"),
        }
    }
}

fn lookup() -> GetBucket {
    GetBucket { name: "none".into() }
}

fn encoded<V: WireVerb>(verb: &V) -> (u16, Bytes) {
    (V::NUMBER, wire::encode(verb).unwrap())
}
