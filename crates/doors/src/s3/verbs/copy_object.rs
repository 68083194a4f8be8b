use cairn_fs::ops::copy_object::CopyObject;
use cairn_fs::rows::ObjectAttributes;
use http::HeaderMap;
use s3s::dto::{CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETag};
use s3s::{S3ErrorCode, S3Result};

use super::super::checksums::{self, fill_checksums, type_of};
use super::super::error::{Codes, invalid, not_implemented};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::tags::Tags;
use super::super::{attributes, conditions, owner, tags};
use super::{acl, time};

/// The object a copy is made of: bucket and key.
pub(super) fn source(source: CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => match version_id.as_deref() {
            None | Some("null") => Ok((bucket.into(), key.into())),
            Some(_) => Err(not_implemented("a version of the source of a copy")),
        },
        _ => Err(not_implemented("access points as the source of a copy")),
    }
}

/// No byte moves: the copy shares them with its source. They are read where only they tell the
/// checksum.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: CopyObjectInput,
) -> S3Result<CopyObjectOutput> {
    let headers = &asked.headers;
    let algorithm = text(headers, "x-amz-checksum-algorithm")?;
    let algorithm = algorithm.map(checksums::algorithm).transpose()?;
    acl::check_object(store, &asked, &input.bucket).await?;
    let (source_bucket, source_key) = source(input.copy_source)?;
    owner::check_expected_source(&store.fs, &asked.caller, &source_bucket, headers).await?;
    let verb = CopyObject {
        source_bucket: source_bucket.clone(),
        source_key,
        source_conditions: conditions::of_source(headers)?,
        bucket: input.bucket.clone(),
        key: input.key,
        conditions: conditions::of_change(headers)?,
        object: new_attributes(headers)?,
        tags: new_tags(headers)?,
    };
    let reply = match store.fs.copy_object(&asked.caller, verb, algorithm).await {
        Ok(reply) => reply,
        Err(error) => {
            let codes = Codes { invalid: S3ErrorCode::InvalidRequest, ..Codes::object() };
            let buckets = [source_bucket.as_str(), &input.bucket];
            return Err(store.refused(&asked.caller, &buckets, error, codes).await);
        }
    };
    let checksums = &reply.object.checksums;
    let mut result = CopyObjectResult {
        e_tag: Some(ETag::Strong(reply.put.etag)),
        last_modified: Some(time(reply.put.modified)),
        checksum_type: type_of(checksums),
        ..CopyObjectResult::default()
    };
    fill_checksums!(result, checksums, reply.object.part_count);
    Ok(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() })
}

fn replaces(headers: &HeaderMap, name: &str) -> S3Result<bool> {
    match text(headers, name)? {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(invalid(format!("{name}: use COPY or REPLACE"))),
    }
}

fn new_attributes(headers: &HeaderMap) -> S3Result<Option<ObjectAttributes>> {
    match replaces(headers, "x-amz-metadata-directive")? {
        true => attributes::parse(headers).map(Some),
        false => Ok(None),
    }
}

fn new_tags(headers: &HeaderMap) -> S3Result<Option<Tags>> {
    match replaces(headers, "x-amz-tagging-directive")? {
        true => tags::of_header(headers).map(Some),
        false => Ok(None),
    }
}
