//! The common parts of the operations: typed rows, buckets, paths, entries, and the life of an
//! inode.

use bytes::Bytes;
use cairn_auth::{Action, Principal, Resource};
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{BodyId, BucketId, Error, Ino, SessionId, Timestamp, UploadId, limits};
use serde::{Deserialize, Serialize};

use super::key_names::of_files;
use super::ordered_entries::follow_entry;
use super::user_totals::{Change, count_owner, used_up};
use crate::rows::{
    Bucket, BucketKind, Content, Counter, Drain, Draining, Entry, Extents, Inode, Kind,
    ReservedInos, Session, SessionState, Tally, Usage, decode_number,
};
use crate::{Context, Stop, View, keys};

pub use super::typed_rows::{load, load_known, store};

/// Permission bits of files, and of directories, that are made without any.
pub const FILE_MODE: u32 = 0o644;
pub const DIRECTORY_MODE: u32 = 0o755;

/// Loads the inode of an entry that was just read.
pub fn load_inode(view: &mut View<'_>, ino: Ino) -> Result<Inode, Stop> {
    load_known(view, &keys::inode(ino), "inode of a directory entry")
}

/// A bucket in which the caller may do something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketEntry {
    pub id: BucketId,
    pub bucket: Bucket,
}

/// Finds a bucket by name. Does not check the caller's rights.
pub fn find_bucket(view: &mut View<'_>, name: &str) -> Result<BucketEntry, Stop> {
    let entry = keys::directory_entry(Ino::ROOT, name.as_bytes());
    let Some(entry) = load::<Entry>(view, &entry)? else {
        return Err(no_bucket(name));
    };
    let id = BucketId(entry.ino.0);
    let bucket: Bucket = load_known(view, &keys::bucket(id), "bucket")?;
    Ok(BucketEntry { id, bucket })
}

/// Finds a bucket by name and checks that the caller may do `action` to it.
pub fn open_bucket(
    view: &mut View<'_>,
    context: &Context,
    name: &str,
    action: Action,
) -> Result<BucketEntry, Stop> {
    let opened = find_bucket(view, name)?;
    context.authorize(view, action, Resource::Bucket(opened.bucket.access()))?;
    Ok(opened)
}

/// Opens a bucket like [`open_bucket`], for `action` on the object of a key.
pub fn open_bucket_for(
    view: &mut View<'_>,
    context: &Context,
    name: &str,
    key: &str,
    action: Action,
) -> Result<BucketEntry, Stop> {
    let opened = find_bucket(view, name)?;
    context.authorize(view, action, Resource::Object(opened.bucket.access(), Some(key)))?;
    Ok(opened)
}

/// Returns the bucket of an inode, and checks that the caller may do `action` in it.
pub fn open_bucket_of(
    view: &mut View<'_>,
    context: &Context,
    inode: &Inode,
    action: Action,
) -> Result<BucketEntry, Stop> {
    let bucket: Bucket = load_known(view, &keys::bucket(inode.bucket), "bucket of an inode")?;
    // Callers that guess the number of an inode must not learn the name.
    let access = bucket.access_by_number(inode.bucket);
    context.authorize(view, action, Resource::Object(access, None))?;
    Ok(BucketEntry { id: inode.bucket, bucket })
}

/// Checks that the caller may do `action` in a bucket whose number it knows. The store itself may
/// do it even in a bucket that is gone, since some of its files may still be read.
pub fn authorize_in(
    view: &mut View<'_>,
    context: &Context,
    bucket: BucketId,
    action: Action,
) -> Result<(), Stop> {
    if context.caller.principal() == Principal::System {
        return context.authorize(view, action, Resource::Store);
    }
    let denied = || Error::Denied(format!("{action} in bucket {bucket}"));
    let row = load::<Bucket>(view, &keys::bucket(bucket))?.ok_or_else(denied)?;
    context.authorize(view, action, Resource::Object(row.access_by_number(bucket), None))
}

