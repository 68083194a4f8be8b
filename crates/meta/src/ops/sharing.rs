//! The price of sharing a body. Whoever writes next to a file that shares its body is given a body
//! of its own, in one operation: the more pieces the shared one has, the more that costs. So the
//! price is limited where a body becomes shared, and who copies is refused, not who writes later.

use std::collections::BTreeSet;

use cairn_base::{BodyId, Error, limits};

use super::body::refer;
use super::edit::insert;
use super::namespace::is_shared;
use crate::rows::{Content, Extent, Extents, Place, Row};
use crate::{Stop, View, keys};

/// Most extents that the writer has to store.
const EXTENTS: usize = 4000;
/// Most extents that the writer has to read: whole blocks of a file of 128 GiB.
const READ_EXTENTS: usize = 32 << 10;
/// Most rows that the writer has to store: those of chunks, and the counts of other bodies.
const ROWS: usize = limits::OP_ROWS / 2;
/// Most bytes that the writer has to store. It stores those of changed chunks again.
const BYTES: usize = limits::OP_BYTES / 8 * 3;
/// Bytes that an extent takes up, beside bytes that are inline.
const EXTENT_BYTES: usize = 40;
/// Rows that are read in the first step, and most in one step.
const STEP: usize = 64;
const STEP_MAX: usize = 512;

/// Rows and bytes that a writer would have to read and store.
#[derive(Default)]
struct Price {
    read: usize,
    extents: usize,
    chunks: usize,
    bytes: usize,
    bodies: BTreeSet<BodyId>,
}

impl Price {
    fn add(&mut self, source: BodyId, row: &Extents) {
        let mut copy: Vec<Extent> = Vec::new();
        row.extents.iter().for_each(|extent| insert(&mut copy, refer(source, extent.clone())));
        self.read += row.extents.len();
        self.extents += copy.len();
        self.chunks += 1;
        for extent in &copy {
            self.bytes += EXTENT_BYTES;
            match &extent.place {
                Place::Inline(bytes) => self.bytes += bytes.len(),
                Place::Body { body, .. } => drop(self.bodies.insert(*body)),
                Place::Block { .. } => {}
            }
        }
    }

    fn is_too_high(&self) -> bool {
        self.extents > EXTENTS
            || self.read > READ_EXTENTS
            || self.chunks + self.bodies.len() > ROWS
            || self.bytes > BYTES
    }
}

/// Returns the body of `content` if nothing shares it yet.
pub(super) fn unshared(view: &mut View<'_>, content: &Content) -> Result<Option<BodyId>, Stop> {
    match content {
        Content::Body(body) if !is_shared(view, *body)? => Ok(Some(*body)),
        _ => Ok(None),
    }
}

/// Checks a body that nothing shared before an operation, at the end of the operation. One that was
/// shared before has been checked, and stays as it is. The work is limited, whatever the body.
///
/// # Errors
/// `NotImplemented` if it is shared now, and the next writer would have too much to do: its bytes
/// must be copied.
pub(super) fn check_shared(view: &mut View<'_>, unshared: Option<BodyId>) -> Result<(), Stop> {
    match unshared {
        Some(body) if is_shared(view, body)? => check_price(view, body),
        _ => Ok(()),
    }
}

/// Checks the number of extents that one operation stores to refer to another body.
///
/// # Errors
/// `NotImplemented` if there are too many: the bytes must be copied.
pub(super) fn check_extents(extents: usize) -> Result<(), Error> {
    if extents <= EXTENTS {
        return Ok(());
    }
    let what = format!("{extents} pieces are too many to be shared: copy their bytes");
    Err(Error::NotImplemented(what))
}

fn check_price(view: &mut View<'_>, body: BodyId) -> Result<(), Stop> {
    let mut price = Price::default();
    let (mut start, end) = keys::extents_from(body, 0);
    let mut step = STEP;
    loop {
        let rows = view.scan(&start, &end, step)?;
        for (_, row) in &rows {
            price.add(body, &Extents::decode(row)?);
            if price.is_too_high() {
                let what = format!("body {body} has too many pieces to be shared: copy its bytes");
                return Err(Error::NotImplemented(what).into());
            }
        }
        let chunk = rows.last().filter(|_| rows.len() == step);
        let Some(next) = chunk.and_then(|(key, _)| keys::extents_chunk(key)?.checked_add(1)) else {
            return Ok(());
        };
        start = keys::extents(body, next);
        step = (2 * step).min(STEP_MAX);
    }
}
