use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::delete_object::DeleteObject;
use http::HeaderMap;
use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};
use s3s::{S3ErrorCode, S3Result};

use super::super::conditions;
use super::super::error::{Codes, invalid};
use super::super::headers::text;
use super::super::library::Asked;
use super::super::store::Store;
use super::check_version;

/// Deleting what is not there is a success.
pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: DeleteObjectInput,
) -> S3Result<DeleteObjectOutput> {
    check_version(input.version_id.as_deref())?;
    let bucket = input.bucket;
    let conditions = conditions(&asked.headers)?;
    let verb = DeleteObject { bucket: bucket.clone(), key: input.key, conditions };
    match store.run(&asked.caller, &bucket, Codes::object(), verb).await {
        Ok(_) => {}
        // A condition on what is gone already.
        Err(error) if *error.code() == S3ErrorCode::NoSuchKey => {}
        Err(error) => return Err(error),
    }
    Ok(DeleteObjectOutput::default())
}

fn conditions(headers: &HeaderMap) -> S3Result<Conditions> {
    let size = text(headers, "x-amz-if-match-size")?;
    let if_size = size.map(|size| size.parse().map_err(|_| invalid("x-amz-if-match-size")));
    Ok(Conditions { if_size: if_size.transpose()?, ..conditions::of_change(headers)? })
}
