//! Checks that all rows of a store fit together, on one snapshot and without changing anything.
//!
//! ```text
//!   i t d x ──► inodes.rs ──┐
//!   b n u p ──► buckets.rs ─┼──► Facts ──► what does not fit ──► Report
//!   z r e f ──► bodies.rs ──┘      │
//!   s q k c a ──► small.rs         └──► names.rs: which objects a piece of a body belongs to
//! ```
//!
//! It is not: a check of blocks (who opens the block store compares it with [`each_chunk`]), nor a
//! repair. It keeps some 150 bytes in memory for each inode and each body.

mod bodies;
mod buckets;
pub mod damage;
mod facts;
mod inodes;
mod names;
mod report;
mod small;
mod tables;
#[cfg(test)]
mod tests;

use cairn_base::{BlockId, BodyId, Result};

use crate::engine::Snapshot;
use crate::keys;
use crate::rows::{Extents, Row};

pub use names::{Bound, Hit, Piece, name_inodes, name_pieces};
pub use report::{About, Finding, Report};

use tables::{Checker, Table};

/// Checks all rows. Calls `progress` with the number of rows looked at, now and then.
///
/// # Errors
/// Those of the snapshot. A row that cannot be decoded is a finding, not an error.
pub fn check(snapshot: &dyn Snapshot, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    let mut checker = Checker::new(snapshot, progress);
    inodes::read(&mut checker)?;
    buckets::read(&mut checker)?;
    bodies::read(&mut checker)?;
    small::check(&mut checker)?;
    inodes::check(&mut checker);
    buckets::check(&mut checker);
    bodies::check(&mut checker);
    Ok(checker.finish())
}

/// A row of extents: the body and the chunk it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub body: BodyId,
    pub chunk: u32,
    pub extents: Extents,
}

/// Calls `visit` for every row of extents that can be read, in the order of bodies and chunks.
///
/// # Errors
/// Those of the snapshot and of `visit`, at which it stops.
pub fn each_chunk(
    snapshot: &dyn Snapshot,
    visit: &mut dyn FnMut(Chunk) -> Result<()>,
) -> Result<()> {
    for row in Table::of(snapshot, b'e') {
        let (key, row) = row?;
        if let Some((body, chunk)) = tables::chunk_key(&key)
            && let Ok(extents) = Extents::decode(&row)
        {
            visit(Chunk { body, chunk, extents })?;
        }
    }
    Ok(())
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
