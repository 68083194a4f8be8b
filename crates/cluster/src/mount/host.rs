//! The server's side. What a mount asks is asked by its user: where its session is, the caller is
//! made from who proved to be at the other end here; a mount can say only for which uid and groups
//! it asks.
//!
//! A mount is trusted with nothing: it runs the verbs that POSIX needs and no others, publishes
//! blocks of its own session only, and reads blocks only that it was told of.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, Error, Party, Result, SessionId, Share, Shares, UserId, limits};
use cairn_blocks::{Blocks, Wish};
use cairn_meta::ops::open_object::{OpenInode, OpenedObject, ReadExtents};
use cairn_meta::ops::{
    append, clone, coalesce, copy_range, create, getattr, link, lock, lookup, mkdir, readdir,
    readlink, rename, retain, rmdir, sessions, setattr, statfs, symlink, truncate, unlink, write,
    xattr,
};
use cairn_meta::rows::Extent;
use cairn_meta::session::host::Sessions;
use cairn_meta::session::{
    self, Attach, Change, Detach, Execute, Method, Read, ReadReply, Renew, Renewed, Reply, Run,
    RunPosted,
};
use cairn_meta::{WireVerb, wire};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use super::attached::Attached;
use super::messages::{GET, Get, LOCATE, Locate, NEAR, PUT, Put, SERVES, SPACE, Space};
use super::told::Told;
use super::way::{Place, Way};
use crate::control::{Agent, split};
use crate::limits::{MOUNT_CONNECTIONS, MOUNT_GET_BYTES, MOUNT_READS, MOUNTS_GET_BYTES};
use crate::wire::{Link, Peer, Service, accept};

/// Verbs that a mount may have run.
const RUNS: &[u16] = &[
    append::Append::NUMBER,
    clone::CloneFile::NUMBER,
    coalesce::Coalesce::NUMBER,
    copy_range::CopyRange::NUMBER,
    create::Create::NUMBER,
    create::Mknod::NUMBER,
    link::Link::NUMBER,
    lock::ReleaseLock::NUMBER,
    lock::TakeLock::NUMBER,
    mkdir::Mkdir::NUMBER,
    rename::Rename::NUMBER,
    retain::LetGo::NUMBER,
    retain::Retain::NUMBER,
    rmdir::Rmdir::NUMBER,
    sessions::ReserveInodes::NUMBER,
    setattr::Setattr::NUMBER,
    symlink::Symlink::NUMBER,
    truncate::PunchHole::NUMBER,
    truncate::Truncate::NUMBER,
    unlink::Unlink::NUMBER,
    write::Write::NUMBER,
    xattr::RemoveXattr::NUMBER,
    xattr::SetXattr::NUMBER,
];

/// Verbs whose answers a mount may read.
const READS: &[u16] = &[
    OpenInode::NUMBER,
    ReadExtents::NUMBER,
    coalesce::ReadChunk::NUMBER,
    getattr::Access::NUMBER,
    getattr::Getattr::NUMBER,
    lock::TestLock::NUMBER,
    lookup::Lookup::NUMBER,
    readdir::Readdir::NUMBER,
    readlink::Readlink::NUMBER,
    statfs::Statfs::NUMBER,
    xattr::GetXattr::NUMBER,
    xattr::ListXattrs::NUMBER,
];

/// How long it is kept what a session was told of, after its connection was lost.
const TOLD: Duration = Duration::from_secs(60);

/// Serves the mounts that come in here.
pub struct MountHost {
    place: Place,
    blocks: Arc<dyn Blocks>,
    /// The directory that they are in.
    directory: Option<String>,
    told: Told,
    attached: Attached,
    /// Bytes of blocks that were read and are not sent.
    unsent: Arc<Shares>,
    /// Places for connections.
    connections: Arc<Shares>,
}

/// Answers one connection of a mount, whose user is known. Clones are the same.
#[derive(Clone)]
pub struct MountService {
    host: Arc<MountHost>,
    user: UserId,
    line: Arc<Line>,
    /// The mount is on the same machine.
    is_near: bool,
}

