//! Appends records to segments.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{Error, Owner, Result};

use crate::config::Durability;
use crate::files::{self, RESERVE};
use crate::format::frames;
use crate::format::hint::{BlockEntry, Hint, HintEntry};
use crate::format::record::{self, Kind, RecordHeader};
use crate::format::segment::RECORDS_OFFSET;
use crate::format::{ALIGN, Key};
use crate::log::{Done, Log, LogRoom, Outcome, copy_error, finish};
use crate::shared::StoreShared;
use crate::state::{Segment, position};

const ZEROS: [u8; ALIGN as usize] = [0; ALIGN as usize];

/// Records of at least this length, bytes, are not kept in the page cache: the cache of `fs` holds
/// bytes that are read often.
const WRITE_BEHIND_BYTES: usize = 512 << 10;

/// A record without a place yet.
pub(crate) struct Draft<'a> {
    pub kind: Kind,
    pub key: Key,
    pub owner: Owner,
    /// Data as they are stored.
    pub data: &'a [u8],
    /// Length of the data, unpacked.
    pub length: u32,
    /// Sequence of the original, if the record is a copy; `None` for a new record.
    pub sequence: Option<u64>,
}

/// The purpose of a record: on a full disk, the reserve is for records that free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Put,
    Move,
    Tombstone,
}

impl Class {
    /// Returns the bytes of a reserve that such a record must leave free.
    fn spared(self, reserve_bytes: u64) -> u64 {
        if self == Class::Move { reserve_bytes / 8 } else { 0 }
    }
}

/// Options for writing a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// Replaces a damaged record of the block. Readers find the old record until the new one is
    /// durable, and it stays if the new one cannot be written. Without this option the block must
    /// be new.
    pub over: bool,
    /// Compresses the block if that saves space.
    pub compress: bool,
}

fn fits(log: &Log, footprint: u64, class: Class, compressed: bool) -> bool {
    if compressed && !log.codecs {
        return false;
    }
    let spared = if log.reserved { class.spared(log.limit) } else { 0 };
    (class != Class::Put || !log.reserved) && footprint + spared <= log.room()
}

impl Draft<'_> {
    fn class(&self) -> Class {
        match (self.kind, self.sequence) {
            (Kind::Tombstones, _) => Class::Tombstone,
            (Kind::Block, Some(_)) => Class::Move,
            (Kind::Block, None) => Class::Put,
        }
    }

    /// Returns the length of the data as they are stored.
    fn stored(&self) -> u32 {
        assert!((1..=BLOCK_BYTES).contains(&self.data.len()));
        self.data.len() as u32
    }

    fn is_compressed(&self) -> bool {
        self.stored() != self.length
    }

    pub(crate) fn entry(&self, offset: u64, sequence: u64) -> BlockEntry {
        BlockEntry {
            key: self.key,
            owner: self.owner,
            position: position(offset),
            length: self.length,
            stored: self.stored(),
            sequence,
        }
    }
}

/// Poisons the segment if the write does not finish.
struct Writing<'a> {
    shared: &'a Arc<StoreShared>,
    log: &'a Arc<Log>,
    finished: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.shared
                .poison(self.log, &std::io::Error::other("a write to the segment was interrupted"));
        }
    }
}

impl StoreShared {
    /// Writes a block; `done` is called when the block is acknowledged or refused. Blocks the
    /// thread.
    pub(crate) fn put(
        self: &Arc<Self>,
        key: Key,
        how: How,
        owner: Owner,
        data: &Bytes,
        done: Done,
    ) {
        if data.is_empty() || data.len() > BLOCK_BYTES {
            let text = format!("a block of {} bytes: 1 to {BLOCK_BYTES} it may have", data.len());
            return done(Err(Error::Invalid(text)));
        }
        if let Err(error) = self.claim(key, how.over) {
            return done(Err(error));
        }
        let slot = Arc::new(parking_lot::Mutex::new(Some(done)));
        let answer = {
            let (shared, slot) = (Arc::clone(self), Arc::clone(&slot));
            move |result| {
                shared.writer.lock().pending.remove(&key);
                if let Some(done) = slot.lock().take() {
                    done(result);
                }
            }
        };
        let length = data.len() as u32;
        let append = |data: &[u8]| {
            let draft = Draft { kind: Kind::Block, key, owner, data, length, sequence: None };
            let answer = answer.clone();
            self.append(&draft, |_, offset, sequence| {
                let entry = HintEntry::Block(draft.entry(offset, sequence));
                (Outcome::Put(entry), Box::new(answer))
            })
        };
        let compressed = if how.compress { frames::compress(data) } else { None };
        let begun = match compressed.as_deref().map(append) {
            // If there is no segment for compressed records, another segment may have room for
            // plain ones.
            None | Some(Err(Error::Full(_))) => append(&data[..]),
            Some(begun) => begun,
        };
        if let Err(error) = begun {
            answer(Err(error));
        }
    }

