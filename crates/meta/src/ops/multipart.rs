//! Multipart uploads: made of parts that are bodies of their own, completed by a body that refers
//! to them. No byte moves.

use cairn_auth::{Action, decide_admin};
use cairn_base::{BodyId, BucketId, Error, Ino, SessionId, Timestamp, UploadId, limits};
use serde::{Deserialize, Serialize};

use super::conditions::{Conditions, Current};
use super::copy_object::SourceState;
use super::edit::{DEPTH, extents_between};
use super::namespace::{
    Opened, check_key, check_names, chunk_of, count_uploads, load, load_extents, next_ino,
    no_object, open_bucket, release_body, require_session, retain_body, store, store_extents,
    was_given,
};
use super::open_object::find;
use super::put_object::{NewContent, Placement, PutReply, publish_content};
use super::tags::check_tags;
use crate::rows::{
    Algorithm, Checksum, ChecksumKind, Content, Drain, Draining, Extent, Extents, ObjectAttributes,
    Part, Place, Row, Upload,
};
use crate::{Context, Stop, Verb, View, keys};

/// Which upload a request is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadName {
    pub bucket: String,
    pub key: String,
    pub upload: UploadId,
}

impl UploadName {
    fn open(
        &self,
        view: &mut View<'_>,
        context: &Context,
        action: Action,
    ) -> Result<(Opened, Upload), Stop> {
        check_key(&self.key)?;
        let opened = open_bucket(view, context, &self.bucket, action)?;
        match load(view, &self.row(opened.id))? {
            Some(upload) => Ok((opened, upload)),
            None => Err(no_upload(self.upload).into()),
        }
    }

    fn row(&self, bucket: BucketId) -> bytes::Bytes {
        keys::upload(bucket, self.key.as_bytes(), self.upload)
    }
}

fn no_upload(upload: UploadId) -> Error {
    Error::NotFound(format!("upload {upload}"))
}

/// Starts an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateUpload {
    pub bucket: String,
    pub key: String,
    pub object: ObjectAttributes,
    pub tags: Vec<(String, String)>,
    pub checksum: Option<(Algorithm, ChecksumKind)>,
}

impl Verb for CreateUpload {
    type Reply = UploadId;
    const NAME: &'static str = "create_upload";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UploadId, Stop> {
        check_key(&self.key)?;
        let opened = open_bucket(view, context, &self.bucket, Action::Write)?;
        check_names(&opened.bucket, &self.key)?;
        check_tags(&self.tags, limits::OBJECT_TAGS)?;
        let upload = UploadId(next_ino(view)?.0);
        let row = Upload {
            initiator: context.caller.user(),
            initiated: context.now,
            object: self.object.clone(),
            tags: self.tags.clone(),
            checksum: self.checksum,
            ..Upload::default()
        };
        store(view, keys::upload(opened.id, self.key.as_bytes(), upload), &row);
        count_uploads(view, opened.id, 1)?;
        Ok(upload)
    }
}

/// Reads an upload, to know what was announced for its parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetUpload {
    pub name: UploadName,
}

impl Verb for GetUpload {
    type Reply = Upload;
    const NAME: &'static str = "get_upload";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Upload, Stop> {
        Ok(self.name.open(view, context, Action::Write)?.1)
    }
}

fn check_part_number(number: u32) -> Result<(), Error> {
    if (1..=limits::PARTS).contains(&number) {
        return Ok(());
    }
    Err(Error::Invalid(format!("part number {number}: use 1 to {}", limits::PARTS)))
}

/// Adds a part, in place of a former one of the same number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutPart {
    pub name: UploadName,
    pub number: u32,
    pub session: SessionId,
    pub content: NewContent,
    pub size: u64,
    /// MD5 in hex.
    pub etag: String,
    pub checksums: Vec<Checksum>,
}

