//! Prepares a file for a change of its contents: a body of its own, and the changes of its inode.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use cairn_auth::Action;
use cairn_base::{BodyId, Error, Ino, SessionId, limits};

use super::edit::{insert, overwrite, scan_rows};
use super::namespace::{
    chunk_of, count_usage, is_shared, release_body, require_session, retain_body, store,
    store_extents,
};
use super::posix::{
    WRITE, check_mode, drop_capabilities, is_superuser, open_inode, without_privileges,
};
use crate::rows::{Content, Extent, Extents, Inode, Kind, Place};
use crate::{Context, Stop, View, keys};

/// Largest file, bytes, so that the usage of a bucket full of holes does not overflow.
pub const FILE_BYTES: u64 = 1 << 50;

/// Bytes for a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Data {
    /// At most 16 KiB.
    Inline(Bytes),
    /// Blocks of the session, written for this body: the file's own, or the spare one if the file's
    /// is shared or it has none. Offsets of extents count from the start of the write, in order;
    /// bytes between them stay. All extents of a block come in one operation.
    Blocks { body: BodyId, extents: Vec<Extent> },
}

impl Data {
    /// Returns the number of bytes from the first to the last.
    pub fn len(&self) -> u64 {
        match self {
            Data::Inline(bytes) => bytes.len() as u64,
            Data::Blocks { extents, .. } => extents.last().map_or(0, Extent::end),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks the blocks.
    ///
    /// # Errors
    /// `Invalid` for blocks of another session or inconsistent extents.
    pub(super) fn check(&self, session: SessionId) -> Result<(), Error> {
        let extents = match self {
            Data::Inline(bytes) if bytes.len() > limits::INLINE_BYTES => {
                return Err(Error::TooLarge(format!(
                    "{} bytes inline; must be at most {}",
                    bytes.len(),
                    limits::INLINE_BYTES
                )));
            }
            Data::Inline(_) => return Ok(()),
            Data::Blocks { extents, .. } => extents,
        };
        let mut end = 0;
        for extent in extents {
            check_block(extent, session)?;
            if extent.offset < end || extent.offset > FILE_BYTES {
                return Err(Error::Invalid(format!(
                    "an extent at {}, before the end {end} of the former or beyond the end \
                        of a file",
                    extent.offset
                )));
            }
            end = extent.end();
        }
        Ok(())
    }
}

/// Checks an extent.
///
/// # Errors
/// `Invalid` unless it is a part of a block of the session.
pub(super) fn check_block(extent: &Extent, session: SessionId) -> Result<(), Error> {
    let most = limits::BLOCK_BYTES as u64;
    match &extent.place {
        Place::Block { block, offset, .. }
            if block.session == session
                && extent.len > 0
                && extent.len <= most
                && extent.len + u64::from(*offset) <= most =>
        {
            Ok(())
        }
        other => Err(Error::Invalid(format!(
            "an extent of {} bytes does not fit in {other:?}",
            extent.len
        ))),
    }
}

/// Finds a file whose bytes will change, and checks that the caller may change them.
pub(super) fn open_file(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    session: SessionId,
    opened: bool,
) -> Result<Inode, Stop> {
    let inode = open_inode(view, context, ino, Action::PutObject)?;
    match inode.kind {
        Kind::File => {}
        Kind::Directory => return Err(Error::IsDirectory(format!("inode {ino}")).into()),
        other => {
            return Err(Error::Invalid(format!("inode {ino} is a {other:?}, not a file")).into());
        }
    }
    if !opened {
        check_mode(context, &inode, WRITE)?;
    }
    require_session(view, session)?;
    Ok(inode)
}

/// Stores an inode whose bytes changed: its size, times and digests, and the bucket's usage.
pub(super) fn store_changed(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    inode: &mut Inode,
    size: u64,
) -> Result<(), Stop> {
    if size != inode.size {
        count_usage(view, inode.bucket, 0, size as i64 - inode.size as i64)?;
    }
    inode.size = size;
    inode.forget_digests();
    store_touched(view, context, ino, inode, true)
}

/// Stores an inode after an operation that counts as a change of its bytes, whether they are
/// `other` ones or the same. File capabilities are dropped, as capabilities(7) says: every
/// operation on bytes ends here.
pub(super) fn store_touched(
    view: &mut View<'_>,
    context: &Context,
    ino: Ino,
    inode: &mut Inode,
    other: bool,
) -> Result<(), Stop> {
    inode.mtime = context.now;
    inode.touch(context.batch, context.now);
    if other {
        inode.data_change = inode.change;
    }
    if !is_superuser(context) {
        inode.mode = without_privileges(context, inode);
    }
    drop_capabilities(view, ino, inode)?;
    store(view, keys::inode(ino), inode);
    Ok(())
}

/// Puts bytes into a file at `offset`. Blocks belong to the row of `chunk` if it is given, else to
/// that of the chunk that each begins in. `Conflict` if they were written for another body.
pub(super) fn put_data(
    view: &mut View<'_>,
    context: &Context,
    inode: &mut Inode,
    spare: BodyId,
    offset: u64,
    data: &Data,
    chunk: Option<u32>,
) -> Result<(), Stop> {
    let end = offset.saturating_add(data.len());
    if end > FILE_BYTES {
        return Err(Error::TooLarge(format!(
            "a file of {end} bytes; must be at most {FILE_BYTES}"
        ))
        .into());
    }
    let placed = match data {
        Data::Inline(bytes) => {
            if put_inline(inode, offset, bytes) {
                return Ok(());
            }
            let place = Place::Inline(bytes.clone());
            vec![(chunk_of(offset), Extent { offset, len: bytes.len() as u64, place })]
        }
        Data::Blocks { extents, .. } => place_blocks(offset, extents, chunk)?,
    };
    let (start, end) = run_of(&placed).unwrap_or((offset, offset));
    let own = own_body(view, inode, spare, start, end)?;
    if let Data::Blocks { body, .. } = data
        && *body != own
    {
        return Err(Error::Conflict(format!(
            "the blocks were written for body {body}, and the file has body {own} now"
        ))
        .into());
    }
    overwrite(view, context, own, placed)
}

/// Writes into the bytes in the inode, if they are there and remain few enough.
fn put_inline(inode: &mut Inode, offset: u64, bytes: &Bytes) -> bool {
    let end = offset + bytes.len() as u64;
    let present = match &inode.content {
        Content::Empty => &[],
        Content::Inline(present) => &present[..],
        Content::Body(_) => return false,
    };
    if end > limits::INLINE_BYTES as u64 {
        return false;
    }
    let mut all = BytesMut::from(present);
    all.resize(present.len().max(end as usize), 0);
    all[offset as usize..end as usize].copy_from_slice(bytes);
    inode.content = Content::Inline(all.freeze());
    true
}

/// Returns the extents at their places in the file, each with the chunk that owns its block.
fn place_blocks(
    offset: u64,
    extents: &[Extent],
    chunk: Option<u32>,
) -> Result<Vec<(u32, Extent)>, Error> {
    let mut owners = BTreeMap::new();
    let mut placed = Vec::with_capacity(extents.len());
    for extent in extents {
        let extent = Extent { offset: offset + extent.offset, ..extent.clone() };
        let owner = chunk.unwrap_or_else(|| chunk_of(extent.offset));
        if let Place::Block { block, .. } = &extent.place
            && owners.insert(*block, owner).is_some_and(|former| former != owner)
        {
            return Err(Error::Invalid(format!("block {block} is named in two chunks")));
        }
        placed.push((owner, extent));
    }
    Ok(placed)
}

/// Returns the start and end of the extents if there are no gaps between them: then everything in
/// the range is replaced.
fn run_of(placed: &[(u32, Extent)]) -> Option<(u64, u64)> {
    let gaps = placed.windows(2).any(|pair| pair[0].1.end() != pair[1].1.offset);
    let (first, last) = (placed.first()?, placed.last()?);
    (!gaps).then(|| (first.1.offset, last.1.end()))
}

/// Gives a file a body of its own that may be changed, and returns it: the body that it has, or
/// `spare` with the bytes that were inline or shared. Bytes `start..end` are about to go and need
/// not be kept.
pub(super) fn own_body(
    view: &mut View<'_>,
    inode: &mut Inode,
    spare: BodyId,
    start: u64,
    end: u64,
) -> Result<BodyId, Stop> {
    match &inode.content {
        Content::Empty => {}
        Content::Inline(bytes) => {
            let len = bytes.len() as u64;
            let extent = Extent { offset: 0, len, place: Place::Inline(bytes.clone()) };
            if len > 0 {
                let row = Extents { extents: vec![extent] };
                store_extents(view, spare, 0, &row)?;
            }
        }
        Content::Body(body) if is_shared(view, *body)? => fork(view, *body, spare, start, end)?,
        Content::Body(body) => return Ok(*body),
    }
    inode.content = Content::Body(spare);
    Ok(spare)
}

/// Makes `target` a body that refers to the parts of the shared body `source`, except the bytes
/// `start..end`, and takes one reference off `source`. References always lead to leaves, so they
/// are copied, never chained. `TooLarge` if that is more than one operation may do.
pub(super) fn fork(
    view: &mut View<'_>,
    source: BodyId,
    target: BodyId,
    start: u64,
    end: u64,
) -> Result<(), Stop> {
    let rows = scan_rows(view, source, 0..=u32::MAX, limits::OP_ROWS)?;
    if rows.len() == limits::OP_ROWS {
        let what = format!("body {source} is shared and too long to change: copy the file first");
        return Err(Error::TooLarge(what).into());
    }
    let mut references: BTreeMap<BodyId, u64> = BTreeMap::new();
    for (chunk, row) in rows {
        let mut copy = Extents::default();
        let kept = |extent: &Extent| [extent.slice(0, start), extent.slice(end, u64::MAX)];
        for extent in row.extents.iter().flat_map(kept).flatten() {
            insert(&mut copy.extents, refer(source, extent));
        }
        for extent in &copy.extents {
            if let Place::Body { body, .. } = extent.place {
                *references.entry(body).or_default() += 1;
            }
        }
        if !copy.extents.is_empty() {
            store_extents(view, target, chunk, &copy)?;
        }
    }
    for (body, count) in references {
        retain_body(view, body, count)?;
    }
    release_body(view, source)
}

/// Returns an extent for a copy of `source` that refers to `extent`.
pub(super) fn refer(source: BodyId, extent: Extent) -> Extent {
    let place = match extent.place {
        Place::Block { .. } => Place::Body { body: source, offset: extent.offset },
        other => other,
    };
    Extent { place, ..extent }
}
