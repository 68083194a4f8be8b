//! The records of one request, on their way to lines of files.

use std::collections::HashMap;

use cairn_base::{Error, Result, Timestamp};

use crate::level::LevelClass;
use crate::levels::OfLevels;
use crate::limits::{LINES_BYTES, RECORD_BYTES, SOURCES};
use crate::{day, json, source};

/// The lines for one source.
#[derive(Debug, Default)]
pub struct Lines {
    /// Name of the source, as a component of a path.
    pub source: String,
    pub bytes: Vec<u8>,
    /// Number of these lines by level.
    pub levels: OfLevels,
    /// End of each line in `bytes`, and the number of its record in the request.
    pub ends: Vec<(usize, usize)>,
}

/// The records of one request.
#[derive(Debug)]
pub struct RecordBatch {
    pub received: Timestamp,
    /// Beginning of each line: `{"received":"…"`.
    head: Vec<u8>,
    sources: HashMap<String, usize>,
    pub lines: Vec<Lines>,
    /// Number of records so far, including refused ones.
    pub records: usize,
    /// Records that are refused, by their number, with the reason.
    pub refused: Vec<(usize, Error)>,
    bytes: usize,
    /// True once a record found no room: all further records are refused before they are written.
    is_full: bool,
    /// Most records in a request. Further records are counted, and nothing else.
    most: usize,
}

impl RecordBatch {
    pub fn new(received: Timestamp) -> RecordBatch {
        let mut head = Vec::from(b"{");
        json::name(&mut head, "received");
        json::text(&mut head, &day::rfc3339(received));
        RecordBatch {
            received,
            head,
            sources: HashMap::new(),
            lines: Vec::new(),
            records: 0,
            refused: Vec::new(),
            bytes: 0,
            is_full: false,
            most: usize::MAX,
        }
    }

    /// Limits the batch: a request with more than `most` records is refused.
    pub fn at_most(self, most: usize) -> RecordBatch {
        RecordBatch { most, ..self }
    }

    /// Checks the number of records.
    ///
    /// # Errors
    /// `TooLarge` if there were more than the limit.
    pub fn check_records(&self) -> Result<()> {
        if self.records > self.most {
            let (records, most) = (self.records, self.most);
            Err(Error::TooLarge(format!("{records} records in one request; at most {most}")))
        } else {
            Ok(())
        }
    }

    /// Adds a record: `write` adds further members to the JSON object of the line. A record that
    /// cannot be taken is noted, and the others stay.
    pub fn record(&mut self, source: &str, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) {
        let number = self.records;
        self.records += 1;
        if number < self.most
            && let Err(why) = self.add(number, source, write)
        {
            self.refused.push((number, why));
        }
    }

    /// Notes a record that cannot be taken.
    pub fn refuse(&mut self, why: Error) {
        if self.records < self.most {
            self.refused.push((self.records, why));
        }
        self.records += 1;
    }

    fn add(
        &mut self,
        number: usize,
        source: &str,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        if self.is_full {
            return Err(too_many_bytes());
        }
        let at = match self.sources.get(source) {
            Some(at) => *at,
            // A bucket has a limit on its sources, too.
            None if self.lines.len() >= SOURCES => {
                let what = format!("more than {SOURCES} sources in one request");
                return Err(Error::TooLarge(what));
            }
            None => {
                let component = source::encode(source)?;
                self.sources.insert(source.to_owned(), self.lines.len());
                self.lines.push(Lines { source: component, ..Lines::default() });
                self.lines.len() - 1
            }
        };
        let lines = self.lines.get_mut(at);
        let Some(Lines { bytes, ends, levels, .. }) = lines else { return Ok(()) };
        let start = bytes.len();
        bytes.extend_from_slice(&self.head);
        let outcome = write(bytes);
        bytes.extend_from_slice(b"}\n");
        let len = bytes.len() - start;
        let outcome = outcome.and_then(|()| match () {
            () if len > RECORD_BYTES => {
                let what =
                    format!("a record becomes a line of {len} bytes; at most {RECORD_BYTES}");
                Err(Error::TooLarge(what))
            }
            () if self.bytes + len > LINES_BYTES => {
                self.is_full = true;
                Err(too_many_bytes())
            }
            () => Ok(()),
        });
        match outcome {
            Ok(()) => {
                self.bytes += len;
                let level = LevelClass::of_line(bytes.get(start..).unwrap_or_default());
                levels[level as usize] += 1;
                ends.push((bytes.len(), number));
            }
            Err(_) => {
                bytes.truncate(start);
                // A refused record must leave no new source behind.
                if ends.is_empty() {
                    self.lines.pop();
                    self.sources.remove(source);
                }
            }
        }
        outcome
    }