struct Line {
    way: Way,
    /// The one that was attached last over this connection.
    session: Mutex<Option<SessionId>>,
    /// KiB of blocks that were read for this connection and are not sent.
    unsent: Arc<Semaphore>,
    /// For what is read of the metadata, and not sent.
    reads: Arc<Semaphore>,
}

/// An answer on its way to a mount, and the room that it takes.
struct Unsent<R> {
    bytes: Bytes,
    _room: R,
}

impl<R> AsRef<[u8]> for Unsent<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MountHost {
    /// Of a server that has the metadata itself. `directory`: of the files of `blocks`.
    pub fn new(
        sessions: Arc<Sessions>,
        blocks: Arc<dyn Blocks>,
        directory: Option<&Path>,
    ) -> Arc<MountHost> {
        let directory = directory.and_then(Path::to_str).map(str::to_owned);
        MountHost::at(Place::Here(sessions), blocks, directory)
    }

    /// Of a gateway: sessions are with the master that serves, which takes this node's word for
    /// who the user of a mount is.
    pub fn of_gateway(agent: Arc<Agent>, blocks: Arc<dyn Blocks>) -> Arc<MountHost> {
        MountHost::at(Place::of_cluster(agent), blocks, None)
    }

    fn at(place: Place, blocks: Arc<dyn Blocks>, directory: Option<String>) -> Arc<MountHost> {
        let (told, attached) = (Told::default(), Attached::default());
        let unsent = Shares::new(MOUNTS_GET_BYTES as u64);
        let connections = Shares::new(MOUNT_CONNECTIONS as u64);
        Arc::new(MountHost { place, blocks, directory, told, attached, unsent, connections })
    }

    /// Serves a mount of `user` over a link, until it ends. `is_near` if it is on this machine.
    pub async fn serve(
        self: Arc<MountHost>,
        user: UserId,
        link: Link,
        is_near: bool,
    ) -> Result<()> {
        let _connected = self.connections.take_now(Party::User(user), 1).ok_or_else(|| {
            let text = format!(
                "no place for another connection of a mount of this user: there are \
                 {MOUNT_CONNECTIONS}, a quarter of them for other users",
            );
            Error::Unavailable(text)
        })?;
        let unsent = Arc::new(Semaphore::new(MOUNT_GET_BYTES >> 10));
        let reads = Arc::new(Semaphore::new(MOUNT_READS));
        let line = Line { way: Way::default(), session: Mutex::default(), unsent, reads };
        let line = Arc::new(line);
        let service = MountService { host: self, user, line, is_near };
        let peer = accept(link, &super::terms(), service).await?;
        let _ = peer.closed().await;
        Ok(())
    }

