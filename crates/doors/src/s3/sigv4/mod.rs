//! AWS Signature Version 4: the claim of a request, and its verification.
//!
//! ```text
//!   headers, query ──► Claim::parse ──► secret of the access key ──► Claim::holds ──► Caller
//!                        (scope, dates, what must be signed)            (HMAC, constant time)
//! ```
//!
//! Only the algorithm `AWS4-HMAC-SHA256` exists here. A request that carries any other sort of
//! credentials, or two sorts at once, is refused and never treated as anonymous.

mod canonical;
mod claim;
mod date;
mod key;
mod parse;
mod query_signature;
mod request;

pub(crate) use canonical::{canonical, encode_into};
pub(crate) use claim::{Claim, content_sha256};
pub(crate) use date::SignedAt;
pub(crate) use key::{KeyCache, SigningKey, hex, hex_sha256, same};
pub(crate) use query_signature::{is_parameter, payload_of, strip};
pub(crate) use request::Request;

/// The only algorithm.
pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Word in place of the hash of a payload that is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Seconds by which a client's clock may be off.
pub(crate) const SKEW_SECS: i64 = 15 * 60;
/// Longest lifetime of a presigned URL, seconds: 7 days.
pub(crate) const PRESIGNED_SECS_MAX: i64 = 7 * 24 * 3600;
