//! Rows of the metadata in a backup: lists of rows, whose ends depend on their keys. So a change of
//! a few rows changes a few lists.

use bytes::Bytes;
use cairn_base::checksum::crc32c;
use cairn_base::{BlockId, GroupId, Owner};
use cairn_meta::keys;
use cairn_meta::rows::{Extents, Place, Row};

use crate::failure::{Failure, Result};

/// Mask of the checksum of a row's key: a list ends behind a row for which these bits are 0, one in
/// 512.
const ENDS: u32 = 0x1ff;
/// Longest list, unless a single row is longer, bytes.
const LIST_BYTES: usize = 4 << 20;

/// Cuts rows into lists.
#[derive(Default)]
pub struct Cutter {
    list: Vec<u8>,
}

impl Cutter {
    /// Adds a row; returns the lists that end before and behind it.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<[Option<Vec<u8>>; 2]> {
        let too_long = |_| Failure::new(format!("a row of {} bytes", key.len() + value.len()));
        let (key_len, value_len) = (
            u16::try_from(key.len()).map_err(too_long)?,
            u32::try_from(value.len()).map_err(too_long)?,
        );
        let before = if self.list.len() + 6 + key.len() + value.len() > LIST_BYTES {
            self.finish()
        } else {
            None
        };
        self.list.extend_from_slice(&key_len.to_le_bytes());
        self.list.extend_from_slice(&value_len.to_le_bytes());
        self.list.extend_from_slice(key);
        self.list.extend_from_slice(value);
        let behind = if crc32c(key) & ENDS == 0 { self.finish() } else { None };
        Ok([before, behind])
    }

    pub fn finish(&mut self) -> Option<Vec<u8>> {
        (!self.list.is_empty()).then(|| std::mem::take(&mut self.list))
    }
}

/// Returns the rows of a list; `None` for malformed bytes.
pub fn of_list(list: Vec<u8>) -> Option<Vec<(Bytes, Bytes)>> {
    let mut list = Bytes::from(list);
    let mut rows = Vec::new();
    while !list.is_empty() {
        let key_len = usize::from(u16::from_le_bytes(list.get(..2)?.try_into().ok()?));
        let value_len = u32::from_le_bytes(list.get(2..6)?.try_into().ok()?) as usize;
        let _ = list.split_to(6);
        if list.len() < key_len.checked_add(value_len)? {
            return None;
        }
        let key = list.split_to(key_len);
        rows.push((key, list.split_to(value_len)));
    }
    Some(rows)
}

/// A block that a row names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferencedBlock {
    pub group: GroupId,
    pub block: BlockId,
    /// Number of its named bytes, from the first one on.
    pub length: u32,
    pub owner: Owner,
}

/// Returns the blocks that a row of extents names; none for any other row.
pub fn blocks_of(key: &[u8], value: &Bytes) -> Result<Vec<ReferencedBlock>> {
    if !keys::is_of_extents(key) {
        return Ok(Vec::new());
    }
    let bad = || Failure::new("a row of extents has a key that makes no sense: run cairn fsck");
    let body = keys::extents_body(key).ok_or_else(bad)?;
    let owner = Owner { body, chunk: keys::extents_chunk(key).ok_or_else(bad)? };
    let mut named: Vec<ReferencedBlock> = Vec::new();
    for extent in Extents::decode(value)?.extents {
        let Place::Block { group, block, offset } = extent.place else { continue };
        let length = u32::try_from(u64::from(offset) + extent.len).map_err(|_| bad())?;
        match named.iter_mut().find(|other| other.block == block) {
            Some(other) => other.length = other.length.max(length),
            None => named.push(ReferencedBlock { group, block, length, owner }),
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn lists(rows: impl Iterator<Item = (u32, u32)>) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::default();
        let mut lists = Vec::new();
        for (key, value) in rows {
            let ended = cutter.row(&key.to_be_bytes(), &value.to_be_bytes()).unwrap();
            lists.extend(ended.into_iter().flatten());
        }
        lists.extend(cutter.finish());
        lists
    }

    #[test]
    fn a_change_of_a_few_rows_changes_a_few_lists() {
        let before = lists((0..100_000).map(|key| (key, 1)));
        let of = |row: &u32| *row != 500;
        let after =
            lists((0..100_000).filter(of).map(|key| (key, if key == 70_000 { 2 } else { 1 })));
        assert!(before.len() > 100, "{}", before.len());
        let known: HashSet<&Vec<u8>> = before.iter().collect();
        let new = after.iter().filter(|list| !known.contains(list)).count();
        assert!((1..=2).contains(&new), "{new}");
        let rows: usize = before.into_iter().map(|list| of_list(list).expect("a list").len()).sum();
        assert_eq!(rows, 100_000);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let whole = lists((0..3).map(|key| (key, 1))).remove(0);
        for cut in 1..whole.len() {
            let rows = of_list(whole[..cut].to_vec());
            assert!(rows.is_none_or(|rows| rows.len() < 3), "{cut}");
        }
        assert!(of_list(vec![0xff; 9]).is_none());
    }
}
