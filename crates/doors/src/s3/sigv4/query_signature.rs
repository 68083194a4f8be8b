//! Signatures in the query: presigned URLs.

use cairn_base::Timestamp;
use s3s::{S3ErrorCode, S3Result};

use super::claim::{Claim, Scope, check_signature, content_sha256, skewed};
use super::request::Request;
use super::{ALGORITHM, PRESIGNED_SECS_MAX, SKEW_SECS, SignedAt, UNSIGNED};
use crate::s3::error::refuse;
use crate::s3::query::Query;

const PARAMETERS: [&str; 7] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
];
/// Parameter that is also part of a presigned URL, but no credential on its own.
const CONTENT_SHA256: &str = "X-Amz-Content-Sha256";

/// Returns whether a query parameter is part of a presigned URL's credentials, in upper or lower
/// case.
pub(crate) fn is_parameter(name: &str) -> bool {
    PARAMETERS.iter().any(|parameter| parameter.eq_ignore_ascii_case(name))
}

fn bad(what: impl Into<String>) -> s3s::S3Error {
    refuse(S3ErrorCode::AuthorizationQueryParametersError, what.into())
}

fn wanted<'a>(query: &'a Query, name: &str) -> S3Result<&'a str> {
    query.get(name).ok_or_else(|| bad(format!("query-string authentication requires {name}")))
}

pub(super) fn parse(request: &Request<'_>, now: Timestamp, region: &str) -> S3Result<Claim> {
    let query = request.query;
    if wanted(query, "X-Amz-Algorithm")? != ALGORITHM {
        return Err(bad("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let scope = Scope::parse(wanted(query, "X-Amz-Credential")?).map_err(bad)?;
    scope.check(region).map_err(bad)?;
    let at = SignedAt::parse(wanted(query, "X-Amz-Date")?)
        .ok_or_else(|| bad("X-Amz-Date must be in the ISO8601 Long Format"))?;
    if scope.day != at.day() {
        return Err(bad("the date of the credential is not the date of the URL"));
    }
    check_life(wanted(query, "X-Amz-Expires")?, &at, now)?;
    let signature = wanted(query, "X-Amz-Signature")?;
    check_signature(signature).map_err(bad)?;
    let mut payloads: Vec<String> = Vec::new();
    let hashes = [query.get(CONTENT_SHA256), content_sha256(request.headers)?, Some(UNSIGNED)];
    for hash in hashes.into_iter().flatten() {
        if !payloads.iter().any(|present| present == hash) {
            payloads.push(hash.to_owned());
        }
    }
    Ok(Claim {
        access_key_id: scope.access_key_id.to_owned(),
        region: scope.region.to_owned(),
        at,
        signed_headers: wanted(query, "X-Amz-SignedHeaders")?.to_owned(),
        signature: signature.to_owned(),
        payloads,
        is_presigned: true,
    })
}

fn check_life(expires: &str, at: &SignedAt, now: Timestamp) -> S3Result<()> {
    let Ok(secs) = expires.parse::<i64>() else {
        return Err(bad("X-Amz-Expires should be a number"));
    };
    if secs < 0 {
        return Err(bad("X-Amz-Expires must be non-negative"));
    }
    if secs > PRESIGNED_SECS_MAX {
        return Err(bad("X-Amz-Expires must be less than a week (in seconds)"));
    }
    if at.time.secs() - now.secs() > SKEW_SECS {
        return Err(skewed(at, now));
    }
    if now.secs() - at.time.secs() > secs {
        return Err(refuse(S3ErrorCode::AccessDenied, "Request has expired"));
    }
    Ok(())
}

/// Returns the hash of the payload according to a presigned URL, if the URL states one.
pub(crate) fn payload_of<'a>(request: &Request<'a>) -> S3Result<Option<&'a str>> {
    let header = content_sha256(request.headers)?;
    match (request.query.get(CONTENT_SHA256), header) {
        (Some(query), Some(header)) if query != header => {
            Err(bad("X-Amz-Content-Sha256 has different values in the query and in the header"))
        }
        (Some(hash), _) | (None, Some(hash)) => Ok(Some(hash)),
        (None, None) => Ok(None),
    }
}

/// Removes the parameters of the signature, once it was verified.
pub(crate) fn strip(query: &mut Query) {
    query.retain(|name| !is_parameter(name) && name != CONTENT_SHA256);
}
