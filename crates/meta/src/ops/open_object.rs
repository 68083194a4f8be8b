//! Finds an object by bucket and key.

use cairn_auth::Action;
use cairn_base::{BodyId, BucketId, Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::edit::leaf_extents;
use super::key_names::{check_key, split_key};
use super::namespace::{
    BucketEntry, authorize_in, load, load_inode, no_object, open_bucket_for, open_bucket_of, walk,
};
use super::posix::{READ, check_mode, find_inode};
use crate::rows::{Content, Entry, Extent, Inode, Kind, Place};
use crate::{Context, Stop, Verb, View, keys};

/// An object that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FoundObject {
    pub ino: Ino,
    pub inode: Inode,
    /// Directory of its entry, and the name there. An explicit directory `x/` is its own parent
    /// with an empty name.
    pub parent: Ino,
}

/// Finds an object; `None` if there is none. Key `x/` also finds the explicit directory `x`.
pub fn find(view: &mut View<'_>, bucket: BucketId, key: &str) -> Result<Option<FoundObject>, Stop> {
    let (directories, name) = split_key(key);
    let Some(steps) = walk(view, bucket, &directories)? else { return Ok(None) };
    let parent = steps.last().map_or(bucket.ino(), |step| step.ino);
    if let Some(entry) = load::<Entry>(view, &keys::file_entry(parent, name.as_bytes()))? {
        if entry.kind != Kind::File {
            return Ok(None);
        }
        let inode = load_inode(view, entry.ino)?;
        return Ok(Some(FoundObject { ino: entry.ino, inode, parent }));
    }
    if name.is_empty() && !steps.is_empty() {
        let inode = load_inode(view, parent)?;
        if !inode.implicit {
            return Ok(Some(FoundObject { ino: parent, inode, parent }));
        }
    }
    Ok(None)
}

/// Finds an object for reading, with the extents of its first chunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenObject {
    pub bucket: String,
    pub key: String,
}

/// The facts of an object that a read needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenedObject {
    pub opened: BucketEntry,
    pub ino: Ino,
    pub inode: Inode,
    /// Leaf extents of the first 64 MiB, where the content is a body.
    pub extents: Vec<Extent>,
    /// Batch of the state that was read.
    pub batch: u64,
}

impl Verb for OpenObject {
    type Reply = OpenedObject;
    const NAME: &'static str = "open_object";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<OpenedObject, Stop> {
        check_key(&self.key)?;
        let opened = open_bucket_for(view, context, &self.bucket, &self.key, Action::GetObject)?;
        let found = find(view, opened.id, &self.key)?;
        let Some(FoundObject { ino, inode, .. }) = found else {
            return Err(no_object(&self.bucket, &self.key));
        };
        let extents = first_extents(view, &inode)?;
        Ok(OpenedObject { opened, ino, inode, extents, batch: context.batch })
    }
}

fn first_extents(view: &mut View<'_>, inode: &Inode) -> Result<Vec<Extent>, Stop> {
    match inode.content {
        Content::Body(body) => {
            let end = inode.size.min(limits::CHUNK_BYTES);
            leaf_extents(view, body, 0, end)
        }
        _ => Ok(Vec::new()),
    }
}

/// Opens a file like [`OpenObject`], by its inode number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenInode {
    pub ino: Ino,
    /// Set if the caller holds the file open: its mode was checked then.
    pub opened: bool,
}

impl Verb for OpenInode {
    type Reply = OpenedObject;
    const NAME: &'static str = "open_inode";

    /// Opens the inode.
    ///
    /// # Errors
    /// `IsDirectory`, or `Invalid` for another inode without bytes.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<OpenedObject, Stop> {
        let ino = self.ino;
        let inode = find_inode(view, ino)?;
        let opened = open_bucket_of(view, context, &inode, Action::GetObject)?;
        match inode.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IsDirectory(format!("inode {ino}")).into()),
            other => {
                return Err(Error::Invalid(format!(
                    "inode {ino} is a {other:?}, not a \
                    file"
                ))
                .into());
            }
        }
        if !self.opened {
            check_mode(context, &inode, READ)?;
        }
        let extents = first_extents(view, &inode)?;
        Ok(OpenedObject { opened, ino, inode, extents, batch: context.batch })
    }
}

