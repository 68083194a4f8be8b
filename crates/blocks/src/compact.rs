//! Compaction: the live records of a mostly dead segment are moved, and its file is removed.
//!
//! Copies are on the disk before the index points to them, and the index points to them before the
//! file is removed. At any moment a crash leaves the original, the copy, or both, which are the
//! same.

use std::sync::Arc;
use std::sync::mpsc::channel;

use cairn_base::disk::read_exact_at;
use cairn_base::{DiskFile, Error, Result};

use crate::append::Draft;
use crate::files::{hint_name, segment_name};
use crate::format::ALIGN;
use crate::format::hint::{BlockEntry, HintEntry};
use crate::format::record::{self, Kind, RecordHeader, RecordPlace, Tombstone};
use crate::format::segment::RECORDS_OFFSET;
use crate::log::Outcome;
use crate::recover::read_hint;
use crate::scan;
use crate::shared::StoreShared;
use crate::state::{Segment, StoreState};
use crate::store::Store;

/// Bytes of data that were read and are not durable again yet.
const BATCH_BYTES: u64 = 16 << 20;
/// Number of segments filled to less than an eighth (each restart leaves one) from which on they
/// are merged.
const SMALL_SEGMENTS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactReport {
    /// Number of segments removed, or to be removed.
    pub segments_removed: u64,
    /// Bytes of these segments.
    pub removed_bytes: u64,
    pub moved_blocks: u64,
    pub moved_bytes: u64,
    /// Number of blocks that fail verification. Their segments stay until the blocks are repaired
    /// or deleted.
    pub corrupt_blocks: u64,
    /// True if there was no space to move more.
    pub full: bool,
}

struct Candidate {
    number: u32,
    live_bytes: u64,
    used_bytes: u64,
}

/// The records that must leave a segment before the segment can be deleted.
#[derive(Default)]
struct Living {
    blocks: Vec<BlockEntry>,
    tombstones: Vec<Tombstone>,
}

impl Store {
    /// Returns whether there is no space for a whole new segment: it is time to compact.
    pub fn is_short_of_space(&self) -> bool {
        self.shared.is_short()
    }

    /// Removes dead segments and rewrites mostly dead ones. With `dry_run`, only reports what it
    /// would do. Blocks the thread.
    pub fn compact(&self, dry_run: bool) -> Result<CompactReport> {
        let shared = &self.shared;
        let _alone = shared.compacting.lock();
        let mut report = CompactReport::default();
        if !dry_run {
            shared.settle_ghosts()?;
            shared.cover()?;
        }
        for candidate in shared.candidates() {
            if dry_run {
                report.segments_removed += 1;
                report.removed_bytes += candidate.used_bytes;
                report.moved_bytes += candidate.live_bytes;
                continue;
            }
            match shared.compact_segment(&candidate, &mut report) {
                Ok(()) => {}
                Err(Error::Full(_)) => report.full = true,
                Err(error) => return Err(error),
            }
            // Freed space goes to the reserve first: the next segment may need it.
            let _ = shared.ensure_reserve();
        }
        if !dry_run && shared.ensure_reserve().is_err() {
            report.full = true;
        }
        Ok(report)
    }
}

impl StoreShared {
    /// Returns the segments worth compacting, those with the fewest live bytes first.
    fn candidates(&self) -> Vec<Candidate> {
        let short = self.is_short();
        let state = self.state.read();
        let sealed = |segment: &&Segment| segment.log.is_none() && !segment.damaged;
        let is_small = |segment: &Segment| segment.end < self.config.segment_bytes / 8;
        let all = || state.segments.iter().filter(|(_, segment)| sealed(segment));
        let merge = all().filter(|(_, segment)| is_small(segment)).count() >= SMALL_SEGMENTS;
        let mut found: Vec<Candidate> = all()
            .filter(|(_, segment)| {
                is_worth_it(segment.live_bytes, segment.end - RECORDS_OFFSET, short)
                    || merge && is_small(segment)
            })
            .map(|(&number, segment)| Candidate {
                number,
                live_bytes: segment.live_bytes,
                used_bytes: segment.end,
            })
            .collect();
        found.sort_by_key(|candidate| candidate.live_bytes);
        found
    }

