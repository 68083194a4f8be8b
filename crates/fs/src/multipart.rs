//! Multipart uploads: copied parts and completion. No byte moves.

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{BodyId, Error, Result, Timestamp};

use crate::Fs;
use crate::digest::{Digester, combine_checksums};
use crate::ops::conditions::Conditions;
use crate::ops::multipart::{
    CompleteUpload, CopyPart, GetUpload, TAKE_PARTS, TakeParts, Taken, TakenPart, UploadName,
};
use crate::ops::put_object::{AbandonBody, PutReply};
use crate::rows::{Checksum, Part, Upload};

/// An object made of an upload.
#[derive(Clone, Debug)]
pub struct Completed {
    pub put: PutReply,
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

/// Which range of which object becomes a part.
#[derive(Clone, Debug)]
pub struct PartSource {
    pub bucket: String,
    pub key: String,
    pub conditions: Conditions,
    /// First and last byte; `None` for the whole object.
    pub range: Option<(u64, u64)>,
}

impl Fs {
    /// Makes a part of a range of an object, by reference; returns its ETag and time.
    pub async fn copy_part(
        &self,
        caller: &Caller,
        name: UploadName,
        number: u32,
        source: PartSource,
    ) -> Result<(String, Timestamp)> {
        let verb = CopyPart {
            name,
            number,
            source_bucket: source.bucket,
            source_key: source.key,
            source_conditions: source.conditions,
            range: source.range,
            session: self.inner.meta.session(),
            body: self.inner.new_body(),
        };
        self.run(caller, verb).await
    }

    /// Makes an object of the parts, which are named in ascending order.
    pub async fn complete_upload(
        &self,
        caller: &Caller,
        name: UploadName,
        parts: Vec<TakenPart>,
        conditions: Conditions,
    ) -> Result<Completed> {
        if parts.is_empty() {
            return Err(Error::Invalid("completing an upload needs at least one part".into()));
        }
        if !parts.is_sorted_by(|one, next| one.number < next.number) {
            return Err(Error::Invalid("parts must be named in ascending order".into()));
        }
        self.read(caller, GetUpload { name: name.clone() }).await?;
        let body = self.inner.new_body();
        let outcome = self.assemble(caller, name, parts, conditions, body).await;
        if outcome.is_err() {
            // Rows of a body that will not be published. If this fails, the end of the session
            // brings it up again.
            let _ = self.run(&Caller::system(), AbandonBody { body }).await;
        }
        outcome
    }

    async fn assemble(
        &self,
        caller: &Caller,
        name: UploadName,
        named: Vec<TakenPart>,
        conditions: Conditions,
        body: BodyId,
    ) -> Result<Completed> {
        let session = self.inner.meta.session();
        let steps = named.len().div_ceil(TAKE_PARTS);
        let (mut change, mut offset) = (None, 0);
        let mut upload = Upload::default();
        let mut parts: Vec<Part> = Vec::with_capacity(named.len());
        for (at, step) in named.chunks(TAKE_PARTS).enumerate() {
            let verb = TakeParts {
                name: name.clone(),
                session,
                body,
                change,
                offset,
                parts: step.to_vec(),
                last: at + 1 == steps,
            };
            let taken: Taken = self.run(caller, verb).await?;
            change = Some(taken.upload.change);
            offset = taken.offset;
            upload = taken.upload;
            parts.extend(taken.parts);
        }
        let checksums = object_checksums(&upload, &parts)?;
        let verb = CompleteUpload {
            name,
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
        Ok(Completed { put, size: offset, checksums })
    }
}

/// S3's: the MD5 of the MD5s of the parts, and how many. A copied part has other 32 digits.
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

/// The checksum announced for the object, if all parts have one.
fn object_checksums(upload: &Upload, parts: &[Part]) -> Result<Vec<Checksum>> {
    let Some((algorithm, kind)) = upload.checksum else { return Ok(Vec::new()) };
    let mut values: Vec<(Bytes, u64)> = Vec::with_capacity(parts.len());
    for part in parts {
        match part.checksums.iter().find(|checksum| checksum.algorithm == algorithm) {
            Some(checksum) => values.push((checksum.value.clone(), part.size)),
            None => return Ok(Vec::new()),
        }
    }
    Ok(vec![combine_checksums(algorithm, kind, &values)?])
}
