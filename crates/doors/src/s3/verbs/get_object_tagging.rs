use cairn_fs::ops::tags::GetTags;
use http::Response;
use s3s::dto::GetObjectTaggingOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::{reply, tags};
use super::check_version;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    check_version(call.query())?;
    let verb = GetTags { bucket: call.bucket().to_owned(), key: call.key().to_owned() };
    let tags = call.read(Codes::object(), verb).await?;
    reply::xml(&GetObjectTaggingOutput { tag_set: tags::to_set(tags), version_id: None })
}
