//! The sender of a request, decided before anything else about the request is.
//!
//! This is the only place where a request gets a [`Caller`], and where the [`Mode`] of reading its
//! body is made.

use std::sync::Arc;

use cairn_auth::{Caller, SecretKey};
use cairn_base::{Clock, UserId};
use http::StatusCode;
use s3s::{S3ErrorCode, S3Result};

use super::address::Address;
use super::error::{Codes, bad_request, invalid, not_implemented, refuse, refuse_with, translate};
use super::payload::{ChunkDecoder, ChunkSigner, Mode};
use super::sigv2;
use super::sigv4::{Claim, KeyCache, Request, SigningKey, content_sha256, payload_of};
use crate::admit::{self, Admit};
use crate::serve::Remote;

const STREAMING_SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const STREAMING_SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const STREAMING_UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The sender of a request, and the mode of its body.
pub(super) struct Verdict {
    pub(super) caller: Caller,
    pub(super) mode: Mode,
    pub(super) is_presigned: bool,
}

/// Verifies requests.
pub(super) struct Verifier {
    admit: Arc<Admit>,
    clock: Arc<dyn Clock>,
    /// Region of credential scopes; empty to take any.
    region: String,
    keys: KeyCache,
}

impl Verifier {
    pub(super) fn new(admit: Arc<Admit>, clock: Arc<dyn Clock>, region: String) -> Verifier {
        Verifier { admit, clock, region, keys: KeyCache::new(1024) }
    }

    /// Returns a request's claim, as far as the request alone shows it.
    pub(super) fn claim(&self, request: &Request<'_>) -> S3Result<Option<Claim>> {
        Claim::parse(request, self.clock.now(), &self.region)
    }

    /// Returns the verdict on a request without credentials.
    pub(super) fn anonymous(request: &Request<'_>, from: Remote) -> S3Result<Verdict> {
        let mode = match content_sha256(request.headers)? {
            None => Mode::Plain,
            Some(word) => mode(word, None)?,
        };
        Ok(Verdict { caller: admit::anonymous(from), mode, is_presigned: false })
    }

    /// Returns the verdict on a claim. Anything but a valid signature of an access key that exists
    /// now is an error.
    pub(super) async fn judge(
        &self,
        request: &Request<'_>,
        from: Remote,
        claim: Claim,
    ) -> S3Result<Verdict> {
        let id = claim.access_key_id.clone();
        let found = self.admit.secret_of(&id).await;
        let found = found.map_err(|error| translate(error, Codes::bucket()))?;
        let verdict = self.decide(request, from, claim, found);
        self.held_back(from, &id, verdict).await
    }

    /// Counts wrong credentials, and delays the reply to them if there were many.
    async fn held_back(
        &self,
        from: Remote,
        id: &str,
        verdict: S3Result<Verdict>,
    ) -> S3Result<Verdict> {
        if let Err(error) = &verdict
            && matches!(
                error.code(),
                S3ErrorCode::InvalidAccessKeyId | S3ErrorCode::SignatureDoesNotMatch
            )
        {
            self.admit.failed(from.address, id).await;
        }
        verdict
    }

    /// Returns the claim, as [`Verifier::claim`], of a presigned URL of Signature Version 2.
    pub(super) fn claim_of_version_2(
        &self,
        request: &Request<'_>,
    ) -> S3Result<Option<sigv2::Claim>> {
        sigv2::Claim::parse(request, self.clock.now())
    }

    /// Returns the verdict, as [`Verifier::judge`], on a presigned URL of Signature Version 2.
    pub(super) async fn judge_version_2(
        &self,
        request: &Request<'_>,
        address: &Address,
        from: Remote,
        claim: sigv2::Claim,
    ) -> S3Result<Verdict> {
        let id = claim.access_key_id.clone();
        let found = self.admit.secret_of(&id).await;
        let found = found.map_err(|error| translate(error, Codes::bucket()))?;
        let verdict = decide_version_2(request, address, from, &claim, found);
        self.held_back(from, &id, verdict).await
    }

