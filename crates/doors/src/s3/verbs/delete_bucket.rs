use cairn_fs::ops::buckets::DeleteBucket;
use s3s::S3Result;
use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: DeleteBucketInput,
) -> S3Result<DeleteBucketOutput> {
    let name = input.bucket;
    let verb = DeleteBucket { name: name.clone() };
    store.run(&asked.caller, &name, Codes::bucket(), verb).await?;
    Ok(DeleteBucketOutput {})
}
