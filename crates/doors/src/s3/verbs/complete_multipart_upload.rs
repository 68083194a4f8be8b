use bytes::Bytes;
use cairn_audit::AuditOutcome;
use cairn_auth::Caller;
use cairn_base::{Error, limits};
use cairn_fs::combine_checksums;
use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::multipart::{GetUpload, ListParts, TakenPart, UploadName};
use cairn_fs::rows::{Algorithm, Checksum, ChecksumKind, Part, Upload};
use futures_util::FutureExt;
use http::Response;
use http::header::{HeaderMap, IF_MATCH};
use s3s::dto::{CompleteMultipartUploadOutput, ETag};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::checksums::{self, type_of};
use super::super::error::{Codes, bad_request, reason, refuse, translate};
use super::super::headers::text;
use super::super::store::Store;
use super::super::summed::{Document, NamedPart, NamedParts, WithChecksums};
use super::super::{conditions, reply, upload_id, xml};
use super::upload_part::part_number;
use crate::witness::Witness;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let named: Option<NamedParts> = xml::parse_some(&call.xml)?;
    let parts = named_parts(named.unwrap_or_default().0)?;
    let completion = Completion {
        store: call.store.clone(),
        caller: call.caller.clone(),
        headers: call.headers().clone(),
        url: call.parts.url(),
        name: upload_id::of(&call),
        conditions: conditions::of_change(call.headers())?,
    };
    let patience = completion.store.patience;
    // Goes on even if the client does not wait for it.
    let mut task = tokio::spawn(async move { completion.run(parts).await });
    let in_time = if patience.is_zero() {
        None
    } else {
        tokio::time::timeout(patience, &mut task).await.ok()
    };
    match in_time {
        Some(done) => reply::xml(&joined(done)?),
        None => {
            let witness = call.parts.witness.clone();
            witness.note(|facts| facts.late = Some(AuditOutcome::Unknown));
            let end = task.map(joined).inspect(move |done| note(&witness, done));
            Ok(reply::later(end, call.parts.told()))
        }
    }
}

type Output = S3Result<Document<WithChecksums<CompleteMultipartUploadOutput>>>;

/// Notes the outcome of a request whose status was sent before.
fn note(witness: &Witness, done: &Output) {
    let outcome = match done {
        Ok(_) => AuditOutcome::Done,
        Err(error) => match error.status_code().map(|status| status.as_u16()) {
            Some(403) => AuditOutcome::Refused,
            Some(400..500) => AuditOutcome::Failed,
            _ => AuditOutcome::Unknown,
        },
    };
    witness.note(|facts| {
        facts.late = Some(outcome);
        facts.reason = done.as_ref().err().map(reason);
    });
}

fn joined(done: Result<Output, tokio::task::JoinError>) -> Output {
    let gone = |error| translate(Error::Io(std::io::Error::other(error)), Codes::upload());
    done.map_err(gone)?
}

/// Returns the parts as the client names them, in ascending order.
fn named_parts(parts: Vec<NamedPart>) -> S3Result<Vec<TakenPart>> {
    if parts.is_empty() || parts.len() > limits::PARTS as usize {
        let what = format!("you must specify 1 to {} parts", limits::PARTS);
        return Err(refuse(S3ErrorCode::MalformedXML, what));
    }
    let taken = parts.into_iter().map(taken_part).collect::<S3Result<Vec<_>>>()?;
    if !taken.is_sorted_by(|one, next| one.number < next.number) {
        let what = "the list of parts was not in ascending order";
        return Err(refuse(S3ErrorCode::InvalidPartOrder, what));
    }
    Ok(taken)
}

fn taken_part(part: NamedPart) -> S3Result<TakenPart> {
    let (Some(number), Some(etag)) = (part.number, part.etag) else {
        return Err(refuse(S3ErrorCode::MalformedXML, "a part lacks its PartNumber or its ETag"));
    };
    let mut checksum: Option<Checksum> = None;
    for (algorithm, text) in part.checksums {
        let value = checksums::decode(algorithm, &text)?;
        let one = Checksum { algorithm, kind: ChecksumKind::FullObject, value };
        if checksum.replace(one).is_some() {
            return Err(refuse(S3ErrorCode::MalformedXML, "a part has one checksum"));
        }
    }
    Ok(TakenPart { number: part_number(number)?, etag: etag.into_value(), checksum })
}

/// The inputs for completing an upload, without the request.
struct Completion {
    store: Store,
    caller: Caller,
    headers: HeaderMap,
    /// URL of the object.
    url: Option<String>,
    name: UploadName,
    conditions: Conditions,
}

impl Completion {
    async fn run(self, mut parts: Vec<TakenPart>) -> Output {
        let Some(upload) = self.find().await? else {
            // It may have been completed before, and the answer lost.
            return self.finish(parts, false).await;
        };
        if let Some(expected) = ExpectedObject::parse(&self.headers, &upload, parts.len())? {
            let stored = self.stored_parts(&parts).await?;
            expected.check(&stored)?;
            // Exactly the checked parts are taken: a part that was replaced meanwhile is another
            // one.
            for (part, stored) in parts.iter_mut().zip(&stored) {
                part.checksum = part.checksum.take().or_else(|| stored.checksums.first().cloned());
            }
        }
        self.finish(parts, true).await
    }

