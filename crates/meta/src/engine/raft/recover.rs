//! Recovers a member's promises from its disk: its vote, and its log.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use cairn_base::{Error, Result};

use super::super::ring::header::RawHeader;
use super::super::ring::{LogPosition, Ring};
use super::super::row_store::Mark;
use super::entry::{Entry, parse_entries};
use super::index::Index;
use super::member_record::MemberRecord;
use super::record::{self, Record, Vote};

/// The log and the vote after the last record.
pub struct RecoveredLog {
    pub index: Index,
    pub vote: Vote,
    /// Number of the last record.
    pub sequence: u64,
    pub previous: u32,
    /// File of the last record.
    pub segment: usize,
    /// Kind of the damaged record after the last sound record, if there is one: it was being
    /// written when the power failed, or it was confirmed and has rotted since.
    pub bad_end: Option<BadEnd>,
    /// Entries that were not applied as of the mark, by index.
    pub unapplied: BTreeMap<u64, Entry>,
}

/// The contents of a last record that does not check out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadEnd {
    Entries,
    Vote,
}

impl BadEnd {
    fn of(header: &RawHeader) -> BadEnd {
        if record::is_vote(header) { BadEnd::Vote } else { BadEnd::Entries }
    }
}

type Places = HashMap<u64, Vec<LogPosition>>;

/// Reads the records before `mark` as far back as they form a chain, the `pending` entries, and the
/// records after `mark` up to the first that is missing or fails its checksum. That record was
/// being written when the machine or the process stopped, and was not acknowledged; or it has
/// rotted since, so the member is a suspect (`contact.rs`).
///
/// # Errors
/// `Corrupt` if there is a later record: a record is written only once all records before it are
/// durable, so the missing one was lost after it was acknowledged.
pub fn recover(
    ring: &Ring,
    mark: &Mark,
    held: &MemberRecord,
    pending: Vec<(u64, Bytes)>,
) -> Result<RecoveredLog> {
    let mut places = Places::new();
    for place in ring.headers()? {
        places.entry(place.header.sequence).or_default().push(place);
    }
    let mut state = RecoveredLog {
        index: Index::default(),
        vote: held.vote,
        sequence: mark.sequence,
        previous: mark.previous,
        segment: 0,
        bad_end: None,
        unapplied: BTreeMap::new(),
    };
    let end = held.next().max(mark.pending);
    state.add_old(old_records(ring, mark, held, &places)?, end)?;
    state.add_pending(held, pending)?;
    state.add_new(ring, held, &mut places)?;
    let newest = places.keys().max().copied().unwrap_or(0);
    if newest > state.sequence {
        return Err(Error::corrupt(
            format!("log record {}", state.sequence + 1),
            format!("none that checks out, yet record {newest} is there"),
            "it: this member has lost what it had confirmed",
        ));
    }
    state.require_whole(held)?;
    Ok(state)
}

/// Returns the records up to the mark, oldest first. They are in the table, but members that are
/// behind may still need them.
fn old_records(
    ring: &Ring,
    mark: &Mark,
    held: &MemberRecord,
    places: &Places,
) -> Result<Vec<(LogPosition, Record)>> {
    let mut records = Vec::new();
    let (mut sequence, mut crc) = (mark.sequence, mark.previous);
    while sequence > 0 && sequence >= held.first_record {
        let candidates = places.get(&sequence).map(Vec::as_slice).unwrap_or_default();
        let Some(place) = candidates.iter().find(|place| place.header.crc == crc) else { break };
        let Some(body) = ring.body(place)? else { break };
        records.push((*place, record::parse(&place.header, &body)?));
        (sequence, crc) = (sequence - 1, place.header.previous);
    }
    records.reverse();
    Ok(records)
}

impl RecoveredLog {
    /// Adds old records. `end` is the index after the last entry that was in effect at the mark.
    fn add_old(&mut self, records: Vec<(LogPosition, Record)>, end: u64) -> Result<()> {
        for (place, record) in records {
            self.segment = place.segment;
            let Record::Entries(mut entries) = record else { continue };
            entries.retain(|entry| entry.id.index < end);
            let Some(first) = entries.first().map(|entry| entry.id.index) else { continue };
            if first > self.index.next() || first < self.index.first() {
                // Older entries are unknown, and the very first is not among these.
                self.index = Index::starting_at(first);
            }
            self.index.append(Some(place), entries)?;
        }
        Ok(())
    }

    fn add_pending(&mut self, held: &MemberRecord, pending: Vec<(u64, Bytes)>) -> Result<()> {
        for (index, body) in pending.into_iter().filter(|(index, _)| *index >= held.next()) {
            let mut parsed = parse_entries(index, 1, &body)?;
            let Some(entry) = parsed.pop() else { continue };
            if index < self.index.first() || index > self.index.next() {
                self.index = Index::starting_at(index);
            }
            if self.index.id(index) != Some(entry.id) {
                self.index.append(None, vec![entry.clone()])?;
            }
            self.unapplied.insert(index, entry);
        }
        Ok(())
    }

    fn add_new(&mut self, ring: &Ring, held: &MemberRecord, places: &mut Places) -> Result<()> {
        while let Some(candidates) = places.remove(&(self.sequence + 1)) {
            let (mut found, mut bad_end) = (None, None);
            // A torn record of an earlier life may lie elsewhere under the same number.
            for place in candidates.iter().filter(|place| place.header.previous == self.previous) {
                record::require_known(&place.header)?;
                bad_end = Some(BadEnd::of(&place.header));
                if let Some(body) = ring.body(place)? {
                    found = Some((*place, record::parse(&place.header, &body)?));
                    break;
                }
            }
            let Some((place, record)) = found else {
                self.bad_end = bad_end;
                return Ok(());
            };
            (self.sequence, self.previous) = (place.header.sequence, place.header.crc);
            self.segment = place.segment;
            match record {
                Record::Vote(vote) => self.vote = vote,
                Record::Entries(entries) => self.replace(held, place, entries)?,
            }
        }
        Ok(())
    }

    fn replace(
        &mut self,
        held: &MemberRecord,
        place: LogPosition,
        entries: Vec<Entry>,
    ) -> Result<()> {
        let Some(first) = entries.first().map(|entry| entry.id.index) else { return Ok(()) };
        let is_behind = first > self.index.next() && first <= held.next();
        if first < self.index.first() || is_behind {
            self.index = Index::starting_at(first);
        }
        self.unapplied.split_off(&first);
        let unapplied = entries.iter().filter(|entry| entry.id.index >= held.next());
        self.unapplied.extend(unapplied.map(|entry| (entry.id.index, entry.clone())));
        self.index.append(Some(place), entries)
    }

    /// Checks that the log continues where the rows end.
    fn require_whole(&mut self, held: &MemberRecord) -> Result<()> {
        let next = held.next();
        if self.index.next() < next {
            self.index = Index::after(held.applied);
        }
        let count = self.index.next().saturating_sub(next);
        let whole = self.unapplied.len() as u64 == count
            && self.unapplied.keys().zip(next..).all(|(index, wanted)| *index == wanted);
        if let Some(applied) = held.applied
            && self.index.id(applied.index) != Some(applied)
            && self.index.first() <= applied.index
        {
            let what = format!("entry {} of the log", applied.index);
            let got = format!("{:?}", self.index.id(applied.index));
            return Err(Error::corrupt(what, got, format!("{applied:?}, which was applied")));
        }
        if !whole || self.index.first() > next {
            let what = format!("entry {next} of the log");
            return Err(Error::corrupt(what, "a gap", "all entries after those applied"));
        }
        self.index.settle_before(held.applied);
        Ok(())
    }
}
