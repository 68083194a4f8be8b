use s3s::S3Result;
use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;

/// Uploads in progress do not keep a bucket: no listing of objects shows them.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: DeleteBucketInput,
) -> S3Result<DeleteBucketOutput> {
    let name = input.bucket;
    match store.fs.delete_bucket(&asked.caller, &name).await {
        Ok(()) => Ok(DeleteBucketOutput {}),
        Err(error) => Err(store.refused(&asked.caller, &[&name], error, Codes::bucket()).await),
    }
}
