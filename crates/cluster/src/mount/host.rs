//! The server's side. A mount's requests are made as its user: the caller is made on the side that
//! keeps the mount's session, from the identity that was proved on this side. A mount can only
//! choose the uid and the groups for which it asks.
//!
//! A mount is trusted with nothing. It runs the verbs that POSIX needs and those that bring back a
//! backup, which only root may, and no others. It publishes blocks of its own session only. It
//! reads only blocks that were disclosed to it, in buckets that its user may read now. The contents
//! of replies and rows are decided where its session is (`meta/src/mounts.rs`).

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_base::inflight::{About, Request as InFlight, within};
use cairn_base::{
    BlockId, BodyId, BucketId, Error, Party, Result, SessionId, Share, Shares, UserId, stage,
};
use cairn_blocks::Blocks;
use cairn_meta::master::host::Sessions;
use cairn_meta::ops::coalesce::{Coalesce, ReadChunk};
use cairn_meta::ops::open_object::{OpenInode, OpenedObject, ReadExtents};
use cairn_meta::rows::Extent;
use cairn_meta::session::{
    self, Attach, Change, Detach, Execute, ExecuteReply, ReadReply, ReadRequest, Renew, RenewReply,
    Reply, Run, RunPosted, SessionMethod,
};
use cairn_meta::{Meta, WireVerb, wire};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::attached_sessions::AttachedSessions;
use super::disclosed_blocks::DisclosedBlocks;
use super::guarded_blocks::GuardedBlocks;
use super::messages::{GET, LOCATE, NEAR, PUT, SERVES, SPACE};
use super::rights::Rights;
use super::turns::Turns;
use super::unpublished_blocks::UnpublishedBlocks;
use super::way::{SessionHome, Way};
use crate::control::Agent;
use crate::limits::{
    MOUNT_ASKED_TIMES, MOUNT_CONNECTIONS, MOUNT_GET_BYTES, MOUNT_READS, MOUNT_SHORT_BYTES,
    MOUNTS_ASKED_BYTES, MOUNTS_GET_BYTES, MOUNTS_HELD_BYTES, MOUNTS_PUT_BYTES,
};
use crate::wire::{Link, Peer, Service, accept};

mod blocks;

/// Time for which the disclosed blocks of a session are remembered after its connection was lost.
const TOLD: Duration = Duration::from_secs(60);

/// Serves the mounts that connect here.
pub struct MountHost {
    place: SessionHome,
    blocks: GuardedBlocks,
    /// Directory of the blocks' files.
    directory: Option<String>,
    told: DisclosedBlocks,
    unpublished: UnpublishedBlocks,
    rights: Rights,
    attached: AttachedSessions,
    /// Bytes of blocks that were read and are not sent.
    unsent: Arc<Shares>,
    /// Places for connections.
    connections: Arc<Shares>,
    /// Bytes that running requests hold, and requests that bring operations that mounts ran on
    /// their own: other requests may wait for the latter.
    asked: Arc<Shares>,
    posted: Arc<Shares>,
    /// Bytes of requests that have arrived and are not answered, whether they run or wait for room.
    held: Arc<Shares>,
    /// Bytes of blocks that have arrived and are not written.
    unwritten: Arc<Shares>,
}

/// Answers one connection of a mount, whose user is known. Clones share its state.
#[derive(Clone)]
pub struct MountService {
    host: Arc<MountHost>,
    user: UserId,
    line: Arc<Line>,
    /// Set if the mount is on the same machine.
    is_near: bool,
}

struct Line {
    /// The caller of all requests: a user.
    caller: Caller,
    way: Way,
    /// Session that was attached last over this connection.
    session: Mutex<Option<SessionId>>,
    /// Room for blocks that were read for this connection and are not sent, KiB.
    unsent: Arc<Semaphore>,
    /// Permits for replies about the metadata that are not sent.
    reads: Arc<Semaphore>,
    /// Turns of blocks that the mount is to send again.
    turns: Arc<Turns>,
}

