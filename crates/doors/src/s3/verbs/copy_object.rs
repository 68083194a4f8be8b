use cairn_fs::ops::copy_object::CopyObject;
use cairn_fs::rows::ObjectAttributes;
use http::{HeaderMap, Response};
use s3s::dto::{CopyObjectResult, CopySource, ETag};
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::checksums::{self, type_of};
use super::super::error::{Codes, bad_request, invalid, not_implemented};
use super::super::headers::text;
use super::super::summed::{Document, WithChecksums};
use super::super::tags::Tags;
use super::super::{attributes, conditions, owner, reply, tags};
use super::{acl, time};

const SOURCE: &str = "x-amz-copy-source";

/// Returns the bucket and key of the source of a copy.
pub(super) fn source(headers: &HeaderMap) -> S3Result<(String, String)> {
    let named = text(headers, SOURCE)?.filter(|source| !source.is_empty());
    let named = named.ok_or_else(|| bad_request(format!("missing header: {SOURCE}")))?;
    let parsed = CopySource::parse(named).ok().filter(|_| named.is_ascii());
    match parsed.ok_or_else(|| invalid(format!("invalid header: {SOURCE}: {named:?}")))? {
        CopySource::Bucket { bucket, key, version_id } => match version_id.as_deref() {
            None | Some("null") => Ok((bucket.into(), key.into())),
            Some(_) => Err(not_implemented("copying a version of an object")),
        },
        _ => Err(not_implemented("copying from an access point")),
    }
}

/// Copies without moving bytes: the copy shares them with its source. They are read only if the
/// checksum requires it.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let headers = call.headers();
    let (source_bucket, source_key) = source(headers)?;
    let algorithm = text(headers, "x-amz-checksum-algorithm")?;
    let algorithm = algorithm.map(checksums::algorithm).transpose()?;
    acl::check_object(&call).await?;
    owner::check_expected_source(&call.store.fs, call.caller, &source_bucket, headers).await?;
    let verb = CopyObject {
        source_bucket: source_bucket.clone(),
        source_key,
        source_conditions: conditions::of_source(headers)?,
        bucket: call.bucket().to_owned(),
        key: call.key().to_owned(),
        conditions: conditions::of_change(headers)?,
        object: new_attributes(headers)?,
        tags: new_tags(headers)?,
    };
    let copied = match call.store.fs.copy_object(call.caller, verb, algorithm).await {
        Ok(copied) => copied,
        Err(error) => {
            let codes = Codes { invalid: S3ErrorCode::InvalidRequest, ..Codes::object() };
            let buckets = [source_bucket.as_str(), call.bucket()];
            return Err(call.store.refused(call.caller, &buckets, error, codes).await);
        }
    };
    let (checksums, part_count) = (copied.object.checksums, copied.object.part_count);
    let content = CopyObjectResult {
        e_tag: Some(ETag::Strong(copied.put.etag)),
        last_modified: Some(time(copied.put.modified)),
        checksum_type: type_of(&checksums),
        ..CopyObjectResult::default()
    };
    let content = WithChecksums { content, checksums, part_count };
    reply::xml(&Document { name: "CopyObjectResult", content })
}

fn replaces(headers: &HeaderMap, name: &str) -> S3Result<bool> {
    match text(headers, name)? {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(invalid(format!("{name}: use COPY or REPLACE"))),
    }
}

fn new_attributes(headers: &HeaderMap) -> S3Result<Option<ObjectAttributes>> {
    if replaces(headers, "x-amz-metadata-directive")? {
        attributes::parse(headers).map(Some)
    } else {
        Ok(None)
    }
}

fn new_tags(headers: &HeaderMap) -> S3Result<Option<Tags>> {
    if replaces(headers, "x-amz-tagging-directive")? {
        tags::of_header(headers).map(Some)
    } else {
        Ok(None)
    }
}
