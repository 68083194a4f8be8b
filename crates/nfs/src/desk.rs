//! The common part of all calls: the file system, and the step from a handle to a place and the
//! user that the client acts as.

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
use crate::parties::PartyAmounts;
use crate::record::memory;
use crate::replies::{Checksum, Replies};
use crate::rpc::Reply;
use crate::status::Status;
use crate::watch::Watch;
use crate::xdr::Writer;

/// Period between two sweeps of open files and written bytes.
const SWEEP: Duration = Duration::from_secs(1);

/// Clients open files implicitly, without a call.
pub const READING: Intent = Intent { resumes: true, ..Intent::READING };
pub const WRITING: Intent = Intent { resumes: true, ..Intent::WRITING };

/// The store as a file system for clients.
pub struct Desk {
    pub posix: Arc<Posix>,
    pub openings: Arc<Openings>,
    pub replies: Replies,
    /// Bytes of calls at work and of replies that wait, by party.
    pub bytes: Arc<PartyAmounts>,
    /// Shares of the memory for long calls that arrive or are at work.
    pub long: Arc<Shares>,
    /// Memory for long calls.
    pub records: Buffers,
    /// Turns of connections to answer calls.
    pub turns: Arc<Shares>,
    /// Shares of the bytes that calls may read at the same time.
    reading: Arc<Shares>,
    pub load: Arc<Load>,
    /// Port of this door, which the portmapper returns.
    pub port: u16,
    /// Receives records of calls.
    pub watch: Watch,
    key: HandleKey,
    /// Groups of users as this machine knows them, if those that clients state do not count.
    groups: Option<Groups>,
}

/// Settings of a door.
#[derive(Clone)]
pub struct Behaviour {
    /// Port of this door, which the portmapper returns.
    pub port: u16,
    /// Receives records of calls.
    pub watch: Watch,
    /// The groups of users are looked up on this machine, and those that clients state do not
    /// count.
    pub looks_up_groups: bool,
}

/// The client that makes a call.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: IpAddr,
    /// The identity that the client states.
    pub identity: Option<Identity>,
    /// The attempt at its call, if that call takes effect once.
    attempt: Option<Attempt>,
}

impl Client {
    pub fn new(address: IpAddr, identity: Option<Identity>) -> Client {
        Client { address, identity, attempt: None }
    }

    /// Returns this client with an attempt at a call that arrived at `came`, and the attempt.
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

/// An inode that a call is about.
#[derive(Clone, Debug)]
pub struct Place {
    pub ino: Ino,
    pub bucket: BucketId,
    export: u64,
    /// Root directory of the export.
    top: Ino,
    pub is_read_only: bool,
    /// The user on whose behalf the call acts.
    pub who: Who,
}

impl Place {
    fn new(
        bucket: BucketId,
        export: &Export,
        top: Ino,
        ino: Ino,
        identity: Identity,
        client: &Client,
    ) -> Place {
        let Identity { uid, gid, groups } = identity;
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

    /// Returns whether this is the root directory of the export.
    pub fn is_top(&self) -> bool {
        self.ino == self.top
    }

    pub fn who(&self) -> Who {
        self.who.clone()
    }

    /// Returns this place for the call's last step, `last`.
    pub fn ending_with(&self, last: Step) -> Place {
        Place { who: self.who().ending_with(last), ..self.clone() }
    }

    pub fn check_writable(&self) -> Result<(), Status> {
        if self.is_read_only { Err(Status::ROFS) } else { Ok(()) }
    }

    /// Returns whether both places are in the same export.
    pub fn is_beside(&self, other: &Place) -> bool {
        (self.bucket, self.export) == (other.bucket, other.export)
    }
}

impl Desk {
    /// Returns a desk over `fs`, which must not run operations on its own to post them later:
    /// whatever it reports as done is durable.
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
        // Each call states its user. Without a user nothing may be done.
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

    /// Sweeps open files and written bytes once every `SWEEP`, until the desk is dropped.
    pub async fn sweep(desk: std::sync::Weak<Desk>) {
        loop {
            sleep(SWEEP).await;
            let Some(desk) = desk.upgrade() else { return };
            desk.posix.sweep();
            desk.openings.sweep();
        }
    }

    /// Does `work`, which reads `bytes` for a client, once there is room for them: so one client
    /// does not keep all threads busy.
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

    /// Waits until all written bytes are durable.
    pub async fn close(&self) {
        self.openings.close_all().await;
    }

    /// Returns the place that a handle names, if this client may use it.
    ///
    /// # Errors
    /// `BADHANDLE`, `STALE` if the export has ended, `ACCES` if it is not for that client,
    /// `JUKEBOX` if its user has far exceeded the limit of calls.
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
            // Nothing was done for the call: the client sends it again.
            turn.map_err(|_| Status::JUKEBOX)?;
        }
        let identity = self.identity(client).await?;
        let identity = export.identity(identity);
        Ok(Place::new(bucket, export, *top, ino, identity, client))
    }

    /// Returns the identity that a client states, with all of its groups if they are looked up
    /// here. A user that this machine does not know has only the primary group.
    async fn identity(&self, client: &Client) -> Result<Option<Identity>, Status> {
        let Some(groups) = &self.groups else { return Ok(client.identity.clone()) };
        let Some(Identity { uid, gid, .. }) = client.identity else { return Ok(None) };
        if uid == 0 {
            // Mode bits do not restrict root, and a squashed root has no groups.
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

    /// Returns the root directory of an export, for a mount: the rights of the export's user alone
    /// decide.
    ///
    /// # Errors
    /// `ACCES` if the export has just ended.
    pub async fn top(&self, client: &Client, listed: &ListedExport) -> Result<Place, Status> {
        let found = self.find(listed.id, None).await?;
        let (export, top) = found.as_ref().as_ref().ok_or(Status::ACCES)?;
        if !export.admits(client.address) {
            return Err(Status::ACCES);
        }
        inflight::by(export.user);
        let root = Identity { uid: 0, gid: 0, groups: Vec::new() };
        Ok(Place::new(listed.id, export, *top, *top, root, client))
    }

    /// Returns the handle of an inode that was reached from `place`.
    pub fn handle(&self, place: &Place, ino: Ino) -> [u8; BYTES] {
        Handle { bucket: place.bucket, export: place.export, ino }.seal(&self.key)
    }

    /// Returns the inode of a handle, if this store made the handle.
    pub fn inode(&self, handle: &[u8]) -> Option<Ino> {
        Handle::open(&self.key, handle).ok().map(|handle| handle.ino)
    }

    /// Returns the exports that a client may mount.
    pub async fn exports(&self, client: &Client) -> Result<Vec<ListedExport>, Error> {
        let mut listed = self.posix.fs().read(&Caller::system(), ListExports).await?;
        listed.retain(|one| !one.disabled && one.export.admits(client.address));
        Ok(listed)
    }

    /// Sets attributes. A file may be truncated by anybody who has it open, whatever its mode says.
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

    /// Returns the reply to a call that only reads: the status, the attributes of the place, and
    /// `found`, written by `write`.
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

    /// Returns the attributes of a place, for replies that have them in addition to their result.
    pub async fn shown(&self, place: &Place) -> Option<Attributes> {
        self.shown_or_gone(place).await.0
    }

    /// Returns the attributes of a place, and whether its inode does not exist any more.
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
        let place = Place::new(BucketId(7), &export, Ino(7), Ino(7), root, &client);
        assert_eq!(place.who.user().unwrap().origin().source, Some(address));
    }
}