impl Verb for PutPart {
    type Reply = ();
    const NAME: &'static str = "put_part";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        check_part_number(self.number)?;
        let (opened, upload) = self.name.open(view, context, Action::Write)?;
        let part = Part {
            size: self.size,
            etag: self.etag.clone(),
            modified: context.now,
            checksums: self.checksums.clone(),
            content: publish_content(view, self.session, &self.content)?,
            ..Part::default()
        };
        store_part(view, &opened, &self.name, upload, self.number, &part)
    }
}

fn store_part(
    view: &mut View<'_>,
    opened: &Opened,
    name: &UploadName,
    mut upload: Upload,
    number: u32,
    part: &Part,
) -> Result<(), Stop> {
    let key = keys::part(name.upload, number);
    if let Some(former) = load::<Part>(view, &key)? {
        release_part(view, &former)?;
    }
    store(view, key, part);
    upload.change += 1;
    store(view, name.row(opened.id), &upload);
    Ok(())
}

/// Adds a part that is a range of an object, by reference.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyPart {
    pub name: UploadName,
    pub number: u32,
    pub source_bucket: String,
    pub source_key: String,
    /// About the source.
    pub source_conditions: Conditions,
    /// First and last byte; `None` for the whole object.
    pub range: Option<(u64, u64)>,
    pub session: SessionId,
    /// The id of the part's body.
    pub body: BodyId,
}

impl Verb for CopyPart {
    /// The part's ETag and when it was made.
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
        let source = open_bucket(view, context, &self.source_bucket, Action::Read)?;
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
            return Err(Error::TooLarge(format!("part of {} bytes", end - start)).into());
        }
        let (opened, upload) = self.name.open(view, context, Action::Write)?;
        // No byte is read, so there is no MD5: the ETag names the source's state and the range, in
        // a form that nobody takes for an MD5.
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

/// As [`CopyPart`], with checksums that were computed of a state of the source.
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
    /// Content that refers to `start..end` of `source`.
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
        let mut out = ChunkWriter::new(self.body);
        for extent in owned_ranges(view, body, (start, end), DEPTH)? {
            let moved = Extent { offset: extent.offset - start, ..extent };
            if let Place::Body { body, .. } = moved.place {
                let pieces = chunk_of(moved.end() - 1) - chunk_of(moved.offset) + 1;
                retain_body(view, body, u64::from(pieces))?;
            }
            out.push(view, moved)?;
        }
        out.finish(view)?;
        Ok(Content::Body(self.body))
    }
}

impl CopyPart {
    /// A part of `size` bytes that begins with these and goes on with zeros.
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
        let row = Extents { extents, ..Extents::default() };
        store_extents(view, self.body, 0, &row)?;
        Ok(Content::Body(self.body))
    }
}

/// `start..end` of a body as references to the bodies that own the bytes, and inline bytes.
fn owned_ranges(
    view: &mut View<'_>,
    body: BodyId,
    (start, end): (u64, u64),
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
                    return Err(Error::corrupt(what, "a deeper chain of bodies", DEPTH).into());
                }
                let range = (offset, offset.saturating_add(extent.len));
                let mut inner = owned_ranges(view, other, range, depth - 1)?;
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

/// Whether `next` is the run of the same body right behind `last`.
fn continues(last: &Extent, next: &Extent) -> bool {
    match (&last.place, &next.place) {
        (Place::Body { body: one, offset: at }, Place::Body { body: other, offset: further }) => {
            one == other && last.end() == next.offset && at + last.len == *further
        }
        _ => false,
    }
}

/// Writes extents in order into the chunk rows of a body, cut at the borders of chunks.
struct ChunkWriter {
    body: BodyId,
    chunk: u32,
    extents: Extents,
}

impl ChunkWriter {
    fn new(body: BodyId) -> ChunkWriter {
        ChunkWriter { body, chunk: 0, extents: Extents::default() }
    }

    /// Goes on with a body whose last chunk may hold extents already.
    fn resume(view: &mut View<'_>, body: BodyId, offset: u64) -> Result<ChunkWriter, Stop> {
        let chunk = chunk_of(offset);
        Ok(ChunkWriter { body, chunk, extents: load_extents(view, body, chunk)? })
    }

