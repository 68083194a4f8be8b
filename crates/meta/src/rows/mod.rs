//! The values of the metadata. Every row starts with a format byte, then tagged fields; fields of
//! a newer version are kept. `docs/format.md` has the tables.

mod acl;
mod attributes;
mod bucket;
mod cluster;
mod credentials;
mod directory;
mod extents;
mod inode;
mod locks;
mod upload;

pub use acl::{Acl, Named};
pub use attributes::{
    Algorithm, Checksum, ChecksumKind, ObjectAttributes, decode_pairs, encode_pairs,
};
pub use bucket::{Bucket, BucketKind, Usage};
pub use cluster::Grant;
pub use credentials::{AccessKey, Token, User};
pub use directory::{Drain, Entry, Freed, Session, SessionState, Slot, Tally};
pub use extents::{Extent, Extents, Place};
pub use inode::{Content, Inode, Kind};
pub use locks::{Lock, Locks, Space};
pub use upload::{Part, Upload};

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{Error, Result};

/// The format byte of all rows of this version.
pub const FORMAT: u8 = 1;

/// A value that can be stored as a row.
pub trait Row: Sized {
    fn encode(&self) -> Bytes;

    /// `Corrupt` for anything that [`Row::encode`] or a newer version did not make.
    fn decode(row: &Bytes) -> Result<Self>;
}

/// A counter kept as a row.
pub fn encode_number(value: u64) -> Bytes {
    let mut writer = Writer::new(FORMAT);
    writer.number(1, value);
    writer.finish()
}

pub fn decode_number(row: &Bytes) -> Result<u64> {
    let mut fields = Fields::open(row, FORMAT)?;
    match fields.next_field()? {
        Some(field) if field.tag == 1 => field.number(),
        Some(field) => Err(unexpected("counter", field.tag)),
        None => Ok(0),
    }
}

fn unexpected(what: &str, got: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("metadata row of a {what}"), got, "a known value")
}

/// Exactly `N` bytes of a field.
fn array<const N: usize>(what: &str, bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| unexpected(what, format!("{} bytes", bytes.len())))
}

fn narrow<T: TryFrom<u64>>(what: &str, number: u64) -> Result<T> {
    T::try_from(number).map_err(|_| unexpected(what, number))
}

/// Signed numbers as unsigned ones that stay short near 0 (zigzag).
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
