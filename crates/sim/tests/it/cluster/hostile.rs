//! Mounts that do as they like: they renew their sessions, and do nothing of what they are asked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Ino, Result, Rng, SessionId, UserId};
use cairn_cluster::control::Agent;
use cairn_cluster::control::messages::{self, Vouched};
use cairn_cluster::wire::Peer;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::open_object::OpenObject;
use cairn_fs::ops::statfs::Statfs;
use cairn_meta::session::{
    Acknowledge, Attach, AttachReply, Change, Delegate, DelegateReply, Execute, ExecuteReply,
    ReadReply, ReadRequest, Recall, Renew, RenewReply, ReplayEnd, Reply, Run, SessionMethod,
};
use cairn_meta::{Verb, WireVerb, wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::client::{BUCKET, FILES, PUT_KEYS, key};

/// Time that it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Directories that it may make before others do.
const DIRECTORIES: u64 = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It acknowledges nothing.
    Deaf,
    /// It does so when it is too late.
    Late,
    /// It never gives a directory back, and attaches again and again.
    Keeping,
    /// It says that it goes on reading from the beginning, and acknowledges what it was not asked.
    Lying,
}

/// One mount after another, indefinitely.
pub async fn mounts(agent: Arc<Agent>, rng: Arc<SeededRng>, lease: Duration) {
    loop {
        let kinds = [Kind::Deaf, Kind::Deaf, Kind::Late, Kind::Keeping, Kind::Lying];
        let kind = kinds[rng.below(kinds.len() as u64) as usize];
        match mount(&agent, kind, &rng, lease).await {
            Ok(()) => tracing::debug!(?kind, "the session of a hostile mount has ended"),
            Err(error) => tracing::debug!(?kind, %error, "a hostile mount is gone"),
        }
        sleep(Duration::from_millis(500 + rng.below(3_000))).await;
    }
}

/// Until its session has ended.
async fn mount(agent: &Agent, kind: Kind, rng: &SeededRng, lease: Duration) -> Result<()> {
    let (peer, mut recalls) = agent.connect(PATIENCE).await?;
    let mount = Mount { peer, session: SessionId(rng.next_u64()) };
    mount.attach(kind).await?;
    if kind == Kind::Keeping {
        mount.keep(rng).await?;
    }
    // The rows that every new file changes: it must keep nobody from giving a directory back.
    let files = Lookup { parent: Ino::ROOT, name: FILES.into() };
    if let Some((ino, _)) = mount.read(files).await? {
        mount.read(Statfs { ino }).await?;
    }
    // Once: what it keeps is shown to nobody, itself included, while a change of it waits.
    for number in 0..PUT_KEYS {
        mount.read(OpenObject { bucket: BUCKET.into(), key: key(number) }).await?;
    }
    let mut asked = VecDeque::new();
    loop {
        sleep(lease / 4).await;
        while let Ok(recall) = recalls.try_recv() {
            asked.push_back((wire::decode::<Recall>(&recall)?.number, Instant::now()));
        }
        let late = |(_, at): &mut (u64, Instant)| at.elapsed() > lease * 3 / 2;
        match kind {
            Kind::Deaf => {}
            Kind::Late => {
                while let Some((number, _)) = asked.pop_front_if(late) {
                    mount.acknowledge(number).await?;
                }
            }
            Kind::Keeping => {
                mount.acknowledge(u64::MAX).await?;
                mount.attach(kind).await?;
            }
            Kind::Lying => mount.acknowledge(u64::MAX).await?,
        }
        if !mount.renew(if kind == Kind::Lying { 0 } else { u64::MAX }).await? {
            return Ok(());
        }
    }
}

struct Mount {
    peer: Peer,
    session: SessionId,
}

impl Mount {
    async fn ask<M: Serialize, R: DeserializeOwned>(
        &self,
        method: SessionMethod,
        message: &M,
    ) -> Result<Option<R>> {
        let vouched = wire::encode(&Vouched { user: UserId::ROOT, method: method as u16 })?;
        let length = (vouched.len() as u32).to_le_bytes();
        let sent = [&length[..], &vouched, &wire::encode(message)?].concat();
        let number = messages::ControlMethod::Vouched as u16;
        let answer = self.peer.call(number, Bytes::from(sent), PATIENCE).await?;
        match wire::decode(&answer)? {
            Reply::Done(done) => Ok(Some(done)),
            Reply::Failed(error) => Err(error),
            Reply::NotAttached => Ok(None),
            Reply::NotServing(why) => Err(Error::Unavailable(why)),
        }
    }

    async fn attach(&self, kind: Kind) -> Result<()> {
        let session = self.session;
        let method = match kind {
            Kind::Keeping => SessionMethod::AttachToReplay,
            _ => SessionMethod::Attach,
        };
        self.ask::<_, AttachReply>(method, &Attach { session }).await.map(drop)
    }

    async fn renew(&self, reads_from: u64) -> Result<bool> {
        let renew = Renew { session: self.session, reads_from };
        Ok(self.ask::<_, RenewReply>(SessionMethod::Renew, &renew).await?.is_some())
    }

    async fn acknowledge(&self, number: u64) -> Result<()> {
        let acknowledge = Acknowledge { session: self.session, number };
        self.ask::<_, ()>(SessionMethod::Acknowledge, &acknowledge).await.map(drop)
    }

    /// With a lease.
    async fn read<V: WireVerb>(&self, verb: V) -> Result<Option<V::Reply>> {
        let caller = Caller::verified(UserId::ROOT).to_relayed();
        let fields = wire::encode(&verb)?;
        let read =
            ReadRequest { session: self.session, caller, verb: V::NUMBER, fields, lease: true };
        match self.ask::<_, ReadReply>(SessionMethod::Read, &read).await? {
            Some(ReadReply { reply: Ok(reply), .. }) => Ok(Some(wire::decode(&reply)?)),
            Some(_) | None => Ok(None),
        }
    }

    /// Has a directory delegated that others want.
    async fn keep(&self, rng: &SeededRng) -> Result<()> {
        let session = self.session;
        self.ask::<_, ()>(SessionMethod::Replayed, &ReplayEnd { session }).await?;
        let files = Lookup { parent: Ino::ROOT, name: FILES.into() };
        let Some((parent, _)) = self.read(files).await? else { return Ok(()) };
        let Some((opened, _)) = self.read(GetBucket { name: FILES.into() }).await? else {
            return Ok(());
        };
        let name = format!("directory-{}", 1 + rng.below(DIRECTORIES)).into_bytes();
        let verb = Mkdir { parent, name, mode: 0o755, umask: 0 };
        let run = Run {
            session,
            slot: 0,
            sequence: 1,
            caller: Caller::verified(UserId::ROOT).to_relayed(),
            verb: Mkdir::NUMBER,
            fields: wire::encode(&verb)?,
        };
        let change = Change { run, released: verb.changes() };
        let executed: Option<ExecuteReply> =
            self.ask(SessionMethod::Execute, &Execute { change, ino: None }).await?;
        let Some(directory) = executed.and_then(|executed| executed.ino) else { return Ok(()) };
        let delegate = Delegate { session, directory, bucket: opened.id };
        self.ask::<_, DelegateReply>(SessionMethod::Delegate, &delegate).await.map(drop)
    }
}
