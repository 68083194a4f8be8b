//! Errors on their way from one node to another.

use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Error;

/// An error as it is sent. The order of the kinds is part of the protocol: new ones go to the end.
#[derive(Serialize, Deserialize)]
enum Sent {
    NotFound(String),
    Exists(String),
    Denied(String),
    Conflict(String),
    PreconditionFailed(String),
    NotModified(String),
    Unavailable(String),
    Full(String),
    Corrupt { what: String, got: String, expected: String },
    Invalid(String),
    BadDigest(String),
    TooLarge(String),
    RangeNotSatisfiable { size: u64 },
    NotEmpty(String),
    IsDirectory(String),
    NotDirectory(String),
    CrossBucket(String),
    NotImplemented(String),
    Io(String),
}

macro_rules! same {
    ($error:expr, $from:ident, $to:ident, $($kind:ident),*; $io:expr) => {
        match $error {
            $($from::$kind(text) => $to::$kind(text.clone()),)*
            $from::Corrupt { what, got, expected } => $to::Corrupt {
                what: what.clone(),
                got: got.clone(),
                expected: expected.clone(),
            },
            $from::RangeNotSatisfiable { size } => $to::RangeNotSatisfiable { size: *size },
            $from::Io(error) => $to::Io($io(error)),
        }
    };
}

macro_rules! convert {
    ($error:expr, $from:ident => $to:ident, $io:expr) => {
        same!($error, $from, $to, NotFound, Exists, Denied, Conflict, PreconditionFailed,
            NotModified, Unavailable, Full, Invalid, BadDigest, TooLarge, NotEmpty, IsDirectory,
            NotDirectory, CrossBucket, NotImplemented; $io)
    };
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        convert!(self, Error => Sent, |error: &io::Error| error.to_string()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Error, D::Error> {
        let sent = Sent::deserialize(deserializer)?;
        Ok(convert!(&sent, Sent => Error, |text: &String| io::Error::other(text.clone())))
    }
}