    /// Marks a block as being written.
    ///
    /// # Errors
    /// `Conflict` if it is being written already, `Exists` if it is there and not to be replaced.
    fn claim(&self, key: Key, over: bool) -> Result<()> {
        let mut writer = self.writer.lock();
        if writer.pending.contains(&key) {
            return Err(Error::Conflict(format!("block {} is being written", key.block)));
        }
        if !over && self.state.read().index.get(key).is_some() {
            return Err(Error::Exists(format!("block {}", key.block)));
        }
        writer.pending.insert(key);
        Ok(())
    }

    /// Reserves space for a record and writes it. The result of the write goes to the callback that
    /// `make` returns, given segment, offset and sequence.
    ///
    /// # Errors
    /// There was no space, and nothing was written.
    pub(crate) fn append(
        self: &Arc<Self>,
        draft: &Draft<'_>,
        make: impl FnOnce(u32, u64, u64) -> (Outcome, Done),
    ) -> Result<()> {
        let table = record::table(draft.data);
        let footprint = record::footprint(draft.stored());
        let (room, sequence) = self.reserve(draft, footprint, make)?;
        let header = RecordHeader {
            kind: draft.kind,
            place: room.log.place(room.offset),
            key: draft.key,
            owner: draft.owner,
            sequence,
            synced: room.synced,
            length: draft.length,
            stored: draft.stored(),
            table_crc: cairn_base::checksum::crc32c(&table),
        };
        let mut writing = Writing { shared: self, log: &room.log, finished: false };
        let encoded = header.encode();
        let padding = footprint as usize - encoded.len() - table.len() - draft.data.len();
        let bufs = [&encoded[..], &table, draft.data, &ZEROS[..padding]];
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        let written = if bytes >= WRITE_BEHIND_BYTES {
            room.log.file.write_behind_at(&bufs, room.offset)
        } else {
            room.log.file.write_at(&bufs, room.offset)
        };
        writing.finished = true;
        match written {
            Ok(()) => self.written(&room, footprint),
            Err(error) => self.poison(&room.log, &error),
        }
        Ok(())
    }

    fn written(self: &Arc<Self>, room: &LogRoom, footprint: u64) {
        let (log, unsynced_bytes) = (&room.log, self.config.unsynced_bytes);
        let end = room.offset + footprint;
        let (tell, acknowledged) = match self.config.durability {
            Durability::Sync => (log.written(end, unsynced_bytes), Vec::new()),
            Durability::Async => {
                // Acknowledging the blocks and pointing the index to them is one step: see
                // `durable`.
                let mut state = self.state.write();
                let acknowledged = log.acknowledge(end, |out| state.settle(log.number, out));
                (log.written(end, unsynced_bytes), acknowledged)
            }
        };
        acknowledged.into_iter().for_each(|done| done(Ok(())));
        if tell {
            self.tell(log);
        }
    }

