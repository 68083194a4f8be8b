//! Deletions: a tombstone for every segment that holds a record of the block.

use std::sync::Arc;

use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{BlockId, GroupId, Owner, Result};

use crate::append::Draft;
use crate::format::Key;
use crate::format::hint::HintEntry;
use crate::format::record::{Kind, TOMBSTONE_BYTES, Tombstone};
use crate::log::Outcome;
use crate::shared::StoreShared;

/// Number of tombstones in one record.
const RECORD_TOMBSTONES: usize = BLOCK_BYTES / TOMBSTONE_BYTES;

impl StoreShared {
    /// Deletes blocks. Blocks the thread until the tombstones are on the disk.
    pub(crate) fn delete(self: &Arc<Self>, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        // No block may be located while compaction points the index elsewhere.
        let _still = self.moving.read();
        let mut graves = Vec::new();
        {
            let state = self.state.read();
            // An unreadable segment may hold the block, too, and may be readable next time.
            let damaged = state.segments.iter().filter(|(_, segment)| segment.damaged);
            let dark: Vec<u32> = damaged
                .map(|(number, _)| *number)
                .chain(state.unreadable.iter().copied())
                .collect();
            for &block in blocks {
                let key = Key { group, block };
                let indexed = state.index.get(key).map(|(location, _)| location.segment);
                let strays = state.strays.get(&key).into_iter().flatten().copied();
                let strays = strays.filter(|stray| !dark.contains(stray)).chain(dark.clone());
                let strays = strays.filter(|stray| Some(*stray) != indexed);
                graves.extend(indexed.into_iter().chain(strays).map(|segment| (key, segment)));
            }
        }
        self.bury(&graves, Outcome::Delete)
    }

    /// Writes tombstones with new sequences and waits for them.
    pub(crate) fn bury(
        self: &Arc<Self>,
        graves: &[(Key, u32)],
        outcome: impl Fn(Vec<HintEntry>) -> Outcome,
    ) -> Result<()> {
        let tombstones: Vec<Tombstone> = {
            // All tombstones share one sequence, below which all records are gone; the records of
            // the tombstones get later sequences.
            let mut writer = self.writer.lock();
            let sequence = writer.next_sequence;
            writer.next_sequence += 1;
            graves.iter().map(|&(key, segment)| Tombstone { key, segment, sequence }).collect()
        };
        self.write_tombstones(&tombstones, outcome)
    }

    pub(crate) fn write_tombstones(
        self: &Arc<Self>,
        tombstones: &[Tombstone],
        outcome: impl Fn(Vec<HintEntry>) -> Outcome,
    ) -> Result<()> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut waiting = 0;
        let mut begun = Ok(());
        for chunk in tombstones.chunks(RECORD_TOMBSTONES) {
            let mut data = Vec::with_capacity(chunk.len() * TOMBSTONE_BYTES);
            chunk.iter().for_each(|tombstone| tombstone.encode(&mut data));
            let draft = Draft {
                kind: Kind::Tombstones,
                key: chunk.first().map_or(Key::default(), |tombstone| tombstone.key),
                owner: Owner::default(),
                data: &data,
                length: data.len() as u32,
                sequence: None,
            };
            let entries = chunk.iter().copied().map(HintEntry::Tombstone).collect();
            let sender = sender.clone();
            begun = self.append(&draft, |_, _, _| {
                let done = Box::new(move |result| drop(sender.send(result)));
                (outcome(entries), done)
            });
            if begun.is_err() {
                break;
            }
            waiting += 1;
        }
        drop(sender);
        self.before_waiting();
        let ended = receiver.iter().take(waiting).fold(Ok(()), Result::and);
        begun.and(ended)
    }
}
