//! Numbers of records that this process has stored, by source and level.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::level::LevelClass;
use crate::limits::LEVEL_SOURCES;

/// Number of records of a source, by level.
pub type OfLevels = [u64; LevelClass::NAMES.len()];

/// Name under which the sources beyond `LEVEL_SOURCES` are counted together.
pub const OTHERS: &str = "others";

/// Counts by bucket and source.
static COUNTS: Mutex<BTreeMap<(String, String), OfLevels>> = Mutex::new(BTreeMap::new());

/// Counts records of a source. Only `LEVEL_SOURCES` sources have counts of their own.
pub fn add(bucket: &str, source: &str, records: &OfLevels) {
    let mut counts = COUNTS.lock();
    let mut of = (bucket.to_owned(), source.to_owned());
    if counts.len() >= LEVEL_SOURCES && !counts.contains_key(&of) {
        of = (OTHERS.to_owned(), OTHERS.to_owned());
    }
    let all = counts.entry(of).or_default();
    all.iter_mut().zip(records).for_each(|(all, more)| *all += more);
}

/// Returns all counts, by bucket and source.
pub fn read() -> Vec<((String, String), OfLevels)> {
    COUNTS.lock().iter().map(|(of, counts)| (of.clone(), *counts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_bounded_and_no_record_is_left_out() {
        let one = [1, 0, 0, 0, 2];
        let before: u64 = read().iter().map(|(_, counts)| counts[0]).sum();
        for number in 0..LEVEL_SOURCES + 100 {
            add("logs-levels", &number.to_string(), &one);
            add("logs-levels", "0", &one);
        }
        let all = read();
        assert_eq!(all.len(), LEVEL_SOURCES + 1);
        let sum: u64 = all.iter().map(|(_, counts)| counts[0]).sum();
        assert_eq!(sum - before, 2 * (LEVEL_SOURCES as u64 + 100));
        let of = |name: &str| all.iter().find(|((_, source), _)| source == name).unwrap().1;
        assert!(of(OTHERS)[4] >= 200 && of("0")[0] > 1000);
    }
}
