//! Multipart uploads: their parts are bodies of their own, and a completed upload is a body that
//! refers to them. No byte moves.

mod chunks;
mod complete;
mod copy_part;

use cairn_auth::Action;
use cairn_base::{BucketId, Error, Ino, SessionId, UploadId, limits};
use serde::{Deserialize, Serialize};

use super::key_names::{check_key, check_names};
use super::namespace::{
    BucketEntry, count_uploads, load, next_ino, open_bucket_for, release_body, store, was_given,
};
use super::put_object::{NewContent, publish_content};
use super::tags::check_tags;
use super::user_totals::{Change, count_owned, count_parts};
use crate::rows::{
    Algorithm, Checksum, ChecksumKind, Content, Drain, Draining, ObjectAttributes, Part, Row,
    Upload,
};
use crate::{Context, Stop, Verb, View, keys};

pub use complete::{CompleteUpload, TAKE_PARTS, TakeParts, TakePartsReply, TakenPart};
pub use copy_part::{CopyCheckedPart, CopyPart};

/// The name of an upload in a request.
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
    ) -> Result<(BucketEntry, Upload), Stop> {
        check_key(&self.key)?;
        let opened = open_bucket_for(view, context, &self.bucket, &self.key, action)?;
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
        let opened = open_bucket_for(view, context, &self.bucket, &self.key, Action::PutObject)?;
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
        count_owned(view, row.initiator, Change { uploads: 1, ..Change::default() })?;
        Ok(upload)
    }
}

/// Reads an upload, to learn what was announced for its parts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetUpload {
    pub name: UploadName,
}

impl Verb for GetUpload {
    type Reply = Upload;
    const NAME: &'static str = "get_upload";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Upload, Stop> {
        Ok(self.name.open(view, context, Action::PutObject)?.1)
    }
}

fn check_part_number(number: u32) -> Result<(), Error> {
    if (1..=limits::PARTS).contains(&number) {
        return Ok(());
    }
    Err(Error::Invalid(format!("part number {number}: use 1 to {}", limits::PARTS)))
}

/// Adds a part, replacing a former one of the same number.
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
        let (opened, upload) = self.name.open(view, context, Action::PutObject)?;
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
    opened: &BucketEntry,
    name: &UploadName,
    mut upload: Upload,
    number: u32,
    part: &Part,
) -> Result<(), Stop> {
    let key = keys::part(name.upload, number);
    let mut former_bytes = 0;
    if let Some(former) = load::<Part>(view, &key)? {
        release_part(view, &former)?;
        former_bytes = former.size;
    }
    store(view, key, part);
    upload.change += 1;
    let grows = part.size as i64 - former_bytes as i64;
    upload.bytes = upload.bytes.saturating_add_signed(grows);
    count_parts(view, opened.id, grows)?;
    store(view, name.row(opened.id), &upload);
    Ok(())
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
        let (_, upload) = self.name.open(view, context, Action::ListMultipartUploadParts)?;
        let (parts, more) = scan_parts(view, self.name.upload, self.after, self.limit)?;
        Ok((upload, parts, more))
    }
}

/// Returns up to `limit` parts after number `after`, and whether there are more.
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

/// Lists the parts that an object was completed from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartTable {
    pub upload: UploadId,
    pub after: u32,
    pub limit: usize,
}

impl Verb for PartTable {
    type Reply = (Vec<(u32, Part)>, bool);
    const NAME: &'static str = "part_table";

    /// Lists the parts. The right to read was checked when the object was opened.
    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
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
        let opened = open_bucket_for(
            view,
            context,
            &self.name.bucket,
            &self.name.key,
            Action::AbortMultipartUpload,
        )?;
        let upload = self.name.upload;
        let Some(row) = load::<Upload>(view, &self.name.row(opened.id))? else {
            return if was_aborted(view, upload)? { Ok(()) } else { Err(no_upload(upload).into()) };
        };
        forget_upload(view, opened.id, &row)?;
        view.delete(self.name.row(opened.id));
        store(view, keys::drain_upload(upload), &Draining::from(Drain::Aborted));
        count_uploads(view, opened.id, -1)
    }
}

/// Stops counting an upload that ends: its parts for the bucket and the bucket's owner, and the
/// upload for the user that began it.
pub(super) fn forget_upload(
    view: &mut View<'_>,
    bucket: BucketId,
    upload: &Upload,
) -> Result<(), Stop> {
    count_parts(view, bucket, -(upload.bytes as i64))?;
    count_owned(view, upload.initiator, Change { uploads: -1, ..Change::default() })
}

/// Returns whether an upload that is not in progress was aborted: its number was given out, and no
/// object has its parts. A client that did not receive the answer asks again.
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

/// Aborts up to `most` uploads of a bucket; returns whether there are more.
pub(super) fn abort_uploads(
    view: &mut View<'_>,
    bucket: BucketId,
    most: usize,
) -> Result<bool, Stop> {
    let (start, end) = keys::uploads_from(bucket, b"");
    let mut rows = view.scan(&start, &end, most + 1)?;
    let more = rows.len() > most;
    rows.truncate(most);
    for (key, row) in &rows {
        let (_, upload) = keys::upload_parts(key)
            .ok_or_else(|| Error::corrupt("key of an upload", key.len(), "18"))?;
        forget_upload(view, bucket, &Upload::decode(row)?)?;
        view.delete(key.clone());
        store(view, keys::drain_upload(upload), &Draining::from(Drain::Aborted));
    }
    count_uploads(view, bucket, -(rows.len() as i64))?;
    Ok(more)
}

/// Releases everything that a part holds.
pub fn release_part(view: &mut View<'_>, part: &Part) -> Result<(), Stop> {
    if let Content::Body(body) = part.content {
        for _ in 0..=part.further_references {
            release_body(view, body)?;
        }
    }
    Ok(())
}
