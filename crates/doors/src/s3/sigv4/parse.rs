//! Finds the claim of a request: in a header, or in its query.

use cairn_base::Timestamp;
use http::header::{AUTHORIZATION, DATE, HeaderMap};
use s3s::{S3ErrorCode, S3Result};

use super::claim::{Claim, Scope, check_signature, check_skew, content_sha256};
use super::request::Request;
use super::{ALGORITHM, SignedAt, query_signature};
use crate::s3::error::{bad_request, invalid, not_implemented, refuse};

impl Claim {
    /// Reads the claim. Returns `None` for a request without credentials.
    pub(crate) fn parse(
        request: &Request<'_>,
        now: Timestamp,
        region: &str,
    ) -> S3Result<Option<Claim>> {
        refuse_version_2(request)?;
        let in_query =
            request.query.pairs().iter().any(|(name, _)| query_signature::is_parameter(name));
        let claim = match (request.headers.contains_key(AUTHORIZATION), in_query) {
            (false, false) => return Ok(None),
            (true, true) => {
                let what = "only one of the Authorization header and X-Amz-… parameters is allowed";
                return Err(invalid(what));
            }
            (true, false) => in_header(request, now, region)?,
            (false, true) => query_signature::parse(request, now, region)?,
        };
        claim.check_signed_headers(request)?;
        Ok(Some(claim))
    }
}

fn refuse_version_2(request: &Request<'_>) -> S3Result<()> {
    let header = request.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    if header.is_some_and(|value| value.starts_with(b"AWS ")) {
        let what = "the authorization mechanism you have provided is not supported; \
                    please use AWS4-HMAC-SHA256";
        return Err(bad_request(what));
    }
    Ok(())
}

fn in_header(request: &Request<'_>, now: Timestamp, region: &str) -> S3Result<Claim> {
    let fields = Fields::parse(request.headers)?;
    let scope = Scope::parse(fields.credential).map_err(malformed)?;
    scope.check(region).map_err(malformed)?;
    let at = signed_at(request.headers)?;
    if scope.day != at.day() {
        let what = "the date of the credential is not the date of the request";
        return Err(malformed(what.into()));
    }
    check_skew(&at, now)?;
    let payload = content_sha256(request.headers)?.ok_or_else(|| {
        bad_request("missing required header for this request: x-amz-content-sha256")
    })?;
    check_signature(fields.signature).map_err(malformed)?;
    Ok(Claim {
        access_key_id: scope.access_key_id.to_owned(),
        region: scope.region.to_owned(),
        at,
        signed_headers: fields.signed_headers.to_owned(),
        signature: fields.signature.to_owned(),
        payloads: vec![payload.to_owned()],
        is_presigned: false,
    })
}

fn malformed(what: String) -> s3s::S3Error {
    refuse(S3ErrorCode::AuthorizationHeaderMalformed, what)
}

fn signed_at(headers: &HeaderMap) -> S3Result<SignedAt> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let at = match (headers.contains_key("x-amz-date"), text(DATE.as_str())) {
        (true, _) => text("x-amz-date").and_then(SignedAt::parse),
        (false, date) => date.and_then(SignedAt::from_http_date),
    };
    at.ok_or_else(|| {
        let what = "AWS authentication requires a valid Date or x-amz-date header";
        refuse(S3ErrorCode::AccessDenied, what)
    })
}

/// `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`
struct Fields<'a> {
    credential: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
}

impl<'a> Fields<'a> {
    fn parse(headers: &'a HeaderMap) -> S3Result<Fields<'a>> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let text = match (values.next().map(|value| value.to_str()), values.next()) {
            (Some(Ok(text)), None) => text,
            _ => return Err(malformed("send one Authorization header of ASCII text".into())),
        };
        let (algorithm, rest) = text.trim().split_once(' ').unwrap_or((text, ""));
        if algorithm.starts_with("AWS4-ECDSA") {
            return Err(not_implemented("only AWS4-HMAC-SHA256 is implemented"));
        }
        if algorithm != ALGORITHM {
            return Err(invalid("unsupported authorization type: use AWS4-HMAC-SHA256"));
        }
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for field in rest.split(',') {
            let Some((name, value)) = field.trim().split_once('=') else {
                return Err(malformed(format!("{field:?} is not a name and a value")));
            };
            let slot = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                other => return Err(malformed(format!("unknown field {other:?}"))),
            };
            if slot.replace(value).is_some() {
                return Err(malformed(format!("{name} given twice")));
            }
        }
        match (credential, signed_headers, signature) {
            (Some(credential), Some(signed_headers), Some(signature)) => {
                Ok(Fields { credential, signed_headers, signature })
            }
            _ => Err(malformed("Credential, SignedHeaders and Signature must all be given".into())),
        }
    }
}
