use cairn_base::Error;
use cairn_fs::PartSource;
use cairn_fs::ops::multipart::GetUpload;
use http::Response;
use s3s::dto::{CopyPartResult, ETag};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, invalid};
use super::super::headers::text;
use super::super::summed::{Document, WithChecksums};
use super::super::{conditions, owner, range, reply, upload_id};
use super::copy_object::source;
use super::time;
use super::upload_part::part_of;

/// Copies a part without moving bytes: it refers to the range of its source. Its bytes are read if
/// the upload was begun with a checksum.
pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let headers = call.headers();
    let (source_bucket, source_key) = source(headers)?;
    let number = part_of(call.query())?;
    let name = upload_id::of(&call);
    owner::check_expected_source(&call.store.fs, call.caller, &source_bucket, headers).await?;
    let range = text(headers, "x-amz-copy-source-range")?.map(|range| {
        let what = "the x-amz-copy-source-range value must be of the form bytes=first-last";
        range::of_source(range).ok_or_else(|| invalid(what))
    });
    let upload = call.read(Codes::upload(), GetUpload { name: name.clone() }).await?;
    let algorithm = upload.checksum.map(|(algorithm, _)| algorithm);
    let source = PartSource {
        bucket: source_bucket.clone(),
        key: source_key,
        conditions: conditions::of_source(headers)?,
        range: range.transpose()?,
    };
    let copied = call.store.fs.copy_part(call.caller, name, number, source, algorithm).await;
    let copied = match copied {
        Ok(copied) => copied,
        Err(error @ Error::NotFound(_)) => {
            // The upload existed a moment ago.
            let buckets = [source_bucket.as_str()];
            return Err(call.store.refused(call.caller, &buckets, error, Codes::object()).await);
        }
        Err(Error::RangeNotSatisfiable { size }) => {
            let what = format!("the range is not valid for a source of {size} bytes");
            return Err(invalid(what));
        }
        Err(error) => {
            return Err(call.store.refused(call.caller, &[], error, Codes::upload()).await);
        }
    };
    let content = CopyPartResult {
        e_tag: Some(ETag::Strong(copied.etag)),
        last_modified: Some(time(copied.modified)),
        ..CopyPartResult::default()
    };
    let content = WithChecksums { content, checksums: copied.checksums, part_count: 0 };
    reply::xml(&Document { name: "CopyPartResult", content })
}
