//! Numbers of lines that this process has logged, by crate and level.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Source and level of lines.
pub type Level = (&'static str, &'static str);

static COUNTS: Mutex<BTreeMap<Level, u64>> = Mutex::new(BTreeMap::new());

/// Counts a line of `target`, a path of modules. Not meant for very frequent lines.
pub fn add(target: &'static str, level: &'static str) {
    let source = target.split("::").next().unwrap_or_default();
    *COUNTS.lock().entry((source, level)).or_default() += 1;
}

/// Returns all counts.
pub fn read() -> Vec<(Level, u64)> {
    COUNTS.lock().iter().map(|(level, count)| (*level, *count)).collect()
}
