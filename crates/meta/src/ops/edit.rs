//! Extents of bodies: reads them down to their leaves, and edits them.
//!
//! The row of chunk `c` holds the extents of the blocks written for chunk `c`. They lie in the 64
//! MiB of the chunk and, since a block may cross its end, up to one block beyond. An extent that is
//! cut stays in its row, so that a block is only ever named by the row of the chunk that owns it.
//! Code that looks at a range of a body therefore looks at the row before it too.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use cairn_base::{BlockId, BodyId, Error, GroupId, limits};

use super::namespace::{chunk_of, release_body, retain_body, store, store_extents};
use crate::rows::{BlockToFree, Extent, Extents, Place, Row};
use crate::{Context, Stop, View, keys};

/// Length up to which inline extents grow. Then the next one begins, and the full one can be moved
/// to a block while appends go on.
pub const COALESCE_BYTES: usize = 128 << 10;
/// Most inline bytes of one chunk; beyond that they must be coalesced first.
const INLINE_BYTES: u64 = limits::OP_BYTES as u64 / 4;
/// Most rows that one step of clearing a long range looks at, and changes after which it stops.
const STEP_ROWS: usize = 256;
const STEP_CHANGES: usize = 1500;

/// Bytes by which an extent of one chunk may reach into the next.
const REACH: u64 = limits::BLOCK_BYTES as u64;
/// Offset at which every body ends: chunk numbers have 32 bits.
const BODY_END: u64 = limits::CHUNK_BYTES << 32;
/// Most rows that are fetched one by one; more rows are scanned.
const POINT_ROWS: u32 = 8;
/// Most bodies between an extent and its leaf. Operations make one or two.
pub(super) const DEPTH: u32 = 4;

/// Returns the extents that hold the bytes `start..end` of a body, in order and not overlapping:
/// only blocks and inline bytes, whatever other bodies are in between. Offsets are those of `body`;
/// a range that no extent covers is a hole.
pub fn leaf_extents(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
) -> Result<Vec<Extent>, Stop> {
    resolve(view, body, start, end, DEPTH)
}

fn resolve(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
    depth: u32,
) -> Result<Vec<Extent>, Stop> {
    let mut leaves = Vec::new();
    let mut missed = false;
    for extent in extents_between(view, body, start, end)? {
        let Place::Body { body: other, offset } = extent.place else {
            leaves.push(extent);
            continue;
        };
        if depth == 0 {
            let what = format!("body {body}");
            return Err(Error::corrupt(what, "a chain of more bodies", DEPTH).into());
        }
        match resolve(view, other, offset, offset.saturating_add(extent.len), depth - 1) {
            Ok(found) => leaves.extend(
                found
                    .into_iter()
                    .map(|leaf| Extent { offset: leaf.offset - offset + extent.offset, ..leaf }),
            ),
            // Continues, so that all missing rows are fetched at once.
            Err(Stop::Miss) => missed = true,
            Err(stop) => return Err(stop),
        }
    }
    if missed { Err(Stop::Miss) } else { Ok(leaves) }
}

/// Returns the extents of `body` itself that hold its bytes `start..end`, cut to that range.
pub(super) fn extents_between(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
) -> Result<Vec<Extent>, Stop> {
    let rows = rows_between(view, body, start, end)?;
    let all = rows.iter().flat_map(|(_, row)| &row.extents);
    let mut extents: Vec<Extent> = all.filter_map(|extent| extent.slice(start, end)).collect();
    extents.sort_by_key(|extent| extent.offset);
    match extents.windows(2).find(|pair| pair[0].end() > pair[1].offset) {
        None => Ok(extents),
        Some(pair) => {
            let what = format!("extents of body {body}");
            let got = format!("one at {}", pair[1].offset);
            Err(Error::corrupt(what, got, format!("at {} or later", pair[0].end())).into())
        }
    }
}

/// Returns the rows that may hold bytes of `start..end`, in order; chunks without a row are left
/// out.
pub(super) fn rows_between(
    view: &mut View<'_>,
    body: BodyId,
    start: u64,
    end: u64,
) -> Result<Vec<(u32, Extents)>, Stop> {
    let end = end.min(BODY_END);
    if start >= end {
        return Ok(Vec::new());
    }
    let (first, last) = (first_chunk(start), chunk_of(end - 1));
    if last - first >= POINT_ROWS {
        let rows = scan_rows(view, body, first..=last, limits::OP_ROWS)?;
        if rows.len() == limits::OP_ROWS {
            let what =
                format!("bytes {start} to {end} of body {body} at once: go by smaller steps");
            return Err(Error::TooLarge(what).into());
        }
        return Ok(rows);
    }
    let wanted: Vec<_> = (first..=last).map(|chunk| keys::extents(body, chunk)).collect();
    let mut rows = Vec::new();
    for (chunk, row) in (first..=last).zip(view.get_all(&wanted)?) {
        if let Some(row) = row {
            rows.push((chunk, Extents::decode(&row)?));
        }
    }
    Ok(rows)
}

