//! Checksums in the form of S3.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cairn_fs::rows::{Algorithm, Checksum, ChecksumKind};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use s3s::S3Result;
use s3s::dto::{ChecksumAlgorithm, ChecksumType};

use super::error::bad_request;

/// Returns the name in XML and in `x-amz-checksum-algorithm`.
pub(super) fn word(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Crc32 => "CRC32",
        Algorithm::Crc32c => "CRC32C",
        Algorithm::Crc64Nvme => "CRC64NVME",
        Algorithm::Sha1 => "SHA1",
        Algorithm::Sha256 => "SHA256",
        Algorithm::Sha512 => "SHA512",
        Algorithm::Md5 => "MD5",
        Algorithm::XxHash64 => "XXHASH64",
        Algorithm::XxHash3 => "XXHASH3",
        Algorithm::XxHash128 => "XXHASH128",
    }
}

/// Returns the name of the header for a checksum.
pub(super) fn header(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Crc32 => "x-amz-checksum-crc32",
        Algorithm::Crc32c => "x-amz-checksum-crc32c",
        Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
        Algorithm::Sha1 => "x-amz-checksum-sha1",
        Algorithm::Sha256 => "x-amz-checksum-sha256",
        Algorithm::Sha512 => "x-amz-checksum-sha512",
        Algorithm::Md5 => "x-amz-checksum-md5",
        Algorithm::XxHash64 => "x-amz-checksum-xxhash64",
        Algorithm::XxHash3 => "x-amz-checksum-xxhash3",
        Algorithm::XxHash128 => "x-amz-checksum-xxhash128",
    }
}

pub(super) fn algorithm(text: &str) -> S3Result<Algorithm> {
    let found = Algorithm::ALL.into_iter().find(|one| word(*one).eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        let known = Algorithm::ALL.map(word).join(", ");
        bad_request(format!("checksum algorithm {text:?}: use one of {known}"))
    })
}

/// Returns the algorithm of a header or trailer `x-amz-checksum-…`.
pub(super) fn of_header(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|one| header(*one).eq_ignore_ascii_case(name))
}

/// Decodes a checksum from base64.
pub(super) fn decode(algorithm: Algorithm, text: &str) -> S3Result<Bytes> {
    match BASE64.decode(text.trim()) {
        Ok(value) if value.len() == algorithm.checksum_bytes() => Ok(value.into()),
        _ => Err(bad_request(format!("the value of {} is invalid", header(algorithm)))),
    }
}

/// Encodes a checksum in base64. A composite checksum also has the number of parts, if that is
/// known.
pub(super) fn encode(checksum: &Checksum, part_count: u32) -> String {
    let value = BASE64.encode(&checksum.value);
    match checksum.kind {
        ChecksumKind::Composite if part_count > 0 => format!("{value}-{part_count}"),
        _ => value,
    }
}

pub(super) fn kind_word(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::FullObject => ChecksumType::FULL_OBJECT,
        ChecksumKind::Composite => ChecksumType::COMPOSITE,
    }
}

pub(super) fn to_type(kind: ChecksumKind) -> ChecksumType {
    ChecksumType::from_static(kind_word(kind))
}

pub(super) fn to_algorithm(algorithm: Algorithm) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(word(algorithm))
}

/// Returns the name of the element with a checksum.
pub(super) fn element(algorithm: Algorithm) -> String {
    format!("Checksum{}", word(algorithm))
}

/// Returns the algorithm of an element `Checksum…`.
pub(super) fn of_element(name: &[u8]) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|one| element(*one).as_bytes() == name)
}

/// Writes them into the headers of a reply.
pub(super) fn write(checksums: &[Checksum], part_count: u32, headers: &mut HeaderMap) {
    for checksum in checksums {
        let name = HeaderName::from_static(header(checksum.algorithm));
        if let Ok(value) = HeaderValue::try_from(encode(checksum, part_count)) {
            headers.insert(name, value);
        }
    }
}

/// Writes the header with the kind of the checksums.
pub(super) fn write_kind(checksums: &[Checksum], headers: &mut HeaderMap) {
    if let Some(checksum) = checksums.first() {
        let kind = HeaderValue::from_static(kind_word(checksum.kind));
        headers.insert("x-amz-checksum-type", kind);
    }
}

/// Returns the kind of an object's checksums, if it has any.
pub(super) fn type_of(checksums: &[Checksum]) -> Option<ChecksumType> {
    checksums.first().map(|checksum| to_type(checksum.kind))
}