    fn compact_segment(
        self: &Arc<Self>,
        candidate: &Candidate,
        report: &mut CompactReport,
    ) -> Result<()> {
        let number = candidate.number;
        let Some((file, salt)) = self.state.read().file(number) else { return Ok(()) };
        let Some(entries) = self.segment_entries(number, &*file, salt)? else { return Ok(()) };
        let living = self.living(number, &entries);
        let stays = living.tombstones.len() as u64 * record::TOMBSTONE_BYTES as u64
            + living.blocks.iter().map(BlockEntry::footprint).sum::<u64>();
        let small = candidate.used_bytes < self.config.segment_bytes / 8;
        if !small && !is_worth_it(stays, candidate.used_bytes, self.is_short()) {
            return Ok(());
        }
        if stays > 0 && !self.can_move(stays) {
            report.full = true;
            return Ok(());
        }
        let place = RecordPlace { segment: number, salt, offset: 0 };
        let mut batch = Vec::new();
        let mut batch_bytes = 0;
        for block in &living.blocks {
            let Some(data) = read_block(&*file, place, block, report) else { continue };
            batch_bytes += block.footprint();
            batch.push((*block, data));
            if batch_bytes >= BATCH_BYTES {
                self.move_blocks(number, std::mem::take(&mut batch), report)?;
                batch_bytes = 0;
            }
        }
        self.move_blocks(number, batch, report)?;
        self.write_tombstones(&living.tombstones, Outcome::Move)?;
        self.remove_segment(number, report)
    }

    /// Returns the entries of a segment; `None` if its contents are uncertain: then it stays.
    fn segment_entries(
        &self,
        number: u32,
        file: &dyn DiskFile,
        salt: u64,
    ) -> Result<Option<Vec<HintEntry>>> {
        let len = file.len()?;
        if let Some(hint) = read_hint(&*self.disk, number, salt, len) {
            return Ok(Some(hint.entries));
        }
        // In a poisoned segment, records count only if they were acknowledged.
        let end = self.state.read().segments.get(&number).map_or(0, |segment| segment.end);
        let place = RecordPlace { segment: number, salt, offset: 0 };
        let scan = scan::scan(file, place, end.min(len), end)?;
        if scan.damaged {
            tracing::warn!(segment = number, "not compacted: parts of it do not check out");
            return Ok(None);
        }
        Ok(Some(scan.entries))
    }

    fn living(&self, number: u32, entries: &[HintEntry]) -> Living {
        let state = self.state.read();
        let mut living = Living::default();
        for entry in entries {
            match entry {
                HintEntry::Block(block) if is_at(&state, number, block) => {
                    living.blocks.push(*block)
                }
                HintEntry::Block(_) => {}
                HintEntry::Tombstone(tombstone) => {
                    // The tombstone of a record in this very file is removed with it.
                    let needed = tombstone.segment != number && state.may_exist(tombstone.segment);
                    living.tombstones.extend(needed.then_some(*tombstone));
                }
            }
        }
        living
    }

    /// Copies blocks, waits until the copies are durable, and points the index to them.
    fn move_blocks(
        self: &Arc<Self>,
        number: u32,
        batch: Vec<(BlockEntry, Vec<u8>)>,
        report: &mut CompactReport,
    ) -> Result<()> {
        let (sender, receiver) = channel();
        let mut begun = Ok(());
        for (block, data) in &batch {
            let draft = Draft {
                kind: Kind::Block,
                key: block.key,
                owner: block.owner,
                data,
                length: block.length,
                sequence: Some(block.sequence),
            };
            let sender = sender.clone();
            begun = self.append(&draft, |segment, offset, sequence| {
                let copy = draft.entry(offset, sequence);
                let original = *block;
                let done = move |result: Result<()>| {
                    let _ = sender.send(result.map(|()| (segment, original, copy)));
                };
                (Outcome::Move(vec![HintEntry::Block(copy)]), Box::new(done))
            });
            if begun.is_err() {
                break;
            }
        }
        drop(sender);
        self.before_waiting();
        let mut ended = Ok(());
        let mut copies = Vec::with_capacity(batch.len());
        for result in receiver {
            match result {
                Ok(copy) => copies.push(copy),
                Err(error) => ended = Err(error),
            }
        }
        report.moved_blocks += copies.len() as u64;
        report.moved_bytes += copies.iter().map(|(_, block, _)| block.footprint()).sum::<u64>();
        let late = self.repoint(number, &copies);
        self.write_tombstones(&late, Outcome::Move)?;
        begun.and(ended)
    }

