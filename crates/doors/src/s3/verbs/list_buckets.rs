use cairn_fs::ops::buckets::ListBuckets;
use http::Response;
use s3s::dto::{Bucket, ListBucketsOutput};
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, invalid};
use super::super::{owner, reply};
use super::listing::{decode, token_of};
use super::time;

/// Most entries of a page; without `max-buckets` all are listed.
const PAGE: usize = 1000;

pub(crate) async fn run(call: Call<'_>) -> S3Result<Response<Body>> {
    let query = call.query();
    let wanted = match query.parsed::<i32>("max-buckets")? {
        None => usize::MAX,
        Some(max) if (1..=10_000).contains(&max) => max as usize,
        Some(_) => return Err(invalid("max-buckets must be between 1 and 10000")),
    };
    let prefix = query.get("prefix").unwrap_or_default();
    let asked_region = query.get("bucket-region");
    let mut after = query.get("continuation-token").map(decode).transpose()?;
    let mut buckets = Vec::new();
    let region = call.store.region();
    let elsewhere = asked_region.is_some_and(|asked| asked != region);
    let next = loop {
        // All buckets are in one region.
        if elsewhere {
            break None;
        }
        // One more is looked for: a page that is announced has something in it.
        let verb = ListBuckets {
            prefix: prefix.to_owned(),
            after: after.unwrap_or_default(),
            limit: PAGE.min(wanted.saturating_add(1) - buckets.len()),
        };
        let (page, next) = call.read(Codes::bucket(), verb).await?;
        buckets.extend(page.into_iter().map(|(opened, _)| Bucket {
            bucket_region: asked_region.map(|_| region.to_owned()),
            creation_date: Some(time(opened.bucket.created)),
            name: Some(opened.bucket.name),
        }));
        if buckets.len() > wanted {
            buckets.truncate(wanted);
            break buckets.last().and_then(|bucket| bucket.name.clone());
        }
        if next.is_none() {
            break None;
        }
        after = next;
    };
    reply::xml(&ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token: next.as_deref().map(token_of),
        owner: Some(owner::owner(&call.store.fs, call.caller.user()).await?),
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
    })
}
