//! A copy of all rows of an engine in one file, and the way back into an empty engine.
//!
//! ```text
//!   snapshot ──► write ──► header, sections of rows, trailer ──► load ──► commits ──► c cluster
//! ```
//!
//! Neither keeps more than one section in memory. A load is not seen before it is complete: an
//! engine without the row `c cluster` is no store, and that row is committed last.
//! docs/format-dump.md has every byte.
//!
//! It is not: a copy of blocks, nor a way to merge stores.

mod adoption;
mod format;
mod load;
mod read;
mod write;

use cairn_base::Result;

use crate::engine::Engine;
use crate::keys;
use crate::rows::StoreIdentity;

pub use adoption::{
    ADOPTION_HOLD, ClusterRows, RowDifference, RowFault, adoption_holder, compare, skip_numbers,
};
pub use load::load;
pub use read::{each, verify};
pub use write::{Writer, write};

/// Summary of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Id of the store.
    pub cluster: u64,
    /// Last batch in the dump.
    pub batch: u64,
    pub rows: u64,
    /// Length of the dump, bytes.
    pub bytes: u64,
}

/// The contents of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    Nothing,
    /// A store with this id.
    Store(u64),
    /// Rows of a load that did not end.
    Part,
}

/// Finds out whether there is a store in an engine.
///
/// # Errors
/// Those of the engine.
pub fn contents(engine: &dyn Engine) -> Result<Contents> {
    let (_, mut rows) = engine.read(&[keys::config(CLUSTER)])?;
    if let Some(row) = rows.pop().flatten() {
        return Ok(Contents::Store(StoreIdentity::decode_cluster(&row)?));
    }
    let first = engine.snapshot()?.scan(FIRST, END, 1)?;
    Ok(if first.is_empty() { Contents::Nothing } else { Contents::Part })
}

/// Row that makes rows a store.
const CLUSTER: &str = "cluster";
/// All keys are between these.
const FIRST: &[u8] = b"";
const END: &[u8] = b"\xff";
