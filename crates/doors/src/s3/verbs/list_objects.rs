use http::Response;
use s3s::dto::ListObjectsOutput;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::listing::{ListParameters, bucket_owner};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let asked = ListParameters::of(call.query())?;
    let names = asked.names;
    let marker = call.query().get("marker").unwrap_or_default();
    let page = asked.page(&call, marker.to_owned()).await?;
    let owner = bucket_owner(&call).await?;
    let next_marker = page.next.as_deref().map(|next| names.write(next));
    let (contents, common_prefixes) = names.page(page, Some(&owner));
    reply::xml(&ListObjectsOutput {
        name: Some(call.bucket().to_owned()),
        prefix: Some(names.write(asked.prefix)),
        marker: Some(names.write(marker)),
        max_keys: Some(asked.max_keys as i32),
        is_truncated: Some(next_marker.is_some()),
        next_marker,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(asked.delimiter),
        encoding_type: names.encoding(),
        request_charged: None,
    })
}
