//! Multipart uploads (copied parts and completion), and copies. Mostly no byte is moved.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::waits;
use cairn_base::{BodyId, Error, Result, Timestamp, limits};
use futures_util::TryStreamExt;
use tokio::time::sleep;

use crate::Fs;
use crate::digest::{Digester, combine_checksums};
use crate::object::Object;
use crate::ops::buckets::{DeleteBucket, DropUploads, GetBucket, UPLOADS};
use crate::ops::conditions::{Conditions, Current};
use crate::ops::copy_object::{CopyCheckedObject, CopyObject, CopyReply, SourceState};
use crate::ops::multipart::{
    CompleteUpload, CopyCheckedPart, CopyPart, GetUpload, PartTable, TAKE_PARTS, TakeParts,
    TakePartsReply, TakenPart, UploadName,
};
use crate::ops::put_object::{AbandonBody, MayWrite, PutReply};
use crate::rows::{Algorithm, Checksum, ChecksumKind, Content, Part, Upload};

/// Attempts to complete an upload after the first, while others complete it, too.
const COMPLETIONS: u32 = 8;

/// An object made from an upload.
#[derive(Clone, Debug)]
pub struct CompletedUpload {
    pub put: PutReply,
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

/// Number of rounds of aborting uploads of a bucket to be deleted, beyond those for the uploads
/// that were there at the beginning: more uploads may begin meanwhile.
const SPARE_ROUNDS: usize = 4;

/// The range of an object that becomes a part.
#[derive(Clone, Debug)]
pub struct PartSource {
    pub bucket: String,
    pub key: String,
    pub conditions: Conditions,
    /// First and last byte; `None` for the whole object.
    pub range: Option<(u64, u64)>,
}

/// A part that is a range of an object.
#[derive(Clone, Debug)]
pub struct CopiedPart {
    pub etag: String,
    pub modified: Timestamp,
    pub checksums: Vec<Checksum>,
}

impl Fs {
    /// Makes a part from a range of an object: by reference, or by copying its bytes if the object
    /// has too many pieces to be shared. By reference, bytes are read only for a checksum.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        name: UploadName,
        number: u32,
        source: PartSource,
        checksum: Option<Algorithm>,
    ) -> Result<CopiedPart> {
        let shared = self.share_part(caller, name.clone(), number, source.clone(), checksum).await;
        match shared {
            Err(Error::NotImplemented(_) | Error::TooLarge(_)) => {
                self.copy_part_bytes(caller, name, number, source, checksum).await
            }
            outcome => outcome,
        }
    }

    async fn share_part(
        &self,
        caller: &Caller,
        name: UploadName,
        number: u32,
        source: PartSource,
        checksum: Option<Algorithm>,
    ) -> Result<CopiedPart> {
        let read = match checksum {
            None => None,
            Some(algorithm) => {
                let object = self.open(caller, &source.bucket, &source.key).await?;
                let range = range_of(&object, source.range)?;
                let state = SourceState::of(object.ino(), object.inode());
                Some((state, vec![object.checksum(algorithm, range).await?]))
            }
        };
        let copy = CopyPart {
            name,
            number,
            source_bucket: source.bucket,
            source_key: source.key,
            source_conditions: source.conditions,
            range: source.range,
            session: self.inner.meta.session(),
            body: self.inner.new_body(),
        };
        let (checksums, (etag, modified)) = match read {
            None => (Vec::new(), self.run(caller, copy).await?),
            Some((state, checksums)) => {
                let verb = CopyCheckedPart { copy, state, checksums: checksums.clone() };
                (checksums, self.run(caller, verb).await?)
            }
        };
        Ok(CopiedPart { etag, modified, checksums })
    }

    /// Copies an object: by reference, or by copying its bytes if it has too many pieces to be
    /// shared. By reference, bytes are read only for a requested checksum that the source does not
    /// have, or that the source has only by parts.
    pub async fn copy_object(
        &self,
        caller: &Caller,
        copy: CopyObject,
        checksum: Option<Algorithm>,
    ) -> Result<CopyReply> {
        let object = self.open(caller, &copy.source_bucket, &copy.source_key).await?;
        let own = object.attributes().and_then(|attributes| attributes.checksums.first());
        let size = object.size();
        let wanted = match (checksum, own) {
            (Some(_), _) if size > limits::PART_BYTES_MAX => {
                let what = "a checksum of a copy of more than 5 GiB: copy it in parts";
                return Err(Error::Invalid(what.into()));
            }
            (Some(algorithm), _) => algorithm,
            (None, Some(own))
                if own.kind == ChecksumKind::Composite && size <= limits::PART_BYTES_MAX =>
            {
                own.algorithm
            }
            (None, _) => return self.copy_as_is(caller, copy).await,
        };
        check_source(&object, &copy.source_conditions)?;
        if wanted.is_later() && object.attributes().is_none_or(|source| source.etag.is_empty()) {
            let what = "the source has no MD5 as its ETag, and then a copy can have no checksum \
                        of this algorithm: ask for CRC32, CRC32C, CRC64NVME, SHA1 or SHA256";
            return Err(Error::Invalid(what.into()));
        }
        let state = SourceState::of(object.ino(), object.inode());
        let checksums = vec![object.checksum(wanted, 0..size).await?];
        let verb = CopyCheckedObject { copy: copy.clone(), state, checksums };
        match self.run(caller, verb).await {
            Err(Error::NotImplemented(_)) => {
                self.copy_object_bytes(caller, copy, Some(wanted)).await
            }
            outcome => outcome,
        }
    }

