//! Users as S3 shows them.

use cairn_auth::Caller;
use cairn_base::{Error, UserId};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::credentials::UserName;
use http::HeaderMap;
use s3s::dto::{Initiator, Owner};
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{Codes, refuse, translate};
use super::headers::text;

/// The canonical id: 64 hex digits.
pub(super) fn id(user: UserId) -> String {
    format!("{:064x}", user.0)
}

pub(super) async fn name(fs: &Fs, user: UserId) -> S3Result<String> {
    let verb = UserName { user };
    let found = match fs.read_now(&Caller::system(), &verb) {
        Some(found) => found,
        None => fs.read(&Caller::system(), verb).await,
    };
    Ok(found.map_err(|error| translate(error, Codes::bucket()))?.unwrap_or_default())
}

pub(super) async fn owner(fs: &Fs, user: UserId) -> S3Result<Owner> {
    Ok(Owner { display_name: Some(name(fs, user).await?), id: Some(id(user)) })
}

pub(super) fn initiator(owner: &Owner) -> Initiator {
    Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }
}

/// `x-amz-expected-bucket-owner`: the request is only meant for a bucket of that owner.
pub(super) async fn check_expected(
    fs: &Fs,
    address: &Address,
    headers: &HeaderMap,
) -> S3Result<()> {
    let Some(bucket) = address.bucket() else { return Ok(()) };
    check(fs, bucket, text(headers, "x-amz-expected-bucket-owner")?).await
}

pub(super) async fn check_expected_source(
    fs: &Fs,
    bucket: &str,
    headers: &HeaderMap,
) -> S3Result<()> {
    check(fs, bucket, text(headers, "x-amz-source-expected-bucket-owner")?).await
}

/// The id is told in full or, as account ids are, in 12 decimal digits.
async fn check(fs: &Fs, bucket: &str, expected: Option<&str>) -> S3Result<()> {
    let Some(expected) = expected else { return Ok(()) };
    let verb = GetBucket { name: bucket.to_owned() };
    match fs.read(&Caller::system(), verb).await {
        Ok((opened, _)) => {
            let owner = opened.bucket.owner;
            if expected == id(owner) || expected == format!("{:012}", owner.0) {
                return Ok(());
            }
            Err(refuse(S3ErrorCode::AccessDenied, "the bucket has another owner"))
        }
        // The operation itself says so, to whom it may.
        Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(translate(error, Codes::bucket())),
    }
}
