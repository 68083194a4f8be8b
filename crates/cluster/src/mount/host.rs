//! The server's side. What a mount asks is asked by its user: the caller is made here, from who
//! proved to be at the other end; a mount can say only for which uid and groups it asks.
//!
//! A mount is trusted with nothing: it runs the verbs that POSIX needs and no others, publishes
//! blocks of its own session only, and reads blocks only that it was told of.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BlockId, BodyId, Error, Result, SessionId, UserId, limits};
use cairn_blocks::{Blocks, Wish};
use cairn_meta::ops::open_object::{OpenInode, OpenedObject, ReadExtents};
use cairn_meta::ops::{
    append, clone, coalesce, copy_range, create, getattr, link, lock, lookup, mkdir, readdir,
    readlink, rename, retain, rmdir, sessions, setattr, statfs, symlink, truncate, unlink, write,
    xattr,
};
use cairn_meta::rows::Extent;
use cairn_meta::session::host::{self, Answer, Sessions};
use cairn_meta::session::{
    Change, Detach, Execute, Method, Read, ReadReply, Reply, Run, RunPosted,
};
use cairn_meta::{WireVerb, wire};
use serde::Serialize;

use super::messages::{GET, Get, LOCATE, Locate, NEAR, PUT, Put, SERVES, SPACE, Space, split};
use super::told::Told;
use crate::control::forward;
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

/// Serves the mounts of a server.
pub struct MountHost {
    sessions: Arc<Sessions>,
    blocks: Arc<dyn Blocks>,
    /// The directory that they are in.
    directory: Option<String>,
    told: Told,
}

/// Answers one mount, whose user is known. Clones are the same.
#[derive(Clone)]
pub struct MountService {
    host: Arc<MountHost>,
    user: UserId,
    /// The mount is on the same machine.
    is_near: bool,
}

impl MountHost {
    /// `directory`: of the files of `blocks`, if they have any.
    pub fn new(
        sessions: Arc<Sessions>,
        blocks: Arc<dyn Blocks>,
        directory: Option<&Path>,
    ) -> Arc<MountHost> {
        let directory = directory.and_then(Path::to_str).map(str::to_owned);
        Arc::new(MountHost { sessions, blocks, directory, told: Told::default() })
    }

    /// Serves a mount of `user` over a link, until it ends. `is_near` if it is on this machine.
    pub async fn serve(
        self: Arc<MountHost>,
        user: UserId,
        link: Link,
        is_near: bool,
    ) -> Result<()> {
        let service = MountService { host: self, user, is_near };
        let peer = accept(link, &super::terms(), service).await?;
        let _ = peer.closed().await;
        Ok(())
    }
}

impl Service for MountService {
    type Reply = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

