use cairn_fs::ops::conditions::Conditions;
use cairn_fs::ops::delete_object::DeleteObject;
use http::HeaderMap;
use s3s::S3Result;
use s3s::dto::{DeleteObjectInput, DeleteObjectOutput};

use super::super::conditions;
use super::super::error::{Codes, invalid, not_implemented};
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
    store.run(&asked.caller, &bucket, Codes::object(), verb).await?;
    Ok(DeleteObjectOutput::default())
}

fn conditions(headers: &HeaderMap) -> S3Result<Conditions> {
    if headers.contains_key("x-amz-if-match-last-modified-time") {
        return Err(not_implemented("x-amz-if-match-last-modified-time"));
    }
    let size = text(headers, "x-amz-if-match-size")?;
    let if_size = size.map(|size| size.parse().map_err(|_| invalid("x-amz-if-match-size")));
    Ok(Conditions { if_size: if_size.transpose()?, ..conditions::of_change(headers)? })
}