pub fn no_bucket(name: &str) -> Stop {
    Error::NotFound(format!("bucket {name}")).into()
}

pub fn no_object(bucket: &str, key: &str) -> Stop {
    Error::NotFound(format!("object {key} in bucket {bucket}")).into()
}

/// Loads a counter; `first` if there is no row.
pub fn load_counter(view: &mut View<'_>, key: &Bytes, first: u64) -> Result<Counter, Stop> {
    Ok(load(view, key)?.unwrap_or_else(|| Counter::new(first)))
}

/// Most by which a given inode number may be ahead of the next one.
const GIVEN_AHEAD: u64 = 1 << 20;

/// Returns the next inode number, or the number that the operation was given. No number is ever
/// reused.
pub fn next_ino(view: &mut View<'_>) -> Result<Ino, Stop> {
    let key = keys::config("next_ino");
    let mut counter = load_counter(view, &key, 2)?;
    let next = counter.value;
    let given = view.given_ino();
    if let Some((ino, session)) = given
        && ino.0 < next
        && load::<ReservedInos>(view, &keys::reserved(session))?.is_some_and(|row| row.has(ino))
        && view.get(&keys::inode(ino))?.is_none()
    {
        view.note_ino(ino);
        return Ok(ino);
    }
    let ino = given.map_or(Ino(next), |(ino, _)| ino);
    if ino.0 < next || ino.0 > next.saturating_add(GIVEN_AHEAD) {
        return Err(Error::Conflict(format!(
            "inode number {ino} is taken or too far ahead; the next is {next}"
        ))
        .into());
    }
    view.note_ino(ino);
    counter.value = ino.0 + 1;
    store(view, key, &counter);
    Ok(ino)
}

/// Returns whether a number has been given out, as that of an inode or of an upload.
pub fn was_given(view: &mut View<'_>, ino: Ino) -> Result<bool, Stop> {
    let next = view.get(&keys::config("next_ino"))?.as_ref().map(decode_number).transpose()?;
    Ok(ino > Ino::ROOT && next.is_some_and(|next| ino.0 < next))
}

/// Refuses operations of a session that has ended: the blocks that it wrote may be reaped already.
pub fn require_session(view: &mut View<'_>, session: SessionId) -> Result<(), Stop> {
    match load::<Session>(view, &keys::session(session))? {
        Some(Session { state: SessionState::Live, .. }) => Ok(()),
        _ if is_planted(Bug::EndedSessionPublishes) => Ok(()),
        _ => Err(Error::Unavailable(format!("session {session} has ended")).into()),
    }
}

/// A directory on the way to an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub parent: Ino,
    pub name: Vec<u8>,
    pub ino: Ino,
}

/// Walks from the bucket through `directories`; `None` if one of them does not exist.
pub fn walk(
    view: &mut View<'_>,
    bucket: BucketId,
    directories: &[&str],
) -> Result<Option<Vec<Step>>, Stop> {
    let mut parent = bucket.ino();
    let mut steps = Vec::with_capacity(directories.len());
    for name in directories {
        let key = keys::directory_entry(parent, name.as_bytes());
        let Some(entry) = load::<Entry>(view, &key)? else { return Ok(None) };
        steps.push(Step { parent, name: name.as_bytes().to_vec(), ino: entry.ino });
        parent = entry.ino;
    }
    Ok(Some(steps))
}

/// Walks like [`walk`], and makes missing directories as implicit ones.
pub fn walk_or_make(
    view: &mut View<'_>,
    context: &Context,
    opened: &BucketEntry,
    directories: &[&str],
) -> Result<Ino, Stop> {
    let mut parent = opened.id.ino();
    for name in directories {
        let name = name.as_bytes();
        if let Some(entry) = load::<Entry>(view, &keys::directory_entry(parent, name))? {
            parent = entry.ino;
            continue;
        }
        let beside = keys::file_entry(parent, name);
        if opened.bucket.kind == BucketKind::Posix && view.get(&beside)?.is_some() {
            let rule = "where nothing is below a file";
            let what = String::from_utf8_lossy(name);
            let what = format!("{what} is a file: {}", of_files(&opened.bucket, rule));
            return Err(Error::NotDirectory(what).into());
        }
        let inode = implicit_directory(view, context, opened.id, parent)?;
        parent = add_inode(view, context, parent, name, &inode)?;
    }
    Ok(parent)
}

