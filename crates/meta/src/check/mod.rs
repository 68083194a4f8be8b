//! Checks that all rows of a store fit together, on one snapshot and without changing anything.
//!
//! ```text
//!   i t d H x ► inodes.rs ──┐
//!   b n u p ──► buckets.rs ─┼──► Facts ──► contradictions ──► Report
//!   z r e f ──► bodies.rs ──┘      │
//!   s q k c a ──► small.rs         ├──► user_totals.rs: what belongs to users
//!                                  └──► names.rs: the objects that a piece of a body belongs to
//! ```
//!
//! It is not: a check of blocks (the opener of the block store compares it with [`each_chunk`]),
//! nor a repair. It keeps some 150 bytes in memory for each inode and each body; if that is too
//! much, it reads the rows several times, each time for a portion of inodes and bodies.

mod bodies;
mod buckets;
pub mod damage;
mod estimate;
mod facts;
mod inodes;
mod names;
mod portion;
mod report;
mod sifted_rows;
mod small;
mod tables;
#[cfg(test)]
mod tests;
mod user_totals;

use std::collections::BTreeMap;

use cairn_base::{BlockId, BodyId, GroupId, Result};

use crate::engine::Snapshot;
use crate::keys;
use crate::rows::{Extents, Place, Row};

pub use estimate::Estimate;
pub use names::{Bound, Hit, Piece, name_findings, name_inodes, name_pieces};
pub use report::{About, Finding, Report};
pub use sifted_rows::SiftedRows;
pub use user_totals::is_counted;

use portion::Portion;
use tables::{Checker, Table};

/// Checks all rows. Calls `progress` with the number of rows read, at intervals.
///
/// # Errors
/// Those of the snapshot. A row that cannot be decoded is a finding, not an error.
pub fn check(snapshot: &dyn Snapshot, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    check_within(snapshot, 1, usize::MAX, progress)
}

/// Checks like [`check`], but does not compare what belongs to users: the last master did not count
/// it ([`is_counted`]).
///
/// # Errors
/// Same errors as [`check`].
pub fn check_uncounted(snapshot: &dyn Snapshot, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    check_portions(snapshot, false, 1, usize::MAX, progress)
}

/// Checks like [`check`], with at most about `most` facts in memory: in several passes over the
/// rows, each of which compares a portion of inodes, bodies and uploads. `portions` is a guess of
/// their number. If it is too low, everything is checked again in twice as many. `progress` gets
/// the number of rows of all passes.
///
/// # Errors
/// Same errors as [`check`].
pub fn check_within(
    snapshot: &dyn Snapshot,
    portions: u64,
    most: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Report> {
    check_portions(snapshot, user_totals::is_there(snapshot)?, portions, most, progress)
}

fn check_portions(
    snapshot: &dyn Snapshot,
    is_counted: bool,
    mut portions: u64,
    most: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Report> {
    let mut before = 0;
    'guess: loop {
        let mut whole = Report::default();
        for portion in Portion::each(portions) {
            let mut progress = |rows| progress(before + rows);
            let mut checker = Checker::new(snapshot, portion, most, &mut progress);
            checker.is_counted = is_counted;
            checker.ordered_since = user_totals::ordered_since(snapshot).filter(|_| is_counted);
            check_portion(&mut checker)?;
            let is_full = checker.facts.kept() > most;
            let report = checker.finish();
            before += report.rows;
            if is_full {
                portions = portions.saturating_mul(2);
                continue 'guess;
            }
            whole.take(portion.is_first(), report);
        }
        return Ok(whole);
    }
}

fn check_portion(checker: &mut Checker<'_>) -> Result<()> {
    inodes::read(checker)?;
    buckets::read(checker)?;
    bodies::read(checker)?;
    if checker.portion.is_first() {
        small::check(checker)?;
        if checker.is_counted {
            user_totals::check(checker)?;
        }
    }
    inodes::check(checker);
    buckets::check(checker);
    bodies::check(checker);
    Ok(())
}

/// A row of extents, with the body and chunk that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub body: BodyId,
    pub chunk: u32,
    pub extents: Extents,
}

impl Chunk {
    /// Returns the blocks that it names, with the offset in each up to which its extents reach.
    pub fn blocks(&self) -> BTreeMap<(GroupId, BlockId), u64> {
        let mut named = BTreeMap::new();
        for extent in &self.extents.extents {
            if let Place::Block { group, block, offset } = extent.place {
                let reach: &mut u64 = named.entry((group, block)).or_default();
                *reach = (*reach).max(u64::from(offset) + extent.len);
            }
        }
        named
    }
}

/// Calls `visit` for every row of extents that can be read, in the order of bodies and chunks.
///
/// # Errors
/// Those of the snapshot and of `visit`, at which it stops.
pub fn each_chunk(
    snapshot: &dyn Snapshot,
    visit: &mut dyn FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    chunks_after(snapshot, None).try_for_each(|chunk| visit(chunk?))
}

/// Returns the rows of extents that can be read, in the order of bodies and chunks: all of them, or
/// those after a chunk, which need not exist any more.
pub fn chunks_after(
    snapshot: &dyn Snapshot,
    after: Option<(BodyId, u32)>,
) -> impl Iterator<Item = Result<Chunk>> + '_ {
    let rows = match after {
        None => Table::of(snapshot, b'e'),
        Some((body, chunk)) => Table::after(snapshot, &keys::extents(body, chunk)),
    };
    rows.filter_map(|row| {
        let (key, row) = match row {
            Ok(row) => row,
            Err(error) => return Some(Err(error)),
        };
        let ((body, chunk), extents) = (tables::chunk_key(&key)?, Extents::decode(&row).ok()?);
        Some(Ok(Chunk { body, chunk, extents }))
    })
}

/// Calls `visit` for every block that is yet to be freed.
///
/// # Errors
/// Those of the snapshot.
pub fn each_freed(snapshot: &dyn Snapshot, visit: &mut dyn FnMut(BlockId)) -> Result<()> {
    for row in Table::of(snapshot, b'f') {
        if let Some((_, block)) = keys::freed_parts(&row?.0) {
            visit(block);
        }
    }
    Ok(())
}
