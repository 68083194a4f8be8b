//! Every byte on the disk: pure functions between bytes and values. docs/format-blocks.md has the
//! tables.
//!
//! No byte is trusted here: every length is checked against a limit before it is used.

pub(crate) mod frames;
pub(crate) mod hint;
pub(crate) mod record;
pub(crate) mod segment;

use cairn_base::{BlockId, GroupId};

/// Records begin at multiples of this, bytes. It is the smallest sector of any disk, so a torn
/// write spoils whole units. Few blocks are below 16 KiB, so little is lost to padding.
pub(crate) const ALIGN: u64 = 512;

/// The name of a block on this disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Key {
    pub group: GroupId,
    pub block: BlockId,
}

/// Splits off the first `N` bytes.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*first)
}

pub(crate) fn take_u8(rest: &mut &[u8]) -> Option<u8> {
    take::<1>(rest).map(u8::from_le_bytes)
}

pub(crate) fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    take(rest).map(u16::from_le_bytes)
}

pub(crate) fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

pub(crate) fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

/// Splits off a trailing crc32c and compares it with that of the bytes before. Returns these, or
/// `None` if it differs.
pub(crate) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    (cairn_base::checksum::crc32c(body) == u32::from_le_bytes(*crc)).then_some(body)
}

/// Appends the crc32c of everything in `out`.
pub(crate) fn seal(out: &mut Vec<u8>) {
    let crc = cairn_base::checksum::crc32c(out);
    out.extend_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod fuzz;