    /// Copies an object like [`Fs::copy_object`], with the checksums that it has.
    pub async fn copy_as_is(&self, caller: &Caller, copy: CopyObject) -> Result<CopyReply> {
        match self.run(caller, copy.clone()).await {
            Err(Error::NotImplemented(_)) => self.copy_object_bytes(caller, copy, None).await,
            outcome => outcome,
        }
    }

    /// Deletes an empty bucket and the uploads that are in progress in it: both or neither. Only if
    /// there are too many uploads for one operation, some are aborted before.
    ///
    /// # Errors
    /// `NotEmpty`; `Conflict` if uploads are begun as fast as they are aborted.
    pub async fn delete_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        let name = name.to_owned();
        let mut rounds_left = None;
        loop {
            let error = match self.run(caller, DeleteBucket { name: name.clone() }).await {
                Err(error @ Error::Conflict(_)) => error,
                outcome => return outcome,
            };
            let left = match rounds_left {
                Some(left) => left,
                None => {
                    let bucket = GetBucket { name: name.clone() };
                    let (_, usage) = self.read(&Caller::system(), bucket).await?;
                    usage.uploads as usize / UPLOADS + SPARE_ROUNDS
                }
            };
            rounds_left = Some(left.checked_sub(1).ok_or(error)?);
            self.run(caller, DropUploads { name: name.clone() }).await?;
        }
    }

    /// Makes an object of the parts, which are named in ascending order.
    pub async fn complete_upload(
        &self,
        caller: &Caller,
        name: UploadName,
        parts: Vec<TakenPart>,
        conditions: Conditions,
    ) -> Result<CompletedUpload> {
        if parts.is_empty() {
            return Err(Error::Invalid("completing an upload needs at least one part".into()));
        }
        if !parts.is_sorted_by(|one, next| one.number < next.number) {
            return Err(Error::Invalid("parts must be named in ascending order".into()));
        }
        let begun = self.read(caller, GetUpload { name: name.clone() }).await;
        if let Err(Error::NotFound(_)) = &begun
            && let Some(done) = self.completed_before(caller, &name, &parts).await?
        {
            return Ok(done);
        }
        begun?;
        let mut attempt = 0;
        loop {
            let body = self.inner.new_body();
            let error = match self.assemble(caller, &name, &parts, conditions.clone(), body).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            // Rows of a body that will not be published. If this fails, they are found when the
            // session ends.
            let _ = self.run(&Caller::system(), AbandonBody { body }).await;
            if !matches!(error, Error::NotFound(_) | Error::Conflict(_)) {
                return Err(error);
            }
            // Another completion of the same parts may have finished meanwhile.
            if let Some(done) = self.completed_before(caller, &name, &parts).await? {
                return Ok(done);
            }
            if attempt == COMPLETIONS || matches!(error, Error::NotFound(_)) {
                return Err(error);
            }
            // The completion that began later may finish soon, or fail.
            sleep(pause(body, attempt)).await;
            attempt += 1;
        }
    }

    /// Returns the object that an upload has become, if it exists and was made of these parts.
    async fn completed_before(
        &self,
        caller: &Caller,
        name: &UploadName,
        named: &[TakenPart],
    ) -> Result<Option<CompletedUpload>> {
        self.read(caller, MayWrite { bucket: name.bucket.clone() }).await?;
        let object = match self.open(&Caller::system(), &name.bucket, &name.key).await {
            Ok(object) => object,
            Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(attributes) = object.attributes() else { return Ok(None) };
        let Content::Body(body) = object.inode().content else { return Ok(None) };
        if attributes.part_table != Some(name.upload) {
            return Ok(None);
        }
        let (mut after, mut left) = (0, named);
        loop {
            let verb = PartTable { upload: name.upload, after, limit: limits::LIST_KEYS };
            let (parts, more) = self.read(&Caller::system(), verb).await?;
            for (number, part) in parts {
                after = number;
                if part.taken != Some(body) {
                    continue;
                }
                match left.split_first() {
                    Some((one, rest)) if (one.number, &one.etag) == (number, &part.etag) => {
                        left = rest;
                    }
                    _ => return Ok(None),
                }
            }
            if !more {
                break;
            }
        }
        let put = PutReply {
            ino: object.ino(),
            etag: object.etag(),
            modified: object.inode().mtime,
            replaced: false,
        };
        let checksums = attributes.checksums.clone();
        Ok(left.is_empty().then(|| CompletedUpload { put, size: object.size(), checksums }))
    }

    async fn assemble(
        &self,
        caller: &Caller,
        name: &UploadName,
        named: &[TakenPart],
        conditions: Conditions,
        body: BodyId,
    ) -> Result<CompletedUpload> {
        let session = self.inner.meta.session();
        let (mut change, mut offset) = (None, 0);
        let mut upload = Upload::default();
        let mut parts: Vec<Part> = Vec::with_capacity(named.len());
        let (mut rest, mut step) = (named, TAKE_PARTS);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(step.min(rest.len()));
            let verb = TakeParts {
                name: name.clone(),
                session,
                body,
                change,
                offset,
                parts: now.to_vec(),
                last: later.is_empty(),
            };
            let taken: TakePartsReply = match self.run(caller, verb).await {
                // A part of 5 GiB has 81 rows: fewer parts may fit in one operation.
                Err(Error::TooLarge(_)) if now.len() > 1 => {
                    step = now.len() / 2;
                    continue;
                }
                taken => taken?,
            };
            change = Some(taken.upload.change);
            offset = taken.offset;
            upload = taken.upload;
            parts.extend(taken.parts);
            rest = later;
        }
        let checksums = object_checksums(&upload, &parts)?;
        let verb = CompleteUpload {
            name: name.clone(),
            session,
            body,
            change: upload.change,
            size: offset,
            etag: multipart_etag(&parts)?,
            checksums: checksums.clone(),
            part_count: parts.len() as u32,
            conditions,
        };
        let put = self.run(caller, verb).await?;
        Ok(CompletedUpload { put, size: offset, checksums })
    }
}