/// Returns up to `limit` rows of `chunks`, in order.
pub(super) fn scan_rows(
    view: &mut View<'_>,
    body: BodyId,
    chunks: RangeInclusive<u32>,
    limit: usize,
) -> Result<Vec<(u32, Extents)>, Stop> {
    let (start, mut end) = keys::extents_from(body, *chunks.start());
    if let Some(next) = chunks.end().checked_add(1) {
        end = keys::extents(body, next);
    }
    let mut rows = Vec::new();
    for (key, row) in view.scan(&start, &end, limit)? {
        let chunk = keys::extents_chunk(&key)
            .ok_or_else(|| Error::corrupt("key of extents", format!("{key:?}"), "a chunk"))?;
        rows.push((chunk, Extents::decode(&row)?));
    }
    Ok(rows)
}

/// Returns the first chunk whose row may hold the byte at `offset`.
fn first_chunk(offset: u64) -> u32 {
    let chunk = chunk_of(offset);
    if offset % limits::CHUNK_BYTES < REACH { chunk.saturating_sub(1) } else { chunk }
}

/// Removes the bytes `start..end` from the extents of a row.
fn cut(extents: &mut Vec<Extent>, start: u64, end: u64) {
    if !extents.iter().any(|extent| extent.slice(start, end).is_some()) {
        return;
    }
    let rest = |extent: Extent| [extent.slice(0, start), extent.slice(end, u64::MAX)];
    *extents = std::mem::take(extents).into_iter().flat_map(rest).flatten().collect();
}

/// Inserts an extent into a hole, and joins it with neighbours that continue in the same place.
pub(super) fn insert(extents: &mut Vec<Extent>, new: Extent) {
    let mut at = extents.partition_point(|extent| extent.offset < new.offset);
    extents.insert(at, new);
    if at > 0
        && let Some(joined) = join(&extents[at - 1], &extents[at])
    {
        extents.remove(at);
        at -= 1;
        extents[at] = joined;
    }
    if at + 1 < extents.len()
        && let Some(joined) = join(&extents[at], &extents[at + 1])
    {
        extents.remove(at + 1);
        extents[at] = joined;
    }
}

/// Joins two extents if the second continues where the first ends.
fn join(left: &Extent, right: &Extent) -> Option<Extent> {
    if left.end() != right.offset {
        return None;
    }
    let place = match (&left.place, &right.place) {
        (Place::Inline(head), Place::Inline(tail)) if head.len() + tail.len() <= COALESCE_BYTES => {
            Place::Inline([&head[..], &tail[..]].concat().into())
        }
        (Place::Block { block, offset, .. }, Place::Block { block: next, offset: from, .. })
            if block == next && u64::from(*offset) + left.len == u64::from(*from) =>
        {
            left.place.clone()
        }
        (Place::Body { body, offset }, Place::Body { body: next, offset: from })
            if body == next && offset + left.len == *from =>
        {
            left.place.clone()
        }
        _ => return None,
    };
    Some(Extent { offset: left.offset, len: left.len + right.len, place })
}

/// The blocks and bodies that the extents of one row name.
#[derive(Default)]
struct ExtentReferences {
    blocks: BTreeMap<BlockId, GroupId>,
    bodies: BTreeMap<BodyId, u64>,
    inline: u64,
}

impl ExtentReferences {
    fn of(extents: &[Extent]) -> ExtentReferences {
        let mut named = ExtentReferences::default();
        for extent in extents {
            match &extent.place {
                Place::Block { group, block, .. } => {
                    named.blocks.insert(*block, *group);
                }
                Place::Body { body, .. } => *named.bodies.entry(*body).or_default() += 1,
                Place::Inline(_) => named.inline += extent.len,
            }
        }
        named
    }
}

