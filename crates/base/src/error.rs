//! One error type for the whole store. Its kinds are chosen by what the caller does next.

use std::{fmt, io};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of all crates. Its text says what failed, on which thing and, if there is one, the
/// remedy.
#[non_exhaustive]
#[derive(Debug)]
pub enum Error {
    /// The named thing does not exist.
    NotFound(String),
    /// The named thing exists already.
    Exists(String),
    /// The caller may not do this, or its right could not be established.
    Denied(String),
    /// Another caller changed the thing meanwhile: read again, then try again.
    Conflict(String),
    /// A condition of the request (If-Match, If-None-Match, ...) does not hold.
    PreconditionFailed(String),
    /// A conditional read: the caller's copy is current.
    NotModified(String),
    /// Cannot be done now; the same request may succeed later.
    Unavailable(String),
    /// There is no space, or a quota is used up. Reads and deletes still work.
    Full(String),
    /// The bucket or the store is read-only: changes are refused, and reads still work.
    ReadOnly(String),
    /// Stored bytes failed verification. Never returned as data, never folded into `Io`.
    Corrupt {
        what: String,
        got: String,
        expected: String,
    },
    /// The request itself makes no sense. Sending it again will not help.
    Invalid(String),
    /// A digest sent with the data does not match the data.
    BadDigest(String),
    /// A named limit is exceeded.
    TooLarge(String),
    /// The requested range lies outside of the object, which is `size` bytes long.
    RangeNotSatisfiable {
        size: u64,
    },
    /// A directory or bucket that must be empty is not.
    NotEmpty(String),
    IsDirectory(String),
    NotDirectory(String),
    /// Rename or link from one bucket into another.
    CrossBucket(String),
    /// The protocol has it, but this version of Cairn does not.
    NotImplemented(String),
    Io(io::Error),
}

impl Error {
    pub fn corrupt(
        what: impl Into<String>,
        got: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Error {
        Error::Corrupt { what: what.into(), got: got.to_string(), expected: expected.to_string() }
    }

    /// Returns the kind as one stable word, for metrics and JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::NotFound(_) => "not_found",
            Error::Exists(_) => "exists",
            Error::Denied(_) => "denied",
            Error::Conflict(_) => "conflict",
            Error::PreconditionFailed(_) => "precondition_failed",
            Error::NotModified(_) => "not_modified",
            Error::Unavailable(_) => "unavailable",
            Error::Full(_) => "full",
            Error::ReadOnly(_) => "read_only",
            Error::Corrupt { .. } => "corrupt",
            Error::Invalid(_) => "invalid",
            Error::BadDigest(_) => "bad_digest",
            Error::TooLarge(_) => "too_large",
            Error::RangeNotSatisfiable { .. } => "range_not_satisfiable",
            Error::NotEmpty(_) => "not_empty",
            Error::IsDirectory(_) => "is_directory",
            Error::NotDirectory(_) => "not_directory",
            Error::CrossBucket(_) => "cross_bucket",
            Error::NotImplemented(_) => "not_implemented",
            Error::Io(_) => "io",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound(what) => write!(f, "not found: {what}"),
            Error::Exists(what) => write!(f, "exists already: {what}"),
            Error::Denied(what) => write!(f, "denied: {what}"),
            Error::Conflict(what) => write!(f, "changed meanwhile, try again: {what}"),
            Error::PreconditionFailed(what) => write!(f, "precondition failed: {what}"),
            Error::NotModified(what) => write!(f, "not modified: {what}"),
            Error::Unavailable(what) => write!(f, "unavailable, try again later: {what}"),
            Error::Full(what) => write!(f, "no space: {what}"),
            Error::ReadOnly(what) => write!(f, "read-only: {what}"),
            Error::Corrupt { what, got, expected } => {
                write!(f, "corrupt: {what}: got {got}, expected {expected}")
            }
            Error::Invalid(what) => write!(f, "invalid: {what}"),
            Error::BadDigest(what) => write!(f, "digest does not match: {what}"),
            Error::TooLarge(what) => write!(f, "too large: {what}"),
            Error::RangeNotSatisfiable { size } => {
                write!(f, "range not satisfiable: the object has {size} bytes")
            }
            Error::NotEmpty(what) => write!(f, "not empty: {what}"),
            Error::IsDirectory(what) => write!(f, "is a directory: {what}"),
            Error::NotDirectory(what) => write!(f, "not a directory: {what}"),
            Error::CrossBucket(what) => write!(f, "crosses buckets: {what}"),
            Error::NotImplemented(what) => write!(f, "not implemented: {what}"),
            Error::Io(error) => write!(f, "input/output: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    /// Converts an error of the operating system: a full disk is `Full`, any other error `Io`.
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full(error.to_string())
            }
            _ => Error::Io(error),
        }
    }
}