/// Prepares a directory on the way to a key. For a caller without ids it is like the directory that
/// it is in: owner, group, mode and access list.
fn implicit_directory(
    view: &mut View<'_>,
    context: &Context,
    bucket: BucketId,
    parent: Ino,
) -> Result<Inode, Stop> {
    let mut inode = Inode { implicit: true, ..new_directory(bucket, parent, context) };
    if let Some(directory) = directory_of(view, context, parent)? {
        let Inode { uid, gid, mode, acl, .. } = directory;
        // With a list, the bits of the group are its mask: both are taken over together.
        (inode.uid, inode.gid, inode.mode, inode.acl) = (uid, gid, mode, acl);
    }
    Ok(inode)
}

/// Returns the directory from which a new inode takes its owner and group; `None` if the caller has
/// ids, which the inode has then.
pub fn directory_of(
    view: &mut View<'_>,
    context: &Context,
    parent: Ino,
) -> Result<Option<Inode>, Stop> {
    match context.caller.posix() {
        Some(_) => Ok(None),
        None => load_inode(view, parent).map(Some),
    }
}

/// Prepares a directory that is about to be made.
pub fn new_directory(bucket: BucketId, parent: Ino, context: &Context) -> Inode {
    Inode { parent, mode: DIRECTORY_MODE, ..new_inode(Kind::Directory, bucket, context) }
}

/// Prepares an inode that is about to be made.
pub fn new_inode(kind: Kind, bucket: BucketId, context: &Context) -> Inode {
    let (uid, gid) = context.caller.posix().map_or((0, 0), |posix| (posix.uid, posix.gid));
    let now = context.now;
    Inode {
        kind,
        bucket,
        mode: FILE_MODE,
        uid,
        gid,
        nlink: 1,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: context.batch,
        ..Inode::default()
    }
}

/// Returns the key of an entry for an inode of this kind.
pub fn entry_key(parent: Ino, name: &[u8], kind: Kind) -> Bytes {
    match kind {
        Kind::Directory => keys::directory_entry(parent, name),
        _ => keys::file_entry(parent, name),
    }
}

/// Gives a new inode a number, a row and its first entry; counts it.
pub fn add_inode(
    view: &mut View<'_>,
    context: &Context,
    parent: Ino,
    name: &[u8],
    inode: &Inode,
) -> Result<Ino, Stop> {
    let ino = next_ino(view)?;
    store(view, keys::inode(ino), inode);
    add_entry(view, context, parent, name, &Entry::new(ino, inode.kind))?;
    if !inode.is_directory() {
        count_usage(view, inode.bucket, 1, inode.size as i64)?;
    }
    Ok(ino)
}

/// Makes an entry and counts it in its directory. The caller has checked that the name is free.
pub fn add_entry(
    view: &mut View<'_>,
    context: &Context,
    parent: Ino,
    name: &[u8],
    entry: &Entry,
) -> Result<(), Stop> {
    let key = entry_key(parent, name, entry.kind);
    store(view, key.clone(), entry);
    let directories = i64::from(entry.kind == Kind::Directory);
    let tally = count_entries(view, context.now, parent, 1, directories)?;
    follow_entry(view, &tally, &key, Some(entry));
    Ok(())
}

/// Has the entry of a file lead to another inode. The caller has checked that it is there.
pub fn replace_entry(
    view: &mut View<'_>,
    parent: Ino,
    name: &[u8],
    entry: &Entry,
) -> Result<(), Stop> {
    let key = keys::file_entry(parent, name);
    store(view, key.clone(), entry);
    let tally: Tally = load(view, &keys::tally(parent))?.unwrap_or_default();
    follow_entry(view, &tally, &key, Some(entry));
    Ok(())
}