/// Returns the time for which a completion gives way to those that began later. It differs between
/// completions, so that they do not begin at the same time again and again.
fn pause(body: BodyId, attempt: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (body.session, body.counter, attempt).hash(&mut hasher);
    let half = (waits::COMPLETE_RETRY.as_millis() as u64) << attempt;
    Duration::from_millis(half + hasher.finish() % half)
}

/// Returns the ETag as S3 defines it: the MD5 of the parts' MD5s, and their number. For a copied
/// part, other 32 hex digits take the place of the MD5.
fn multipart_etag(parts: &[Part]) -> Result<String> {
    let mut digester = Digester::new(true, &[]);
    for part in parts {
        let digits = part.etag.split('-').next().unwrap_or_default();
        let md5 = u128::from_str_radix(digits, 16)
            .map_err(|_| Error::corrupt("ETag of a part", &part.etag, "32 hex digits"))?;
        digester.update(&md5.to_be_bytes());
    }
    Ok(format!("{}-{}", digester.finish().md5_hex(), parts.len()))
}

/// Checks the conditions on the source of a copy.
///
/// # Errors
/// `PreconditionFailed`.
pub(crate) fn check_source(object: &Object, conditions: &Conditions) -> Result<()> {
    let current = Current { ino: object.ino(), inode: object.inode() };
    conditions.check_read(current).map_err(|error| match error {
        Error::NotModified(what) => Error::PreconditionFailed(what),
        other => other,
    })
}

/// Converts first and last byte to a range within the object.
pub(crate) fn range_of(object: &Object, range: Option<(u64, u64)>) -> Result<std::ops::Range<u64>> {
    let size = object.size();
    let range = match range {
        None => 0..size,
        Some((first, last)) if first <= last && last < size => first..last + 1,
        Some(_) => return Err(Error::RangeNotSatisfiable { size }),
    };
    match range.end - range.start {
        len if len > limits::PART_BYTES_MAX => Err(Error::TooLarge(format!(
            "a part of {len} bytes; must be at most {}",
            limits::PART_BYTES_MAX
        ))),
        _ => Ok(range),
    }
}

impl Object {
    /// Returns a checksum of a range: the object's own if it covers all bytes, or computed.
    async fn checksum(
        &self,
        algorithm: Algorithm,
        range: std::ops::Range<u64>,
    ) -> Result<Checksum> {
        if range == (0..self.size())
            && let Some(attributes) = self.attributes()
            && let Some(own) = attributes
                .checksums
                .iter()
                .find(|own| own.algorithm == algorithm && own.kind == ChecksumKind::FullObject)
        {
            return Ok(own.clone());
        }
        let mut digester = Digester::new(false, &[algorithm]);
        let mut bytes = self.read(range);
        while let Some(piece) = bytes.try_next().await? {
            digester.update(&piece);
        }
        Ok(digester.finish().checksums.swap_remove(0))
    }
}

/// Returns the checksum announced for the object. If none was, it is S3's default, provided that
/// all parts have that.
fn object_checksums(upload: &Upload, parts: &[Part]) -> Result<Vec<Checksum>> {
    let default = (Algorithm::Crc64Nvme, ChecksumKind::FullObject);
    let (algorithm, kind) = upload.checksum.unwrap_or(default);
    let mut values: Vec<(Bytes, u64)> = Vec::with_capacity(parts.len());
    for part in parts {
        match part.checksums.iter().find(|checksum| checksum.algorithm == algorithm) {
            Some(checksum) => values.push((checksum.value.clone(), part.size)),
            None if upload.checksum.is_none() => return Ok(Vec::new()),
            None => {
                let what = "a part has no checksum of the kind that the upload was begun with";
                return Err(Error::Invalid(what.into()));
            }
        }
    }
    Ok(vec![combine_checksums(algorithm, kind, &values)?])
}
