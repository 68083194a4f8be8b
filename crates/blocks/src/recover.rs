//! Opening: builds the index from the files on the disk.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use cairn_base::disk::read_exact_at;
use cairn_base::{Disk, DiskFile, Error, Result};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::config::Config;
use crate::failing::DiskHealth;
use crate::files::{self, RESERVE, UNFINISHED, hint_name, number_of, segment_name};
use crate::format::Key;
use crate::format::hint::{BlockEntry, Hint, HintEntry};
use crate::format::record::{HEADER_BYTES, RecordHeader, RecordPlace, Tombstone};
use crate::format::segment::{self, HEADER_OFFSETS, SegmentHeader};
use crate::memory::ReadMemory;
use crate::scan::{self, Scan};
use crate::shared::{StoreShared, Writer};
use crate::state::{Segment, StoreState};

/// The findings of opening a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenReport {
    pub segments: u64,
    pub blocks: u64,
    /// Number of segments without a valid hint, which were read.
    pub scanned_segments: u64,
    /// Number of segments in which bytes that had been durable fail verification. Blocks may be
    /// missing.
    pub damaged_segments: u64,
    /// Number of records at the end of a segment whose write was cut off, before they were
    /// acknowledged. (A last record that rotted before its segment got a hint looks the same.)
    pub torn_records: u64,
}

struct Opening {
    disk: Arc<dyn Disk>,
    config: Config,
    state: StoreState,
    /// Entries of segments that were scanned; those of other segments are in their hints.
    scanned: HashMap<u32, Vec<HintEntry>>,
    report: OpenReport,
    next_sequence: u64,
    /// True if a segment for compressed records was found.
    codecs: bool,
    /// For each block, the highest sequence of its tombstones.
    dead: HashMap<Key, u64>,
    /// Blocks and segments for which there are tombstones.
    graves: HashSet<(Key, u32)>,
}

pub(crate) fn open(disk: Arc<dyn Disk>, config: Config) -> Result<(StoreShared, OpenReport)> {
    let names = disk.list()?;
    let highest = names.iter().filter_map(|name| number_of(name)).max();
    let next_segment = match highest {
        Some(u32::MAX) => return Err(Error::Full(
            "the block store has used all segment numbers: move its blocks to a new node or store"
                .to_owned(),
        )),
        Some(highest) => highest + 1,
        None => 1,
    };
    let mut opening = Opening {
        disk,
        config,
        state: StoreState::default(),
        scanned: HashMap::new(),
        report: OpenReport::default(),
        next_sequence: 1,
        codecs: false,
        dead: HashMap::new(),
        graves: HashSet::new(),
    };
    opening.remove_leftovers(&names);
    opening.load_segments(&names)?;
    opening.fill_index()?;
    opening.finish(next_segment, names.iter().any(|name| name == RESERVE))
}

impl Opening {
    fn remove_leftovers(&self, names: &[String]) {
        for name in names {
            let orphan = name.strip_suffix(".hint").is_some_and(|stem| {
                number_of(name).is_some() && !names.contains(&format!("{stem}.seg"))
            });
            let unfinished = name.ends_with(UNFINISHED) && number_of(name).is_some();
            if (orphan || unfinished)
                && let Err(error) = self.disk.remove(name)
            {
                tracing::warn!(name, %error, "a leftover file was not removed");
            }
        }
    }

