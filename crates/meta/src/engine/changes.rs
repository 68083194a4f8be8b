//! Changed rows as bytes: each `key length u16, value length u32, key, value`. A value length of
//! 2^32-1 means deleted, and no value follows. Nothing here panics or allocates more than its
//! input, on any bytes.
#![deny(clippy::indexing_slicing)]

use bytes::Bytes;
use cairn_base::Result;

use super::Change;
use super::ring::header::too_large;
use crate::rest::Rest;

/// Value length that marks a deleted row.
const DELETED: u32 = u32::MAX;
/// Fewest bytes of an encoded row.
const ROW_BYTES: usize = 6;

/// Returns the number of bytes that [`encode`] makes of `changes`.
pub fn encoded_bytes(changes: &[Change]) -> usize {
    let row = |(key, value): &Change| ROW_BYTES + key.len() + value.as_ref().map_or(0, Bytes::len);
    changes.iter().map(row).sum()
}

/// Appends `changes` to `out`.
///
/// # Errors
/// `TooLarge` for a key or a value whose length does not fit its field.
pub fn encode(changes: &[Change], out: &mut Vec<u8>) -> Result<()> {
    for (key, value) in changes {
        let key_len = u16::try_from(key.len()).map_err(|_| too_large("a key", key.len()))?;
        out.extend_from_slice(&key_len.to_le_bytes());
        let value_len = match value {
            None => DELETED,
            Some(value) => match u32::try_from(value.len()) {
                Ok(len) if len != DELETED => len,
                _ => return Err(too_large("a value", value.len())),
            },
        };
        out.extend_from_slice(&value_len.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    Ok(())
}

/// Parses the `count` rows in `body`, which share its memory.
///
/// # Errors
/// A text that describes what `body` holds in place of exactly `count` well-formed rows.
pub fn parse(count: u32, body: &Bytes) -> Result<Vec<Change>, &'static str> {
    // A false count cannot make this large.
    let mut changes = Vec::with_capacity((count as usize).min(body.len() / ROW_BYTES));
    let mut rest = body.clone();
    for _ in 0..count {
        changes.push(take_row(&mut rest).ok_or("a row that is cut short")?);
    }
    if rest.is_empty() { Ok(changes) } else { Err("bytes after the last row") }
}

fn take_row(rest: &mut Bytes) -> Option<Change> {
    let mut fields = Rest(rest);
    let key_len = usize::from(u16::from_le_bytes(fields.take()?));
    let value_len = fields.u32()?;
    let _ = rest.split_to(ROW_BYTES);
    let key = take(rest, key_len)?;
    if value_len == DELETED {
        return Some((key, None));
    }
    let value = take(rest, usize::try_from(value_len).ok()?)?;
    Some((key, Some(value)))
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}