    fn push(&mut self, view: &mut View<'_>, extent: Extent) -> Result<(), Stop> {
        let mut start = extent.offset;
        while start < extent.end() {
            let chunk = chunk_of(start);
            if chunk != self.chunk {
                self.flush(view)?;
                self.chunk = chunk;
            }
            let border = (u64::from(chunk) + 1) * limits::CHUNK_BYTES;
            self.extents.extents.extend(extent.slice(start, border));
            start = border;
        }
        Ok(())
    }

    fn flush(&mut self, view: &mut View<'_>) -> Result<(), Stop> {
        let extents = std::mem::take(&mut self.extents);
        if extents != Extents::default() {
            store_extents(view, self.body, self.chunk, &extents)?;
        }
        Ok(())
    }

    fn finish(mut self, view: &mut View<'_>) -> Result<(), Stop> {
        self.flush(view)
    }
}

/// Lists the parts of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListParts {
    pub name: UploadName,
    pub after: u32,
    pub limit: usize,
}

impl Verb for ListParts {
    /// The upload, its parts by number, and whether there are more.
    type Reply = (Upload, Vec<(u32, Part)>, bool);
    const NAME: &'static str = "list_parts";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let (_, upload) = self.name.open(view, context, Action::Write)?;
        let (parts, more) = scan_parts(view, self.name.upload, self.after, self.limit)?;
        Ok((upload, parts, more))
    }
}

/// Up to `limit` parts after number `after`, and whether there are more.
pub fn scan_parts(
    view: &mut View<'_>,
    upload: UploadId,
    after: u32,
    limit: usize,
) -> Result<(Vec<(u32, Part)>, bool), Stop> {
    let limit = limit.min(limits::LIST_KEYS);
    let (start, end) = keys::parts_from(upload, after.saturating_add(1));
    let mut parts = Vec::new();
    for (key, row) in view.scan(&start, &end, limit + 1)? {
        let number = keys::part_number(&key)
            .ok_or_else(|| Error::corrupt("key of a part", key.len(), 13))?;
        parts.push((number, Part::decode(&row)?));
    }
    let more = parts.len() > limit;
    parts.truncate(limit);
    Ok((parts, more))
}

/// Lists the parts an object was completed from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartTable {
    pub upload: UploadId,
    pub after: u32,
    pub limit: usize,
}

impl Verb for PartTable {
    type Reply = (Vec<(u32, Part)>, bool);
    const NAME: &'static str = "part_table";

    /// The right to read was decided when the object was opened.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        decide_admin(&context.caller, "the parts of an object")?;
        scan_parts(view, self.upload, self.after, self.limit)
    }
}

/// Aborts an upload. Its parts are drained in the background.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbortUpload {
    pub name: UploadName,
}

impl Verb for AbortUpload {
    type Reply = ();
    const NAME: &'static str = "abort_upload";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        check_key(&self.name.key)?;
        let opened = open_bucket(view, context, &self.name.bucket, Action::Write)?;
        let upload = self.name.upload;
        if load::<Upload>(view, &self.name.row(opened.id))?.is_none() {
            return match was_aborted(view, upload)? {
                true => Ok(()),
                false => Err(no_upload(upload).into()),
            };
        }
        view.delete(self.name.row(opened.id));
        store(view, keys::drain_upload(upload), &Draining::from(Drain::Aborted));
        count_uploads(view, opened.id, -1)
    }
}

/// Whether an upload that is not in progress was aborted: its number was given out, and no
/// object has its parts. A client whose answer was lost asks again.
fn was_aborted(view: &mut View<'_>, upload: UploadId) -> Result<bool, Stop> {
    match load::<Draining>(view, &keys::drain_upload(upload))?.map(|found| found.drain) {
        Some(Drain::Aborted) => return Ok(true),
        Some(_) => return Ok(false),
        None => {}
    }
    let (start, end) = keys::parts_from(upload, 0);
    let has_parts = !view.scan(&start, &end, 1)?.is_empty();
    Ok(!has_parts && was_given(view, Ino(upload.0))?)
}