    fn decide(
        &self,
        request: &Request<'_>,
        from: Remote,
        claim: Claim,
        found: Option<(SecretKey, UserId)>,
    ) -> S3Result<Verdict> {
        let (secret, user) = found.ok_or_else(unknown_key)?;
        let key = self.keys.get(&claim.access_key_id, &secret, claim.at.day(), &claim.region);
        if !claim.holds(request, &key) {
            return Err(mismatch());
        }
        if has_session_token(request) {
            return Err(session_token());
        }
        let is_presigned = claim.is_presigned;
        let caller = admit::verified(user, &claim.access_key_id, from);
        let mode =
            if is_presigned { presigned_mode(request)? } else { signed_mode(request, claim, key)? };
        Ok(Verdict { caller, mode, is_presigned })
    }
}

fn decide_version_2(
    request: &Request<'_>,
    address: &Address,
    from: Remote,
    claim: &sigv2::Claim,
    found: Option<(SecretKey, UserId)>,
) -> S3Result<Verdict> {
    let (secret, user) = found.ok_or_else(unknown_key)?;
    if !claim.holds(request, address, &secret) {
        return Err(mismatch());
    }
    if has_session_token(request) {
        return Err(session_token());
    }
    let mode = presigned_mode(request)?;
    let caller = admit::verified(user, &claim.access_key_id, from);
    Ok(Verdict { caller, mode, is_presigned: true })
}

fn unknown_key() -> s3s::S3Error {
    let what = "the access key id you provided does not exist in our records";
    refuse(S3ErrorCode::InvalidAccessKeyId, what)
}

fn mismatch() -> s3s::S3Error {
    let what = "the request signature we calculated does not match the signature you provided; \
                check your key and signing method";
    refuse(S3ErrorCode::SignatureDoesNotMatch, what)
}

fn session_token() -> s3s::S3Error {
    let what = "this access key has no session token";
    refuse_with("InvalidToken", StatusCode::BAD_REQUEST, what)
}

fn has_session_token(request: &Request<'_>) -> bool {
    let in_query = request
        .query
        .pairs()
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("X-Amz-Security-Token"));
    in_query || request.headers.contains_key("x-amz-security-token")
}

fn presigned_mode(request: &Request<'_>) -> S3Result<Mode> {
    match payload_of(request)? {
        None => Ok(Mode::Plain),
        Some(word) if word.starts_with("STREAMING-") => {
            Err(not_implemented("a presigned URL cannot carry a streaming signature"))
        }
        Some(word) => mode(word, None),
    }
}

fn signed_mode(request: &Request<'_>, claim: Claim, key: SigningKey) -> S3Result<Mode> {
    let word = content_sha256(request.headers)?
        .ok_or_else(|| bad_request("missing required header: x-amz-content-sha256"))?;
    let signer = ChunkSigner { key, at: claim.at, previous: claim.signature };
    mode(word, Some(signer))
}

/// Returns the mode for a value of `x-amz-content-sha256`.
fn mode(word: &str, signer: Option<ChunkSigner>) -> S3Result<Mode> {
    let chunked =
        |signer, has_trailer| Mode::Chunked(Box::new(ChunkDecoder::new(signer, has_trailer)));
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match word {
        "UNSIGNED-PAYLOAD" => Ok(Mode::Plain),
        STREAMING_UNSIGNED_TRAILER => Ok(chunked(None, true)),
        STREAMING_SIGNED | STREAMING_SIGNED_TRAILER => match signer {
            Some(signer) => Ok(chunked(Some(signer), word == STREAMING_SIGNED_TRAILER)),
            None => Err(refuse(
                S3ErrorCode::AccessDenied,
                "the request has signed chunks, but is not signed itself",
            )),
        },
        _ if word.starts_with("STREAMING-AWS4-ECDSA") => {
            Err(not_implemented("only AWS4-HMAC-SHA256 is implemented"))
        }
        _ if word.len() == 64 && word.bytes().all(hex) => Ok(Mode::Hashed(word.to_owned())),
        _ => Err(invalid(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, STREAMING-UNSIGNED-PAYLOAD-TRAILER or a \
             valid sha256 value",
        )),
    }
}
