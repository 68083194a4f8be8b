//! Errors of the store in the form of S3.

use std::borrow::Cow;
use std::time::Duration;

use cairn_base::{Error, stage};
use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use s3s::{S3Error, S3ErrorCode};

use crate::pacing::seconds;

/// Refuses a request.
pub(super) fn refuse(code: S3ErrorCode, message: impl Into<Cow<'static, str>>) -> S3Error {
    S3Error::with_message(code, message)
}

/// Refuses with a code that the library does not know.
pub(super) fn refuse_with(
    code: &'static str,
    status: StatusCode,
    message: impl Into<Cow<'static, str>>,
) -> S3Error {
    let mut error = refuse(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, message)
}

pub(super) fn bad_request(message: impl Into<Cow<'static, str>>) -> S3Error {
    refuse(S3ErrorCode::InvalidRequest, message)
}

pub(super) fn not_implemented(what: impl Into<Cow<'static, str>>) -> S3Error {
    refuse(S3ErrorCode::NotImplemented, what)
}

/// The codes for errors of the store that do not imply a code on their own.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) not_found: S3ErrorCode,
    pub(super) invalid: S3ErrorCode,
    pub(super) too_large: S3ErrorCode,
}

impl Codes {
    pub(super) fn bucket() -> Codes {
        Codes { not_found: S3ErrorCode::NoSuchBucket, ..Codes::object() }
    }

    /// Returns the codes for a request that changes a setting of a bucket by a document.
    pub(super) fn bucket_document() -> Codes {
        Codes {
            invalid: S3ErrorCode::InvalidRequest,
            too_large: S3ErrorCode::InvalidRequest,
            ..Codes::bucket()
        }
    }

    pub(super) fn object() -> Codes {
        Codes {
            not_found: S3ErrorCode::NoSuchKey,
            invalid: S3ErrorCode::InvalidArgument,
            too_large: S3ErrorCode::EntityTooLarge,
        }
    }

    pub(super) fn upload() -> Codes {
        Codes { not_found: S3ErrorCode::NoSuchUpload, ..Codes::object() }
    }
}

/// Returns the error for the client. An error that is the server's fault is logged.
pub(super) fn translate(error: Error, codes: Codes) -> S3Error {
    let text = error.to_string();
    match error {
        Error::NotFound(_) => refuse(codes.not_found, text),
        Error::Invalid(_) => refuse(codes.invalid, text),
        Error::TooLarge(_) => refuse(codes.too_large, text),
        Error::Denied(_) | Error::ReadOnly(_) => refuse(S3ErrorCode::AccessDenied, text),
        Error::Conflict(_) => refuse(S3ErrorCode::OperationAborted, text),
        Error::PreconditionFailed(_) => refuse(S3ErrorCode::PreconditionFailed, text),
        Error::NotModified(_) => refuse(S3ErrorCode::NotModified, text),
        Error::Unavailable(_) => refuse(S3ErrorCode::ServiceUnavailable, text),
        Error::BadDigest(_) => refuse(S3ErrorCode::BadDigest, text),
        Error::RangeNotSatisfiable { size } => out_of_range(size),
        Error::NotEmpty(_) => refuse(S3ErrorCode::BucketNotEmpty, text),
        Error::NotImplemented(_) => not_implemented(text),
        Error::Full(_) => {
            tracing::warn!(error = text, "no space");
            refuse_with("InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE, text)
        }
        Error::Exists(_) | Error::IsDirectory(_) | Error::NotDirectory(_) => {
            refuse_with("KeyConflict", StatusCode::CONFLICT, text)
        }
        other => internal(&other),
    }
}

/// Returns the reason for records: the text of a refusal, which has no words of the client, and the
/// code of any other error.
pub(super) fn reason(error: &S3Error) -> String {
    let code = error.code().as_str();
    match (error.code(), error.message()) {
        (S3ErrorCode::AccessDenied, Some(message)) => format!("{code}: {message}"),
        _ => code.to_owned(),
    }
}

/// Returns the error that tells the client nothing except that the server failed.
pub(super) fn internal(error: &Error) -> S3Error {
    match error {
        Error::Corrupt { .. } => tracing::error!(%error, "stored bytes do not check out"),
        _ => {
            let trace = stage::trace().map(tracing::field::display);
            tracing::error!(trace, %error, "a request failed");
        }
    }
    refuse(S3ErrorCode::InternalError, "an internal error: see the server's log")
}

/// Returns the error for a user that has used up a limit, for `wait`.
pub(super) fn slow_down(wait: Duration) -> S3Error {
    let seconds = seconds(wait);
    let text = format!("a limit of this user is used up: try again in {seconds} s");
    let mut error = refuse(S3ErrorCode::SlowDown, text);
    error.set_headers([(RETRY_AFTER, HeaderValue::from(seconds))].into_iter().collect());
    error
}

fn out_of_range(size: u64) -> S3Error {
    let mut error = refuse(S3ErrorCode::InvalidRange, format!("{SIZE}{size}"));
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}")) {
        error.set_headers([(http::header::CONTENT_RANGE, range)].into_iter().collect());
    }
    error
}

/// Text before the size of the object, in the detail of an InvalidRange.
pub(super) const SIZE: &str = "bytes of the object: ";
/// Texts before the two times, in the detail of a RequestTimeTooSkewed.
pub(super) const REQUEST_TIME: &str = "time of the request: ";
pub(super) const SERVER_TIME: &str = "time of the server: ";
