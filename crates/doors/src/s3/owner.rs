//! Users in the form of S3.

use cairn_auth::Caller;
use cairn_base::{Error, UserId};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::ops::put_object::MayWrite;
use http::HeaderMap;
use s3s::dto::{Initiator, Owner};
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{Codes, refuse, translate};
use super::headers::text;

/// Returns the canonical id: 64 hex digits, the first of them a letter.
pub(super) fn id(user: UserId) -> String {
    format!("c{:063x}", user.0)
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

/// Returns whether an id is that of a user. Older ids were digits alone; now they begin with a
/// letter, which keeps parsers from mistaking them for numbers.
pub(super) fn is_id(text: &str, user: UserId) -> bool {
    text == id(user) || text == format!("{:064x}", user.0)
}

/// Checks `x-amz-expected-bucket-owner`: the request is only meant for a bucket of that owner.
pub(super) async fn check_expected(
    fs: &Fs,
    caller: &Caller,
    address: &Address,
    headers: &HeaderMap,
) -> S3Result<()> {
    let Some(bucket) = address.bucket() else { return Ok(()) };
    check(fs, caller, bucket, text(headers, "x-amz-expected-bucket-owner")?).await
}

pub(super) async fn check_expected_source(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    headers: &HeaderMap,
) -> S3Result<()> {
    check(fs, caller, bucket, text(headers, "x-amz-source-expected-bucket-owner")?).await
}

/// Checks the id, which is sent in full or, like account ids, in 12 decimal digits. A caller
/// without any right in the bucket learns nothing here: the operation itself refuses.
async fn check(fs: &Fs, caller: &Caller, bucket: &str, expected: Option<&str>) -> S3Result<()> {
    let Some(expected) = expected else { return Ok(()) };
    if !may_know(fs, caller, bucket).await {
        return Ok(());
    }
    let verb = GetBucket { name: bucket.to_owned() };
    match fs.read(&Caller::system(), verb).await {
        Ok((opened, _)) => {
            let owner = opened.bucket.owner;
            if is_id(expected, owner) || expected == format!("{:012}", owner.0) {
                return Ok(());
            }
            Err(refuse(S3ErrorCode::AccessDenied, "the bucket has another owner"))
        }
        Err(Error::NotFound(_)) => Ok(()),
        Err(error) => Err(translate(error, Codes::bucket())),
    }
}

/// Returns whether a caller may list, read or write in a bucket.
async fn may_know(fs: &Fs, caller: &Caller, bucket: &str) -> bool {
    let list = ListObjects { bucket: bucket.to_owned(), max_keys: 0, ..ListObjects::default() };
    fs.read(caller, list).await.is_ok()
        || fs.read(caller, MayWrite { bucket: bucket.to_owned() }).await.is_ok()
}
