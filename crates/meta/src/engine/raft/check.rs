//! Checks a member's data at rest: its rows, and the records of its log. Damaged records are needed
//! no more once their entries are in the table of rows. Damaged rows are not repaired here: they
//! must come from another member.

use std::io::ErrorKind;

use cairn_base::disk::read_exact_at;
use cairn_base::{Error, Result};

use super::super::ring::header::{HEADER_BYTES, RawHeader};
use super::super::ring::{LogPosition, file_name, read_body};
use super::super::row_store::Pace;
use super::store::MemberStore;

/// Attempts per check to make damaged records needless.
const ATTEMPTS: usize = 3;

impl MemberStore {
    /// Returns the first damage at rest that was found and is not healed.
    pub fn damage(&self) -> Option<String> {
        let log = || self.log_damage.lock().clone();
        self.rows.damage().or_else(log).or_else(|| self.differing.lock().clone())
    }

    /// Returns whether a damaged record was met when records were read for another member.
    pub fn suspects_log(&self) -> bool {
        *self.log_suspected.lock()
    }

    /// Notes that a record is damaged: [`MemberStore::check_log`] has to look.
    pub(super) fn suspect_log(&self) {
        *self.log_suspected.lock() = true;
    }

    /// Checks all rows, and every page of their table, in portions.
    ///
    /// # Errors
    /// `Corrupt` for the first damage, which is noted; `Io`, `Unavailable`.
    pub fn check_rows(&self, pace: &Pace) -> Result<()> {
        self.rows.check(pace)
    }

    /// Checks the records of the log that others may ask for, or that a start would read. Returns
    /// how many were damaged and are needed no more: their entries are in the table of rows, and
    /// members that lack them get a snapshot.
    ///
    /// # Errors
    /// `Corrupt` for a damaged record that is still needed, which is noted; those of the disk.
    pub fn check_log(&self, pace: &Pace) -> Result<usize> {
        *self.log_suspected.lock() = false;
        let places = self.state.lock().index.places();
        let mut damaged = Vec::new();
        for place in places {
            pace.rest(usize::try_from(place.header.record_bytes()).unwrap_or(usize::MAX))?;
            if !self.is_sound(&place)? && self.state.lock().index.has(&place) {
                damaged.push(place);
            }
        }
        let Some(last) = damaged.iter().max_by_key(|place| place.header.sequence) else {
            return Ok(0);
        };
        for place in &damaged {
            let (file, offset) = (file_name(place.segment as u32), place.offset);
            let record = place.header.sequence;
            tracing::warn!(file, offset, record, "a record of the log does not check out");
        }
        self.let_go_of(last).inspect_err(|error| {
            if let Error::Corrupt { .. } = error {
                self.log_damage.lock().get_or_insert_with(|| error.to_string());
            }
        })?;
        *self.log_damage.lock() = None;
        Ok(damaged.len())
    }

    /// Makes sure that no start needs the record at `place` or those before it, and that none of
    /// their entries are sent any more.
    fn let_go_of(&self, place: &LogPosition) -> Result<()> {
        let is_needed = || self.rows.writer().checkpointed.sequence < place.header.sequence;
        for _ in 0..ATTEMPTS {
            self.checkpoint()?;
            if is_needed() {
                // Some of its entries are not applied. They are in memory, most likely. Does
                // nothing if others have been applied meanwhile.
                self.set_aside()?;
            }
        }
        if is_needed() {
            let (file, record) = (file_name(place.segment as u32), place.header.sequence);
            let what = format!("record {record} of {file}");
            return Err(Error::corrupt(what, "bytes that do not check out", "it"));
        }
        self.state.lock().index.forget_records(place.header.sequence);
        Ok(())
    }

    /// Returns whether the record at `place` is as it was written.
    fn is_sound(&self, place: &LogPosition) -> Result<bool> {
        let missing = || Error::NotFound(file_name(place.segment as u32));
        let file = self.log_files.get(place.segment).ok_or_else(missing)?;
        let mut head = [0; HEADER_BYTES];
        let is_there =
            read_exact_at(&**file, &mut head, place.offset).map_err(Error::from).and_then(|()| {
                let header = RawHeader::parse(&head, place.header.log_id);
                Ok(header == Some(place.header) && read_body(&**file, place)?.is_some())
            });
        match is_there {
            // The file was cut short.
            Err(Error::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            is_there => is_there,
        }
    }
}