/// Aborts up to `most` uploads of a bucket; whether there are more.
pub(super) fn abort_uploads(
    view: &mut View<'_>,
    bucket: BucketId,
    most: usize,
) -> Result<bool, Stop> {
    let (start, end) = keys::uploads_from(bucket, b"");
    let mut rows = view.scan(&start, &end, most + 1)?;
    let more = rows.len() > most;
    rows.truncate(most);
    for (key, _) in &rows {
        let (_, upload) = keys::upload_parts(key)
            .ok_or_else(|| Error::corrupt("key of an upload", key.len(), "18"))?;
        view.delete(key.clone());
        store(view, keys::drain_upload(upload), &Draining::from(Drain::Aborted));
    }
    count_uploads(view, bucket, -(rows.len() as i64))?;
    Ok(more)
}

/// A part as the client names it on completion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakenPart {
    pub number: u32,
    pub etag: String,
    pub checksum: Option<Checksum>,
}

/// Parts taken in one operation: rows and bytes stay well below the limits.
pub const TAKE_PARTS: usize = 1000;

/// Takes the next parts (at most [`TAKE_PARTS`], in ascending order) into the body of the object
/// to be. Until [`CompleteUpload`] nothing of it is visible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeParts {
    pub name: UploadName,
    pub session: SessionId,
    pub body: BodyId,
    /// What the step before replied; `None` for the first step, which counts as a change of the
    /// upload: of several completions at once the last to begin is done.
    pub change: Option<u64>,
    /// Where in the body these parts begin.
    pub offset: u64,
    pub parts: Vec<TakenPart>,
    /// Whether these are the last ones: all others have a least size.
    pub last: bool,
}

/// What was taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Taken {
    pub upload: Upload,
    pub offset: u64,
    /// The parts as stored, with their sizes, ETags and checksums.
    pub parts: Vec<Part>,
}

impl Verb for TakeParts {
    type Reply = Taken;
    const NAME: &'static str = "take_parts";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Taken, Stop> {
        require_session(view, self.session)?;
        let (opened, mut upload) = self.name.open(view, context, Action::Write)?;
        self.check_unchanged(&upload)?;
        if self.change.is_none() {
            // The parts are this completion's from here on. Another one that took them before is
            // refused: only the body that took all parts last may own them.
            upload.change += 1;
            store(view, self.name.row(opened.id), &upload);
        }
        let drain = Draining::from(Drain::Prepared { session: self.session });
        store(view, keys::drain_body(self.body), &drain);
        let keys: Vec<_> =
            self.parts.iter().map(|part| keys::part(self.name.upload, part.number)).collect();
        let rows = view.get_all(&keys)?;
        let mut out = ChunkWriter::resume(view, self.body, self.offset)?;
        let mut taken = Taken { upload, offset: self.offset, parts: Vec::new() };
        for (at, (named, row)) in self.parts.iter().zip(rows).enumerate() {
            let missing = || Error::Invalid(format!("part {}: not uploaded", named.number));
            let mut part = Part::decode(&row.ok_or_else(missing)?)?;
            check_taken(named, &part, self.last && at + 1 == self.parts.len())?;
            if part.size > 0 {
                let extent = part_extent(&part, taken.offset)?;
                hold_pieces(view, &mut part, &extent)?;
                out.push(view, extent)?;
            }
            taken.offset += part.size;
            part.taken = Some(self.body);
            store(view, keys[at].clone(), &part);
            taken.parts.push(part);
        }
        out.finish(view)?;
        Ok(taken)
    }
}

impl TakeParts {
    fn check_unchanged(&self, upload: &Upload) -> Result<(), Error> {
        match self.change {
            Some(change) if change != upload.change => Err(changed(self.name.upload)),
            _ => Ok(()),
        }
    }
}

