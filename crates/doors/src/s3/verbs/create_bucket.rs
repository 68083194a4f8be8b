use cairn_auth::Visibility;
use cairn_base::Error;
use cairn_fs::ops::buckets::{CreateBucket, GetBucket};
use cairn_fs::rows::BucketKind;
use s3s::dto::{CreateBucketInput, CreateBucketOutput};
use s3s::{S3ErrorCode, S3Result};

use super::super::error::{Codes, not_implemented, refuse, translate};
use super::super::library::Asked;
use super::super::store::Store;
use super::acl;

/// Any location is accepted: there is one place.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: CreateBucketInput,
) -> S3Result<CreateBucketOutput> {
    let configuration = input.create_bucket_configuration.as_ref();
    if configuration.is_some_and(|asked| asked.bucket.is_some() || asked.location.is_some()) {
        return Err(not_implemented("directory buckets are not implemented"));
    }
    let visibility = acl::canned(&asked.headers)?.unwrap_or(Visibility::Private);
    let name = input.bucket;
    let verb = CreateBucket { name: name.clone(), kind: BucketKind::S3, visibility };
    match store.fs.run(&asked.caller, verb).await {
        Ok(_) => Ok(CreateBucketOutput { location: Some(format!("/{name}")) }),
        Err(Error::Exists(_)) => Err(exists(store, &asked, name).await),
        Err(error) => {
            let invalid = S3ErrorCode::InvalidBucketName;
            Err(translate(error, Codes { invalid, ..Codes::bucket() }))
        }
    }
}

async fn exists(store: &Store, asked: &Asked, name: String) -> s3s::S3Error {
    match store.fs.read(&asked.caller, GetBucket { name }).await {
        Ok((opened, _)) if opened.bucket.owner == asked.caller.user() => {
            let what = "your previous request to create the named bucket succeeded";
            refuse(S3ErrorCode::BucketAlreadyOwnedByYou, what)
        }
        _ => refuse(S3ErrorCode::BucketAlreadyExists, "the bucket name is not available"),
    }
}