/// Blocks that an operation publishes if it succeeds.
struct BlocksToPublish {
    session: SessionId,
    verb: u16,
    blocks: Vec<BlockId>,
}

/// Bytes and the room that they occupy, as long as they exist.
struct HeldBytes<R> {
    bytes: Bytes,
    _room: R,
}

impl<R> AsRef<[u8]> for HeldBytes<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MountHost {
    /// Makes the host of a server that has the metadata itself, `meta`. `directory` has the files
    /// of `blocks`.
    pub fn new(
        sessions: Arc<Sessions>,
        meta: Meta,
        blocks: Arc<dyn Blocks>,
        directory: Option<&Path>,
    ) -> Arc<MountHost> {
        let directory = directory.and_then(Path::to_str).map(str::to_owned);
        MountHost::at(SessionHome::Here(sessions), meta, blocks, directory)
    }

    /// Makes the host of a gateway. Sessions are with the master that serves, which trusts this
    /// node on who the user of a mount is.
    pub fn of_gateway(agent: Arc<Agent>, meta: Meta, blocks: Arc<dyn Blocks>) -> Arc<MountHost> {
        MountHost::at(SessionHome::of_cluster(agent), meta, blocks, None)
    }

    fn at(
        place: SessionHome,
        meta: Meta,
        blocks: Arc<dyn Blocks>,
        directory: Option<String>,
    ) -> Arc<MountHost> {
        let (told, attached) = (DisclosedBlocks::default(), AttachedSessions::default());
        let unsent = Shares::new(MOUNTS_GET_BYTES as u64);
        let connections = Shares::new(MOUNT_CONNECTIONS as u64);
        let room = || Shares::new(MOUNTS_ASKED_BYTES as u64);
        let (asked, posted) = (room(), room());
        let held = Shares::new(MOUNTS_HELD_BYTES as u64);
        let unwritten = Shares::new(MOUNTS_PUT_BYTES as u64);
        Arc::new(MountHost {
            place,
            blocks: GuardedBlocks::new(blocks),
            directory,
            told,
            unpublished: UnpublishedBlocks::default(),
            rights: Rights::new(meta),
            attached,
            unsent,
            connections,
            asked,
            posted,
            held,
            unwritten,
        })
    }

    /// Serves a mount of a user over a link, until it ends. `is_near` is set if it is on this
    /// machine.
    ///
    /// # Errors
    /// `Denied` if the caller is no user; `Unavailable` if the user has too many mounts here; those
    /// of the handshake.
    pub async fn serve(
        self: Arc<MountHost>,
        caller: Caller,
        link: Link,
        is_near: bool,
    ) -> Result<()> {
        let Principal::User(user) = caller.principal() else {
            return Err(Error::Denied("a mount needs the credentials of a user".into()));
        };
        let _connected = self.connections.take_now(Party::User(user), 1).ok_or_else(|| {
            let text = format!(
                "too many connections of mounts of this user: the server takes \
                 {MOUNT_CONNECTIONS}, a quarter of them for other users",
            );
            Error::Unavailable(text)
        })?;
        let unsent = Arc::new(Semaphore::new(MOUNT_GET_BYTES >> 10));
        let reads = Arc::new(Semaphore::new(MOUNT_READS));
        let (way, session, turns) = (Way::default(), Mutex::default(), Arc::default());
        let line = Arc::new(Line { caller, way, session, unsent, reads, turns });
        let service = MountService { host: self, user, line, is_near };
        let peer = accept(link, &super::terms(), service).await?;
        let _ = peer.closed().await;
        Ok(())
    }

    /// Returns the number of blocks and bodies that are remembered as disclosed to mounts.
    pub fn disclosed_ids(&self) -> u64 {
        self.told.count()
    }

