//! What a request claims about who sent it.

use cairn_base::Timestamp;
use http::Method;
use http::header::{AUTHORIZATION, DATE, HeaderMap};
use s3s::{S3ErrorCode, S3Result};

use super::canonical::{PathForm, canonical_request};
use super::key::{hex_sha256, same};
use super::{ALGORITHM, SKEW_SECS, SignedAt, SigningKey, presigned};
use crate::limits::SIGNED_HEADERS;
use crate::s3::error::{bad_request, invalid, not_implemented, refuse};
use crate::s3::query::Query;

/// What of a request may be signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// As it stands in the request line, and decoded.
    pub(crate) path: &'a str,
    pub(crate) decoded_path: &'a str,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) host: &'a [u8],
}

/// A claim to be the owner of an access key, not yet borne out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) access_key_id: String,
    pub(crate) region: String,
    pub(crate) at: SignedAt,
    /// Lower-case names, separated by `;`.
    pub(super) signed_headers: String,
    pub(crate) signature: String,
    /// What was signed in place of the payload: its hash, or a word that says why not. Several
    /// where clients differ on what a presigned URL says.
    pub(super) payloads: Vec<String>,
    pub(crate) is_presigned: bool,
}

impl Claim {
    /// `None` for a request without credentials.
    pub(crate) fn parse(
        request: &Request<'_>,
        now: Timestamp,
        region: &str,
    ) -> S3Result<Option<Claim>> {
        refuse_version_2(request)?;
        let in_query = request.query.pairs().iter().any(|(name, _)| presigned::is_parameter(name));
        let claim = match (request.headers.contains_key(AUTHORIZATION), in_query) {
            (false, false) => return Ok(None),
            (true, true) => {
                let what = "only one of the Authorization header and X-Amz-… parameters is allowed";
                return Err(invalid(what));
            }
            (true, false) => in_header(request, now, region)?,
            (false, true) => presigned::parse(request, now, region)?,
        };
        claim.check_signed_headers(request)?;
        Ok(Some(claim))
    }

    /// Whether the signature is of this request and made with this key.
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

    /// Every header that means something to S3 must be covered by the signature, and every
    /// header that is said to be covered must be there.
    fn check_signed_headers(&self, request: &Request<'_>) -> S3Result<()> {
        // Each of them may be compared with each header, and its value is a part of what is hashed.
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
    check_skew(at.time, now)?;
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

pub(super) fn check_skew(at: Timestamp, now: Timestamp) -> S3Result<()> {
    if (now.secs() - at.secs()).abs() <= SKEW_SECS {
        return Ok(());
    }
    let what = "the difference between the request time and the server's time is too large";
    Err(refuse(S3ErrorCode::RequestTimeTooSkewed, what))
}

pub(super) fn check_signature(signature: &str) -> Result<(), String> {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match signature.len() == 64 && signature.bytes().all(hex) {
        true => Ok(()),
        false => Err("a signature has 64 hexadecimal digits".into()),
    }
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

/// The one value of `x-amz-content-sha256`.
pub(crate) fn content_sha256(headers: &HeaderMap) -> S3Result<Option<&str>> {
    let mut values = headers.get_all("x-amz-content-sha256").iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(invalid("x-amz-content-sha256: one value is wanted")),
    }
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
            _ => return Err(malformed("one Authorization header of plain text is wanted".into())),
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
            _ => Err(malformed("Credential, SignedHeaders and Signature are wanted".into())),
        }
    }
}

/// `<access key id>/<day>/<region>/s3/aws4_request`
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

    /// `region` is the server's; empty to take any.
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