    /// A session is not here any more, if it was by this connection.
    fn forget(&self, session: SessionId, connection: u64) {
        if self.attached.end(session, connection) {
            self.told.forget(session);
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
                    let from = (service.user, &peer);
                    service.line.way.open(&service.host.place, from).await?;
                    Ok(Bytes::new())
                }
                PUT => service.put(&payload).await,
                GET => service.get(&payload).await,
                SPACE => service.space().await,
                NEAR => service.near(),
                LOCATE => service.locate(&payload),
                method => {
                    let method = Method::from_number(method)?;
                    service.converse(&peer, method, payload).await
                }
            }
        })
    }

    /// The mount comes back, here or elsewhere, or it is gone.
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
    async fn converse(&self, peer: &Peer, method: Method, payload: Bytes) -> Result<Bytes> {
        let checked = match method {
            Method::Read => return self.read(peer, payload).await,
            Method::Attach | Method::AttachToReplay => {
                return self.attach(peer, method, payload).await;
            }
            Method::Renew => return self.renew(peer, payload).await,
            Method::Detach => {
                let Detach { session } = wire::decode(&payload)?;
                self.line.session.lock().take_if(|current| *current == session);
                self.host.forget(session, peer.info().connection);
                Ok(())
            }
            Method::Run => check_run(&wire::decode::<Run>(&payload)?),
            Method::Change => check_run(&wire::decode::<Change>(&payload)?.run),
            Method::Execute => check_run(&wire::decode::<Execute>(&payload)?.change.run),
            // One that is refused has all refused.
            Method::RunPosted => {
                let posted: RunPosted = wire::decode(&payload)?;
                posted.operations.iter().try_for_each(|one| check_run(&one.execute.change.run))
            }
            Method::Acknowledge
            | Method::Flush
            | Method::Replayed
            | Method::Delegate
            | Method::GiveBack => Ok(()),
        };
        match checked {
            Ok(()) => self.ask(peer, method, payload).await,
            Err(error) => refused(error),
        }
    }

    async fn ask(&self, peer: &Peer, method: Method, message: Bytes) -> Result<Bytes> {
        self.line.way.ask(&self.host.place, (self.user, peer), method, message).await
    }

    async fn attach(&self, peer: &Peer, method: Method, payload: Bytes) -> Result<Bytes> {
        let Attach { session } = wire::decode(&payload)?;
        let (sent, connection) = (Instant::now(), peer.info().connection);
        let answer = self.ask(peer, method, payload).await?;
        if let Reply::Done(session::Attached { lease_ms, .. }) = wire::decode(&answer)? {
            let lease = Duration::from_millis(lease_ms);
            self.host.attached.begin(session, (self.user, connection), sent, lease);
            let former = self.line.session.lock().replace(session);
            if let Some(former) = former.filter(|former| *former != session) {
                self.host.forget(former, connection);
            }
        }
        Ok(answer)
    }

    async fn renew(&self, peer: &Peer, payload: Bytes) -> Result<Bytes> {
        let (Renew { session, .. }, sent) = (wire::decode(&payload)?, Instant::now());
        let answer = self.ask(peer, Method::Renew, payload).await?;
        if let Reply::Done(Renewed { .. }) = wire::decode(&answer)? {
            self.host.attached.renew(session, peer.info().connection, sent);
        }
        Ok(answer)
    }

    async fn read(&self, peer: &Peer, payload: Bytes) -> Result<Bytes> {
        let read: Read = wire::decode(&payload)?;
        let (session, verb) = (read.session, read.verb);
        if let Err(error) = self.check_read(session, &read) {
            return refused(error);
        }
        let stops = |_| Error::Unavailable("the server stops".into());
        let room = Arc::clone(&self.line.reads).acquire_owned().await.map_err(stops)?;
        let bytes = self.ask(peer, Method::Read, payload).await?;
        let answer = match wire::decode(&bytes)? {
            // It is of no use to who is elsewhere by now, and would be noted for ever.
            _ if *self.line.session.lock() != Some(session) => {
                wire::encode(&Reply::<()>::NotAttached)?
            }
            Reply::Done(reply) => self.told(session, verb, reply)?,
            Reply::<ReadReply>::Failed(_) | Reply::NotAttached | Reply::NotServing(_) => bytes,
        };
        Ok(Bytes::from_owner(Unsent { bytes: answer, _room: room }))
    }

    fn check_read(&self, session: SessionId, read: &Read) -> Result<()> {
        check_verb(READS, read.verb)?;
        if read.verb == ReadExtents::NUMBER {
            let ReadExtents { body, .. } = wire::decode(&read.fields)?;
            if !self.host.told.may_ask(session, body) {
                return Err(Error::Denied(format!("body {body}")));
            }
        }
        Ok(())
    }

    /// Notes what the session learns. Who is denied something gets no rows of it.
    fn told(&self, session: SessionId, verb: u16, mut reply: ReadReply) -> Result<Bytes> {
        let told = &self.host.told;
        match &reply.reply {
            Ok(bytes) => match verb {
                OpenInode::NUMBER => {
                    let opened: OpenedObject = wire::decode(bytes)?;
                    told.of_inode(session, &opened.inode);
                    told.of_extents(session, &opened.extents);
                }
                ReadExtents::NUMBER => {
                    told.of_extents(session, &wire::decode::<Vec<Extent>>(bytes)?);
                }
                _ => {}
            },
            Err(Error::NotFound(_)) => {}
            Err(_) => reply.rows.clear(),
        }
        told.of_rows(session, &reply.rows);
        wire::encode(&Reply::Done(reply))
    }

    async fn put(&self, payload: &Bytes) -> Result<Bytes> {
        let (put, data) = split::<Put>(payload)?;
        self.check_session(put.session)?;
        if put.block.session != put.session {
            return Err(Error::Denied(format!("block {} is of another session", put.block)));
        }
        if data.is_empty() || data.len() > limits::BLOCK_BYTES {
            return Err(Error::Invalid(format!("a block of {} bytes", data.len())));
        }
        let wish = Wish { replicas: put.replicas, group: put.group };
        let group = self.host.blocks.write(wish, put.block, put.owner, data).await?;
        wire::encode(&group)
    }

    async fn get(&self, payload: &[u8]) -> Result<Bytes> {
        let Get { session, group, block, start, end } = wire::decode(payload)?;
        self.check_read_of(session, block)?;
        let length =
            end.checked_sub(start).filter(|length| *length as usize <= limits::BLOCK_BYTES);
        let length = length.ok_or_else(|| Error::Invalid(format!("bytes {start} to {end}")))?;
        let room = self.room(length).await?;
        let blocks = &self.host.blocks;
        let bytes = match blocks.get_now(group, block, start..end)? {
            Some(bytes) => bytes,
            None => blocks.get(group, block, start..end).await?,
        };
        Ok(Bytes::from_owner(Unsent { bytes, _room: room }))
    }

    /// Room for so many bytes, until they are sent.
    async fn room(&self, bytes: u32) -> Result<(OwnedSemaphorePermit, Share)> {
        let kib = bytes.div_ceil(1 << 10);
        let closed = |_| Error::Unavailable("the server stops".into());
        // That of the connection first: one that reads nothing takes no more than its own.
        let own = Arc::clone(&self.line.unsent).acquire_many_owned(kib).await.map_err(closed)?;
        Ok((own, self.host.unsent.take(Party::User(self.user), bytes.into()).await))
    }

    fn near(&self) -> Result<Bytes> {
        wire::encode(&self.host.directory.as_ref().filter(|_| self.is_near))
    }

    fn locate(&self, payload: &[u8]) -> Result<Bytes> {
        let Locate { session, group, block } = wire::decode(payload)?;
        self.check_read_of(session, block)?;
        wire::encode(&self.host.blocks.place(group, block).filter(|_| self.is_near))
    }

    fn check_read_of(&self, session: SessionId, block: BlockId) -> Result<()> {
        self.check_session(session)?;
        if !self.host.told.may_read(session, block) {
            return Err(Error::Denied(format!("block {block}: open the file again")));
        }
        Ok(())
    }

    async fn space(&self) -> Result<Bytes> {
        let usage = self.host.blocks.room().await?;
        wire::encode(&Space { live_bytes: usage.live_bytes, free_bytes: usage.free_bytes })
    }

    fn check_session(&self, session: SessionId) -> Result<()> {
        if self.host.attached.is_of(session, self.user) {
            return Ok(());
        }
        Err(Error::Unavailable(format!("session {session} is not attached")))
    }
}

