//! Bodies: their extents and reference counts, and the bodies and blocks to be drained and freed.

use cairn_base::{BodyId, Result, limits};

use super::facts::{BodyFacts, Facts};
use super::inodes::owner;
use super::tables::{Checker, chunk_key, only_body};
use crate::keys;
use crate::rows::{BlockToFree, Extent, Extents, Place, decode_number};

/// Bytes by which an extent of one chunk may reach into the next.
const REACH: u64 = limits::BLOCK_BYTES as u64;

/// Reads the rows of bodies. Called after all rows that refer to bodies were read.
pub fn read(checker: &mut Checker<'_>) -> Result<()> {
    checker.each_row(
        b'f',
        |key| keys::freed_parts(key),
        |checker, (_, block), _: BlockToFree| {
            checker.report.freed_blocks += 1;
            checker.facts.freed.insert(block);
        },
    )?;
    checker.each(
        b'r',
        |key| only_body(key),
        decode_number,
        |checker, body, count| {
            if checker.portion.has_body(body) {
                checker.facts.bodies.entry(body).or_default().counted = Some(count);
            }
        },
    )?;
    let mut run = Run::default();
    checker.each_row(
        b'e',
        |key| chunk_key(key),
        |checker, (body, chunk), row: Extents| {
            refer(checker, body, &row);
            if !checker.portion.has_body(body) {
                return;
            }
            if run.body != Some(body) {
                run.end(checker);
                run.body = Some(body);
            }
            read_chunk(checker, body, chunk, &row);
            run.pieces.extend(row.extents.iter().map(|extent| (extent.offset, extent.end())));
        },
    )?;
    run.end(checker);
    Ok(())
}

/// Counts the references of a body to others.
fn refer(checker: &mut Checker<'_>, body: BodyId, row: &Extents) {
    let portion = checker.portion;
    let facts = &mut checker.facts;
    if facts.prepared.contains(&body) {
        return;
    }
    for extent in &row.extents {
        if let Place::Body { body: other, .. } = extent.place
            && portion.has_body(other)
        {
            facts.bodies.entry(other).or_default().by_extents += 1;
        }
    }
}

fn read_chunk(checker: &mut Checker<'_>, body: BodyId, chunk: u32, row: &Extents) {
    let Checker { facts, report, .. } = checker;
    let known = facts.bodies.entry(body).or_default();
    known.present = true;
    let about = owner(known, body);
    let start = u64::from(chunk) * limits::CHUNK_BYTES;
    for extent in &row.extents {
        if extent.offset < start || extent.end() > start + limits::CHUNK_BYTES + REACH {
            let what = format!("extent at {} in the row of chunk {chunk}", extent.offset);
            report.add(about.clone(), what);
        }
        if let Some(what) = odd(facts, extent) {
            report.add(about.clone(), what);
        }
    }
}

fn odd(facts: &Facts, extent: &Extent) -> Option<String> {
    let Place::Block { block, offset, .. } = extent.place else { return None };
    if u64::from(offset) + extent.len > limits::BLOCK_BYTES as u64 {
        return Some(format!("extent at {} is longer than a block", extent.offset));
    }
    facts.freed.contains(&block).then(|| format!("block {block} is in use, yet up for freeing"))
}

/// The extents of one body, whose rows come one after another.
#[derive(Default)]
struct Run {
    body: Option<BodyId>,
    /// Start and end of each extent.
    pieces: Vec<(u64, u64)>,
}

impl Run {
    fn end(&mut self, checker: &mut Checker<'_>) {
        let mut pieces = std::mem::take(&mut self.pieces);
        let Some(body) = self.body.take() else { return };
        let Checker { facts, report, .. } = checker;
        let Some(facts) = facts.bodies.get(&body) else { return };
        let about = owner(facts, body);
        pieces.sort_unstable();
        if let Some(pair) = pieces.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            report.add(about.clone(), format!("two extents hold the byte at {}", pair[1].0));
        }
        let end = pieces.last().map_or(0, |piece| piece.1);
        if facts.file.is_some() && end > facts.longest {
            let what = format!("an extent ends at {end}, beyond the size {}", facts.longest);
            report.add(about.clone(), what);
        }
        if let Some(hole) = first_hole(&pieces, facts.whole) {
            report.add(about, format!("bytes from {hole} on are missing"));
        }
    }
}

/// Returns the first byte below `end` that no piece holds.
fn first_hole(pieces: &[(u64, u64)], end: u64) -> Option<u64> {
    let mut held = 0;
    for (start, stop) in pieces {
        if *start > held {
            break;
        }
        held = held.max(*stop);
    }
    (held < end).then_some(held)
}

pub fn check(checker: &mut Checker<'_>) {
    let Checker { facts, report, .. } = checker;
    for (body, known) in &facts.bodies {
        report.bodies += u64::from(known.references() > 0);
        if let Some(what) = misfit(known) {
            report.add(owner(known, *body), format!("body {body} {what}"));
        }
    }
}

/// Describes the fault of a body, if it has one.
fn misfit(body: &BodyFacts) -> Option<String> {
    let references = body.references();
    match (references, body.drain) {
        (0, Some(_)) => return None,
        (0, None) if body.present || body.counted.is_some() => {
            return Some("is referred to by nothing, and not up for draining".into());
        }
        (0, None) => return None,
        (_, Some(drain)) => return Some(format!("is in use, yet up for draining as {drain:?}")),
        (_, None) => {}
    }
    let counted = body.counted.unwrap_or(1);
    if counted != references {
        return Some(format!("counts {counted} references, found {references}"));
    }
    if !body.present && (body.whole > 0 || body.by_extents > 0 || body.is_part) {
        return Some("has no extents".into());
    }
    None
}
