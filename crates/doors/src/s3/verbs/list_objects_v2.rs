use http::Response;
use s3s::dto::ListObjectsV2Output;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::reply;
use super::listing::{ListParameters, bucket_owner, decode, token_of};

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let query = call.query();
    let (wants_owner, asked) = (query.parsed("fetch-owner")?, ListParameters::of(query)?);
    let names = asked.names;
    let token = query.get("continuation-token");
    let start_after = query.get("start-after").unwrap_or_default();
    let after = match token.filter(|token| !token.is_empty()) {
        Some(token) => decode(token)?,
        None => start_after.to_owned(),
    };
    let page = asked.page(&call, after).await?;
    let owner = match wants_owner {
        Some(true) => Some(bucket_owner(&call).await?),
        _ => None,
    };
    let next = page.next.as_deref().map(token_of);
    let (contents, common_prefixes) = names.page(page, owner.as_ref());
    reply::xml(&ListObjectsV2Output {
        name: Some(call.bucket().to_owned()),
        prefix: Some(names.write(asked.prefix)),
        max_keys: Some(asked.max_keys as i32),
        key_count: Some((contents.len() + common_prefixes.len()) as i32),
        continuation_token: token.map(str::to_owned),
        is_truncated: Some(next.is_some()),
        next_continuation_token: next,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: names.write_some(asked.delimiter),
        encoding_type: names.encoding(),
        start_after: names.write_some(start_after),
        request_charged: None,
    })
}
