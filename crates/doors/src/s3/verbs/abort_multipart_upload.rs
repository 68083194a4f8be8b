use cairn_fs::ops::multipart::AbortUpload;
use s3s::S3Result;
use s3s::dto::{AbortMultipartUploadInput, AbortMultipartUploadOutput};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::upload_id;

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: AbortMultipartUploadInput,
) -> S3Result<AbortMultipartUploadOutput> {
    let bucket = input.bucket;
    let name = upload_id::name(bucket.clone(), input.key, &input.upload_id);
    store.run(&asked.caller, &bucket, Codes::upload(), AbortUpload { name }).await?;
    Ok(AbortMultipartUploadOutput::default())
}
