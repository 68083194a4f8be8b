use cairn_base::limits;
use cairn_fs::ops::buckets::UpdateBucket;
use s3s::dto::{
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, GetBucketTaggingInput,
    GetBucketTaggingOutput, PutBucketTaggingInput, PutBucketTaggingOutput,
};
use s3s::{S3ErrorCode, S3Result};

use super::super::error::{Codes, refuse};
use super::super::library::Asked;
use super::super::store::Store;
use super::super::tags::{self, Tags};
use super::get_bucket;

pub(crate) async fn get(
    store: &Store,
    asked: Asked,
    input: GetBucketTaggingInput,
) -> S3Result<GetBucketTaggingOutput> {
    let bucket = get_bucket::open(store, &asked, &input.bucket).await?;
    if bucket.tags.is_empty() {
        return Err(refuse(S3ErrorCode::NoSuchTagSet, "the TagSet does not exist"));
    }
    Ok(GetBucketTaggingOutput { tag_set: tags::to_set(bucket.tags) })
}

pub(crate) async fn put(
    store: &Store,
    asked: Asked,
    input: PutBucketTaggingInput,
) -> S3Result<PutBucketTaggingOutput> {
    let tags = tags::of_set(input.tagging.tag_set, limits::BUCKET_TAGS)?;
    replace(store, &asked, input.bucket, tags).await?;
    Ok(PutBucketTaggingOutput::default())
}

pub(crate) async fn delete(
    store: &Store,
    asked: Asked,
    input: DeleteBucketTaggingInput,
) -> S3Result<DeleteBucketTaggingOutput> {
    replace(store, &asked, input.bucket, Tags::new()).await?;
    Ok(DeleteBucketTaggingOutput::default())
}

async fn replace(store: &Store, asked: &Asked, name: String, tags: Tags) -> S3Result<()> {
    let verb = UpdateBucket { name: name.clone(), tags: Some(tags), ..UpdateBucket::default() };
    store.run(&asked.caller, &name, Codes::bucket(), verb).await.map(|_| ())
}
