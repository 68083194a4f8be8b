//! Resumable uploads: multipart uploads whose parts follow each other, so that all bytes up to an
//! offset are durable. An upload belongs to the user that began it.

use bytes::Bytes;
use cairn_auth::{Action, Principal};
use cairn_base::{Error, Timestamp, UploadId, UserId, limits};
use serde::{Deserialize, Serialize};

use super::multipart::{AbortUpload, CreateUpload, PutPart, UploadName, forget_upload};
use super::namespace::{count_uploads, find_bucket, load, load_known, open_bucket_for, store};
use super::user_quotas::find_room;
use crate::rows::{Drain, Draining, Resumable, Row, Upload};
use crate::{Context, Stop, Verb, View, keys};

/// Most rows that one [`ExpireResumable`] looks at.
const PAGE: usize = 100;

fn user_of(context: &Context) -> Result<UserId, Stop> {
    match context.caller.principal() {
        Principal::User(user) => Ok(user),
        _ => Err(Error::Denied("an upload belongs to a user: send credentials".into()).into()),
    }
}

fn no_upload(upload: UploadId) -> Stop {
    let text = format!("upload {upload}: it expired, was ended, or is another user's");
    Error::NotFound(text).into()
}

/// Begins an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BeginResumable {
    pub create: CreateUpload,
    pub length: u64,
    pub expires: Timestamp,
}

impl Verb for BeginResumable {
    type Reply = UploadId;
    const NAME: &'static str = "begin_resumable";

    /// Begins the upload.
    ///
    /// # Errors
    /// `TooLarge` if the user has too many of them, or too many bytes in them.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UploadId, Stop> {
        let upload = self.create.apply(view, context)?;
        let user = user_of(context)?;
        make_room(view, context, user, self.length)?;
        let bucket = find_bucket(view, &self.create.bucket)?.id;
        find_room(view, bucket)?.check(view, bucket, self.length)?;
        let key = keys::upload(bucket, self.create.key.as_bytes(), upload);
        let row: Upload = load_known(view, &key, "upload")?;
        store(view, key, &Upload { takes_any_size: true, ..row });
        let row = Resumable {
            bucket,
            key: self.create.key.clone(),
            length: self.length,
            expires: self.expires,
            ..Resumable::default()
        };
        store(view, keys::resumable(user, upload), &row);
        Ok(upload)
    }
}

/// Ends uploads of a user that have expired or are done, if there are many.
fn make_room(
    view: &mut View<'_>,
    context: &Context,
    user: UserId,
    length: u64,
) -> Result<(), Stop> {
    let (start, end) = keys::resumables(user);
    let rows = view.scan(&start, &end, 2 * limits::RESUMABLE_UPLOADS)?;
    let is_full = rows.len() >= 2 * limits::RESUMABLE_UPLOADS;
    let (mut count, mut bytes) = (0, length);
    for (key, row) in rows {
        let row = Resumable::decode(&row)?;
        if row.expires <= context.now || row.is_done && is_full {
            end_row(view, key, &row)?;
        } else if !row.is_done {
            count += 1;
            bytes = bytes.saturating_add(row.length);
        }
    }
    if count >= limits::RESUMABLE_UPLOADS || bytes > limits::RESUMABLE_BYTES {
        return Err(Error::TooLarge(format!(
            "{count} uploads of one user are in progress: at most {}, and {} bytes in all, so end \
             some first",
            limits::RESUMABLE_UPLOADS,
            limits::RESUMABLE_BYTES
        ))
        .into());
    }
    Ok(())
}

/// Forgets an upload, and aborts it if its object was not made.
fn end_row(view: &mut View<'_>, key: Bytes, row: &Resumable) -> Result<(), Stop> {
    if let (Some((_, upload)), false) = (keys::resumable_parts(&key), row.is_done) {
        let upload_key = keys::upload(row.bucket, row.key.as_bytes(), upload);
        if let Some(upload_row) = load::<Upload>(view, &upload_key)? {
            forget_upload(view, row.bucket, &upload_row)?;
            view.delete(upload_key);
            store(view, keys::drain_upload(upload), &Draining::from(Drain::Aborted));
            count_uploads(view, row.bucket, -1)?;
        }
    }
    view.delete(key);
    Ok(())
}