/// Removes an entry and counts it; returns the directory's tally after that.
pub fn remove_entry(
    view: &mut View<'_>,
    context: &Context,
    parent: Ino,
    name: &[u8],
    kind: Kind,
) -> Result<Tally, Stop> {
    let key = entry_key(parent, name, kind);
    view.delete(key.clone());
    let directories = -i64::from(kind == Kind::Directory);
    let mut tally = count_entries(view, context.now, parent, -1, directories)?;
    follow_entry(view, &tally, &key, None);
    if tally.entries == 0 && tally.order.take().is_some() {
        store(view, keys::tally(parent), &tally);
    }
    Ok(tally)
}

fn count_entries(
    view: &mut View<'_>,
    now: Timestamp,
    directory: Ino,
    entries: i64,
    directories: i64,
) -> Result<Tally, Stop> {
    let key = keys::tally(directory);
    let mut tally: Tally = load(view, &key)?.unwrap_or_default();
    tally.entries = add(tally.entries, entries, "entries of a directory")?;
    tally.directories = add(tally.directories, directories, "directories in a directory")?;
    tally.mtime = now;
    store(view, key, &tally);
    Ok(tally)
}

/// Counts a change of the multipart uploads in progress.
pub fn count_uploads(view: &mut View<'_>, bucket: BucketId, uploads: i64) -> Result<(), Stop> {
    let key = keys::usage(bucket);
    let mut usage: Usage = load(view, &key)?.unwrap_or_default();
    let count = add(u64::from(usage.uploads), uploads, "uploads in a bucket")?;
    usage.uploads = u32::try_from(count).unwrap_or(u32::MAX);
    store(view, key, &usage);
    Ok(())
}

/// Adds to the usage of a bucket, and of its owner. `Full` if that grows beyond a quota.
pub fn count_usage(
    view: &mut View<'_>,
    bucket: BucketId,
    objects: i64,
    bytes: i64,
) -> Result<(), Stop> {
    let key = keys::usage(bucket);
    let mut usage: Usage = load(view, &key)?.unwrap_or_default();
    usage.objects = add(usage.objects, objects, "objects of a bucket")?;
    usage.bytes = add(usage.bytes, bytes, "bytes of a bucket")?;
    let exceeds = |grows: bool, used: u64, quota: u64| grows && quota > 0 && used > quota;
    if exceeds(objects > 0, usage.objects, usage.quota_objects) {
        return Err(used_up(view, bucket, format!("{} objects", usage.quota_objects))?.into());
    }
    if exceeds(bytes > 0, usage.all_bytes(), usage.quota_bytes) {
        return Err(used_up(view, bucket, format!("{} bytes", usage.quota_bytes))?.into());
    }
    store(view, key, &usage);
    match (objects, bytes) {
        (0, 0) => Ok(()),
        _ => count_owner(view, bucket, Change { objects, bytes, ..Change::default() }),
    }
}

fn add(value: u64, delta: i64, what: &str) -> Result<u64, Stop> {
    value.checked_add_signed(delta).ok_or_else(|| {
        Error::corrupt(what, format!("{value} and {delta}"), "a number that is not negative").into()
    })
}

/// Removes one name of an inode; with the last one, removes the inode and everything that it holds.
pub fn drop_link(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    mut inode: Inode,
) -> Result<(), Stop> {
    if inode.nlink > 1 {
        inode.nlink -= 1;
        inode.touch(context.batch, context.now);
        store(view, keys::inode(ino), &inode);
        return Ok(());
    }
    view.delete(keys::inode(ino));
    count_usage(view, inode.bucket, -1, -(inode.size as i64))?;
    drop_attributes(view, ino, &inode)?;
    if let Some(upload) = inode.object.as_ref().and_then(|object| object.part_table) {
        drop_part_table(view, upload)?;
    }
    if let Content::Body(body) = inode.content {
        release_body(view, body)?;
    }
    Ok(())
}

