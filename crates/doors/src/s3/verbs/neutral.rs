//! Settings of features that are off, taken if they ask for what is so anyway.

use cairn_fs::ops::public_access::MarkBucket;
use cairn_fs::rows::BucketMark;
use http::{Response, StatusCode};
use s3s::dto::{
    AccelerateConfiguration, BucketAccelerateStatus, BucketLoggingStatus, BucketVersioningStatus,
    MFADelete, NotificationConfiguration, Payer, RequestPaymentConfiguration,
    VersioningConfiguration,
};
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, refuse};
use super::super::{features, reply, xml};

/// Takes `Suspended`: there are no versions.
pub(crate) async fn versioning(call: Call<'_>) -> S3Result<Response<Body>> {
    let VersioningConfiguration { mfa_delete, status } = xml::parse(&call.xml)?;
    let needs_mfa = mfa_delete.is_some_and(|mfa| mfa.as_str() != MFADelete::DISABLED);
    let is_suspended = match status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::SUSPENDED) => !needs_mfa,
        Some(BucketVersioningStatus::ENABLED) => false,
        _ => return Err(malformed("Status: use Enabled or Suspended")),
    };
    check(&call, is_suspended, "versioning").await?;
    mark(&call, BucketMark::VersioningSuspended, true).await
}

/// Takes `Suspended`: nothing is accelerated.
pub(crate) async fn accelerate(call: Call<'_>) -> S3Result<Response<Body>> {
    let AccelerateConfiguration { status } = xml::parse(&call.xml)?;
    let is_suspended = match status.as_ref().map(BucketAccelerateStatus::as_str) {
        Some(BucketAccelerateStatus::SUSPENDED) => true,
        Some(BucketAccelerateStatus::ENABLED) => false,
        _ => return Err(malformed("Status: use Enabled or Suspended")),
    };
    check(&call, is_suspended, "accelerate").await?;
    mark(&call, BucketMark::AccelerationSuspended, true).await
}

/// Takes a document that turns logs off.
pub(crate) async fn logging(call: Call<'_>) -> S3Result<Response<Body>> {
    let BucketLoggingStatus { logging_enabled } = xml::parse(&call.xml)?;
    check(&call, logging_enabled.is_none(), "logging").await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Takes a document without targets.
pub(crate) async fn notification(call: Call<'_>) -> S3Result<Response<Body>> {
    let wanted: NotificationConfiguration = xml::parse(&call.xml)?;
    check(&call, wanted == NotificationConfiguration::default(), "notification").await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Takes `BucketOwner`: nobody pays.
pub(crate) async fn request_payment(call: Call<'_>) -> S3Result<Response<Body>> {
    let RequestPaymentConfiguration { payer } = xml::parse(&call.xml)?;
    let is_owner = match payer.as_str() {
        Payer::BUCKET_OWNER => true,
        Payer::REQUESTER => false,
        _ => return Err(malformed("Payer: use BucketOwner or Requester")),
    };
    check(&call, is_owner, "requestPayment").await?;
    Ok(reply::empty(StatusCode::OK))
}

/// Refuses callers without the right to the setting, and a setting that is not neutral.
async fn check(call: &Call<'_>, is_neutral: bool, sub_resource: &str) -> S3Result<()> {
    call.allowed().await?;
    if is_neutral { Ok(()) } else { Err(features::is_off(sub_resource)) }
}

/// Sets or removes a mark of the bucket.
pub(super) async fn mark(
    call: &Call<'_>,
    mark: BucketMark,
    is_set: bool,
) -> S3Result<Response<Body>> {
    let verb = MarkBucket { bucket: call.bucket().to_owned(), mark, is_set };
    call.run(Codes::bucket(), verb).await?;
    Ok(reply::empty(StatusCode::OK))
}

pub(super) fn malformed(what: &'static str) -> s3s::S3Error {
    refuse(S3ErrorCode::MalformedXML, what)
}