    /// Returns the lines of a source as text, for tests.
    #[cfg(test)]
    pub fn text(&self, source: &str) -> String {
        let lines = self.lines.iter().find(|lines| lines.source == source);
        let bytes = lines.map_or(&[][..], |lines| &lines.bytes);
        // Without the time of receipt.
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.replace(std::str::from_utf8(&self.head[1..]).unwrap(), "").replace("{,", "{")
    }
}

fn too_many_bytes() -> Error {
    let what = format!("the records become more than {LINES_BYTES} bytes: send fewer");
    Error::TooLarge(what)
}

/// Checks, while a record is written, that the line does not become many times as long as the
/// record.
pub fn check_room(out: &[u8]) -> Result<()> {
    if out.len() > LINES_BYTES + RECORD_BYTES { Err(too_many_bytes()) } else { Ok(()) }
}

/// Writes the time of an event, nanoseconds since 1970; 0 means no time.
pub fn time(out: &mut Vec<u8>, ns: i64) {
    if ns != 0 {
        json::name(out, "time");
        json::text(out, &day::rfc3339(Timestamp(ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> impl FnOnce(&mut Vec<u8>) -> Result<()> {
        let text = text.to_owned();
        move |out| {
            json::name(out, "line");
            json::text(out, &text);
            Ok(())
        }
    }

    #[test]
    fn a_record_that_cannot_be_taken_leaves_the_others() {
        let mut batch = RecordBatch::new(Timestamp(0));
        batch.record("a", write("one"));
        batch.record("", write("two"));
        batch.record("a", |out| {
            out.extend_from_slice(b"half of a record");
            Err(Error::Invalid("x".into()))
        });
        batch.record("a", write(&"x".repeat(RECORD_BYTES)));
        batch.refuse(Error::Invalid("y".into()));
        batch.record("b/c", write("three"));
        batch.record("a", write("four"));
        assert_eq!(batch.text("a"), "{\"line\":\"one\"}\n{\"line\":\"four\"}\n");
        assert_eq!(batch.text("b%2Fc"), "{\"line\":\"three\"}\n");
        assert_eq!(batch.lines[0].ends.last(), Some(&(batch.lines[0].bytes.len(), 6)));
        let refused: Vec<usize> = batch.refused.iter().map(|(number, _)| *number).collect();
        assert_eq!((batch.records, refused), (7, vec![1, 2, 3, 4]));
        let line = batch.lines[0].bytes.split(|byte| *byte == b'\n').next().unwrap();
        let line: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(line["received"], "1970-01-01T00:00:00.000000000Z");
    }

    #[test]
    fn what_records_become_is_bounded() {
        let mut batch = RecordBatch::new(Timestamp(0));
        for _ in 0..40 {
            batch.record("a", write(&"x".repeat(RECORD_BYTES - 100)));
        }
        assert!(batch.lines[0].bytes.len() <= LINES_BYTES);
        assert_eq!(batch.refused.len(), 8);
    }

    #[test]
    fn too_many_sources_cost_nothing() {
        let mut batch = RecordBatch::new(Timestamp(0));
        for number in 0..SOURCES + 7 {
            batch.record(&number.to_string(), write("x"));
        }
        batch.record("0", write("y"));
        assert_eq!((batch.lines.len(), batch.refused.len()), (SOURCES, 7));
        let mut batch = RecordBatch::new(Timestamp(0));
        for number in 0..SOURCES + 7 {
            batch.record(&number.to_string(), |_| Err(Error::Invalid("x".into())));
        }
        batch.record("0", write("x"));
        batch.record("0", write("y"));
        assert_eq!((batch.lines.len(), batch.refused.len()), (1, SOURCES + 7));
        assert_eq!(batch.text("0").lines().count(), 2);
    }

    #[test]
    fn too_many_records_cost_nothing() {
        let mut batch = RecordBatch::new(Timestamp(0)).at_most(3);
        for _ in 0..3 {
            batch.record("a", write("x"));
        }
        batch.check_records().unwrap();
        let held = batch.lines[0].bytes.len();
        for _ in 0..10 {
            batch.record("a", write("x"));
            batch.refuse(Error::Invalid("y".into()));
        }
        assert_eq!((batch.lines[0].bytes.len(), batch.refused.len()), (held, 0));
        assert_eq!(batch.check_records().unwrap_err().kind(), "too_large");
    }
}
