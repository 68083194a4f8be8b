//! The memtables and the table that hold the rows of an engine.

use std::sync::Arc;

use super::memtable::Memtable;
use super::table::Cold;

/// The places of rows, newest first. Replaced as a whole, never changed.
pub struct Tables {
    pub active: Arc<Memtable>,
    /// Memtable that is being moved into the table of rows.
    pub frozen: Option<Arc<Memtable>>,
    pub cold: Arc<Cold>,
}
