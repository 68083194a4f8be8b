//! The common part of all calls: the file system, and from a handle the user of a client and its
//! place.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::{Caller, HandleKey, Origin, Posix as Identity};
use cairn_base::{BucketId, Buffers, Error, Ino, Party, Result, Rng, Share, Shares, inflight};
use cairn_fs::Fs;
use cairn_fs::ops::exports::{FindExportAt, ListExports, ListedExport};
use cairn_fs::rows::Export;
use cairn_posix::{
    Attempt, Attributes, CallId, Changes, Intent, Nobody, Options, Posix, Step, Who,
};
use tokio::runtime::Handle as Runtime;
use tokio::time::{Instant, sleep, timeout};

use crate::attributes::write_after;
use crate::groups::{Groups, ID, NotNow};
use crate::handle::{BYTES, Handle};
use crate::limits::{DIRTY_BYTES, DIRTY_BYTES_EACH, LONG_BYTES, READING_BYTES, ROOM_HELD, TURNS};
use crate::load::Load;
use crate::openings::Openings;
use crate::parties::Taken;
use crate::record::memory;
use crate::replies::{Checksum, Replies};
use crate::rpc::Reply;
use crate::status::Status;
use crate::watch::Watch;
use crate::xdr::Writer;

/// How often what was written is looked after.
const SWEEP: Duration = Duration::from_secs(1);

/// Clients open files by themselves, and say nothing of that.
pub const READING: Intent = Intent { resumes: true, ..Intent::READING };
pub const WRITING: Intent = Intent { resumes: true, ..Intent::WRITING };

/// The store as a file system for clients.
pub struct Desk {
    pub posix: Arc<Posix>,
    pub openings: Arc<Openings>,
    pub replies: Replies,
    /// Of calls at work, and replies that wait.
    pub bytes: Arc<Taken>,
    /// Of long calls that come or are at work.
    pub long: Arc<Shares>,
    /// Memory of long calls.
    pub records: Buffers,
    /// Of connections that answer calls.
    pub turns: Arc<Shares>,
    /// Of calls that read.
    reading: Arc<Shares>,
    pub load: Arc<Load>,
    /// Where the door is, as the portmapper says.
    pub port: u16,
    /// The receiver of records of calls.
    pub watch: Watch,
    key: HandleKey,
    /// Of users, where those that clients name do not count.
    groups: Option<Groups>,
}

/// How a door behaves.
#[derive(Clone)]
pub struct Behaviour {
    /// Where it is, as the portmapper says.
    pub port: u16,
    /// The receiver of records of calls.
    pub watch: Watch,
    /// Groups of users are those that this machine knows, and not those that clients name.
    pub looks_up_groups: bool,
}

/// The client that asks.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: IpAddr,
    /// As it says itself.
    pub identity: Option<Identity>,
    /// At which of its calls, if that is to be done once.
    attempt: Option<Attempt>,
}

impl Client {
    pub fn new(address: IpAddr, identity: Option<Identity>) -> Client {
        Client { address, identity, attempt: None }
    }

    /// The same with an attempt at a call that came at `came`.
    pub fn calling(&self, checksum: Checksum, came: Instant) -> (Client, Attempt) {
        let client = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let call = CallId { client: client.octets(), checksum, step: 0 };
        let attempt = Attempt::new(call, came);
        (Client { attempt: Some(attempt.clone()), ..self.clone() }, attempt)
    }
}

/// An inode that a client asks about.
#[derive(Clone, Debug)]
pub struct Place {
    pub ino: Ino,
    pub bucket: BucketId,
    export: u64,
    /// Where the export begins.
    top: Ino,
    pub is_read_only: bool,
    /// On whose behalf.
    pub who: Who,
}

impl Place {
    fn new(
        bucket: BucketId,
        (export, top): (&Export, Ino),
        ino: Ino,
        who: (Identity, &Client),
    ) -> Place {
        let (Identity { uid, gid, groups }, client) = who;
        let origin = Origin { source: Some(client.address), ..Origin::default() };
        let user = Caller::verified(export.user).with_origin(origin);
        let who = Who::new(uid, gid, &groups).for_user(user);
        let who = match &client.attempt {
            Some(attempt) => who.for_call(attempt.clone()),
            None => who,
        };
        let (number, is_read_only) = (export.number, export.read_only);
        Place { ino, bucket, export: number, top, is_read_only, who }
    }