    fn reserve(
        self: &Arc<Self>,
        draft: &Draft<'_>,
        footprint: u64,
        make: impl FnOnce(u32, u64, u64) -> (Outcome, Done),
    ) -> Result<(LogRoom, u64)> {
        let (class, compressed) = (draft.class(), draft.is_compressed());
        let mut writer = self.writer.lock();
        loop {
            if writer.closed {
                return Err(Error::Unavailable("the block store is closed".to_owned()));
            }
            let fitting = |log: &&Arc<Log>| fits(log, footprint, class, compressed);
            if let Some(log) = writer.active.as_ref().filter(fitting).cloned() {
                let sequence = draft.sequence.unwrap_or(writer.next_sequence);
                let make = |offset| make(log.number, offset, sequence);
                // Only poison can come in between, and the writer learns that by a failed
                // reservation.
                let Some(room) = log.reserve(footprint, make) else {
                    return Err(Error::Unavailable(
                        "a segment failed while a block was written to it".to_owned(),
                    ));
                };
                writer.next_sequence += u64::from(draft.sequence.is_none());
                return Ok((room, sequence));
            }
            if writer.rolling {
                self.changed.wait(&mut writer);
                continue;
            }
            writer.rolling = true;
            drop(writer);
            let rolled = self.roll(footprint, class, compressed);
            if let Err(Error::Io(error)) = &rolled {
                self.health.note_failed_write(error);
            }
            writer = self.writer.lock();
            writer.rolling = false;
            self.changed.notify_all();
            let old = writer.active.replace(rolled?);
            writer.open_logs += 1;
            if let Some(old) = old.filter(|old| old.close()) {
                self.tell(&old);
            }
        }
    }

    /// Makes a segment that has room for `footprint` bytes.
    fn roll(&self, footprint: u64, class: Class, compressed: bool) -> Result<Arc<Log>> {
        let full = match self.roll_for_blocks(footprint, compressed) {
            Err(Error::Full(text)) if class != Class::Put => Error::Full(text),
            other => return other,
        };
        let bytes = {
            let mut writer = self.writer.lock();
            let bytes = writer.reserve_bytes;
            if RECORDS_OFFSET + footprint + class.spared(bytes) > bytes {
                return Err(full);
            }
            writer.reserve_bytes = 0;
            bytes
        };
        self.disk.remove(RESERVE)?;
        self.create_log(bytes, true, compressed)
    }

    /// Returns whether compaction has room to move this many bytes: moving only a part of them
    /// would free nothing.
    pub(crate) fn can_move(&self, bytes: u64) -> bool {
        let left = self.left_bytes().unwrap_or(0);
        let writer = self.writer.lock();
        let room = writer.active.as_ref().map_or(0, |log| {
            log.room().saturating_sub(if log.reserved { Class::Move.spared(log.limit) } else { 0 })
        });
        let reserve = writer.reserve_bytes;
        let owed = if reserve > 0 { 0 } else { self.config.reserve_bytes };
        // Twice the bytes, as other writers fill the same segments.
        bytes <= room
            || self.least_bytes() + 2 * bytes + owed < left
            || RECORDS_OFFSET + bytes + Class::Move.spared(reserve) <= reserve
    }

    /// Returns the bytes of the disk that may still be used.
    fn left_bytes(&self) -> Result<u64> {
        Ok(self.disk.free_bytes()?.saturating_sub(self.config.spare_bytes))
    }

    /// Returns the size of the smallest segment worth a file.
    fn least_bytes(&self) -> u64 {
        RECORDS_OFFSET + self.config.segment_bytes / 8
    }

    /// Returns whether there is no space for a whole further segment.
    pub(crate) fn is_short(&self) -> bool {
        let owed = if self.has_reserve() { 0 } else { self.config.reserve_bytes };
        self.left_bytes().unwrap_or(0) < self.config.segment_bytes + owed
    }

    /// Makes a segment from the free space of the disk, at most a whole one. A little stays free
    /// for hints.
    fn roll_for_blocks(&self, footprint: u64, compressed: bool) -> Result<Arc<Log>> {
        self.ensure_reserve()?;
        let left = self.left_bytes()?;
        let needed = RECORDS_OFFSET + footprint;
        let bytes = self.config.segment_bytes.max(needed).min(left - left / 32) / ALIGN * ALIGN;
        if bytes < needed.max(self.least_bytes()) {
            return Err(Error::Full(format!(
                "{left} bytes are left on the disk for blocks, too few for another segment: delete \
                 objects, or make room on it"
            )));
        }
        self.create_log(bytes, false, compressed)
    }

