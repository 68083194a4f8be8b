//! Adoption: the rows of one server become those of a cluster, and are compared one by one.
//!
//! They stay the same rows, since the blocks that they name stay where they are. A cluster has two
//! more: its map, and a hold that keeps all blocks that the rows of the server name.

use std::io::Read;
use std::iter::Peekable;

use bytes::Bytes;
use cairn_base::{CapabilitySet, ClusterMap, Error, Result};

use super::load::{commit_rows, counted_anew};
use super::{CLUSTER, END, FIRST, Summary};
use crate::engine::{Engine, Snapshot, SoleWriter};
use crate::keys;
use crate::rows::{Counter, Hold, Row, StoreIdentity};

/// Id of the hold that keeps what the rows of the server name.
pub const ADOPTION_HOLD: u64 = 0xAD09_7000_0000_0001;
/// Number of rows read at a time.
const PAGE: usize = 500;
/// Distances of the next numbers of batches, inodes, users and exports after an adoption was
/// undone: a cluster is not expected to give more meanwhile.
const BATCHES: u64 = 1 << 32;
const INODES: u64 = 1 << 32;
const USERS: u64 = 1 << 20;
const EXPORTS: u64 = 1 << 20;

/// Returns the owner of the hold of an adoption of the store with this number. It tells the holds
/// of two clusters apart.
pub fn adoption_holder(store: u64) -> String {
    format!("cairn cluster adopt of store {store:016x}, until cairn cluster finalize")
}

/// The rows that a cluster has beside those of the server.
pub struct ClusterRows {
    pub map: ClusterMap,
    pub hold: Hold,
}

/// A row that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowDifference {
    pub key: Bytes,
    pub fault: RowFault,
}

/// The kind of a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowFault {
    /// The server has the row, and the cluster has not.
    Absent,
    /// The cluster has the row, and the server has not.
    Stray,
    /// Both have the row, with different values.
    Altered,
}

impl ClusterRows {
    /// Commits all rows of a dump of the server, and those of the cluster with the last of them: an
    /// interrupted adoption is no store. Calls `progress` with the number of rows so far.
    ///
    /// # Errors
    /// `Invalid` if the dump is that of a cluster; those of [`super::load`].
    pub fn adopt(
        &self,
        engine: &dyn Engine,
        input: &mut dyn Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let added = self.rows().map(|(key, row)| (key, Some(row))).to_vec();
        commit_rows(engine, input, &adopted, added, progress)
    }

    fn rows(&self) -> [(Bytes, Bytes); 2] {
        let hold = (keys::hold(ADOPTION_HOLD), self.hold.encode());
        [hold, (keys::map(), self.map.encode())]
    }
}

/// Converts a row of the server. Sessions are not marked as those of a dump: the rows are as new as
/// the blocks.
fn adopted(key: &[u8], row: Bytes) -> Result<Bytes> {
    if *key == *keys::map() {
        return Err(Error::Invalid("these are the metadata of a cluster already".into()));
    }
    if *key == *keys::config(CLUSTER) {
        // A cluster has them in its map.
        let capabilities = CapabilitySet::NONE;
        return Ok(StoreIdentity { capabilities, ..StoreIdentity::decode(&row)? }.encode());
    }
    Ok(counted_anew(key, row))
}

/// Prepares the rows of a server to go on after an adoption that was undone: numbers that the
/// cluster may have given are not given again, as clients may know them. Nobody else may use the
/// engine.
///
/// # Errors
/// Those of the engine.
pub fn skip_numbers(engine: &dyn Engine) -> Result<()> {
    let batch = engine.fence()?.batch.saturating_add(BATCHES);
    let mut writer = SoleWriter::take_over(engine, batch)?;
    let counters = [("next_ino", INODES), ("next_user", USERS), ("next_export", EXPORTS)];
    let names = counters.map(|(name, _)| keys::config(name));
    let (_, rows) = engine.read(&names)?;
    let mut changes = Vec::new();
    for ((name, row), (_, distance)) in names.into_iter().zip(rows).zip(counters) {
        let mut counter = row.as_ref().map_or(Ok(Counter::new(0)), Counter::decode)?;
        counter.value = counter.value.saturating_add(distance);
        changes.push((name, Some(counter.encode())));
    }
    writer.commit(changes)
}

/// Compares all rows of a server with those of the cluster that were made of them, and passes on
/// each difference. Calls `progress` with the number of rows of the server so far. Returns that of
/// all.
///
/// # Errors
/// Those of both snapshots, and of rows that cannot be decoded.
pub fn compare(
    server: &dyn Snapshot,
    cluster: &dyn Snapshot,
    added: &ClusterRows,
    differs: &mut dyn FnMut(RowDifference),
    progress: &mut dyn FnMut(u64),
) -> Result<u64> {
    let mut more = added.rows().into_iter().peekable();
    let mut found = AllRows::new(cluster).peekable();
    let mut count = 0u64;
    for row in AllRows::new(server) {
        let (key, value) = row?;
        count += 1;
        if keys::is_ordered_entry(&key) {
            continue;
        }
        while let Some((next, row)) = more.next_if(|(next, _)| *next < key) {
            compare_one(next, &row, &mut found, differs)?;
        }
        let wanted = adopted(&key, value)?;
        compare_one(key, &wanted, &mut found, differs)?;
        if count.is_multiple_of(PAGE as u64) {
            progress(count);
        }
    }
    for (key, row) in more {
        compare_one(key, &row, &mut found, differs)?;
    }
    for row in found {
        differs(RowDifference { key: row?.0, fault: RowFault::Stray });
    }
    Ok(count)
}

/// Compares the next rows that were found with a row that is wanted, up to its key.
fn compare_one(
    key: Bytes,
    value: &Bytes,
    found: &mut Peekable<AllRows<'_>>,
    differs: &mut dyn FnMut(RowDifference),
) -> Result<()> {
    loop {
        match found.next_if(|row| row.as_ref().map_or(true, |(next, _)| *next <= key)) {
            None => {
                differs(RowDifference { key, fault: RowFault::Absent });
                return Ok(());
            }
            Some(row) => {
                let (next, row) = row?;
                if next < key {
                    differs(RowDifference { key: next, fault: RowFault::Stray });
                    continue;
                }
                if row != *value {
                    differs(RowDifference { key, fault: RowFault::Altered });
                }
                return Ok(());
            }
        }
    }
}

/// All rows of a snapshot, in the order of their keys.
struct AllRows<'a> {
    snapshot: &'a dyn Snapshot,
    page: std::vec::IntoIter<(Bytes, Bytes)>,
    /// First key of the next page; `None` after the last page.
    next: Option<Vec<u8>>,
}

impl<'a> AllRows<'a> {
    fn new(snapshot: &'a dyn Snapshot) -> AllRows<'a> {
        AllRows { snapshot, page: Vec::new().into_iter(), next: Some(FIRST.to_vec()) }
    }

    fn turn(&mut self) -> Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        let page = self.snapshot.scan(&next, END, PAGE)?;
        if let Some((key, _)) = page.last()
            && page.len() == PAGE
        {
            self.next = Some([key, &b"\0"[..]].concat());
        }
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for AllRows<'_> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0
            && let Err(error) = self.turn()
        {
            return Some(Err(error));
        }
        self.page.next().map(Ok)
    }
}
