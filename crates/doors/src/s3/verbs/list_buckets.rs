use cairn_fs::ops::buckets::ListBuckets;
use s3s::S3Result;
use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput};

use super::super::error::{Codes, invalid};
use super::super::library::Asked;
use super::super::owner;
use super::super::store::Store;
use super::list_objects::{decode, token_of};
use super::{get_bucket, time};

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
    let region = get_bucket::region(store);
    let elsewhere = input.bucket_region.as_deref().is_some_and(|asked| asked != region);
    let next = loop {
        // All buckets are in one region.
        if elsewhere {
            break None;
        }
        let verb = ListBuckets {
            prefix: prefix.clone(),
            after: after.unwrap_or_default(),
            limit: PAGE.min(wanted - buckets.len()),
        };
        let (page, next) = store.read(&asked.caller, "", Codes::bucket(), verb).await?;
        buckets.extend(page.into_iter().map(|(opened, _)| Bucket {
            bucket_region: input.bucket_region.as_ref().map(|_| region.clone()),
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
        continuation_token: next.as_deref().map(token_of),
        owner: Some(owner::owner(&store.fs, asked.caller.user()).await?),
        prefix: (!prefix.is_empty()).then_some(prefix),
    })
}