    fn call(&self, peer: &Peer, method: u16, payload: Bytes) -> Self::Reply {
        let (service, peer) = (self.clone(), peer.clone());
        Box::pin(async move {
            match method {
                SERVES => Ok(Bytes::new()),
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
}

impl MountService {
    fn from(&self) -> host::Peer {
        // Apart from the numbers of nodes, and never 0.
        host::Peer { id: 1 << 63 | self.user.0 }
    }

    async fn converse(&self, peer: &Peer, method: Method, payload: Bytes) -> Result<Bytes> {
        let (sessions, told) = (&self.host.sessions, &self.host.told);
        match method {
            Method::Read => return self.read(&payload).await,
            Method::Run => return self.run(&payload).await,
            Method::Change => return self.change(&payload).await,
            Method::Execute => return self.execute(&payload).await,
            Method::RunPosted => return self.run_posted(&payload).await,
            Method::Detach => {
                let Detach { session } = wire::decode(&payload)?;
                if sessions.is_attached(&self.from(), session) {
                    told.forget(session);
                }
            }
            _ => {}
        }
        match sessions.handle(&self.from(), method, &payload).await? {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Attached(bytes, recalls) => {
                tokio::spawn(forward(peer.clone(), recalls));
                Ok(bytes)
            }
        }
    }

    /// The caller as this server knows it, with the POSIX identity that the mount claims.
    fn caller(&self, claimed: cairn_auth::RelayedCaller) -> Caller {
        let caller = Caller::verified(self.user);
        match Caller::relayed(claimed).posix() {
            Some(posix) => caller.with_posix(posix.clone()),
            None => caller,
        }
    }

    async fn read(&self, payload: &[u8]) -> Result<Bytes> {
        let mut read: Read = wire::decode(payload)?;
        let (session, verb) = (read.session, read.verb);
        if let Err(error) = self.check_read(session, &read) {
            return refused(error);
        }
        read.caller = self.caller(read.caller).to_relayed();
        let bytes = self.handle(Method::Read, &read).await?;
        match wire::decode(&bytes)? {
            Reply::Done(reply) => self.told(session, verb, reply),
            Reply::<ReadReply>::Failed(_) | Reply::NotAttached | Reply::NotServing(_) => Ok(bytes),
        }
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

    async fn run(&self, payload: &[u8]) -> Result<Bytes> {
        let mut run: Run = wire::decode(payload)?;
        if let Err(error) = self.check_run(&mut run) {
            return refused(error);
        }
        self.handle(Method::Run, &run).await
    }

    /// As [`MountService::run`]. The rows that come back are of what the user made.
    async fn change(&self, payload: &[u8]) -> Result<Bytes> {
        let mut change: Change = wire::decode(payload)?;
        if let Err(error) = self.check_run(&mut change.run) {
            return refused(error);
        }
        self.handle(Method::Change, &change).await
    }

    /// As [`MountService::change`].
    async fn execute(&self, payload: &[u8]) -> Result<Bytes> {
        let mut execute: Execute = wire::decode(payload)?;
        if let Err(error) = self.check_run(&mut execute.change.run) {
            return refused(error);
        }
        self.handle(Method::Execute, &execute).await
    }

    /// As [`MountService::execute`]; one that is refused has all refused.
    async fn run_posted(&self, payload: &[u8]) -> Result<Bytes> {
        let mut posted: RunPosted = wire::decode(payload)?;
        for one in &mut posted.operations {
            if let Err(error) = self.check_run(&mut one.execute.change.run) {
                return refused(error);
            }
        }
        self.handle(Method::RunPosted, &posted).await
    }

    fn check_run(&self, run: &mut Run) -> Result<()> {
        check_verb(RUNS, run.verb)?;
        check_fields(run)?;
        run.caller = self.caller(run.caller.clone()).to_relayed();
        Ok(())
    }

    async fn handle(&self, method: Method, message: &impl Serialize) -> Result<Bytes> {
        let message = wire::encode(message)?;
        match self.host.sessions.handle(&self.from(), method, &message).await? {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Attached(..) => Err(unexpected()),
        }
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
        let blocks = &self.host.blocks;
        if let Some(bytes) = blocks.get_now(group, block, start..end)? {
            return Ok(bytes);
        }
        blocks.get(group, block, start..end).await
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
        let usage = self.host.blocks.usage().await?;
        wire::encode(&Space { live_bytes: usage.live_bytes, free_bytes: usage.free_bytes })
    }

    fn check_session(&self, session: SessionId) -> Result<()> {
        if self.host.sessions.is_attached(&self.from(), session) {
            return Ok(());
        }
        Err(Error::Unavailable(format!("session {session} is not attached")))
    }
}

/// An answer: a mount takes an error of the connection for a server that is gone.
fn refused(error: Error) -> Result<Bytes> {
    wire::encode(&Reply::<()>::Failed(error))
}

fn unexpected() -> Error {
    Error::Invalid("an answer to something else".into())
}

fn check_verb(allowed: &[u16], verb: u16) -> Result<()> {
    if allowed.contains(&verb) {
        return Ok(());
    }
    Err(Error::Denied(format!("operation {verb} is not for a mount")))
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