    /// Where the export begins.
    pub fn is_top(&self) -> bool {
        self.ino == self.top
    }

    pub fn who(&self) -> Who {
        self.who.clone()
    }

    /// The same, where this is done last for the call.
    pub fn ending_with(&self, last: Step) -> Place {
        Place { who: self.who().ending_with(last), ..self.clone() }
    }

    pub fn check_writable(&self) -> Result<(), Status> {
        if self.is_read_only { Err(Status::ROFS) } else { Ok(()) }
    }

    /// Whether both are of one export.
    pub fn is_beside(&self, other: &Place) -> bool {
        (self.bucket, self.export) == (other.bucket, other.export)
    }
}

impl Desk {
    /// `fs` posts nothing: what it says is done is durable.
    pub fn new(
        fs: Fs,
        key: HandleKey,
        rng: &dyn Rng,
        runtime: Runtime,
        Behaviour { port, watch, looks_up_groups }: Behaviour,
    ) -> Arc<Desk> {
        let options = Options {
            dirty_bytes: DIRTY_BYTES,
            dirty_bytes_each: DIRTY_BYTES_EACH,
            opens_nothing: false,
        };
        // Whoever asks brings a user. Without one nothing may be done.
        let posix = Posix::new(fs, Caller::anonymous(), runtime.clone(), Arc::new(Nobody), options);
        posix.follow_changes();
        let openings = Openings::new(Arc::clone(&posix), rng.next_u64());
        let groups = looks_up_groups.then(|| Groups::new(ID));
        let (replies, bytes, load) = (Replies::default(), Arc::default(), Arc::default());
        let (long, reading) = (Shares::new(LONG_BYTES), Shares::new(READING_BYTES));
        let turns = Shares::new(TURNS * runtime.metrics().num_workers() as u64);
        Arc::new(Desk {
            posix,
            openings,
            replies,
            bytes,
            long,
            records: memory(),
            turns,
            reading,
            load,
            port,
            watch,
            key,
            groups,
        })
    }

    /// Looks after what was written, until the desk is gone.
    pub async fn sweep(desk: std::sync::Weak<Desk>) {
        loop {
            sleep(SWEEP).await;
            let Some(desk) = desk.upgrade() else { return };
            desk.posix.sweep();
            desk.openings.sweep();
        }
    }

    /// Reads so many bytes for a client once there is room for that: so one client does not keep
    /// all threads busy.
    pub async fn reads<T>(&self, from: IpAddr, bytes: u64, work: impl Future<Output = T>) -> T {
        let room = self.room_to_read(from, bytes).await;
        let mut work = pin!(work);
        if let Ok(done) = timeout(ROOM_HELD, work.as_mut()).await {
            return done;
        }
        drop(room);
        work.await
    }

    pub async fn room_to_read(&self, from: IpAddr, bytes: u64) -> Share {
        self.reading.take(Party::at(from), bytes).await
    }

    /// Has all that was written become durable.
    pub async fn close(&self) {
        self.openings.close_all().await;
    }

    /// The place that a client may ask about with this handle.
    ///
    /// # Errors
    /// `BADHANDLE`, `STALE` if the export has ended, `ACCES` if it is not for that client,
    /// `JUKEBOX` if its user has asked for far more than the user may.
    pub async fn place(&self, client: &Client, handle: &[u8]) -> Result<Place, Status> {
        let Handle { bucket, export: number, ino } = Handle::open(&self.key, handle)?;
        let found = self.find(bucket, Some(ino)).await?;
        let (export, top) = found.as_ref().as_ref().ok_or(Status::STALE)?;
        if export.number != number {
            return Err(Status::STALE);
        }
        if !export.admits(client.address) {
            return Err(Status::ACCES);
        }
        inflight::by(export.user);
        if let Some(account) = self.posix.fs().account(export.user).await {
            let turn = account.take_late();
            let (Ok(wait) | Err(wait)) = turn;
            sleep(wait).await;
            // Nothing was done for the call: clients send it again.
            turn.map_err(|_| Status::JUKEBOX)?;
        }
        let identity = self.identity(client).await?;
        let identity = export.identity(identity);
        Ok(Place::new(bucket, (export, *top), ino, (identity, client)))
    }

