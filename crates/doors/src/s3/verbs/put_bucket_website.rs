use cairn_fs::ops::website::PutWebsite;
use cairn_fs::rows::Website;
use http::{Response, StatusCode};
use s3s::dto::WebsiteConfiguration;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::Codes;
use super::super::{reply, website, xml};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let configuration: WebsiteConfiguration = xml::parse(&call.xml)?;
    let website = website::of_configuration(configuration)?;
    replace(&call, Some(website), StatusCode::OK).await
}

pub(super) async fn replace(
    call: &Call<'_>,
    website: Option<Website>,
    status: StatusCode,
) -> S3Result<Response<Body>> {
    let verb = PutWebsite { bucket: call.bucket().to_owned(), website };
    call.run(Codes::bucket_document(), verb).await?;
    Ok(reply::empty(status))
}