/// Returns the row of an upload of the caller, after checking that the caller may do `action` to
/// its object.
fn open(
    view: &mut View<'_>,
    context: &Context,
    name: &UploadName,
    action: Action,
) -> Result<(Bytes, Resumable), Stop> {
    let opened = open_bucket_for(view, context, &name.bucket, &name.key, action)?;
    let key = keys::resumable(user_of(context)?, name.upload);
    let row = load::<Resumable>(view, &key)?
        .filter(|row| row.bucket == opened.id && row.key == name.key && row.expires > context.now);
    row.map(|row| (key, row)).ok_or_else(|| no_upload(name.upload))
}

/// Finds the progress of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindResumable {
    pub name: UploadName,
}

impl Verb for FindResumable {
    type Reply = Resumable;
    const NAME: &'static str = "find_resumable";

    /// Finds the upload.
    ///
    /// # Errors
    /// `NotFound`, also if S3 ended it: the bytes before its offset are gone.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Resumable, Stop> {
        let (_, row) = open(view, context, &self.name, Action::PutObject)?;
        if row.offset < row.length {
            let key = keys::upload(row.bucket, row.key.as_bytes(), self.name.upload);
            if view.get(&key)?.is_none() {
                return Err(no_upload(self.name.upload));
            }
        }
        Ok(row)
    }
}

/// Adds bytes at an offset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutResumable {
    /// Part; this operation sets its number.
    pub part: PutPart,
    pub offset: u64,
    pub expires: Timestamp,
}

impl Verb for PutResumable {
    /// The upload, including these bytes.
    type Reply = Resumable;
    const NAME: &'static str = "put_resumable";

    /// Adds the bytes.
    ///
    /// # Errors
    /// `Conflict` if the upload has not reached this offset, or has passed it.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Resumable, Stop> {
        let (key, row) = open(view, context, &self.part.name, Action::PutObject)?;
        if row.offset != self.offset {
            let text = format!("the upload has come to {}, not {}", row.offset, self.offset);
            return Err(Error::Conflict(text).into());
        }
        let end = self.offset.saturating_add(self.part.size);
        if end > row.length {
            let text = format!("{end} bytes of an upload of {}", row.length);
            return Err(Error::TooLarge(text).into());
        }
        if row.parts >= limits::PARTS {
            let most = limits::PARTS;
            let text = format!("the upload came in {most} stretches: send it again in longer ones");
            return Err(Error::TooLarge(text).into());
        }
        let parts = row.parts + 1;
        PutPart { number: parts, ..self.part.clone() }.apply(view, context)?;
        let row = Resumable { offset: end, parts, expires: self.expires, ..row };
        store(view, key, &row);
        Ok(row)
    }
}

/// Notes that the object of an upload was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinishResumable {
    pub name: UploadName,
}

impl Verb for FinishResumable {
    type Reply = ();
    const NAME: &'static str = "finish_resumable";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let (key, row) = open(view, context, &self.name, Action::PutObject)?;
        store(view, key, &Resumable { is_done: true, ..row });
        Ok(())
    }
}

/// Ends an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbortResumable {
    pub name: UploadName,
}

impl Verb for AbortResumable {
    type Reply = ();
    const NAME: &'static str = "abort_resumable";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let (key, row) = open(view, context, &self.name, Action::AbortMultipartUpload)?;
        if row.is_done {
            view.delete(key)
        } else {
            AbortUpload { name: self.name.clone() }.apply(view, context)?;
            view.delete(key);
        }
        Ok(())
    }
}

/// Ends the next uploads that have expired.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpireResumable {
    /// Reply of the step before.
    pub after: Option<Bytes>,
}

impl Verb for ExpireResumable {
    /// Key to go on after; `None` at the end.
    type Reply = Option<Bytes>;
    const NAME: &'static str = "expire_resumable";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let (start, end) = keys::credentials(b'r');
        let start = self.after.clone().map_or(start, |after| [&after[..], b"\0"].concat().into());
        let rows = view.scan(&start, &end, PAGE)?;
        let next = (rows.len() == PAGE).then(|| rows.last().map(|(key, _)| key.clone())).flatten();
        for (key, row) in rows {
            let row = Resumable::decode(&row)?;
            if row.expires <= context.now {
                end_row(view, key, &row)?;
            }
        }
        Ok(next)
    }
}