    /// Forgets a session that was attached over this connection.
    fn forget(&self, session: SessionId, connection: u64) {
        if self.attached.end(session, connection) {
            self.told.forget(session);
            self.unpublished.forget(session);
        }
    }
}

impl Service for MountService {
    type Reply = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
        let (service, peer) = (self.clone(), peer.clone());
        Box::pin(async move {
            match method {
                SERVES => {
                    service.line.way.open(&service.host.place, service.user, &peer).await?;
                    wire::encode(&service.host.place.generation())
                }
                PUT => within(service.in_flight("PUT", &peer), service.put_in_room(payload)).await,
                // They wait, and their bytes are counted nowhere.
                GET | LOCATE if payload.len() > MOUNT_SHORT_BYTES => {
                    Err(Error::TooLarge("a request for a block is longer than it can be".into()))
                }
                GET => within(service.in_flight("GET", &peer), service.get(&payload)).await,
                SPACE => service.space().await,
                NEAR => service.near(),
                LOCATE => service.locate(&payload).await,
                method => {
                    let method = SessionMethod::from_number(method)?;
                    let _room = service.room_to_ask(&peer, method, payload.len()).await?;
                    service.converse(&peer, method, payload).await
                }
            }
        })
    }

    /// The mount reconnects, here or elsewhere, or has ended.
    fn ended(&self, peer: &Peer) {
        let Some(session) = *self.line.session.lock() else { return };
        let (host, connection) = (Arc::clone(&self.host), peer.info().connection);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep(TOLD).await;
                host.forget(session, connection);
            });
        }
    }
}

impl MountService {
    /// A request for a block.
    fn in_flight(&self, operation: &'static str, peer: &Peer) -> InFlight {
        let (user, client) = (Some(self.user), peer.info().authenticated.address.clone());
        let about = move || About {
            door: "mount",
            operation: operation.into(),
            client: client.clone(),
            user,
            ..About::default()
        };
        InFlight::new(stage::trace(), about)
    }

    /// Waits for room for what a request holds until it is answered.
    ///
    /// # Errors
    /// `Unavailable` if requests of this user hold all that they may: the connection is closed, and
    /// its requests are sent again over another one.
    async fn room_to_ask(
        &self,
        peer: &Peer,
        method: SessionMethod,
        bytes: usize,
    ) -> Result<Option<[Share; 2]>> {
        let shares = match method {
            SessionMethod::RunPosted => &self.host.posted,
            SessionMethod::Read
            | SessionMethod::Run
            | SessionMethod::Change
            | SessionMethod::Execute
            | SessionMethod::Delegate
            | SessionMethod::Flush => &self.host.asked,
            // Other requests wait for these, and they hold nothing.
            _ if bytes <= MOUNT_SHORT_BYTES => return Ok(None),
            _ => &self.host.asked,
        };
        let user = Party::User(self.user);
        let Some(held) = self.host.held.take_now(user, bytes as u64) else {
            peer.close();
            return Err(Error::Unavailable(
                "the requests of this user's mounts that wait use all the memory that one user may"
                    .into(),
            ));
        };
        let running = shares.take(user, (bytes * MOUNT_ASKED_TIMES) as u64).await;
        Ok(Some([held, running]))
    }

    async fn converse(&self, peer: &Peer, method: SessionMethod, payload: Bytes) -> Result<Bytes> {
        match method {
            SessionMethod::Read => self.read(peer, payload).await,
            SessionMethod::Attach | SessionMethod::AttachToReplay => {
                self.attach(peer, method, payload).await
            }
            SessionMethod::Renew => self.renew(peer, payload).await,
            SessionMethod::Run
            | SessionMethod::Change
            | SessionMethod::Execute
            | SessionMethod::RunPosted => {
                let named = self.named(method, &payload)?;
                let answer = self.ask(peer, method, payload).await?;
                self.ran(method, named, &answer)?;
                Ok(answer)
            }
            SessionMethod::Detach => {
                let Detach { session } = wire::decode(&payload)?;
                self.line.session.lock().take_if(|current| *current == session);
                self.host.forget(session, peer.info().connection);
                self.ask(peer, method, payload).await
            }
            SessionMethod::Acknowledge
            | SessionMethod::Flush
            | SessionMethod::Replayed
            | SessionMethod::Delegate
            | SessionMethod::GiveBack
            // The master denies these.
            | SessionMethod::DumpRows
            | SessionMethod::AttachHolding
            | SessionMethod::Bind
            | SessionMethod::Succeed => self.ask(peer, method, payload).await,
        }
    }

