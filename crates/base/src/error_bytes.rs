//! Encodes an error, so that it crosses a connection and is the same kind on the other side. The
//! numbers are part of the protocol: none is ever reused for another kind.

use std::io;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{Fields, Writer};
use crate::{Error, Result};

const FORMAT: u8 = 1;

const KIND: u32 = 1;
const TEXT: u32 = 2;
const GOT: u32 = 3;
const EXPECTED: u32 = 4;
const SIZE: u32 = 5;
const IO_KIND: u32 = 6;

/// Kinds of input/output errors that are preserved; all others become `Other`.
const IO_KINDS: [(u64, io::ErrorKind); 10] = [
    (1, io::ErrorKind::NotFound),
    (2, io::ErrorKind::PermissionDenied),
    (3, io::ErrorKind::TimedOut),
    (4, io::ErrorKind::UnexpectedEof),
    (5, io::ErrorKind::InvalidData),
    (6, io::ErrorKind::InvalidInput),
    (7, io::ErrorKind::ConnectionReset),
    (8, io::ErrorKind::BrokenPipe),
    (9, io::ErrorKind::ReadOnlyFilesystem),
    (10, io::ErrorKind::AlreadyExists),
];

impl Error {
    /// Encodes the error as a row of fields: the kind's number, its text, and its other values.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Writer::new(FORMAT);
        let (kind, text) = number_and_text(self);
        out.number(KIND, kind);
        match self {
            Error::Corrupt { what, got, expected } => {
                out.text(TEXT, what).text(GOT, got).text(EXPECTED, expected);
            }
            Error::RangeNotSatisfiable { size } => {
                out.number(SIZE, *size);
            }
            Error::Io(error) => {
                let known = IO_KINDS.iter().find(|(_, kind)| *kind == error.kind());
                out.text(TEXT, &error.to_string()).number(IO_KIND, known.map_or(0, |k| k.0));
            }
            _ => {
                out.text(TEXT, text);
            }
        }
        out.finish()
    }

    /// Copies the error for another receiver. It cannot be `Clone`, because an `io::Error` is not.
    pub fn copy(&self) -> Error {
        Error::from_bytes(&self.to_bytes()).unwrap_or_else(|error| error)
    }

    /// Decodes the result of [`Error::to_bytes`]. A kind of a newer version becomes
    /// `NotImplemented`, with its text.
    ///
    /// # Errors
    /// `Corrupt` if these bytes are no error.
    pub fn from_bytes(bytes: &Bytes) -> Result<Error> {
        let mut fields = Fields::open(bytes, FORMAT)?;
        let (mut kind, mut size, mut io_kind) = (0, 0, 0);
        let [mut text, mut got, mut expected] = [const { String::new() }; 3];
        while let Some(field) = fields.next_field()? {
            match field.tag {
                KIND => kind = field.number()?,
                TEXT => text = field.text()?,
                GOT => got = field.text()?,
                EXPECTED => expected = field.text()?,
                SIZE => size = field.number()?,
                IO_KIND => io_kind = field.number()?,
                _ => {}
            }
        }
        Ok(match kind {
            CORRUPT => Error::Corrupt { what: text, got, expected },
            RANGE => Error::RangeNotSatisfiable { size },
            IO => {
                let known = IO_KINDS.iter().find(|(number, _)| *number == io_kind);
                Error::Io(io::Error::new(known.map_or(io::ErrorKind::Other, |k| k.1), text))
            }
            _ => with_text(kind, text),
        })
    }
}

/// The encoded error, under a name that no other form of these bytes has.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Error")]
struct EncodedError(Bytes);

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EncodedError(self.to_bytes()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Error, D::Error> {
        let EncodedError(bytes) = EncodedError::deserialize(deserializer)?;
        Error::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

const CORRUPT: u64 = 9;
const RANGE: u64 = 13;
const IO: u64 = 19;

/// The kinds that are nothing but a text, each with its number. The match made of them has no
/// wildcard: a new kind does not compile until it has a number here, or in that match.
macro_rules! kinds_of_text {
    ($($number:literal $kind:ident,)*) => {
        /// The number of each kind and, where a text is all it has, that.
        fn number_and_text(error: &Error) -> (u64, &str) {
            match error {
                $(Error::$kind(text) => ($number, text),)*
                Error::Corrupt { .. } => (CORRUPT, ""),
                Error::RangeNotSatisfiable { .. } => (RANGE, ""),
                Error::Io(_) => (IO, ""),
            }
        }

        fn with_text(kind: u64, text: String) -> Error {
            match kind {
                $($number => Error::$kind(text),)*
                _ => Error::NotImplemented(format!("error {kind} of a newer version: {text}")),
            }
        }

        #[cfg(test)]
        fn each_with_text(text: &str) -> Vec<Error> {
            vec![$(Error::$kind(text.to_owned()),)*]
        }
    };
}

kinds_of_text! {
    1 NotFound,
    2 Exists,
    3 Denied,
    4 Conflict,
    5 PreconditionFailed,
    6 NotModified,
    7 Unavailable,
    8 Full,
    10 Invalid,
    11 BadDigest,
    12 TooLarge,
    14 NotEmpty,
    15 IsDirectory,
    16 NotDirectory,
    17 CrossBucket,
    18 NotImplemented,
    20 ReadOnly,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Error> {
        let text = "größer als /x";
        let mut all = each_with_text(text);
        all.push(Error::corrupt(text, "got", "expected"));
        all.push(Error::RangeNotSatisfiable { size: u64::MAX });
        all.extend(IO_KINDS.map(|(_, kind)| Error::Io(io::Error::new(kind, text))));
        all.push(Error::Io(io::Error::other(text)));
        all
    }

    #[test]
    fn every_kind_is_the_same_on_the_other_side() {
        let mut numbers = std::collections::BTreeSet::new();
        for error in one_of_each() {
            numbers.insert(number_and_text(&error).0);
            let read = Error::from_bytes(&error.to_bytes()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{error:?}"));
            assert_eq!(read.kind(), error.kind());
        }
        assert_eq!(numbers, (1..=20).collect(), "each kind has a number of its own");
    }

    #[test]
    fn an_empty_text_stays_empty() {
        let read = Error::from_bytes(&Error::Denied(String::new()).to_bytes()).unwrap();
        assert!(matches!(read, Error::Denied(text) if text.is_empty()));
    }

    #[test]
    fn a_newer_kind_keeps_its_text() {
        let mut newer = Writer::new(FORMAT);
        newer.number(KIND, 4000).text(TEXT, "flux").text(77, "more");
        let read = Error::from_bytes(&newer.finish()).unwrap();
        assert!(matches!(read, Error::NotImplemented(text) if text.contains("flux")));
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_text() {
        let whole = Error::corrupt("a", "b", "c").to_bytes();
        for end in 0..whole.len() {
            let _ = Error::from_bytes(&whole.slice(..end));
        }
        assert!(Error::from_bytes(&Bytes::new()).is_err());
        assert!(Error::from_bytes(&Bytes::from_static(b"\x02")).is_err());
    }
}