/// Stores a row that was edited: frees the blocks that it no longer names, and counts the
/// references to other bodies. Every change of extents goes through here.
pub(super) fn store_edited(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    chunk: u32,
    before: &[Extent],
    after: &Extents,
) -> Result<(), Stop> {
    let (had, has) = (ExtentReferences::of(before), ExtentReferences::of(&after.extents));
    if has.inline > INLINE_BYTES && has.inline > had.inline {
        let what = format!("{} inline bytes in 64 MiB; coalesce them first", has.inline);
        return Err(Error::TooLarge(what).into());
    }
    for (block, group) in &had.blocks {
        if !has.blocks.contains_key(block) {
            store(view, keys::freed(context.batch, *block), &BlockToFree::new(*group));
        }
    }
    for (other, count) in &has.bodies {
        let more = count.saturating_sub(had.bodies.get(other).copied().unwrap_or(0));
        if more > 0 {
            retain_body(view, *other, more)?;
        }
    }
    for (other, count) in &had.bodies {
        for _ in has.bodies.get(other).copied().unwrap_or(0)..*count {
            release_body(view, *other)?;
        }
    }
    store_extents(view, body, chunk, after)
}

/// Replaces the parts of a body that extents cover by them. Each comes with the chunk whose row it
/// belongs to; they are in order and do not overlap.
pub(super) fn overwrite(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    new: Vec<(u32, Extent)>,
) -> Result<(), Stop> {
    let (Some((_, first)), Some((_, last))) = (new.first(), new.last()) else { return Ok(()) };
    let (start, end) = (first.offset, last.end());
    let cuts: Vec<_> = new.iter().map(|(_, extent)| (extent.offset, extent.end())).collect();
    edit(view, context, body, start..end, &cuts, new)
}

/// Writes like [`overwrite`], and replaces everything that the body has in `start..end`.
pub(super) fn replace(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    start: u64,
    end: u64,
    new: Vec<(u32, Extent)>,
) -> Result<(), Stop> {
    edit(view, context, body, start..end, &[(start, end)], new)
}

fn edit(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    range: Range<u64>,
    cuts: &[(u64, u64)],
    new: Vec<(u32, Extent)>,
) -> Result<(), Stop> {
    let Range { start, end } = range;
    let found = rows_between(view, body, start, end)?;
    let mut rows: BTreeMap<u32, Extents> = found.into_iter().collect();
    for (chunk, _) in &new {
        rows.entry(*chunk).or_default();
    }
    for (chunk, mut row) in rows {
        let before = row.extents.clone();
        for (start, end) in cuts {
            cut(&mut row.extents, *start, *end);
        }
        for (_, extent) in new.iter().filter(|(owner, _)| *owner == chunk) {
            insert(&mut row.extents, extent.clone());
        }
        if row.extents != before {
            store_edited(view, context, body, chunk, &before, &row)?;
        }
    }
    Ok(())
}

/// Makes a hole of the bytes `start..end` of a body, from the end down, as far as one operation
/// may. Returns the offset from which on it is done: `start`, or the end of the remaining range.
pub(super) fn clear_down(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    start: u64,
    end: u64,
) -> Result<u64, Stop> {
    let end = end.min(BODY_END);
    if start >= end {
        return Ok(start);
    }
    let (first, last) = (first_chunk(start), chunk_of(end - 1));
    let (low, rows) = last_rows(view, body, first, last)?;
    let mut changes = 0;
    for (chunk, mut row) in rows.into_iter().rev() {
        if changes > STEP_CHANGES {
            return Ok(reach(chunk).clamp(start, end));
        }
        let before = row.extents.clone();
        cut(&mut row.extents, start, end);
        if row.extents != before {
            store_edited(view, context, body, chunk, &before, &row)?;
            changes += 1 + 2 * before.len();
        }
    }
    if low > first { Ok(reach(low - 1).clamp(start, end)) } else { Ok(start) }
}

/// Returns the last rows of the chunks `first..=last`, at most as many as one step takes, and the
/// first chunk from which on these are all rows.
fn last_rows(
    view: &mut View<'_>,
    body: BodyId,
    first: u32,
    last: u32,
) -> Result<(u32, Vec<(u32, Extents)>), Stop> {
    let mut found = None;
    let mut width = STEP_ROWS as u64;
    loop {
        // Rows of a sparse body are far apart: look twice as far each time.
        let low = u64::from(last).saturating_sub(width - 1).max(u64::from(first)) as u32;
        let rows = scan_rows(view, body, low..=last, STEP_ROWS + 1)?;
        if rows.len() > STEP_ROWS
            && let Some(found) = found
        {
            return Ok(found);
        }
        if low == first {
            return Ok((low, rows));
        }
        found = Some((low, rows));
        width *= 2;
    }
}

/// Largest offset at which an extent of this row can end.
pub(super) fn reach(chunk: u32) -> u64 {
    (u64::from(chunk) + 1) * limits::CHUNK_BYTES + REACH
}
