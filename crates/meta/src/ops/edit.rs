//! Extents of bodies: reading them down to their leaves, and editing them.
//!
//! The row of chunk `c` holds the extents of the blocks written for chunk `c`. They lie in the 64
//! MiB of the chunk and, since a block may cross its end, up to one block beyond; an extent that
//! is cut stays in its row, so that a block is only ever named by the row of the chunk that owns
//! it. Who looks at a range of a body therefore looks at the row before it too.

use cairn_base::{BodyId, Error, limits};

use super::namespace::chunk_of;
use crate::rows::{Extent, Extents, Place, Row};
use crate::{Stop, View, keys};

/// How far an extent of one chunk may reach into the next, bytes.
const REACH: u64 = limits::BLOCK_BYTES as u64;
/// Where every body has ended: chunk numbers have 32 bits.
const BODY_END: u64 = limits::CHUNK_BYTES << 32;
/// Rows fetched one by one; more of them are scanned.
const POINT_ROWS: u32 = 8;
/// How many bodies may lie between an extent and its leaf. Operations make one or two.
const DEPTH: u32 = 4;

/// The extents that hold the bytes `start..end` of a body, in order and not overlapping: only
/// blocks and inline bytes, whatever other bodies lie between. Offsets are those of `body`; what
/// no extent covers is a hole.
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
            return Err(Error::corrupt(what, "a deeper chain of bodies", DEPTH).into());
        }
        match resolve(view, other, offset, offset.saturating_add(extent.len), depth - 1) {
            Ok(found) => leaves.extend(
                found
                    .into_iter()
                    .map(|leaf| Extent { offset: leaf.offset - offset + extent.offset, ..leaf }),
            ),
            // Go on, so that all that is missing is fetched at once.
            Err(Stop::Miss) => missed = true,
            Err(stop) => return Err(stop),
        }
    }
    if missed { Err(Stop::Miss) } else { Ok(leaves) }
}

/// The extents of `body` itself that hold its bytes `start..end`, cut to that range.
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

/// The rows that may hold bytes of `start..end`, in order; chunks without a row are left out.
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
        let rows = scan_rows(view, body, first, last, limits::OP_ROWS)?;
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

/// Up to `limit` rows of the chunks `first..=last`, in order.
pub(super) fn scan_rows(
    view: &mut View<'_>,
    body: BodyId,
    first: u32,
    last: u32,
    limit: usize,
) -> Result<Vec<(u32, Extents)>, Stop> {
    let (start, mut end) = keys::extents_from(body, first);
    if let Some(next) = last.checked_add(1) {
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

/// The first chunk whose row may hold the byte at `offset`.
fn first_chunk(offset: u64) -> u32 {
    let chunk = chunk_of(offset);
    if offset % limits::CHUNK_BYTES < REACH { chunk.saturating_sub(1) } else { chunk }
}