    /// Returns the blocks that operations name, if their publication is awaited.
    fn named(&self, method: SessionMethod, payload: &[u8]) -> Result<Vec<BlocksToPublish>> {
        let named = |run: Run| {
            let Run { session, verb, fields, .. } = run;
            if self.host.unpublished.has_any(session) {
                Ok(BlocksToPublish { session, verb, blocks: wire::published(verb, &fields)? })
            } else {
                Ok(BlocksToPublish { session, verb, blocks: Vec::new() })
            }
        };
        Ok(match method {
            SessionMethod::Run => vec![named(wire::decode(payload)?)?],
            SessionMethod::Change => vec![named(wire::decode::<Change>(payload)?.run)?],
            SessionMethod::Execute => vec![named(wire::decode::<Execute>(payload)?.change.run)?],
            _ => {
                let posted: RunPosted = wire::decode(payload)?;
                let runs = posted.operations.into_iter().map(|one| one.execute.change.run);
                runs.map(named).collect::<Result<_>>()?
            }
        })
    }

    /// Notes which of the blocks that operations named are published.
    fn ran(&self, method: SessionMethod, named: Vec<BlocksToPublish>, answer: &[u8]) -> Result<()> {
        if named.iter().all(|one| one.blocks.is_empty()) {
            return Ok(());
        }
        let replies: Vec<Option<Bytes>> = match method {
            SessionMethod::Run => vec![done::<Bytes>(answer)?],
            SessionMethod::Change => {
                vec![done::<ReadReply>(answer)?.and_then(|reply| reply.reply.ok())]
            }
            SessionMethod::Execute => vec![done::<ExecuteReply>(answer)?.map(|ran| ran.reply)],
            _ => {
                let ran = done::<Vec<Result<ExecuteReply>>>(answer)?.unwrap_or_default();
                ran.into_iter().map(|ran| ran.ok().map(|ran| ran.reply)).collect()
            }
        };
        for (BlocksToPublish { session, verb, blocks }, reply) in named.iter().zip(replies) {
            let is_done = match reply {
                Some(reply) if *verb == Coalesce::NUMBER => wire::decode(&reply)?,
                reply => reply.is_some(),
            };
            if is_done {
                self.host.unpublished.published(*session, blocks);
            }
        }
        Ok(())
    }

    async fn ask(&self, peer: &Peer, method: SessionMethod, message: Bytes) -> Result<Bytes> {
        self.line.way.ask(&self.host.place, &self.line.caller, peer, method, message).await
    }

    async fn attach(&self, peer: &Peer, method: SessionMethod, payload: Bytes) -> Result<Bytes> {
        let Attach { session } = wire::decode(&payload)?;
        let (sent, connection) = (Instant::now(), peer.info().connection);
        let answer = self.ask(peer, method, payload).await?;
        if let Reply::Done(session::AttachReply { lease_ms, .. }) = wire::decode(&answer)? {
            let lease = Duration::from_millis(lease_ms);
            self.host.attached.begin(session, self.user, connection, sent, lease);
            let former = self.line.session.lock().replace(session);
            if let Some(former) = former.filter(|former| *former != session) {
                self.host.forget(former, connection);
            }
        }
        Ok(answer)
    }

