//! Rights that are checked before a verb runs.

use cairn_auth::{Action, Caller};
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::refuse;
use super::store::Store;

/// Checks whether a caller may do an action that changes something, as far as possible before the
/// body is read. The operation of the store decides.
pub(super) async fn authorize(
    store: &Store,
    caller: &Caller,
    action: Action,
    resource: &Address,
) -> S3Result<()> {
    if caller.is_anonymous() {
        return Err(refuse(S3ErrorCode::AccessDenied, "a change needs credentials"));
    }
    match (action, resource) {
        (Action::CreateBucket, _) | (_, Address::Root) => Ok(()),
        (Action::DeleteObject, Address::Bucket(bucket)) | (_, Address::Object { bucket, .. }) => {
            store.may_write(caller, bucket).await
        }
        // These are the settings of a bucket.
        (_, Address::Bucket(bucket)) => store.bucket(caller, bucket).await.map(drop),
    }
}
