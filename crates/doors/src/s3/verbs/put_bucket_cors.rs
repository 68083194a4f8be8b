use cairn_fs::ops::cors::PutCors;
use cairn_fs::rows::CorsRule;
use http::{Response, StatusCode};
use s3s::dto::CORSConfiguration;
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, refuse};
use super::super::{reply, rules, xml};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let configuration: CORSConfiguration = xml::parse(&call.xml)?;
    let rules = rules::of_set(configuration.cors_rules)?;
    if rules.is_empty() {
        return Err(refuse(S3ErrorCode::MalformedXML, "CORSConfiguration without a CORSRule"));
    }
    replace(&call, rules, StatusCode::OK).await
}

pub(super) async fn replace(
    call: &Call<'_>,
    rules: Vec<CorsRule>,
    status: StatusCode,
) -> S3Result<Response<Body>> {
    let verb = PutCors { bucket: call.bucket().to_owned(), rules };
    call.run(Codes::bucket_document(), verb).await?;
    Ok(reply::empty(status))
}
