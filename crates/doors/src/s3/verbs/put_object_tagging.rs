use cairn_base::limits;
use cairn_fs::ops::tags::PutTags;
use http::{Response, StatusCode};
use s3s::dto::Tagging;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::tags::{self, Tags};
use super::super::{reply, xml};
use super::check_version;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let tagging: Tagging = xml::parse(&call.xml)?;
    check_version(call.query())?;
    replace(&call, tags::of_set(tagging.tag_set, limits::OBJECT_TAGS)?).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(super) async fn replace(call: &Call<'_>, tags: Tags) -> S3Result<()> {
    let verb = PutTags { bucket: call.bucket().to_owned(), key: call.key().to_owned(), tags };
    call.run(Codes::object(), verb).await
}
