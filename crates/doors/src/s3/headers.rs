//! Headers that ask for something. One that its operation does not honour is refused: what it asks
//! for would silently not be done.

use http::header::{CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue};
use s3s::{S3ErrorCode, S3Result};

use super::error::{bad_request, not_implemented, refuse};
use super::query::Query;
use super::table::{BODY, CONDITIONS, Input, Operation};

/// Refuses what the operation would not do.
pub(super) fn check(operation: &Operation, headers: &HeaderMap, classes: Classes) -> S3Result<()> {
    for (name, value) in headers {
        let name = name.as_str();
        let asks = name.starts_with("x-amz-")
            || (is_change(operation) && CONDITIONS.contains(&name))
            || (operation.input == Input::None && is_change(operation) && BODY.contains(&name));
        // That of no body is compared, too.
        let is_compared = name == "content-md5";
        if !asks || is_compared || operation.honours(name) || is_default(name, value) {
            continue;
        }
        return Err(not_implemented(format!(
            "A header you provided implies functionality that is not implemented: {name} with {}",
            operation.name
        )));
    }
    if is_change(operation) && headers.contains_key(CONTENT_RANGE) {
        let what = "Content-Range: a piece of an object cannot be put; send all of it";
        return Err(bad_request(what));
    }
    check_class(headers, classes)
}

/// Those that only read may pass over conditions and ranges (RFC 9110).
fn is_change(operation: &Operation) -> bool {
    !matches!(operation.method, "GET" | "HEAD")
}

/// Headers that ask for what is done anyway.
fn is_default(name: &str, value: &HeaderValue) -> bool {
    matches!(
        (name, value.as_bytes()),
        ("x-amz-bucket-object-lock-enabled" | "x-amz-bypass-governance-retention", b"false")
            | ("x-amz-server-side-encryption-bucket-key-enabled", b"false")
            | ("x-amz-optional-object-attributes", b"RestoreStatus")
    )
}

/// What becomes of a storage class that is asked for. All objects are kept in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Classes {
    /// Classes other than `STANDARD` are refused.
    #[default]
    Refuse,
    /// Those of S3 are taken as wishes; objects are `STANDARD`, and said to be.
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

/// A header that may be given once.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (std::str::from_utf8(value.as_bytes()), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        (Err(_), _) => Err(bad_request(format!("the header {name} is not text"))),
        (_, Some(_)) => Err(bad_request(format!("the header {name} is given twice"))),
    }
}

/// SDKs move headers of a presigned URL into its query; there they mean the same.
pub(super) fn unhoist(query: &mut Query, headers: &mut HeaderMap) -> S3Result<()> {
    for (name, value) in query.pairs() {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("x-amz-") {
            continue;
        }
        let bad = || bad_request(format!("the parameter {name} cannot be a header"));
        let value = HeaderValue::from_str(value).map_err(|_| bad())?;
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| bad())?;
        if headers.get(&header).is_some_and(|present| present != value) {
            return Err(bad_request(format!("{name} is another one in the query")));
        }
        headers.insert(header, value);
    }
    query.retain(|name| !name.to_ascii_lowercase().starts_with("x-amz-"));
    Ok(())
}