    fn has_reserve(&self) -> bool {
        self.config.reserve_bytes == 0 || self.writer.lock().reserve_bytes > 0
    }

    /// Makes the reserve if there is none. It may take bytes that are spared for other programs:
    /// without a reserve, compaction could not return the space that it then frees.
    pub(crate) fn ensure_reserve(&self) -> Result<()> {
        if self.has_reserve() {
            return Ok(());
        }
        let (free, bytes) = (self.disk.free_bytes()?, self.config.reserve_bytes);
        if free < bytes {
            return Err(Error::Full(format!(
                "{free} bytes are free on the disk, and {bytes} are reserved"
            )));
        }
        self.writer.lock().reserve_bytes = files::ensure_reserve(&*self.disk, bytes)?;
        Ok(())
    }

    fn create_log(&self, bytes: u64, reserved: bool, compressed: bool) -> Result<Arc<Log>> {
        let (number, codecs) = {
            let mut writer = self.writer.lock();
            let number = writer.next_segment;
            writer.next_segment = number.checked_add(1).ok_or_else(|| {
                Error::Full(
                    "the block store has used all segment numbers: \
                    move its blocks to a new node or store"
                        .to_owned(),
                )
            })?;
            (number, writer.codecs || compressed)
        };
        let (file, salt) = files::create_segment(&*self.disk, &self.config, number, bytes, codecs)?;
        let name = files::segment_name(number);
        let syncers = (0..self.config.syncers.max(1)).map(|_| self.disk.open(&name));
        let sync_files = syncers.collect::<std::io::Result<Vec<_>>>()?;
        let handles = (Arc::clone(&file), sync_files);
        let log = Arc::new(Log::new(number, salt, handles, bytes, reserved, codecs));
        let segment = Segment {
            file,
            salt,
            log: Some(Arc::clone(&log)),
            end: RECORDS_OFFSET,
            live_bytes: 0,
            poisoned: false,
            damaged: false,
        };
        self.state.write().segments.insert(number, segment);
        self.writer.lock().codecs |= codecs;
        Ok(log)
    }

    /// Poisons a segment after a failed write or sync: it takes no more writes. Writers that still
    /// wait for it, none of which was acknowledged, get the error.
    pub(crate) fn poison(&self, log: &Arc<Log>, error: &std::io::Error) {
        let Some(flights) = log.poison() else { return };
        tracing::error!(
            segment = log.number,
            %error,
            "segment takes no more writes: see the kernel's log, and restart this process once the \
             disk works, or replace the disk"
        );
        self.health.note_failed_write(error);
        {
            let mut state = self.state.write();
            if let Some(segment) = state.segments.get_mut(&log.number) {
                segment.poisoned = true;
                segment.end = log.durable_end();
                segment.log = None;
            }
            for flight in &flights {
                if let (Outcome::Put(HintEntry::Block(entry)), Some(_)) =
                    (&flight.outcome, &flight.done)
                {
                    state.add_stray(entry.key, log.number);
                }
            }
        }
        {
            let mut writer = self.writer.lock();
            if writer.active.as_ref().is_some_and(|active| active.number == log.number) {
                writer.active = None;
            }
        }
        self.hint_poisoned(log);
        self.log_ended();
        flights.into_iter().for_each(|flight| finish(flight, || Err(copy_error(error))));
    }

    /// Writes a hint of the durable records of a failed segment. After a failed sync the page cache
    /// may show bytes that the disk does not have; the hint keeps the next start from trusting
    /// them.
    fn hint_poisoned(&self, log: &Log) {
        if self.config.durability == Durability::Async {
            // With asynchronous durability, unsynced records were acknowledged, too.
            return;
        }
        let (end, entries) = (log.durable_end(), log.take_entries());
        let hint = Hint { segment: log.number, salt: log.salt, end, entries };
        if let Err(error) = files::write_hint(&*self.disk, &hint) {
            tracing::error!(segment = log.number, %error, "a failed segment has no hint");
        }
    }

    /// Notes that a log was sealed or poisoned.
    pub(crate) fn log_ended(&self) {
        let mut writer = self.writer.lock();
        writer.open_logs = writer.open_logs.saturating_sub(1);
        self.changed.notify_all();
    }
}
