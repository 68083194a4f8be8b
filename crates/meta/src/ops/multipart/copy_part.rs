//! Parts that are ranges of objects, by reference.

use cairn_auth::Action;
use cairn_base::{BodyId, Error, SessionId, Timestamp, limits};
use serde::{Deserialize, Serialize};

use super::chunks::ChunkWriter;
use super::{UploadName, check_part_number, store_part};
use crate::ops::conditions::{Conditions, Current};
use crate::ops::copy_object::SourceState;
use crate::ops::edit::{DEPTH, extents_between};
use crate::ops::key_names::check_key;
use crate::ops::namespace::{
    chunk_of, no_object, open_bucket_for, require_session, retain_body, store_extents,
};
use crate::ops::open_object::find;
use crate::ops::sharing::{check_extents, check_shared, unshared};
use crate::rows::{Checksum, Content, Extent, Extents, Part, Place};
use crate::{Context, Stop, Verb, View};

/// Adds a part that is a range of an object, by reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyPart {
    pub name: UploadName,
    pub number: u32,
    pub source_bucket: String,
    pub source_key: String,
    /// Conditions on the source.
    pub source_conditions: Conditions,
    /// First and last byte; `None` for the whole object.
    pub range: Option<(u64, u64)>,
    pub session: SessionId,
    /// Id for the part's body.
    pub body: BodyId,
}

impl Verb for CopyPart {
    /// The part's ETag, and the time when it was made.
    type Reply = (String, Timestamp);
    const NAME: &'static str = "copy_part";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        self.copy(view, context, None, &[])
    }
}

impl CopyPart {
    fn copy(
        &self,
        view: &mut View<'_>,
        context: &Context,
        state: Option<&SourceState>,
        checksums: &[Checksum],
    ) -> Result<(String, Timestamp), Stop> {
        check_part_number(self.number)?;
        check_key(&self.source_key)?;
        require_session(view, self.session)?;
        let source = open_bucket_for(
            view,
            context,
            &self.source_bucket,
            &self.source_key,
            Action::GetObject,
        )?;
        let Some(found) = find(view, source.id, &self.source_key)? else {
            return Err(no_object(&self.source_bucket, &self.source_key));
        };
        if let Some(state) = state {
            state.check(found.ino, &found.inode)?;
        }
        let current = Current { ino: found.ino, inode: &found.inode };
        self.source_conditions.check_read(current).map_err(|error| match error {
            Error::NotModified(what) => Error::PreconditionFailed(what),
            other => other,
        })?;
        let size = if found.inode.is_directory() { 0 } else { found.inode.size };
        let (start, end) = match self.range {
            None => (0, size),
            Some((first, last)) if first <= last && last < size => (first, last + 1),
            Some(_) => return Err(Error::RangeNotSatisfiable { size }.into()),
        };
        if end - start > limits::PART_BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "a part of {} bytes; must be at most {}",
                end - start,
                limits::PART_BYTES_MAX
            ))
            .into());
        }
        let (opened, upload) = self.name.open(view, context, Action::PutObject)?;
        // No byte is read, so there is no MD5: the ETag names the source's state and the range, in
        // a form that cannot be mistaken for an MD5.
        let etag = format!(
            "{:016x}{:016x}-1",
            found.ino.0.rotate_left(32) ^ start,
            found.inode.change.rotate_left(24) ^ end
        );
        let part = Part {
            size: end - start,
            etag: etag.clone(),
            modified: context.now,
            checksums: checksums.to_vec(),
            content: self.reference(view, &found.inode.content, start, end)?,
            ..Part::default()
        };
        store_part(view, &opened, &self.name, upload, self.number, &part)?;
        Ok((etag, context.now))
    }
}

/// Copies like [`CopyPart`], with checksums that were computed of a state of the source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyCheckedPart {
    pub copy: CopyPart,
    pub state: SourceState,
    pub checksums: Vec<Checksum>,
}

impl Verb for CopyCheckedPart {
    type Reply = (String, Timestamp);
    const NAME: &'static str = "copy_checked_part";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        self.copy.copy(view, context, Some(&self.state), &self.checksums)
    }
}

impl CopyPart {
    /// Makes content that refers to `start..end` of `source`.
    fn reference(
        &self,
        view: &mut View<'_>,
        source: &Content,
        start: u64,
        end: u64,
    ) -> Result<Content, Stop> {
        let body = match source {
            Content::Body(body) => *body,
            Content::Empty if start == end => return Ok(Content::Empty),
            // A body without extents is a hole.
            Content::Empty => return Ok(Content::Body(self.body)),
            Content::Inline(bytes) => {
                let len = bytes.len() as u64;
                let cut = bytes.slice(start.min(len) as usize..end.min(len) as usize);
                return self.inline_part(view, cut, end - start);
            }
        };
        let former = unshared(view, source)?;
        let ranges = owned_ranges(view, body, start, end, DEPTH)?;
        check_extents(ranges.len())?;
        let mut out = ChunkWriter::new(self.body);
        for extent in ranges {
            let moved = Extent { offset: extent.offset - start, ..extent };
            if let Place::Body { body, .. } = moved.place {
                let pieces = chunk_of(moved.end() - 1) - chunk_of(moved.offset) + 1;
                retain_body(view, body, u64::from(pieces))?;
            }
            out.push(view, moved)?;
        }
        out.finish(view)?;
        check_shared(view, former)?;
        Ok(Content::Body(self.body))
    }

    /// Makes a part of `size` bytes that begins with these and continues with zeros.
    fn inline_part(
        &self,
        view: &mut View<'_>,
        bytes: bytes::Bytes,
        size: u64,
    ) -> Result<Content, Stop> {
        let len = bytes.len() as u64;
        if len == size {
            return Ok(if size == 0 { Content::Empty } else { Content::Inline(bytes) });
        }
        let extent = Extent { offset: 0, len, place: Place::Inline(bytes) };
        let extents = (len > 0).then_some(extent).into_iter().collect();
        let row = Extents { extents };
        store_extents(view, self.body, 0, &row)?;
        Ok(Content::Body(self.body))
    }
}

/// Returns `start..end` of a body as references to the bodies that own the bytes, and inline bytes.
fn owned_ranges(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
    depth: u32,
) -> Result<Vec<Extent>, Stop> {
    let mut owned: Vec<Extent> = Vec::new();
    for extent in extents_between(view, body, start, end)? {
        let found = match extent.place {
            Place::Inline(_) => vec![extent],
            Place::Block { .. } => {
                let place = Place::Body { body, offset: extent.offset };
                vec![Extent { place, ..extent }]
            }
            Place::Body { body: other, offset } => {
                if depth == 0 {
                    let what = format!("body {body}");
                    return Err(Error::corrupt(what, "a chain of more bodies", DEPTH).into());
                }
                let end = offset.saturating_add(extent.len);
                let mut inner = owned_ranges(view, other, offset, end, depth - 1)?;
                inner.iter_mut().for_each(|one| one.offset = one.offset - offset + extent.offset);
                inner
            }
        };
        for next in found {
            match owned.last_mut() {
                Some(last) if continues(last, &next) => last.len += next.len,
                _ => owned.push(next),
            }
        }
    }
    Ok(owned)
}

/// Returns whether `next` continues the run of the same body right behind `last`.
fn continues(last: &Extent, next: &Extent) -> bool {
    match (&last.place, &next.place) {
        (Place::Body { body: one, offset: at }, Place::Body { body: other, offset: further }) => {
            one == other && last.end() == next.offset && at + last.len == *further
        }
        _ => false,
    }
}