    async fn renew(&self, peer: &Peer, payload: Bytes) -> Result<Bytes> {
        let (Renew { session, .. }, sent) = (wire::decode(&payload)?, Instant::now());
        let answer = self.ask(peer, SessionMethod::Renew, payload).await?;
        if let Reply::Done(RenewReply { .. }) = wire::decode(&answer)? {
            self.host.attached.renew(session, peer.info().connection, sent);
        }
        Ok(answer)
    }

    async fn read(&self, peer: &Peer, payload: Bytes) -> Result<Bytes> {
        let read: ReadRequest = wire::decode(&payload)?;
        let (session, verb) = (read.session, read.verb);
        let bucket = match verb {
            ReadExtents::NUMBER => {
                let ReadExtents { bucket, body, .. } = wire::decode(&read.fields)?;
                if !self.host.told.has_body(session, bucket, body) {
                    let text = format!("body {body}: open the file again");
                    return refused(Error::Denied(text));
                }
                Some(bucket)
            }
            _ => None,
        };
        let stops = |_| Error::Unavailable("the server is stopping".into());
        let room = Arc::clone(&self.line.reads).acquire_owned().await.map_err(stops)?;
        let bytes = self.ask(peer, SessionMethod::Read, payload).await?;
        let answer = match wire::decode(&bytes)? {
            // A mount that is elsewhere by now has no use for it, and it would be noted
            // indefinitely.
            _ if *self.line.session.lock() != Some(session) => {
                wire::encode(&Reply::<()>::NotAttached)?
            }
            Reply::Done(reply) => {
                self.told(session, verb, bucket, &reply)?;
                bytes
            }
            Reply::<ReadReply>::Failed(_) | Reply::NotAttached | Reply::NotServing(_) => bytes,
        };
        Ok(Bytes::from_owner(HeldBytes { bytes: answer, _room: room }))
    }

    /// Notes what is disclosed to the session, if it is still attached here: otherwise nothing
    /// would forget it.
    fn told(
        &self,
        session: SessionId,
        verb: u16,
        bucket: Option<BucketId>,
        reply: &ReadReply,
    ) -> Result<()> {
        if !self.host.attached.is_of(session, self.user) {
            return Ok(());
        }
        let told = &self.host.told;
        // If an inode's row is among the rows, its extents are known to be of its bucket.
        told.of_rows(session, &reply.rows);
        match (&reply.reply, verb) {
            (Ok(bytes), OpenInode::NUMBER) => {
                let opened: OpenedObject = wire::decode(bytes)?;
                told.of_inode(session, &opened.inode);
                told.of_extents(session, opened.inode.bucket, &opened.extents);
            }
            (Ok(bytes), ReadExtents::NUMBER) => {
                if let Some(bucket) = bucket {
                    told.of_extents(session, bucket, &wire::decode::<Vec<Extent>>(bytes)?);
                }
            }
            (Ok(bytes), ReadChunk::NUMBER) => {
                let chunk = wire::decode::<Option<(BodyId, Vec<Extent>)>>(bytes)?;
                if let Some((body, extents)) = chunk {
                    told.of_chunk(session, body, extents);
                }
            }
            (Err(Error::Denied(_)), ReadExtents::NUMBER) => {
                if let Some(bucket) = bucket {
                    told.forget_bucket(session, bucket);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_session(&self, session: SessionId) -> Result<()> {
        if self.host.attached.is_of(session, self.user) {
            return Ok(());
        }
        Err(Error::Unavailable(format!("session {session} is not attached")))
    }
}

/// Encodes a refusal as an answer: a mount takes an error of the connection for a server that is
/// gone.
fn refused(error: Error) -> Result<Bytes> {
    wire::encode(&Reply::<()>::Failed(error))
}

/// Decodes the answer, if it is no refusal.
fn done<T: DeserializeOwned>(answer: &[u8]) -> Result<Option<T>> {
    Ok(match wire::decode(answer)? {
        Reply::Done(done) => Some(done),
        Reply::Failed(_) | Reply::NotAttached | Reply::NotServing(_) => None,
    })
}