/// An answer: a mount takes an error of the connection for a server that is gone.
fn refused(error: Error) -> Result<Bytes> {
    wire::encode(&Reply::<()>::Failed(error))
}

fn check_verb(allowed: &[u16], verb: u16) -> Result<()> {
    if allowed.contains(&verb) {
        return Ok(());
    }
    Err(Error::Denied(format!("operation {verb} is not for a mount")))
}

fn check_run(run: &Run) -> Result<()> {
    check_verb(RUNS, run.verb)?;
    check_fields(run)
}

/// Blocks and bodies that an operation names as new must be of the session that sends it.
fn check_fields(run: &Run) -> Result<()> {
    let (session, fields) = (run.session, &run.fields);
    let (named, spare): (SessionId, Option<BodyId>) = match run.verb {
        write::Write::NUMBER => {
            let verb: write::Write = wire::decode(fields)?;
            (verb.session, Some(verb.spare))
        }
        append::Append::NUMBER => {
            let verb: append::Append = wire::decode(fields)?;
            (verb.session, Some(verb.spare))
        }
        truncate::Truncate::NUMBER => {
            let verb: truncate::Truncate = wire::decode(fields)?;
            (verb.session, Some(verb.spare))
        }
        truncate::PunchHole::NUMBER => {
            let verb: truncate::PunchHole = wire::decode(fields)?;
            (verb.session, Some(verb.spare))
        }
        copy_range::CopyRange::NUMBER => {
            let verb: copy_range::CopyRange = wire::decode(fields)?;
            (verb.session, Some(verb.spare))
        }
        clone::CloneFile::NUMBER => (wire::decode::<clone::CloneFile>(fields)?.session, None),
        coalesce::Coalesce::NUMBER => (wire::decode::<coalesce::Coalesce>(fields)?.session, None),
        sessions::ReserveInodes::NUMBER => {
            (wire::decode::<sessions::ReserveInodes>(fields)?.session, None)
        }
        retain::Retain::NUMBER => (wire::decode::<retain::Retain>(fields)?.session, None),
        retain::LetGo::NUMBER => (wire::decode::<retain::LetGo>(fields)?.session, None),
        lock::TakeLock::NUMBER => (wire::decode::<lock::TakeLock>(fields)?.lock.session, None),
        lock::ReleaseLock::NUMBER => {
            (wire::decode::<lock::ReleaseLock>(fields)?.lock.session, None)
        }
        _ => return Ok(()),
    };
    if named != session {
        // It lapsed while this was on its way: what it wrote is written once more, in this one.
        return Err(Error::Unavailable(format!("this is session {session}, not {named}")));
    }
    if let Some(spare) = spare.filter(|spare| spare.session != session) {
        return Err(Error::Denied(format!("body {spare} is not of session {session}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_auth::Caller;
    use cairn_base::Ino;
    use cairn_meta::ops::body::Data;
    use cairn_meta::ops::{credentials, put_object};

    const OWN: SessionId = SessionId(7);
    const OTHER: SessionId = SessionId(8);

    fn run(verb: u16, fields: Bytes) -> Run {
        let caller = Caller::anonymous().to_relayed();
        Run { session: OWN, slot: 0, sequence: 1, caller, verb, fields }
    }

    #[test]
    fn a_mount_runs_what_a_file_system_needs_and_nothing_else() {
        for verb in [
            credentials::AddAccessKey::NUMBER,
            credentials::FindAccessKey::NUMBER,
            put_object::PutObject::NUMBER,
            put_object::StageExtents::NUMBER,
            sessions::EndSession::NUMBER,
            retain::LetGoAll::NUMBER,
            lock::ReleaseAll::NUMBER,
        ] {
            assert!(check_verb(RUNS, verb).is_err() && check_verb(READS, verb).is_err(), "{verb}");
        }
        check_verb(RUNS, write::Write::NUMBER).unwrap();
    }

    #[test]
    fn a_mount_names_no_session_and_no_body_of_others() {
        let write = |session: SessionId, spare: SessionId| {
            let spare = BodyId { session: spare, counter: 1 };
            let data = Data::Inline(Bytes::from_static(b"x"));
            let verb = write::Write { ino: Ino(5), session, opened: true, spare, offset: 0, data };
            check_fields(&run(write::Write::NUMBER, wire::encode(&verb).unwrap()))
        };
        write(OWN, OWN).unwrap();
        assert!(write(OTHER, OWN).is_err());
        assert!(write(OWN, OTHER).is_err());
        let copy = |session: SessionId, spare: SessionId| {
            let verb = copy_range::CopyRange {
                source: Ino(4),
                source_offset: 0,
                ino: Ino(5),
                offset: 0,
                len: 1,
                session,
                opened: true,
                spare: BodyId { session: spare, counter: 1 },
            };
            check_fields(&run(copy_range::CopyRange::NUMBER, wire::encode(&verb).unwrap()))
        };
        copy(OWN, OWN).unwrap();
        assert!(copy(OTHER, OWN).is_err());
        assert!(copy(OWN, OTHER).is_err());
        let verb = retain::LetGo { ino: Ino(5), session: OTHER };
        let let_go = run(retain::LetGo::NUMBER, wire::encode(&verb).unwrap());
        assert!(check_fields(&let_go).is_err());
        assert!(check_fields(&run(write::Write::NUMBER, Bytes::from_static(b"\xff"))).is_err());
    }
}