/// Notes the part table of a removed object for draining.
fn drop_part_table(view: &mut View<'_>, upload: UploadId) -> Result<(), Stop> {
    let key = keys::drain_upload(upload);
    let former: Option<Draining> = load(view, &key)?;
    let body = match &former {
        Some(Draining { drain: Drain::Completed { body }, .. }) => Some(*body),
        _ => None,
    };
    let unknown = former.map(|former| former.unknown).unwrap_or_default();
    store(view, key, &Draining { drain: Drain::PartTable { body }, unknown });
    Ok(())
}

fn drop_attributes(view: &mut View<'_>, ino: Ino, inode: &Inode) -> Result<(), Stop> {
    let tags = inode.object.as_ref().map_or(0, |object| object.tag_count);
    if tags + inode.xattr_count == 0 {
        return Ok(());
    }
    let (start, end) = keys::all_attributes(ino);
    loop {
        let rows = view.scan(&start, &end, limits::OP_ROWS)?;
        let more = rows.len() == limits::OP_ROWS;
        rows.into_iter().for_each(|(key, _)| view.delete(key));
        // More than one operation may delete is refused as a whole: no attribute is left behind
        // unseen.
        if !more {
            return Ok(());
        }
    }
}

/// Removes a directory that has no entries left.
pub fn drop_directory(view: &mut View<'_>, ino: Ino, inode: &Inode) -> Result<(), Stop> {
    view.delete(keys::inode(ino));
    view.delete(keys::tally(ino));
    drop_attributes(view, ino, inode)
}

/// Counts `more` references of inodes, parts or extents to `body`.
pub fn retain_body(view: &mut View<'_>, body: BodyId, more: u64) -> Result<(), Stop> {
    let key = keys::references(body);
    let mut count = load_counter(view, &key, 1)?;
    count.value += more;
    store(view, key, &count);
    Ok(())
}

/// Counts one reference less to `body`; without any left, notes the body for draining.
pub fn release_body(view: &mut View<'_>, body: BodyId) -> Result<(), Stop> {
    let key = keys::references(body);
    match load::<Counter>(view, &key)? {
        Some(count) if count.value > 2 || (count.value == 2 && !count.unknown.is_empty()) => {
            store(view, key, &Counter { value: count.value - 1, ..count });
        }
        Some(Counter { value: 2, .. }) => view.delete(key),
        _ => {
            view.delete(key);
            store(view, keys::drain_body(body), &Draining::from(Drain::Body));
        }
    }
    Ok(())
}

/// Returns whether more than one inode, part or extent refers to `body`.
pub fn is_shared(view: &mut View<'_>, body: BodyId) -> Result<bool, Stop> {
    let count = view.get(&keys::references(body))?.as_ref().map(decode_number).transpose()?;
    Ok(count.unwrap_or(1) > 1)
}

/// Loads the extents of one chunk of a body; none if there is no row.
pub fn load_extents(view: &mut View<'_>, body: BodyId, chunk: u32) -> Result<Extents, Stop> {
    Ok(load(view, &keys::extents(body, chunk))?.unwrap_or_default())
}

/// Stores the extents of a chunk, or deletes the row when there are none.
pub fn store_extents(
    view: &mut View<'_>,
    body: BodyId,
    chunk: u32,
    extents: &Extents,
) -> Result<(), Stop> {
    if extents.extents.len() > limits::CHUNK_EXTENTS {
        let what = format!("{} extents in 64 MiB; coalesce them first", extents.extents.len());
        return Err(Error::TooLarge(what).into());
    }
    let key = keys::extents(body, chunk);
    if extents.extents.is_empty() {
        view.delete(key)
    } else {
        store(view, key, extents)
    }
    Ok(())
}

/// Returns the chunk of a body in which `offset` lies. Bodies end below 2^58 bytes, so it fits.
pub fn chunk_of(offset: u64) -> u32 {
    (offset / limits::CHUNK_BYTES) as u32
}
