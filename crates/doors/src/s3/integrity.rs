//! A client's digests of its bytes: `Content-MD5`, `x-amz-checksum-…` in a header or a trailer.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use bytes::Bytes;
use cairn_fs::rows::{Algorithm, Checksum};
use cairn_fs::{Digester, Digests};
use http::{HeaderMap, StatusCode};
use s3s::{S3ErrorCode, S3Result};

use super::checksums;
use super::error::{bad_request, refuse, refuse_with};
use super::headers::text;
use super::payload::Payload;

/// Base64 whose last digit may have bits that belong to no byte.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// The digests that the bytes are checked against.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Integrity {
    md5: Option<[u8; 16]>,
    /// A checksum whose value, if `None`, follows in the trailer.
    checksum: Option<(Algorithm, Option<Bytes>)>,
}

impl Integrity {
    /// Reads the digests of a request whose checksum headers are not about its body.
    pub(super) fn only_md5(headers: &HeaderMap) -> S3Result<Integrity> {
        let md5 = text(headers, "content-md5")?.map(parse_md5).transpose()?;
        Ok(Integrity { md5, checksum: None })
    }

    /// Reads the digests for the bytes of an object or part. `x-amz-checksum-algorithm` also asks
    /// for a checksum: it is computed if none was sent, and must be the algorithm of a checksum
    /// that was.
    pub(super) fn of_object(headers: &HeaderMap) -> S3Result<(Integrity, Option<Algorithm>)> {
        let integrity = Integrity::parse(headers)?;
        let wanted = text(headers, "x-amz-checksum-algorithm")?;
        let wanted = wanted.map(checksums::algorithm).transpose()?;
        if let (Some(wanted), Some(sent)) = (wanted, integrity.algorithm())
            && wanted != sent
        {
            return Err(bad_request(format!(
                "x-amz-checksum-algorithm is {}, but the checksum that was sent is {}",
                checksums::word(wanted),
                checksums::word(sent)
            )));
        }
        match text(headers, "x-amz-checksum-type")? {
            None | Some("FULL_OBJECT") => Ok((integrity, wanted)),
            Some(_) => Err(bad_request(
                "x-amz-checksum-type: use FULL_OBJECT for an object that is uploaded in one \
                    request",
            )),
        }
    }

    pub(super) fn parse(headers: &HeaderMap) -> S3Result<Integrity> {
        let md5 = text(headers, "content-md5")?.map(parse_md5).transpose()?;
        let in_header = in_header(headers)?;
        let in_trailer = in_trailer(headers)?;
        let checksum = match (in_header, in_trailer) {
            (Some(_), Some(_)) => {
                return Err(bad_request("expecting a single x-amz-checksum- header or trailer"));
            }
            (Some((algorithm, value)), None) => Some((algorithm, Some(value))),
            (None, trailer) => trailer.map(|algorithm| (algorithm, None)),
        };
        if let Some(word) = text(headers, "x-amz-sdk-checksum-algorithm")? {
            let announced = checksums::algorithm(word)?;
            if checksum.as_ref().is_none_or(|(algorithm, _)| *algorithm != announced) {
                return Err(bad_request(
                    "x-amz-sdk-checksum-algorithm specified, but no corresponding \
                     x-amz-checksum-* or x-amz-trailer headers were found",
                ));
            }
        }
        Ok(Integrity { md5, checksum })
    }

    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        self.checksum.as_ref().map(|(algorithm, _)| *algorithm)
    }

    /// Returns a digester for all digests that are needed.
    pub(super) fn digester(&self, further: Option<Algorithm>) -> Digester {
        let algorithms: Vec<Algorithm> = self.algorithm().into_iter().chain(further).collect();
        Digester::new(true, &algorithms)
    }

    /// Compares. Returns the checksums to keep.
    pub(super) fn verify(self, payload: &Payload, digests: &Digests) -> S3Result<Vec<Checksum>> {
        self.verify_trailers(payload.trailers())?;
        if self.md5.is_some_and(|md5| digests.md5 != Some(md5)) {
            let what = "the Content-MD5 you specified did not match what we received";
            return Err(refuse(S3ErrorCode::BadDigest, what));
        }
        if let Some((algorithm, value)) = self.checksum {
            let expected = match (value, payload.trailers().first()) {
                (Some(value), _) => value,
                (None, Some((_, text))) => checksums::decode(algorithm, text)?,
                (None, None) => {
                    return Err(bad_trailer("the trailer that x-amz-trailer announces is missing"));
                }
            };
            let found = digests.checksums.iter().find(|sum| sum.algorithm == algorithm);
            if found.is_none_or(|sum| sum.value != expected) {
                let word = checksums::word(algorithm);
                let what = format!("the {word} you specified did not match what we received");
                return Err(refuse(S3ErrorCode::BadDigest, what));
            }
        }
        Ok(digests.checksums.clone())
    }

    fn verify_trailers(&self, trailers: &[(String, String)]) -> S3Result<()> {
        let announced = match &self.checksum {
            Some((algorithm, None)) => Some(checksums::header(*algorithm)),
            _ => None,
        };
        match trailers {
            [] => Ok(()),
            [(name, _)] if Some(name.as_str()) == announced => Ok(()),
            _ => Err(bad_trailer("a trailer was sent that x-amz-trailer does not announce")),
        }
    }
}

fn bad_trailer(what: &'static str) -> s3s::S3Error {
    refuse_with("MalformedTrailerError", StatusCode::BAD_REQUEST, what)
}

fn parse_md5(text: &str) -> S3Result<[u8; 16]> {
    // Bits behind the digest decide nothing: it is compared.
    let bytes = LENIENT.decode(text.trim()).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
        refuse(S3ErrorCode::InvalidDigest, "the Content-MD5 you specified is not valid")
    })
}

fn in_header(headers: &HeaderMap) -> S3Result<Option<(Algorithm, Bytes)>> {
    let mut found = None;
    for algorithm in Algorithm::ALL {
        if let Some(value) = text(headers, checksums::header(algorithm))? {
            let value = checksums::decode(algorithm, value)?;
            if found.replace((algorithm, value)).is_some() {
                return Err(bad_request("expecting a single x-amz-checksum- header"));
            }
        }
    }
    Ok(found)
}

/// Returns the checksum that `x-amz-trailer` announces.
fn in_trailer(headers: &HeaderMap) -> S3Result<Option<Algorithm>> {
    let Some(names) = text(headers, "x-amz-trailer")? else { return Ok(None) };
    match checksums::of_header(names.trim()) {
        Some(algorithm) => Ok(Some(algorithm)),
        None => {
            Err(bad_request("the value specified in the x-amz-trailer header is not supported"))
        }
    }
}