/// Reads leaf extents of a further range of a body that [`OpenObject`] named. The right to read in
/// the bucket is checked again: it may have been withdrawn. The caller has to know that the body
/// was found in this bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadExtents {
    pub bucket: BucketId,
    pub body: BodyId,
    pub start: u64,
    pub end: u64,
}

impl Verb for ReadExtents {
    type Reply = Vec<Extent>;
    const NAME: &'static str = "read_extents";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Vec<Extent>, Stop> {
        authorize_in(view, context, self.bucket, Action::GetObject)?;
        leaf_extents(view, self.body, self.start, self.end)
    }
}

/// Chunks whose extents are looked at together: few enough that their rows are fetched one by one.
const STEP_CHUNKS: u64 = 7;
/// Steps whose rows are fetched together.
const STEPS_AT_ONCE: u32 = 8;
/// Most chunks of which [`OpenRange`] returns the extents.
const RANGE_CHUNKS: u64 = 512;
/// Memory of extents after which a reply ends, bytes, and the overhead of one extent.
const RANGE_BYTES: usize = limits::OP_BYTES / 2;
const EXTENT_BYTES: usize = 64;

/// Opens an open file like [`OpenInode`], with the leaf extents from `start` to `end`, all of one
/// state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRange {
    pub ino: Ino,
    pub start: u64,
    /// End of the range; the end of the file if that comes earlier.
    pub end: u64,
}

/// A file that was opened, and the extents of a range of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenedRange {
    pub opened: OpenedObject,
    pub extents: Vec<Extent>,
    /// End of the extents: before the end that was asked for if there are many.
    pub end: u64,
}

impl Verb for OpenRange {
    type Reply = OpenedRange;
    const NAME: &'static str = "open_range";

    /// Checks like [`OpenInode`].
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<OpenedRange, Stop> {
        let opened = OpenInode { ino: self.ino, opened: true }.apply(view, context)?;
        let end = self.end.min(opened.inode.size);
        let Content::Body(body) = opened.inode.content else {
            return Ok(OpenedRange { opened, extents: Vec::new(), end });
        };
        let (extents, end) = extents_from(view, body, self.start, end)?;
        Ok(OpenedRange { opened, extents, end })
    }
}

/// Returns the leaf extents of `start..end`, and their end: sooner if they are many.
fn extents_from(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
) -> Result<(Vec<Extent>, u64), Stop> {
    let last = (start / limits::CHUNK_BYTES + RANGE_CHUNKS).saturating_mul(limits::CHUNK_BYTES);
    let end = end.min(last);
    let (mut extents, mut bytes, mut at, mut missed) = (Vec::new(), 0, start, 0);
    while at < end && bytes < RANGE_BYTES {
        let border = (at / limits::CHUNK_BYTES + STEP_CHUNKS) * limits::CHUNK_BYTES;
        let to = border.min(end);
        match leaf_extents(view, body, at, to) {
            Ok(found) => {
                bytes += found.iter().map(bytes_of).sum::<usize>();
                extents.extend(found);
            }
            // The other steps are tried first: then one fetch brings all missing rows.
            Err(Stop::Miss) if missed + 1 < STEPS_AT_ONCE => missed += 1,
            Err(stop) => return Err(stop),
        }
        at = to;
    }
    if missed > 0 { Err(Stop::Miss) } else { Ok((extents, at.max(start))) }
}

fn bytes_of(extent: &Extent) -> usize {
    let inline = if let Place::Inline(bytes) = &extent.place { bytes.len() } else { 0 };
    EXTENT_BYTES + inline
}