    fn load_segments(&mut self, names: &[String]) -> Result<()> {
        let segments = names.iter().filter(|name| name.ends_with(".seg"));
        let mut numbers: Vec<u32> = segments.filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.load_segment(number)?;
        }
        Ok(())
    }

    fn load_segment(&mut self, number: u32) -> Result<()> {
        let file = self.disk.open(&segment_name(number))?;
        let len = file.len()?;
        let Some(header) = self.read_header(&*file, number)? else {
            tracing::error!(segment = number, "both headers of a segment are broken");
            self.report.damaged_segments += 1;
            // Its records may be readable again one day, so tombstones for them are kept.
            self.state.unreadable.insert(number);
            return Ok(());
        };
        let salt = header.salt;
        self.codecs |= header.codecs;
        let mut segment = Segment {
            file,
            salt,
            log: None,
            end: 0,
            live_bytes: 0,
            poisoned: false,
            damaged: false,
        };
        match read_hint(&*self.disk, number, salt, len) {
            Some(hint) => {
                segment.end = hint.end;
                self.note(&hint.entries);
            }
            None if !self.scan(number, &mut segment, len)? => return Ok(()),
            None => {}
        }
        self.state.segments.insert(number, segment);
        Ok(())
    }

    fn read_header(&self, file: &dyn DiskFile, number: u32) -> Result<Option<SegmentHeader>> {
        let mut failed = None;
        for offset in HEADER_OFFSETS {
            let mut bytes = [0; segment::HEADER_BYTES];
            match read_exact_at(file, &mut bytes, offset) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => continue,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            }
            let Some(header) = SegmentHeader::decode(&bytes)? else { continue };
            if header.cluster != self.config.cluster || header.disk != self.config.disk {
                let text = format!("{} belongs to another disk or cluster", segment_name(number));
                return Err(Error::Invalid(text));
            }
            if header.number == number {
                return Ok(Some(header));
            }
        }
        // A broken header is one thing; but if the disk does not answer, opening must fail.
        failed.map_or(Ok(None), |error| Err(error.into()))
    }

    /// Reads a segment without a hint and writes a hint. Returns false if the segment was empty and
    /// is removed.
    fn scan(&mut self, number: u32, segment: &mut Segment, len: u64) -> Result<bool> {
        let place = RecordPlace { segment: number, salt: segment.salt, offset: 0 };
        let Scan { entries, end, used_end, damaged, torn } =
            scan::scan(&*segment.file, place, len, 0)?;
        self.report.scanned_segments += 1;
        self.report.torn_records += torn;
        if entries.is_empty() && !damaged && used_end == 0 {
            let _ = self.disk.remove(&hint_name(number));
            return Ok(self.disk.remove(&segment_name(number)).is_err());
        }
        segment.end = end;
        segment.damaged = damaged;
        self.note(&entries);
        if damaged {
            tracing::error!(segment = number, "parts of a segment do not check out");
            self.report.damaged_segments += 1;
            self.scanned.insert(number, entries);
            return Ok(true);
        }
        let hint = Hint { segment: number, salt: segment.salt, end, entries };
        let sealed = files::write_hint(&*self.disk, &hint)
            .and_then(|()| segment.file.set_len(end.max(used_end)));
        if let Err(error) = sealed {
            tracing::warn!(segment = number, %error, "a segment was not sealed");
        }
        self.scanned.insert(number, hint.entries);
        Ok(true)
    }

    fn note(&mut self, entries: &[HintEntry]) {
        for entry in entries {
            let sequence = match entry {
                HintEntry::Block(block) => block.sequence,
                HintEntry::Tombstone(Tombstone { key, segment, sequence }) => {
                    let highest = self.dead.entry(*key).or_default();
                    *highest = (*highest).max(*sequence);
                    self.graves.insert((*key, *segment));
                    *sequence
                }
            };
            self.next_sequence = self.next_sequence.max(sequence.saturating_add(1));
        }
    }

    fn fill_index(&mut self) -> Result<()> {
        let numbers: Vec<u32> = self.state.segments.keys().copied().collect();
        for number in numbers {
            for entry in self.entries(number)? {
                if let HintEntry::Block(block) = entry {
                    self.add(number, &block);
                }
            }
        }
        Ok(())
    }

    fn entries(&mut self, number: u32) -> Result<Vec<HintEntry>> {
        if let Some(entries) = self.scanned.remove(&number) {
            return Ok(entries);
        }
        let Some((file, salt)) = self.state.file(number) else { return Ok(Vec::new()) };
        let hint = read_hint(&*self.disk, number, salt, file.len()?);
        let hint = hint.ok_or_else(|| {
            Error::Unavailable(format!("{} changed while it was read", hint_name(number)))
        })?;
        Ok(hint.entries)
    }

    /// Adds a block to the index unless a later record says otherwise.
    fn add(&mut self, number: u32, block: &BlockEntry) {
        let key = block.key;
        if let Some(sequence) = self.dead.get(&key).copied()
            && block.sequence < sequence
        {
            if !self.graves.contains(&(key, number)) {
                self.state.uncovered.push(Tombstone { key, segment: number, sequence });
            }
            return;
        }
        let Some((old, _)) = self.state.index.get(key) else {
            return self.state.point(number, block);
        };
        // Of equal records, the record in the older segment is the original and surely whole.
        let sequence = self.sequence_at(old.segment, old.offset());
        if sequence.is_some_and(|sequence| sequence >= block.sequence) {
            self.state.add_stray(key, number);
        } else {
            self.state.add_stray(key, old.segment);
            self.state.point(number, block);
        }
    }

    fn sequence_at(&self, segment: u32, offset: u64) -> Option<u64> {
        let (file, salt) = self.state.file(segment)?;
        let mut bytes = [0; HEADER_BYTES];
        read_exact_at(&*file, &mut bytes, offset).ok()?;
        let header = RecordHeader::decode_at(&bytes, RecordPlace { segment, salt, offset })?;
        Some(header.sequence)
    }

    fn finish(self, next_segment: u32, has_reserve: bool) -> Result<(StoreShared, OpenReport)> {
        let mut report = self.report;
        report.blocks = self.state.index.len();
        report.segments = self.state.segments.len() as u64;
        // A reserve of another version, or from before the disk was enlarged, may have another
        // length.
        let reserve_bytes = if has_reserve { self.disk.open(RESERVE)?.len()? } else { 0 };
        let writer = Writer {
            active: None,
            rolling: false,
            closed: false,
            open_logs: 0,
            next_segment,
            next_sequence: self.next_sequence,
            codecs: self.codecs,
            reserve_bytes,
            pending: HashSet::new(),
        };
        let shared = StoreShared {
            disk: self.disk,
            config: self.config,
            state: RwLock::new(self.state),
            writer: Mutex::new(writer),
            changed: Condvar::new(),
            syncer: OnceLock::new(),
            moving: RwLock::new(()),
            compacting: Mutex::new(()),
            corrupt_reads: AtomicU64::new(0),
            health: DiskHealth::default(),
            memory: ReadMemory::default(),
        };
        if let Err(error) = shared.ensure_reserve() {
            tracing::warn!(%error, "no space is kept back for deletions");
        }
        Ok((shared, report))
    }
}

/// Returns the hint of a segment, if it is valid and fits the segment, which is `len` bytes long.
pub(crate) fn read_hint(disk: &dyn Disk, number: u32, salt: u64, len: u64) -> Option<Hint> {
    let file = disk.open(&hint_name(number)).ok()?;
    let hint_len = file.len().ok().filter(|hint_len| *hint_len <= 4096 + len.saturating_mul(2))?;
    let mut bytes = vec![0; usize::try_from(hint_len).ok()?];
    read_exact_at(&*file, &mut bytes, 0).ok()?;
    let hint = Hint::decode(&bytes)?;
    (hint.segment == number && hint.salt == salt && hint.end <= len).then_some(hint)
}
