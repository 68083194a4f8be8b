//! Completes an upload: its parts become the body of an object.

use cairn_auth::Action;
use cairn_base::{BodyId, Error, SessionId, UploadId, limits};
use serde::{Deserialize, Serialize};

use super::chunks::ChunkWriter;
use super::{UploadName, forget_upload};
use crate::ops::conditions::Conditions;
use crate::ops::namespace::{
    chunk_of, count_uploads, load, release_body, require_session, retain_body, store,
};
use crate::ops::put_object::{Placement, PutReply};
use crate::rows::{
    Checksum, Content, Drain, Draining, Extent, ObjectAttributes, Part, Place, Row, Upload,
};
use crate::{Context, Stop, Verb, View, keys};

/// A part as the client names it on completion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakenPart {
    pub number: u32,
    pub etag: String,
    pub checksum: Option<Checksum>,
}

/// Parts taken in one operation: rows and bytes stay well below the limits.
pub const TAKE_PARTS: usize = 1000;

/// Takes the next parts (at most [`TAKE_PARTS`], in ascending order) into the body of the future
/// object. Until [`CompleteUpload`] nothing of it is visible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeParts {
    pub name: UploadName,
    pub session: SessionId,
    pub body: BodyId,
    /// Reply of the step before; `None` for the first step, which counts as a change of the upload.
    /// If several completions run at once, only the last one to begin succeeds.
    pub change: Option<u64>,
    /// Offset of these parts in the body.
    pub offset: u64,
    pub parts: Vec<TakenPart>,
    /// Set for the last parts. All other parts have a minimum size.
    pub last: bool,
}

/// The parts that were taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakePartsReply {
    pub upload: Upload,
    pub offset: u64,
    /// The parts as stored, with their sizes, ETags and checksums.
    pub parts: Vec<Part>,
}

impl Verb for TakeParts {
    type Reply = TakePartsReply;
    const NAME: &'static str = "take_parts";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<TakePartsReply, Stop> {
        require_session(view, self.session)?;
        let (opened, mut upload) = self.name.open(view, context, Action::PutObject)?;
        self.check_unchanged(&upload)?;
        if self.change.is_none() {
            // The parts belong to this completion from here on. Another completion that took them
            // before is refused: only the body that took all parts last may own them.
            upload.change += 1;
            store(view, self.name.row(opened.id), &upload);
        }
        let drain = Draining::from(Drain::Prepared { session: self.session });
        store(view, keys::drain_body(self.body), &drain);
        let keys: Vec<_> =
            self.parts.iter().map(|part| keys::part(self.name.upload, part.number)).collect();
        let rows = view.get_all(&keys)?;
        let mut out = ChunkWriter::resume(view, self.body, self.offset)?;
        let mut taken = TakePartsReply { upload, offset: self.offset, parts: Vec::new() };
        for (at, (named, row)) in self.parts.iter().zip(rows).enumerate() {
            let missing = || Error::Invalid(format!("part {} was not uploaded", named.number));
            let mut part = Part::decode(&row.ok_or_else(missing)?)?;
            let is_last = self.last && at + 1 == self.parts.len();
            check_taken(named, &part, is_last || taken.upload.takes_any_size)?;
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

fn check_taken(named: &TakenPart, part: &Part, takes_any_size: bool) -> Result<(), Error> {
    if named.etag != part.etag {
        let what = format!("part {}: its ETag is {}", named.number, part.etag);
        return Err(Error::Invalid(what));
    }
    if let Some(checksum) = &named.checksum
        && !part
            .checksums
            .iter()
            .any(|stored| stored.algorithm == checksum.algorithm && stored.value == checksum.value)
    {
        return Err(Error::Invalid(format!(
            "part {}: the named checksum is not that of the uploaded part",
            named.number
        )));
    }
    if !takes_any_size && part.size < limits::PART_BYTES_MIN {
        let what = format!("part {}: {} bytes are too small", named.number, part.size);
        return Err(Error::TooLarge(what));
    }
    Ok(())
}

/// Makes the part hold one reference to its body for each piece into which the borders of chunks
/// cut its extent. The pieces own these references when the upload is completed.
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

/// Returns the extent of a part in the object.
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
    /// Change number as [`TakeParts`] replied: if a part changed meanwhile, or another completion
    /// began, the result is `Conflict`.
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
        let (opened, upload) = self.name.open(view, context, Action::PutObject)?;
        if upload.change != self.change {
            return Err(changed(*id).into());
        }
        let prepared = keys::drain_body(self.body);
        let taken = load::<Draining>(view, &prepared)?.map(|found| found.drain);
        if taken != Some(Drain::Prepared { session: self.session }) {
            return Err(Error::Conflict(format!(
                "upload {id}: its parts were not prepared for this completion"
            ))
            .into());
        }
        view.delete(prepared);
        view.delete(self.name.row(opened.id));
        let drain = Draining::from(Drain::Completed { body: self.body });
        store(view, keys::drain_upload(*id), &drain);
        count_uploads(view, opened.id, -1)?;
        // From here on its bytes count as those of the object.
        forget_upload(view, opened.id, &upload)?;
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