    /// Returns the upload, if it is in progress.
    async fn find(&self) -> S3Result<Option<Upload>> {
        let (bucket, verb) = (&self.name.bucket, GetUpload { name: self.name.clone() });
        match self.store.read(&self.caller, bucket, Codes::upload(), verb).await {
            Ok(upload) => Ok(Some(upload)),
            Err(error) if *error.code() == S3ErrorCode::NoSuchUpload => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn finish(self, parts: Vec<TakenPart>, had_upload: bool) -> Output {
        let Completion { store, caller, headers, url, name, conditions } = self;
        let UploadName { bucket, key, .. } = name.clone();
        let count = parts.len() as u32;
        let done = match store.fs.complete_upload(&caller, name, parts, conditions).await {
            Ok(done) => done,
            Err(error) => {
                // The upload existed a moment ago, so it is the object for If-Match that is
                // missing.
                let not_found = if had_upload && headers.contains_key(IF_MATCH) {
                    S3ErrorCode::NoSuchKey
                } else {
                    S3ErrorCode::NoSuchUpload
                };
                let codes = Codes {
                    not_found,
                    invalid: S3ErrorCode::InvalidPart,
                    too_large: S3ErrorCode::EntityTooSmall,
                };
                return Err(store.refused(&caller, &[&bucket], error, codes).await);
            }
        };
        let content = CompleteMultipartUploadOutput {
            location: url,
            bucket: Some(bucket),
            key: Some(key),
            e_tag: Some(ETag::Strong(done.put.etag)),
            checksum_type: type_of(&done.checksums),
            ..CompleteMultipartUploadOutput::default()
        };
        let content = WithChecksums { content, checksums: done.checksums, part_count: count };
        Ok(Document { name: "CompleteMultipartUploadResult", content })
    }

    /// Returns the parts as they are stored.
    async fn stored_parts(&self, named: &[TakenPart]) -> S3Result<Vec<Part>> {
        let mut stored = Vec::with_capacity(named.len());
        let mut after = 0;
        loop {
            let verb = ListParts { name: self.name.clone(), after, limit: limits::LIST_KEYS };
            let bucket = &self.name.bucket;
            let read = self.store.read(&self.caller, bucket, Codes::upload(), verb);
            let (_, parts, more) = read.await?;
            for (number, part) in parts {
                after = number;
                if named.get(stored.len()).is_some_and(|part| part.number == number) {
                    stored.push(part);
                }
            }
            if !more {
                break;
            }
        }
        if stored.len() == named.len() {
            Ok(stored)
        } else {
            Err(refuse(S3ErrorCode::InvalidPart, "one of the named parts was not uploaded"))
        }
    }
}

/// The client's description of the object to be made.
struct ExpectedObject {
    size: Option<u64>,
    checksum: Option<Checksum>,
}

impl ExpectedObject {
    fn parse(
        headers: &HeaderMap,
        upload: &Upload,
        parts: usize,
    ) -> S3Result<Option<ExpectedObject>> {
        let size = text(headers, "x-amz-mp-object-size")?;
        let size = size.map(|size| {
            size.parse().map_err(|_| bad_request("x-amz-mp-object-size is not a number"))
        });
        let size = size.transpose()?;
        let kind = text(headers, "x-amz-checksum-type")?;
        // An upload that was begun without an algorithm has S3's default.
        let default = (Algorithm::Crc64Nvme, ChecksumKind::FullObject);
        let announced = upload.checksum.unwrap_or(default);
        if kind.is_some_and(|kind| kind != checksums::kind_word(announced.1)) {
            return Err(bad_request(match upload.checksum {
                Some(_) => "x-amz-checksum-type is not the type with which the upload was begun",
                None => {
                    "the upload was begun without a checksum algorithm: its x-amz-checksum-type \
                     is FULL_OBJECT"
                }
            }));
        }
        let mut checksum = None;
        for algorithm in Algorithm::ALL {
            let Some(value) = text(headers, checksums::header(algorithm))? else { continue };
            if algorithm != announced.0 {
                return Err(bad_request(format!(
                    "the upload was not begun with this checksum algorithm; its checksum is {}",
                    checksums::word(announced.0)
                )));
            }
            // A checksum of checksums may include the number of parts.
            let (value, count) = value.split_once('-').unwrap_or((value, ""));
            if !count.is_empty() && count.parse() != Ok(parts) {
                return Err(mismatch());
            }
            let value = checksums::decode(algorithm, value)?;
            checksum = Some(Checksum { algorithm, kind: announced.1, value });
        }
        let is_any = size.is_some() || checksum.is_some();
        Ok(is_any.then_some(ExpectedObject { size, checksum }))
    }

    fn check(&self, parts: &[Part]) -> S3Result<()> {
        let size: u64 = parts.iter().map(|part| part.size).sum();
        if self.size.is_some_and(|expected| expected != size) {
            let what = format!("the object has {size} bytes, not as x-amz-mp-object-size says");
            return Err(bad_request(what));
        }
        let Some(expected) = &self.checksum else { return Ok(()) };
        let values: Option<Vec<(Bytes, u64)>> = parts
            .iter()
            .map(|part| {
                let sums = &part.checksums;
                let found = sums.iter().find(|sum| sum.algorithm == expected.algorithm)?;
                Some((found.value.clone(), part.size))
            })
            .collect();
        let Some(values) = values else {
            return Err(bad_request(format!(
                "a part has no {} checksum: it was copied, or sent with another one",
                checksums::word(expected.algorithm)
            )));
        };
        let whole = combine_checksums(expected.algorithm, expected.kind, &values);
        let whole = whole.map_err(|error| translate(error, Codes::upload()))?;
        if whole.value == expected.value { Ok(()) } else { Err(mismatch()) }
    }
}

fn mismatch() -> S3Error {
    let what = "the checksum you specified did not match that of the object";
    refuse(S3ErrorCode::BadDigest, what)
}
