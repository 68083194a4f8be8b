//! The store's segments and blocks, behind one lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cairn_base::DiskFile;

use crate::format::hint::{BlockEntry, HintEntry};
use crate::format::record::Tombstone;
use crate::format::{ALIGN, Key};
use crate::index::{Index, Location};
use crate::log::{Log, Outcome};

/// A segment file that is in use.
pub(crate) struct Segment {
    pub file: Arc<dyn DiskFile>,
    pub salt: u64,
    /// The log, while the segment is written and until it is sealed.
    pub log: Option<Arc<Log>>,
    /// The offset after the last record, once sealed.
    pub end: u64,
    /// Bytes of records that the index points to.
    pub live_bytes: u64,
    pub poisoned: bool,
    /// True if parts of it could not be read: it is never removed, so that no evidence is lost.
    pub damaged: bool,
}

impl Segment {
    pub(crate) fn used_bytes(&self) -> u64 {
        self.log.as_ref().map_or(self.end, |log| log.end())
    }
}

#[derive(Default)]
pub(crate) struct StoreState {
    pub index: Index,
    pub segments: BTreeMap<u32, Segment>,
    /// Segments that hold, or may hold, another record of a block than the one in the index: a
    /// failed write, or a copy left by compaction. Deleting the block needs a tombstone for each.
    pub strays: HashMap<Key, Vec<u32>>,
    /// Segments whose removal may not be durable.
    pub ghosts: BTreeSet<u32>,
    /// Segments with broken headers. They stay, and so do tombstones for them.
    pub unreadable: BTreeSet<u32>,
    /// Tombstones that the next compaction must write before it drops any: a deletion that was cut
    /// off recorded only some tombstones of the same block.
    pub uncovered: Vec<Tombstone>,
}

impl StoreState {
    pub(crate) fn add_stray(&mut self, key: Key, segment: u32) {
        let strays = self.strays.entry(key).or_default();
        if !strays.contains(&segment) {
            strays.push(segment);
        }
    }

    /// Returns whether a file of this segment may still be found after a crash.
    pub(crate) fn may_exist(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
            || self.ghosts.contains(&segment)
            || self.unreadable.contains(&segment)
    }

    pub(crate) fn file(&self, segment: u32) -> Option<(Arc<dyn DiskFile>, u64)> {
        self.segments.get(&segment).map(|found| (Arc::clone(&found.file), found.salt))
    }

    /// Points the index to a record, and updates the counts of live bytes.
    pub(crate) fn point(&mut self, segment: u32, entry: &BlockEntry) {
        let location = Location::new(segment, entry);
        if let Some(old) = self.index.insert(entry.key, entry.owner, location) {
            self.count_dead(old);
        }
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.live_bytes += location.footprint();
        }
    }

    pub(crate) fn forget(&mut self, key: Key) {
        if let Some(old) = self.index.remove(key) {
            self.count_dead(old);
        }
    }

    fn count_dead(&mut self, old: Location) {
        if let Some(segment) = self.segments.get_mut(&old.segment) {
            segment.live_bytes = segment.live_bytes.saturating_sub(old.footprint());
        }
    }

    /// Applies the outcome of a record in `segment`, which is durable.
    pub(crate) fn settle(&mut self, segment: u32, outcome: &Outcome) {
        match outcome {
            Outcome::Put(HintEntry::Block(entry)) => {
                // A record that it replaces needs a tombstone, too, when the block is deleted.
                let former = self.index.get(entry.key).map(|(location, _)| location.segment);
                if let Some(former) = former.filter(|former| *former != segment) {
                    self.add_stray(entry.key, former);
                }
                self.point(segment, entry);
            }
            Outcome::Delete(entries) => entries.iter().for_each(|entry| self.bury(entry)),
            Outcome::Put(HintEntry::Tombstone(_)) | Outcome::Move(_) => {}
        }
    }

    fn bury(&mut self, entry: &HintEntry) {
        let HintEntry::Tombstone(Tombstone { key, segment, .. }) = entry else { return };
        if self.index.get(*key).is_some_and(|(location, _)| location.segment == *segment) {
            self.forget(*key);
        }
        if let Some(strays) = self.strays.get_mut(key) {
            strays.retain(|stray| stray != segment);
            if strays.is_empty() {
                self.strays.remove(key);
            }
        }
    }
}

/// Returns the position of a record at `offset`, in units of [`ALIGN`].
pub(crate) fn position(offset: u64) -> u32 {
    u32::try_from(offset / ALIGN).expect("segments are limited to 2 TiB")
}
