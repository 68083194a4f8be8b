use cairn_base::Error;
use cairn_fs::PartSource;
use cairn_fs::ops::multipart::GetUpload;
use s3s::S3Result;
use s3s::dto::{CopyPartResult, ETag, UploadPartCopyInput, UploadPartCopyOutput};

use super::super::checksums::fill_checksums;
use super::super::error::{Codes, invalid};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::{conditions, owner, range, upload_id};
use super::copy_object::source;
use super::time;
use super::upload_part::part_number;

/// No byte moves: the part refers to the range of its source. Its bytes are read where the upload
/// was begun with a checksum.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: UploadPartCopyInput,
) -> S3Result<UploadPartCopyOutput> {
    let headers = &asked.headers;
    let number = part_number(input.part_number)?;
    let bucket = input.bucket;
    let name = upload_id::name(bucket.clone(), input.key, &input.upload_id);
    let (source_bucket, source_key) = source(input.copy_source)?;
    owner::check_expected_source(&store.fs, &asked.caller, &source_bucket, headers).await?;
    let range = text(headers, "x-amz-copy-source-range")?.map(|range| {
        let what = "the x-amz-copy-source-range value must be of the form bytes=first-last";
        range::of_source(range).ok_or_else(|| invalid(what))
    });
    let verb = GetUpload { name: name.clone() };
    let upload = store.read(&asked.caller, &bucket, Codes::upload(), verb).await?;
    let algorithm = upload.checksum.map(|(algorithm, _)| algorithm);
    let source = PartSource {
        bucket: source_bucket.clone(),
        key: source_key,
        conditions: conditions::of_source(headers)?,
        range: range.transpose()?,
    };
    let copied = store.fs.copy_part(&asked.caller, name, number, source, algorithm).await;
    let copied = match copied {
        Ok(copied) => copied,
        Err(error @ Error::NotFound(_)) => {
            // The upload was there a moment ago.
            let buckets = [source_bucket.as_str()];
            return Err(store.refused(&asked.caller, &buckets, error, Codes::object()).await);
        }
        Err(error) => {
            return Err(store.refused(&asked.caller, &[], error, Codes::upload()).await);
        }
    };
    let mut result = CopyPartResult {
        e_tag: Some(ETag::Strong(copied.etag)),
        last_modified: Some(time(copied.modified)),
        ..CopyPartResult::default()
    };
    fill_checksums!(result, &copied.checksums, 0);
    Ok(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() })
}
