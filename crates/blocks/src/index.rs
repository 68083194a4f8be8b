//! The index of blocks in memory: 40 bytes a block in sorted runs, so that 100 million blocks take
//! about 4.5 GB and an inventory is a walk.

use std::collections::{BTreeMap, HashMap};

use cairn_base::{BlockId, BodyId, GroupId, Owner, SessionId};

use crate::format::hint::BlockEntry;
use crate::format::{ALIGN, Key, record};

/// Most slots in one run: an insertion in the middle moves 10 KiB.
const RUN_SLOTS: usize = 256;

/// Bit of a length that says that the block is compressed; lengths of blocks have fewer bits.
const COMPRESSED: u32 = 1 << 31;

/// The place of a record, and the length of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub segment: u32,
    /// Offset in units of [`ALIGN`].
    pub position: u32,
    pub length: u32,
    /// Length of the data as they are in the record.
    pub stored: u32,
}

impl Location {
    pub(crate) fn new(segment: u32, entry: &BlockEntry) -> Location {
        let BlockEntry { position, length, stored, .. } = *entry;
        Location { segment, position, length, stored }
    }

    pub(crate) fn offset(self) -> u64 {
        u64::from(self.position) * ALIGN
    }

    pub(crate) fn footprint(self) -> u64 {
        record::footprint(self.stored)
    }
}

#[derive(Clone, Copy)]
struct IndexEntry {
    counter: u64,
    body: BodyId,
    chunk: u32,
    segment: u32,
    position: u32,
    length: u32,
}

const _: () = assert!(size_of::<IndexEntry>() == 40);

/// Group, session, and the lowest counter in the run.
type RunKey = (GroupId, SessionId, u64);

#[derive(Default)]
pub(crate) struct Index {
    runs: BTreeMap<RunKey, Vec<IndexEntry>>,
    /// Stored lengths of compressed blocks, which are kept apart: few blocks are compressed, and
    /// entries stay small.
    stored: HashMap<Key, u32>,
    blocks: u64,
    groups: BTreeMap<GroupId, GroupUsage>,
}

/// The space that the blocks of a group take.
#[derive(Default)]
struct GroupUsage {
    blocks: u64,
    /// Bytes of their records.
    bytes: u64,
}

fn run_key(key: Key) -> RunKey {
    (key.group, key.block.session, key.block.counter)
}

impl Index {
    pub(crate) fn len(&self) -> u64 {
        self.blocks
    }

    /// Returns the run in which `key` must be, if it is in the index.
    fn run(&self, key: Key) -> Option<(&RunKey, &Vec<IndexEntry>)> {
        let (found, run) = self.runs.range(..=run_key(key)).next_back()?;
        ((found.0, found.1) == (key.group, key.block.session)).then_some((found, run))
    }

    pub(crate) fn get(&self, key: Key) -> Option<(Location, Owner)> {
        let (_, run) = self.run(key)?;
        let at = run.binary_search_by_key(&key.block.counter, |slot| slot.counter).ok()?;
        run.get(at).map(|slot| (self.location(key, slot), slot.owner()))
    }

    /// Sets the location of a block. Returns the former one.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        owner: Owner,
        location: Location,
    ) -> Option<Location> {
        let former = self.get(key).map(|(former, _)| former);
        self.place(key, owner, location);
        if location.stored == location.length {
            self.stored.remove(&key);
        } else {
            self.stored.insert(key, location.stored);
        }
        let group = self.groups.entry(key.group).or_default();
        group.bytes += location.footprint();
        match former {
            Some(former) => group.bytes -= former.footprint(),
            None => {
                group.blocks += 1;
                self.blocks += 1;
            }
        }
        former
    }

    fn location(&self, key: Key, slot: &IndexEntry) -> Location {
        let IndexEntry { segment, position, .. } = *slot;
        let length = slot.length & !COMPRESSED;
        let stored = if slot.length == length {
            length
        } else {
            self.stored.get(&key).copied().unwrap_or(length)
        };
        Location { segment, position, length, stored }
    }

    fn place(&mut self, key: Key, owner: Owner, location: Location) {
        let Location { segment, position, length, stored } = location;
        let flag = if stored == length { 0 } else { COMPRESSED };
        let slot = IndexEntry {
            counter: key.block.counter,
            body: owner.body,
            chunk: owner.chunk,
            segment,
            position,
            length: length | flag,
        };
        let Some(found) = self.run(key).map(|(found, _)| *found) else {
            self.insert_first(key, slot);
            return;
        };
        let run = self.runs.entry(found).or_default();
        let at = match run.binary_search_by_key(&slot.counter, |slot| slot.counter) {
            Ok(at) => {
                run[at] = slot;
                return;
            }
            Err(at) => at,
        };
        if run.len() < RUN_SLOTS {
            run.insert(at, slot);
        } else if at == run.len() {
            self.runs.insert(run_key(key), vec![slot]);
        } else {
            let mut upper = run.split_off(RUN_SLOTS / 2);
            run.shrink_to_fit();
            match at.checked_sub(RUN_SLOTS / 2) {
                Some(0) | None => run.insert(at, slot),
                Some(at) => upper.insert(at, slot),
            }
            self.runs.insert((found.0, found.1, upper[0].counter), upper);
        }
    }

    /// Inserts a slot that precedes all others of its session.
    fn insert_first(&mut self, key: Key, slot: IndexEntry) {
        let next = self.runs.range(run_key(key)..).next().map(|(next, run)| (*next, run.len()));
        let mut run = match next {
            Some((next, len))
                if (next.0, next.1) == (key.group, key.block.session) && len < RUN_SLOTS =>
            {
                self.runs.remove(&next).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        run.insert(0, slot);
        self.runs.insert(run_key(key), run);
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Location> {
        let (former, _) = self.get(key)?;
        let found = *self.run(key)?.0;
        let run = self.runs.get_mut(&found)?;
        let at = run.binary_search_by_key(&key.block.counter, |slot| slot.counter).ok()?;
        run.remove(at);
        self.stored.remove(&key);
        self.blocks -= 1;
        if let Some(group) = self.groups.get_mut(&key.group) {
            group.blocks -= 1;
            group.bytes -= former.footprint();
            if group.blocks == 0 {
                self.groups.remove(&key.group);
            }
        }
        if run.is_empty() {
            self.runs.remove(&found);
        } else if run.len() < run.capacity() / 4 {
            run.shrink_to_fit();
        }
        Some(former)
    }

    /// Returns the blocks of a group after `after`, in the order of their ids.
    pub(crate) fn after(
        &self,
        group: GroupId,
        after: Option<BlockId>,
    ) -> impl Iterator<Item = (BlockId, Owner, Location)> {
        let from = after.map(|block| Key { group, block });
        let start = match from {
            Some(key) => self.run(key).map_or(run_key(key), |(found, _)| *found),
            None => (group, SessionId(0), 0),
        };
        self.runs
            .range(start..)
            .take_while(move |(found, _)| found.0 == group)
            .flat_map(|(found, run)| run.iter().map(move |slot| (found.1, slot)))
            .map(move |(session, slot)| {
                let block = BlockId { session, counter: slot.counter };
                (block, slot.owner(), self.location(Key { group, block }, slot))
            })
            .skip_while(move |(block, _, _)| after.is_some_and(|after| *block <= after))
    }

    /// Returns all groups that have blocks here, and the bytes of their records.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupId, u64)> {
        self.groups.iter().map(|(group, usage)| (*group, usage.bytes))
    }
}

impl IndexEntry {
    fn owner(&self) -> Owner {
        Owner { body: self.body, chunk: self.chunk }
    }
}