fn changed(upload: UploadId) -> Error {
    let what = format!("upload {upload}: a part changed, or another completion began");
    Error::Conflict(what)
}

fn check_taken(named: &TakenPart, part: &Part, last: bool) -> Result<(), Error> {
    if named.etag != part.etag {
        let what = format!("part {}: its ETag is {}", named.number, part.etag);
        return Err(Error::Invalid(what));
    }
    if let Some(checksum) = &named.checksum
        && !part.checksums.iter().any(|stored| stored.value == checksum.value)
    {
        return Err(Error::Invalid(format!("part {}: another checksum", named.number)));
    }
    if !last && part.size < limits::PART_BYTES_MIN {
        let what = format!("part {}: {} bytes are too small", named.number, part.size);
        return Err(Error::TooLarge(what));
    }
    Ok(())
}

/// Makes the part hold one reference on its body for each piece that the borders of chunks cut
/// its extent into. They become the pieces' own when the upload is completed.
fn hold_pieces(view: &mut View<'_>, part: &mut Part, extent: &Extent) -> Result<(), Stop> {
    let Content::Body(body) = part.content else { return Ok(()) };
    let further = chunk_of(extent.end() - 1) - chunk_of(extent.offset);
    match further.checked_sub(part.further_references) {
        Some(0) => {}
        Some(more) => retain_body(view, body, u64::from(more))?,
        None => {
            for _ in further..part.further_references {
                release_body(view, body)?;
            }
        }
    }
    part.further_references = further;
    Ok(())
}

/// Lets go of all that a part holds.
pub fn release_part(view: &mut View<'_>, part: &Part) -> Result<(), Stop> {
    if let Content::Body(body) = part.content {
        for _ in 0..=part.further_references {
            release_body(view, body)?;
        }
    }
    Ok(())
}

/// The extent that a part is in the object.
fn part_extent(part: &Part, offset: u64) -> Result<Extent, Error> {
    let place = match &part.content {
        Content::Body(body) => Place::Body { body: *body, offset: 0 },
        Content::Inline(bytes) => Place::Inline(bytes.clone()),
        Content::Empty => return Err(Error::corrupt("part", "no content", "content")),
    };
    Ok(Extent { offset, len: part.size, place })
}

/// Publishes the body put together by [`TakeParts`] as an object and ends the upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompleteUpload {
    pub name: UploadName,
    pub session: SessionId,
    pub body: BodyId,
    /// As [`TakeParts`] replied: a part that changed meanwhile, or another completion, is a
    /// `Conflict`.
    pub change: u64,
    pub size: u64,
    pub etag: String,
    pub checksums: Vec<Checksum>,
    pub part_count: u32,
    pub conditions: Conditions,
}

impl Verb for CompleteUpload {
    type Reply = PutReply;
    const NAME: &'static str = "complete_upload";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<PutReply, Stop> {
        require_session(view, self.session)?;
        let UploadName { bucket, key, upload: id } = &self.name;
        let (opened, upload) = self.name.open(view, context, Action::Write)?;
        if upload.change != self.change {
            return Err(changed(*id).into());
        }
        let prepared = keys::drain_body(self.body);
        let taken = load::<Draining>(view, &prepared)?.map(|found| found.drain);
        if taken != Some(Drain::Prepared { session: self.session }) {
            return Err(Error::Conflict(format!("upload {id}: parts not taken")).into());
        }
        view.delete(prepared);
        view.delete(self.name.row(opened.id));
        let drain = Draining::from(Drain::Completed { body: self.body });
        store(view, keys::drain_upload(*id), &drain);
        count_uploads(view, opened.id, -1)?;
        let object = ObjectAttributes {
            etag: self.etag.clone(),
            checksums: self.checksums.clone(),
            part_count: self.part_count,
            part_table: Some(*id),
            ..upload.object
        };
        let place = Placement::find(view, context, bucket, key, &self.conditions)?;
        place.put(view, context, Content::Body(self.body), self.size, object, &upload.tags)
    }
}
