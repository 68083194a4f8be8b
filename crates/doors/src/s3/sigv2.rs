//! Presigned URLs of Signature Version 2, which aws-cli and boto3 still make by default for the
//! region `us-east-1`. Only that form: signed headers of version 2 are refused.
//!
//! The signature covers the method, two headers, `x-amz-*` headers, the path and those parts of the
//! query that S3 calls sub-resources. SDKs put the headers they signed into the query, too: an
//! `x-amz-*` parameter stands for that header; for the other two, only the header itself counts. As
//! in S3, the prefix and page of a listing are not signed: the holder of such a URL may list the
//! whole bucket. A URL with anything else in its query is refused, so nothing else unsigned has a
//! meaning.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cairn_auth::SecretKey;
use cairn_base::Timestamp;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use s3s::{S3ErrorCode, S3Result};
use subtle::ConstantTimeEq;

use super::address::Address;
use super::error::{bad_request, refuse};
use super::query::Query;
use super::sigv4::{self, PRESIGNED_SECS_MAX, Request, SKEW_SECS};

const KEY_ID: &str = "AWSAccessKeyId";
const SIGNATURE: &str = "Signature";
const EXPIRES: &str = "Expires";
/// The two headers that are signed, which SDKs repeat in the query.
const IN_QUERY: [&str; 2] = ["content-md5", "content-type"];

/// The parts of a query that are signed, in order.
const SUB_RESOURCES: [&str; 26] = [
    "accelerate",
    "acl",
    "cors",
    "delete",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "tagging",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Parameters of listings, which are not signed.
const LISTING: [&str; 12] = [
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
];

/// The claim of a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) access_key_id: String,
    expires: String,
    signature: Vec<u8>,
}

impl Claim {
    /// Reads a claim. Returns `None` for a request without any sign of version 2.
    pub(super) fn parse(request: &Request<'_>, now: Timestamp) -> S3Result<Option<Claim>> {
        let query = request.query;
        if !query.has(SIGNATURE) && !query.has(KEY_ID) {
            return Ok(None);
        }
        let (Some(key_id), Some(signature), Some(expires)) =
            (query.get(KEY_ID), query.get(SIGNATURE), query.get(EXPIRES))
        else {
            return Err(bad_request("a presigned URL needs AWSAccessKeyId, Signature and Expires"));
        };
        let known = |name: &str| [KEY_ID, SIGNATURE, EXPIRES].contains(&name);
        let reads = *request.method == Method::GET;
        // Values are signed as they are, so an ampersand could be the boundary between two.
        let stranger = query.pairs().iter().find(|(name, value)| {
            let is_signed = SUB_RESOURCES.contains(&name.as_str()) && !value.contains('&');
            let is_listing = reads && LISTING.contains(&name.as_str());
            !known(name) && !is_signed && !is_listing && !is_hoisted(name, value)
        });
        if request.headers.contains_key(AUTHORIZATION) || stranger.is_some() {
            let what = "a presigned URL of Signature Version 2 cannot carry other credentials or \
                        parameters; please use AWS4-HMAC-SHA256";
            return Err(bad_request(what));
        }
        check_life(expires, now)?;
        Ok(Some(Claim {
            access_key_id: key_id.to_owned(),
            expires: expires.to_owned(),
            signature: STANDARD.decode(signature).unwrap_or_default(),
        }))
    }

    /// Returns whether the signature belongs to this request and was made with this secret.
    pub(super) fn holds(
        &self,
        request: &Request<'_>,
        address: &Address,
        secret: &SecretKey,
    ) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose().as_bytes());
        let is_bucket = !address.is_by_host(request.decoded_path)
            && request.path.strip_prefix('/').is_some_and(|bucket| !bucket.contains('/'));
        // botocore signs `/bucket/` and asks for `/bucket`.
        let slashed = is_bucket.then(|| format!("{}/", request.path));
        [request.path.to_owned()].into_iter().chain(slashed).any(|path| {
            let text = self.text_to_sign(request, address, &path);
            hmac::sign(&key, text.as_bytes()).as_ref().ct_eq(&self.signature).into()
        })
    }

    fn text_to_sign(&self, request: &Request<'_>, address: &Address, path: &str) -> String {
        let header = |name: &str| {
            let value = request.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().trim().to_owned()
        };
        let mut text = format!(
            "{}\n{}\n{}\n{}\n",
            request.method,
            header("content-md5"),
            header(CONTENT_TYPE.as_str()),
            self.expires
        );
        for (name, value) in amz_headers(request) {
            text.push_str(&format!("{name}:{value}\n"));
        }
        text.push_str(&resource(request, address, path));
        text
    }
}

/// Returns whether a parameter stands for a header that was signed.
fn is_hoisted(name: &str, value: &str) -> bool {
    let is_amz = name.starts_with("x-amz-") && !sigv4::is_parameter(name);
    let is_header = is_amz || IN_QUERY.contains(&name);
    is_header
        && !name.bytes().any(|byte| byte.is_ascii_uppercase())
        && !value.contains(char::is_control)
}

/// Returns the `x-amz-*` headers by name, including those in the query. If a header is at both
/// places, the header counts.
fn amz_headers(request: &Request<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, value) in request.query.pairs() {
        if name.starts_with("x-amz-") {
            found.insert(name.clone(), value.trim().to_owned());
        }
    }
    for name in request.headers.keys().filter(|name| name.as_str().starts_with("x-amz-")) {
        let values = request.headers.get_all(name).iter();
        let values: Vec<&str> =
            values.map(|value| value.to_str().unwrap_or_default().trim()).collect();
        found.insert(name.as_str().to_owned(), values.join(","));
    }
    found
}

/// Returns the path as sent, below its bucket if the bucket came from the host, and the signed
/// parts of the query in order.
fn resource(request: &Request<'_>, address: &Address, path: &str) -> String {
    let mut resource = String::new();
    if let Some(bucket) = address.bucket()
        && address.is_by_host(request.decoded_path)
    {
        resource = format!("/{bucket}");
    }
    resource.push_str(path);
    let mut separator = '?';
    for name in SUB_RESOURCES {
        let Some(value) = request.query.get(name) else { continue };
        resource.push(separator);
        resource.push_str(name);
        if !value.is_empty() {
            resource.push('=');
            resource.push_str(value);
        }
        separator = '&';
    }
    resource
}

fn check_life(expires: &str, now: Timestamp) -> S3Result<()> {
    let Ok(expires) = expires.parse::<i64>() else {
        return Err(refuse(S3ErrorCode::AccessDenied, "Expires must be seconds since 1970"));
    };
    if expires < now.secs() {
        return Err(refuse(S3ErrorCode::AccessDenied, "Request has expired"));
    }
    if expires.saturating_sub(now.secs()) > PRESIGNED_SECS_MAX + SKEW_SECS {
        return Err(refuse(S3ErrorCode::AccessDenied, "Expires must be less than a week ahead"));
    }
    Ok(())
}

/// Removes the parameters of the signature, once it was verified.
pub(super) fn strip(query: &mut Query) {
    if !query.has(KEY_ID) {
        return;
    }
    let gone =
        |name: &str| [KEY_ID, SIGNATURE, EXPIRES].contains(&name) || IN_QUERY.contains(&name);
    query.retain(|name| !gone(name));
}
