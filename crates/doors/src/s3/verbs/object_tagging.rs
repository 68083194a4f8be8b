use cairn_base::limits;
use cairn_fs::ops::tags::{GetTags, PutTags};
use s3s::S3Result;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput,
};

use super::super::error::Codes;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::tags::{self, Tags};
use super::check_version;

pub(crate) async fn get(
    store: &Store,
    asked: Asked,
    input: GetObjectTaggingInput,
) -> S3Result<GetObjectTaggingOutput> {
    check_version(input.version_id.as_deref())?;
    let bucket = input.bucket;
    let verb = GetTags { bucket: bucket.clone(), key: input.key };
    let tags = store.read(&asked.caller, &bucket, Codes::object(), verb).await?;
    Ok(GetObjectTaggingOutput { tag_set: tags::to_set(tags), version_id: None })
}

pub(crate) async fn put(
    store: &Store,
    asked: Asked,
    input: PutObjectTaggingInput,
) -> S3Result<PutObjectTaggingOutput> {
    check_version(input.version_id.as_deref())?;
    let tags = tags::of_set(input.tagging.tag_set, limits::OBJECT_TAGS)?;
    replace(store, &asked, input.bucket, input.key, tags).await?;
    Ok(PutObjectTaggingOutput::default())
}

pub(crate) async fn delete(
    store: &Store,
    asked: Asked,
    input: DeleteObjectTaggingInput,
) -> S3Result<DeleteObjectTaggingOutput> {
    check_version(input.version_id.as_deref())?;
    replace(store, &asked, input.bucket, input.key, Tags::new()).await?;
    Ok(DeleteObjectTaggingOutput::default())
}

async fn replace(
    store: &Store,
    asked: &Asked,
    bucket: String,
    key: String,
    tags: Tags,
) -> S3Result<()> {
    let verb = PutTags { bucket: bucket.clone(), key, tags };
    store.run(&asked.caller, &bucket, Codes::object(), verb).await
}
