//! Where the rows of an engine are.

use std::sync::Arc;

use super::memtable::Memtable;
use super::table::Cold;

/// Where rows are, newest first. Replaced as a whole, never changed.
pub struct Tables {
    pub active: Arc<Memtable>,
    /// On its way into the table of rows.
    pub frozen: Option<Arc<Memtable>>,
    pub cold: Arc<Cold>,
}
