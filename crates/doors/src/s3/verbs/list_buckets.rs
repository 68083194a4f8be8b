use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use cairn_fs::ops::buckets::ListBuckets;
use s3s::S3Result;
use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput};

use super::super::error::{Codes, invalid};
use super::super::library::Asked;
use super::super::owner;
use super::super::store::Store;
use super::time;

/// Entries of a page at most; without `max-buckets` all are listed.
const PAGE: usize = 1000;

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: ListBucketsInput,
) -> S3Result<ListBucketsOutput> {
    let wanted = match input.max_buckets {
        None => usize::MAX,
        Some(max) if (1..=10_000).contains(&max) => max as usize,
        Some(_) => return Err(invalid("max-buckets must be between 1 and 10000")),
    };
    let prefix = input.prefix.unwrap_or_default();
    let mut after = input.continuation_token.as_deref().map(decode).transpose()?;
    let mut buckets = Vec::new();
    let next = loop {
        let verb = ListBuckets {
            prefix: prefix.clone(),
            after: after.unwrap_or_default(),
            limit: PAGE.min(wanted - buckets.len()),
        };
        let (page, next) = store.read(&asked.caller, "", Codes::bucket(), verb).await?;
        buckets.extend(page.into_iter().map(|(opened, _)| Bucket {
            bucket_region: None,
            creation_date: Some(time(opened.bucket.created)),
            name: Some(opened.bucket.name),
        }));
        if next.is_none() || buckets.len() >= wanted {
            break next;
        }
        after = next;
    };
    Ok(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token: next.map(|name| BASE64URL.encode(name)),
        owner: Some(owner::owner(&store.fs, asked.caller.user()).await?),
        prefix: (!prefix.is_empty()).then_some(prefix),
    })
}

fn decode(token: &str) -> S3Result<String> {
    let name = BASE64URL.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| invalid("the continuation token provided is incorrect"))
}