    /// Points the index to copies. Returns tombstones for copies of blocks that were deleted since.
    fn repoint(&self, number: u32, copies: &[(u32, BlockEntry, BlockEntry)]) -> Vec<Tombstone> {
        let _alone = self.moving.write();
        let mut state = self.state.write();
        let mut late = Vec::new();
        for (segment, original, copy) in copies {
            if is_at(&state, number, original) {
                state.point(*segment, copy);
                // Until the original is surely gone, a deletion has to name it, too.
                state.add_stray(original.key, number);
            } else {
                let sequence = copy.sequence.saturating_add(1);
                late.push(Tombstone { key: copy.key, segment: *segment, sequence });
            }
        }
        late
    }

    fn remove_segment(&self, number: u32, report: &mut CompactReport) -> Result<()> {
        let bytes = {
            let mut state = self.state.write();
            let dead = state.segments.get(&number).filter(|segment| segment.live_bytes == 0);
            let Some(bytes) = dead.map(|segment| segment.end) else { return Ok(()) };
            state.segments.remove(&number);
            state.ghosts.insert(number);
            bytes
        };
        report.segments_removed += 1;
        report.removed_bytes += bytes;
        self.settle_ghosts()
    }

    /// Removes the files of ghosts, durably, and forgets these segments.
    fn settle_ghosts(&self) -> Result<()> {
        let ghosts: Vec<u32> = self.state.read().ghosts.iter().copied().collect();
        if ghosts.is_empty() {
            return Ok(());
        }
        for &ghost in &ghosts {
            // The hint first: without its segment it is meaningless.
            for name in [hint_name(ghost), segment_name(ghost)] {
                match self.disk.remove(&name) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
        }
        self.disk.sync()?;
        let mut state = self.state.write();
        state.ghosts.retain(|ghost| !ghosts.contains(ghost));
        state.strays.retain(|_, segments| {
            segments.retain(|segment| !ghosts.contains(segment));
            !segments.is_empty()
        });
        Ok(())
    }

    /// Writes the tombstones in [`StoreState::uncovered`].
    fn cover(self: &Arc<Self>) -> Result<()> {
        let uncovered = self.state.read().uncovered.clone();
        self.write_tombstones(&uncovered, Outcome::Move)?;
        self.state.write().uncovered.clear();
        Ok(())
    }
}

/// Returns whether the live part of a segment is small enough to move it. If space is short, it may
/// be larger.
fn is_worth_it(live_bytes: u64, used_bytes: u64, short: bool) -> bool {
    if short { live_bytes * 4 <= used_bytes * 3 } else { live_bytes * 2 <= used_bytes }
}

fn is_at(state: &StoreState, number: u32, block: &BlockEntry) -> bool {
    state.index.get(block.key).is_some_and(|(location, _)| {
        (location.segment, location.position) == (number, block.position)
    })
}

/// Returns the data of a block as they are stored, or `None` if they cannot be read or fail
/// verification.
fn read_block(
    file: &dyn DiskFile,
    place: RecordPlace,
    block: &BlockEntry,
    report: &mut CompactReport,
) -> Option<Vec<u8>> {
    let place = RecordPlace { offset: u64::from(block.position) * ALIGN, ..place };
    let mut bytes = vec![0; block.footprint() as usize];
    let good = read_exact_at(file, &mut bytes, place.offset).ok().and_then(|()| {
        let header = RecordHeader::decode_at(&bytes, place)?;
        let ours =
            (header.key, header.length, header.stored) == (block.key, block.length, block.stored);
        scan::data(&header, &bytes).filter(|_| ours).map(<[u8]>::to_vec)
    });
    report.corrupt_blocks += u64::from(good.is_none());
    good
}
