//! Which `x-amz-…` headers are understood. One that is not is refused: it asks for something that
//! would silently not be done.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::{S3ErrorCode, S3Result};

use super::error::{bad_request, not_implemented, refuse};
use super::query::Query;

/// Understood, or without meaning here.
const KNOWN: &[&str] = &[
    "x-amz-acl",
    "x-amz-api-version",
    "x-amz-bypass-governance-retention",
    "x-amz-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-mode",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-type",
    "x-amz-content-sha256",
    "x-amz-copy-source",
    "x-amz-copy-source-if-match",
    "x-amz-copy-source-if-modified-since",
    "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since",
    "x-amz-copy-source-range",
    "x-amz-date",
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-max-parts",
    "x-amz-metadata-directive",
    "x-amz-mfa",
    "x-amz-mp-object-size",
    "x-amz-object-attributes",
    "x-amz-part-number-marker",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-source-expected-bucket-owner",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-tagging-directive",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// Refuses what would not be done.
pub(super) fn check(headers: &HeaderMap) -> S3Result<()> {
    for (name, value) in headers {
        let name = name.as_str();
        let Some(rest) = name.strip_prefix("x-amz-") else { continue };
        if rest.starts_with("meta-") || KNOWN.contains(&name) || is_default(name, value) {
            continue;
        }
        return Err(not_implemented(format!(
            "a header you provided implies functionality that is not implemented: {name}"
        )));
    }
    check_class(headers)
}

/// Headers that ask for what is done anyway.
fn is_default(name: &str, value: &HeaderValue) -> bool {
    matches!(
        (name, value.as_bytes()),
        ("x-amz-bucket-object-lock-enabled", b"false")
            | ("x-amz-object-ownership", b"BucketOwnerEnforced")
            | ("x-amz-server-side-encryption-bucket-key-enabled", b"false")
            | ("x-amz-optional-object-attributes", b"RestoreStatus")
    )
}

fn check_class(headers: &HeaderMap) -> S3Result<()> {
    match headers.get("x-amz-storage-class").map(HeaderValue::as_bytes) {
        None | Some(b"STANDARD") => Ok(()),
        Some(_) => {
            let what = "the storage class is not valid: use STANDARD";
            Err(refuse(S3ErrorCode::InvalidStorageClass, what))
        }
    }
}

/// Of an object: only the canned ACL `private`, which is what all objects have.
pub(super) fn check_object_acl(headers: &HeaderMap) -> S3Result<()> {
    match headers.get("x-amz-acl").map(HeaderValue::as_bytes) {
        None | Some(b"private" | b"bucket-owner-full-control") => Ok(()),
        Some(_) => Err(not_implemented("an ACL of an object other than private: set the bucket's")),
    }
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