    /// The identity that a client states, with all groups where they are looked up. A user whom
    /// this machine does not know has only the first one.
    async fn identity(&self, client: &Client) -> Result<Option<Identity>, Status> {
        let Some(groups) = &self.groups else { return Ok(client.identity.clone()) };
        let Some(Identity { uid, gid, .. }) = client.identity else { return Ok(None) };
        if uid == 0 {
            // Mode bits do not hold it, and where it is squashed it has no groups.
            return Ok(client.identity.clone());
        }
        let found = groups.of(uid, Party::at(client.address)).await;
        let found = found.map_err(|NotNow| Status::JUKEBOX)?;
        let groups = found.map_or_else(Vec::new, |groups| groups.to_vec());
        Ok(Some(Identity { uid, gid, groups }))
    }

    async fn find(
        &self,
        bucket: BucketId,
        ino: Option<Ino>,
    ) -> Result<Arc<Option<(Export, Ino)>>, Status> {
        let (system, verb) = (Caller::system(), FindExportAt { bucket, ino });
        let found = self.posix.fs().read_kept(&system, verb).await;
        found.map_err(|error| Status::of(&error))
    }

    /// The top of an export, for whoever mounts it: the rights of its user alone decide.
    ///
    /// # Errors
    /// `ACCES` if it has just ended.
    pub async fn top(&self, client: &Client, listed: &ListedExport) -> Result<Place, Status> {
        let found = self.find(listed.id, None).await?;
        let (export, top) = found.as_ref().as_ref().ok_or(Status::ACCES)?;
        if !export.admits(client.address) {
            return Err(Status::ACCES);
        }
        inflight::by(export.user);
        let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
        Ok(Place::new(listed.id, (export, *top), *top, (root, client)))
    }

    /// The handle of an inode that was found by way of a place.
    pub fn handle(&self, place: &Place, ino: Ino) -> [u8; BYTES] {
        Handle { bucket: place.bucket, export: place.export, ino }.seal(&self.key)
    }

    /// The inode of a handle, if this store has made it.
    pub fn inode(&self, handle: &[u8]) -> Option<Ino> {
        Handle::open(&self.key, handle).ok().map(|handle| handle.ino)
    }

    /// Exports that a client may mount.
    pub async fn exports(&self, client: &Client) -> Result<Vec<ListedExport>, Error> {
        let mut listed = self.posix.fs().read(&Caller::system(), ListExports).await?;
        listed.retain(|one| !one.disabled && one.export.admits(client.address));
        Ok(listed)
    }

    /// Sets attributes. Whoever has a file open may cut it, whatever its mode says.
    pub async fn set(
        &self,
        place: &Place,
        ino: Ino,
        changes: Changes,
    ) -> Result<Attributes, Status> {
        let mut file = None;
        if changes.size.is_some() {
            let opened = self.posix.open(place.who(), ino, WRITING).await;
            file = Some(opened.map_err(|error| Status::of_inode(&error))?.file);
        }
        let set = self.posix.set_attributes(place.who(), ino, changes, file).await;
        if let Some(file) = file {
            self.posix.release(file).await;
        }
        set.map_err(|error| Status::of_owner(&error))
    }

    /// The result of a look at a place: how that went, attributes, and what was `found`, written by
    /// `write`.
    pub async fn tell<T>(
        &self,
        place: &Place,
        found: Result<T>,
        mut result: Writer,
        write: impl FnOnce(&mut Writer, T),
    ) -> Reply {
        let status = found.as_ref().err().map_or(Status::OK, Status::of_inode);
        result.number(status.0);
        write_after(&mut result, place.bucket, self.shown(place).await.as_ref());
        if let Ok(found) = found {
            write(&mut result, found);
        }
        result.into()
    }

    /// Attributes, where they are told beside something else.
    pub async fn shown(&self, place: &Place) -> Option<Attributes> {
        self.shown_or_gone(place).await.0
    }

    /// The same, and whether the inode is not there any more.
    pub async fn shown_or_gone(&self, place: &Place) -> (Option<Attributes>, bool) {
        let found = self.posix.attributes(place.who(), place.ino, false).await;
        let is_gone = matches!(found, Err(Error::NotFound(_)));
        (found.ok().map(|(shown, _)| shown), is_gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_told_where_the_client_is() {
        let address = IpAddr::from([10, 0, 0, 7]);
        let (client, root) =
            (Client::new(address, None), Identity { uid: 0, gid: 0, groups: Vec::new() });
        let export = Export::default();
        let place = Place::new(BucketId(7), (&export, Ino(7)), Ino(7), (root, &client));
        assert_eq!(place.who.user().unwrap().origin().source, Some(address));
    }
}
