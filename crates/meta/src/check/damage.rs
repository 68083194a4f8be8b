//! Damaged blocks, reported as the objects that users see.

use std::collections::BTreeSet;

use cairn_base::{BlockId, Ino, Owner, Result};
use serde::Serialize;

use super::Chunk;
use super::names::{Bound, Hit, Piece, name_inodes, name_pieces};
use crate::engine::Snapshot;
use crate::keys;
use crate::rows::{Bucket, Place, Row};

/// A block that is missing or cannot be read.
#[derive(Clone, Debug)]
pub struct BadBlock {
    pub block: BlockId,
    pub owner: Owner,
    pub what: String,
}

/// An object that a user lost, or may have lost.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct ObjectDamage {
    /// `bucket/key`; for an upload in progress also the number of the part.
    pub object: String,
    /// First damaged byte of the object's body, and the byte after the last.
    pub start: u64,
    pub end: u64,
    pub what: String,
}

/// The objects that hold bad blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamedDamage {
    pub damaged: Vec<ObjectDamage>,
    /// Bad blocks that no object holds any more: they affect nobody. Empty if objects were left
    /// out.
    pub garbage: Vec<BlockId>,
    /// Set if objects were left out.
    pub is_cut: bool,
}

/// Names the objects that hold bad blocks. The number of passes over the metadata does not grow
/// with the number of blocks, and the data collected in each pass is bounded.
///
/// # Errors
/// Those of the snapshot.
pub fn name(snapshot: &dyn Snapshot, bad: &[BadBlock], mut bound: Bound) -> Result<NamedDamage> {
    if bad.is_empty() {
        return Ok(NamedDamage::default());
    }
    let (pieces, causes) = pieces(snapshot, bad)?;
    let hits = name_pieces(snapshot, &pieces, &mut bound)?;
    let held = hits.iter().zip(&causes).filter(|(hit, _)| **hit != Hit::default());
    let held: BTreeSet<BlockId> = held.map(|(_, cause)| cause.block).collect();
    let inodes: BTreeSet<Ino> = hits.iter().flat_map(|hit| hit.inodes.iter().copied()).collect();
    let names = name_inodes(snapshot, &inodes, &mut bound)?;
    bound.renew();
    let mut damaged = Vec::new();
    for ((hit, piece), cause) in hits.iter().zip(&pieces).zip(causes) {
        let mut add = |object: String| {
            let (start, end, what) = (piece.start, piece.end, cause.what.clone());
            if bound.take() {
                damaged.push(ObjectDamage { object, start, end, what });
            }
        };
        for ino in &hit.inodes {
            match names.get(ino) {
                Some(names) => names.iter().cloned().for_each(&mut add),
                None => add(format!("inode {ino} (without a name)")),
            }
        }
        for (bucket, key, number) in &hit.parts {
            let row = snapshot.get(&[keys::bucket(*bucket)])?.pop().flatten();
            let bucket = row.and_then(|row| Bucket::decode(&row).ok()).map(|bucket| bucket.name);
            let bucket = bucket.unwrap_or_default();
            add(format!("{bucket}/{key} (part {number} of an upload in progress)"));
        }
    }
    damaged.sort();
    damaged.dedup();
    let is_cut = bound.is_cut();
    let garbage = bad.iter().map(|bad| bad.block).filter(|block| !is_cut && !held.contains(block));
    Ok(NamedDamage { damaged, garbage: garbage.collect(), is_cut })
}

/// Returns the parts of bodies that lie in bad blocks, each with its block.
fn pieces<'a>(
    snapshot: &dyn Snapshot,
    bad: &'a [BadBlock],
) -> Result<(Vec<Piece>, Vec<&'a BadBlock>)> {
    let (mut pieces, mut causes) = (Vec::new(), Vec::new());
    for cause in bad {
        let Chunk { body, extents, .. } = chunk(snapshot, cause.owner)?;
        for extent in &extents.extents {
            if let Place::Block { block, .. } = extent.place
                && block == cause.block
            {
                pieces.push(Piece { body, start: extent.offset, end: extent.end() });
                causes.push(cause);
            }
        }
    }
    Ok((pieces, causes))
}

fn chunk(snapshot: &dyn Snapshot, owner: Owner) -> Result<Chunk> {
    let Owner { body, chunk } = owner;
    let row = snapshot.get(&[keys::extents(body, chunk)])?.pop().flatten();
    let extents = row.as_ref().map(Row::decode).transpose();
    Ok(Chunk { body, chunk, extents: extents.ok().flatten().unwrap_or_default() })
}

/// Returns whether the chunk that owns a block names it.
///
/// # Errors
/// Those of the snapshot.
pub fn is_named(snapshot: &dyn Snapshot, block: BlockId, owner: Owner) -> Result<bool> {
    let Chunk { extents, .. } = chunk(snapshot, owner)?;
    let names =
        |place: &Place| matches!(place, Place::Block { block: named, .. } if *named == block);
    Ok(extents.extents.iter().any(|extent| names(&extent.place)))
}
