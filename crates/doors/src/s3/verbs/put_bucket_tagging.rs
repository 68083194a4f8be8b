use cairn_base::limits;
use cairn_fs::ops::buckets::UpdateBucket;
use http::{Response, StatusCode};
use s3s::dto::Tagging;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::tags::{self, Tags};
use super::super::{reply, xml};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let tagging: Tagging = xml::parse(&call.xml)?;
    replace(&call, tags::of_set(tagging.tag_set, limits::BUCKET_TAGS)?).await
}

pub(super) async fn replace(call: &Call<'_>, tags: Tags) -> S3Result<Response<Body>> {
    let name = call.bucket().to_owned();
    let verb = UpdateBucket { name, tags: Some(tags), ..UpdateBucket::default() };
    call.run(Codes::bucket(), verb).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}
