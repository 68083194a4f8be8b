//! A request's claim about its sender.

use cairn_base::Timestamp;
use http::header::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::canonical::{PathForm, canonical_request};
use super::key::{hex_sha256, same};
use super::request::Request;
use super::{ALGORITHM, SKEW_SECS, SignedAt, SigningKey};
use crate::limits::SIGNED_HEADERS;
use crate::s3::error::{REQUEST_TIME, SERVER_TIME, invalid, refuse};

/// A claim to own an access key, not yet verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) access_key_id: String,
    pub(crate) region: String,
    pub(crate) at: SignedAt,
    /// Lower-case names, separated by `;`.
    pub(super) signed_headers: String,
    pub(crate) signature: String,
    /// The value that was signed in place of the payload: its hash, or a word that says why there
    /// is none. Several values if clients differ on presigned URLs.
    pub(super) payloads: Vec<String>,
    pub(crate) is_presigned: bool,
}

impl Claim {
    /// Returns whether the signature belongs to this request and was made with this key.
    pub(crate) fn holds(&self, request: &Request<'_>, key: &SigningKey) -> bool {
        let forms = [PathForm::Encoded, PathForm::AsSent];
        self.payloads.iter().any(|payload| {
            forms.into_iter().any(|form| {
                let canonical = canonical_request(request, form, &self.signed_headers, payload);
                let signature = key.sign(ALGORITHM, &self.at, &[&hex_sha256(&canonical)]);
                same(&signature, &self.signature)
            })
        })
    }

    /// Checks that every header with a meaning in S3 is covered by the signature, and that every
    /// header in the list of signed headers is there.
    pub(super) fn check_signed_headers(&self, request: &Request<'_>) -> S3Result<()> {
        // Each name may be compared with each header, and its value is hashed.
        if self.signed_headers.split(';').count() > SIGNED_HEADERS {
            let what = format!("more than {SIGNED_HEADERS} signed headers");
            return Err(refuse(S3ErrorCode::InvalidArgument, what));
        }
        let signed: Vec<&str> = self.signed_headers.split(';').collect();
        if !signed.contains(&"host") {
            return Err(unsigned("host"));
        }
        for name in &signed {
            let plain = !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase());
            let is_there = *name == "host" || request.headers.contains_key(*name);
            if !plain || !is_there {
                let what = format!("the signed header {name:?} is not in the request");
                return Err(refuse(S3ErrorCode::SignatureDoesNotMatch, what));
            }
        }
        for name in request.headers.keys() {
            let name = name.as_str();
            let harmless =
                name == "x-amz-user-agent" || (self.is_presigned && name == "x-amz-content-sha256");
            if name.starts_with("x-amz-") && !harmless && !signed.contains(&name) {
                return Err(unsigned(name));
            }
        }
        Ok(())
    }
}

fn unsigned(name: &str) -> s3s::S3Error {
    let what = format!("there were headers present in the request which were not signed: {name}");
    refuse(S3ErrorCode::AccessDenied, what)
}

pub(super) fn check_skew(at: &SignedAt, now: Timestamp) -> S3Result<()> {
    if (now.secs() - at.time.secs()).abs() <= SKEW_SECS {
        return Ok(());
    }
    Err(skewed(at, now))
}

/// Returns the error for a clock that is too far off, with both times: clients correct theirs.
pub(super) fn skewed(at: &SignedAt, now: Timestamp) -> S3Error {
    let (at, now) = (&at.text, SignedAt::new(now).extended());
    let what = format!("{REQUEST_TIME}{at}, {SERVER_TIME}{now}");
    refuse(S3ErrorCode::RequestTimeTooSkewed, what)
}

pub(super) fn check_signature(signature: &str) -> Result<(), String> {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if signature.len() == 64 && signature.bytes().all(hex) {
        Ok(())
    } else {
        Err("a signature has 64 hexadecimal digits".into())
    }
}

/// Returns the only value of `x-amz-content-sha256`.
pub(crate) fn content_sha256(headers: &HeaderMap) -> S3Result<Option<&str>> {
    let mut values = headers.get_all("x-amz-content-sha256").iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(invalid("x-amz-content-sha256: send one value")),
    }
}

/// The scope of a credential: `<access key id>/<day>/<region>/s3/aws4_request`.
pub(super) struct Scope<'a> {
    pub(super) access_key_id: &'a str,
    pub(super) day: &'a str,
    pub(super) region: &'a str,
    service: &'a str,
    terminal: &'a str,
}

impl<'a> Scope<'a> {
    pub(super) fn parse(credential: &'a str) -> Result<Scope<'a>, String> {
        let parts: Vec<&str> = credential.split('/').collect();
        match parts[..] {
            [access_key_id, day, region, service, terminal] => {
                Ok(Scope { access_key_id, day, region, service, terminal })
            }
            _ => Err("the credential is not <key>/<date>/<region>/s3/aws4_request".into()),
        }
    }

    /// Checks the scope. `region` is the server's; empty to take any.
    pub(super) fn check(&self, region: &str) -> Result<(), String> {
        if self.terminal != "aws4_request" {
            return Err(format!("the credential ends in {:?}, not aws4_request", self.terminal));
        }
        if self.service != "s3" {
            return Err(format!("the credential is for service {:?}, not s3", self.service));
        }
        if !region.is_empty() && self.region != region {
            return Err(format!("the region {:?} is wrong; expecting {region:?}", self.region));
        }
        Ok(())
    }
}
