use cairn_fs::ops::list_objects::ListObjects;
use s3s::S3Result;
use s3s::dto::{HeadBucketInput, HeadBucketOutput};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;
use super::get_bucket::region;

/// Whoever may list a bucket may know of it.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: HeadBucketInput,
) -> S3Result<HeadBucketOutput> {
    let bucket = input.bucket;
    let verb = ListObjects { bucket: bucket.clone(), max_keys: 0, ..ListObjects::default() };
    store.read(&asked.caller, &bucket, Codes::bucket(), verb).await?;
    Ok(HeadBucketOutput { bucket_region: Some(region(store)), ..HeadBucketOutput::default() })
}
