//! Digests of all rows of a member, as of one entry: members whose digests differ have different
//! rows, though each row and each page may check out.
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use cairn_base::Result;
use cairn_base::checksum::crc32c;

use super::entry::EntryId;
use super::outgoing::Outgoing;

/// Makes a sum depend on the order of its rows: an odd number with bits in all places.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The digest of all rows whose keys begin with one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableDigest {
    /// Count of rows.
    pub rows: u64,
    /// Sum of the checksums of keys and rows.
    pub sum: u64,
}

/// The digests of all rows as of `entry`, by the first byte of the keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowDigests {
    pub entry: EntryId,
    pub tables: BTreeMap<u8, TableDigest>,
}

impl TableDigest {
    fn add(&mut self, key: &[u8], row: &[u8]) {
        let pair = u64::from(crc32c(key)) << 32 | u64::from(crc32c(row));
        self.sum = self.sum.wrapping_mul(FACTOR).wrapping_add(pair);
        self.rows += 1;
    }
}

impl RowDigests {
    /// Reads all rows of a snapshot, and calls `each` after each page with the bytes of its rows.
    ///
    /// # Errors
    /// Those of the rows and of `each`.
    pub fn of(mut rows: Outgoing, mut each: impl FnMut(usize) -> Result<()>) -> Result<RowDigests> {
        let mut tables: BTreeMap<u8, TableDigest> = BTreeMap::new();
        while let Some(page) = rows.page()? {
            for (key, row) in &page {
                let table = key.first().copied().unwrap_or_default();
                tables.entry(table).or_default().add(key, row);
            }
            each(page.iter().map(|(key, row)| key.len() + row.len()).sum())?;
        }
        Ok(RowDigests { entry: rows.taken.applied, tables })
    }

    /// Returns the first bytes of the keys whose rows differ from those of `other`, in their order.
    pub fn differing(&self, other: &RowDigests) -> Vec<u8> {
        let differs = |table: &u8| self.tables.get(table) != other.tables.get(table);
        let mut tables: Vec<u8> =
            self.tables.keys().chain(other.tables.keys()).copied().filter(differs).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}
