//! Headers that ask for something. A header that its operation does not honour is refused, as the
//! wish would otherwise be ignored silently.

use http::header::{CONTENT_RANGE, HeaderMap, HeaderValue};
use s3s::{S3ErrorCode, S3Result};

use super::address;
use super::error::{bad_request, invalid, refuse};
use super::features;
use super::headers::text;
use super::operation::{BODY, Operation};

/// Headers of HTTP that change the meaning of a request.
const CONDITIONS: &[&str] =
    &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

/// Refuses headers that the operation would ignore.
pub(super) fn check(operation: &Operation, headers: &HeaderMap, classes: Classes) -> S3Result<()> {
    let is_change = operation.is_change();
    for (name, value) in headers {
        let name = name.as_str();
        let asks = name.starts_with("x-amz-")
            || (is_change && CONDITIONS.contains(&name))
            || (is_change && !operation.input.is_body() && BODY.contains(&name));
        // The digest of an empty body is compared, too.
        let is_compared = name == "content-md5";
        // Without a body it describes nothing, and S3 ignores it.
        let describes = !is_put(operation) && name.starts_with("x-amz-meta-");
        let is_fine = describes || is_compared || operation.honours(name);
        if !asks || is_fine || is_default(name, value) {
            continue;
        }
        return Err(features::unknown_header(name, operation.name));
    }
    if is_change && headers.contains_key(CONTENT_RANGE) {
        let what = "Content-Range: a piece of an object cannot be put; send all of it";
        return Err(bad_request(what));
    }
    check_class(headers, classes)?;
    check_source(headers)
}

/// Returns whether the request puts or posts something, which metadata may be meant for.
fn is_put(operation: &Operation) -> bool {
    matches!(operation.method, "PUT" | "POST")
}

/// Returns whether a header asks for the default behaviour.
fn is_default(name: &str, value: &HeaderValue) -> bool {
    matches!(
        (name, value.as_bytes()),
        ("x-amz-bucket-object-lock-enabled" | "x-amz-bypass-governance-retention", b"false")
            | ("x-amz-server-side-encryption-bucket-key-enabled", b"false")
            | ("x-amz-optional-object-attributes", b"RestoreStatus")
    )
}

/// The treatment of a requested storage class. All objects are stored in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Classes {
    /// Refuses classes other than `STANDARD`.
    #[default]
    Refuse,
    /// Accepts the classes of S3 as wishes; objects are stored and shown as `STANDARD`.
    Standard,
}

/// The classes of S3.
const CLASSES: [&str; 11] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

fn check_class(headers: &HeaderMap, classes: Classes) -> S3Result<()> {
    let what = match (text(headers, "x-amz-storage-class")?, classes) {
        (None | Some("STANDARD"), _) => return Ok(()),
        (Some(class), Classes::Standard) if CLASSES.contains(&class) => return Ok(()),
        (Some(class), _) if CLASSES.contains(&class) => {
            "this server keeps all objects as STANDARD: ask for that, or start it with \
             --s3-storage-classes standard to have other classes taken and kept as STANDARD"
        }
        _ => "The storage class you specified is not valid",
    };
    Err(refuse(S3ErrorCode::InvalidStorageClass, what))
}

/// Checks that the source of a copy can be decoded: the library takes a source that it cannot
/// decode as it is.
fn check_source(headers: &HeaderMap) -> S3Result<()> {
    let Some(source) = text(headers, "x-amz-copy-source")? else { return Ok(()) };
    let bad = |_| invalid("Invalid copy source encoding: x-amz-copy-source");
    address::decode(source).map(drop).map_err(bad)
}
