//! The export format of the systemd journal: entries of fields, each followed by an empty line.

use cairn_base::{Error, Result};
use memchr::{memchr, memmem};

use crate::batch::{self, RecordBatch};
use crate::json;
use crate::limits::RECORD_BYTES;

/// The field that names a source.
const SOURCE: &[u8] = b"_HOSTNAME";
/// Source of entries without that field.
const DEFAULT: &str = "journal";
const TIME: &[u8] = b"__REALTIME_TIMESTAMP";

/// Most bytes of a value: journals have no longer ones, so a greater length is damage.
const VALUE_BYTES: u64 = 1 << 30;
/// Bytes of a line without `=` from which it is no name of a field.
const NAME_BYTES: usize = 4096;

/// A field, and the bytes behind it; `None` if the field is incomplete. An inner `None` is the end
/// of an entry.
type Field<'a> = Option<(Option<(&'a [u8], &'a [u8])>, &'a [u8])>;

fn too_large() -> Error {
    Error::TooLarge(format!("an entry of the journal: at most {RECORD_BYTES} bytes"))
}

fn damaged() -> Error {
    Error::Invalid("an entry of the journal is damaged: a field is longer than it says".into())
}

fn cut_off() -> Error {
    Error::Invalid("an entry of the journal is cut off".into())
}

/// Returns the next field, or the end of an entry.
fn field(bytes: &[u8]) -> Result<Field<'_>> {
    let Some(end) = memchr(b'\n', bytes) else { return Ok(None) };
    let (line, rest) = (bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..));
    let rest = rest.unwrap_or_default();
    if line.is_empty() {
        return Ok(Some((None, rest)));
    }
    if let Some(equals) = memchr(b'=', line) {
        let value = line.get(equals + 1..).unwrap_or_default();
        return Ok(Some((Some((line.get(..equals).unwrap_or_default(), value)), rest)));
    }
    if line.len() > NAME_BYTES {
        return Err(damaged());
    }
    // A binary value: its length in 8 bytes, the value, and a newline.
    let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let len = u64::from_le_bytes(*len);
    if len > VALUE_BYTES {
        return Err(damaged());
    }
    let Some((value, rest)) = rest.split_at_checked(len as usize) else { return Ok(None) };
    match rest.split_first() {
        None => Ok(None),
        Some((b'\n', rest)) => Ok(Some((Some((line, value)), rest))),
        Some(_) => Err(damaged()),
    }
}

/// The beginning of some bytes.
enum Next {
    /// An entry of this length, with the empty line behind it.
    Entry(usize),
    Incomplete,
    TooLong,
    /// An entry with a field at this place that is none.
    Damaged(usize, Error),
}

fn next(bytes: &[u8], is_end: bool) -> Next {
    let mut rest = bytes;
    loop {
        let at = bytes.len() - rest.len();
        // The last entry of a body needs no empty line behind it.
        if is_end && rest.is_empty() {
            return Next::Entry(at);
        }
        match field(rest) {
            Err(why) => return Next::Damaged(at, why),
            Ok(None) if bytes.len() > RECORD_BYTES => return Next::TooLong,
            Ok(None) if is_end => return Next::Damaged(at, cut_off()),
            Ok(None) => return Next::Incomplete,
            Ok(Some((None, after))) => return Next::Entry(bytes.len() - after.len()),
            Ok(Some((Some(_), after))) => rest = after,
        }
        if bytes.len() - rest.len() > RECORD_BYTES {
            return Next::TooLong;
        }
    }
}

/// Takes a journal in pieces. An entry that is too long or damaged is refused alone, and what is
/// behind it is read on: an uploader sends an entry again and again until it is accepted.
#[derive(Debug, Default)]
pub struct Journal {
    /// The rest of an entry that is refused, with the reason.
    skipped: Option<(Skip, Error)>,
}

/// The place within an entry that is skipped: of that entry nothing is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Skip {
    /// Before a field.
    Field,
    /// Within a line.
    Line,
    /// Before so many bytes of a value, and a newline.
    Value(u64),
    /// Before the next empty line, whatever comes until then.
    Damage,
}

impl Journal {
    /// Takes the complete entries, and returns the number of bytes that need not be given again:
    /// of the others there are at most [`RECORD_BYTES`]. With `is_end` all bytes are taken.
    pub fn parse(&mut self, bytes: &[u8], is_end: bool, batch: &mut RecordBatch) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if self.skipped.is_some() {
                let len = self.skip(rest, batch);
                taken += len;
                if self.skipped.is_some() {
                    break;
                }
                continue;
            }
            match next(rest, is_end) {
                Next::Entry(len) => {
                    entry(rest.get(..len).unwrap_or_default(), batch);
                    taken += len;
                }
                Next::Incomplete => return taken,
                Next::TooLong => self.skipped = Some((Skip::Field, too_large())),
                Next::Damaged(at, why) => {
                    self.skipped = Some((Skip::Damage, why));
                    taken += at;
                }
            }
        }
        if is_end {
            if let Some((_, why)) = self.skipped.take() {
                batch.refuse(why);
            }
            return bytes.len();
        }
        taken
    }

    /// Skips what there is of a refused entry, and returns the number of bytes. At its end the
    /// entry counts as refused.
    fn skip(&mut self, bytes: &[u8], batch: &mut RecordBatch) -> usize {
        let mut taken = 0;
        while let Some((place, why)) = &mut self.skipped {
            let rest = bytes.get(taken..).unwrap_or_default();
            let (len, next) = step(*place, rest);
            taken += len;
            match next {
                Some(next) if next == *place && len == 0 => break,
                Some(next) => {
                    if next == Skip::Damage && *place != Skip::Damage {
                        *why = damaged();
                    }
                    *place = next;
                }
                None => {
                    if let Some((_, why)) = self.skipped.take() {
                        batch.refuse(why);
                    }
                }
            }
        }
        taken
    }
}

/// Returns how many bytes are skipped at this place, and the place behind them; `None` behind the
/// entry.
fn step(place: Skip, bytes: &[u8]) -> (usize, Option<Skip>) {
    let newline = memchr(b'\n', bytes);
    match place {
        Skip::Line => match newline {
            Some(end) => (end + 1, Some(Skip::Field)),
            None => (bytes.len(), Some(Skip::Line)),
        },
        Skip::Value(0) => match bytes.first() {
            None => (0, Some(place)),
            Some(b'\n') => (1, Some(Skip::Field)),
            Some(_) => (0, Some(Skip::Damage)),
        },
        Skip::Value(left) => {
            let len = left.min(bytes.len() as u64);
            (len as usize, Some(Skip::Value(left - len)))
        }
        Skip::Damage => match memmem::find(bytes, b"\n\n") {
            Some(at) => (at + 2, None),
            // The last byte may be the first newline of two.
            None => (bytes.len().saturating_sub(1), Some(place)),
        },
        Skip::Field => match newline {
            Some(0) => (1, None),
            Some(end) if memchr(b'=', bytes.get(..end).unwrap_or_default()).is_some() => {
                (end + 1, Some(place))
            }
            Some(end) if end > NAME_BYTES => (end, Some(Skip::Damage)),
            Some(end) => {
                let value = bytes.get(end + 1..).and_then(|rest| rest.first_chunk());
                match value.map(|len| u64::from_le_bytes(*len)) {
                    None => (0, Some(place)),
                    Some(len) if len > VALUE_BYTES => (end + 1, Some(Skip::Damage)),
                    Some(len) => (end + 9, Some(Skip::Value(len))),
                }
            }
            None if bytes.len() > NAME_BYTES || memchr(b'=', bytes).is_some() => {
                (bytes.len(), Some(Skip::Line))
            }
            None => (0, Some(place)),
        },
    }
}

/// Takes an entry whose fields were checked.
fn entry(bytes: &[u8], batch: &mut RecordBatch) {
    let (mut rest, mut fields, mut time) = (bytes, b"{".to_vec(), 0);
    let mut source = DEFAULT.to_owned();
    while let Ok(Some((Some((name, value)), after))) = field(rest) {
        rest = after;
        match name {
            TIME => {
                let us = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok());
                time = us.unwrap_or(0).saturating_mul(1000);
            }
            SOURCE if !value.is_empty() => source = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        json::name(&mut fields, &String::from_utf8_lossy(name));
        match std::str::from_utf8(value) {
            Ok(text) => json::text(&mut fields, text),
            // In the form of `journalctl --output=json`.
            Err(_) => {
                let numbers: Vec<String> = value.iter().map(u8::to_string).collect();
                fields.extend_from_slice(format!("[{}]", numbers.join(",")).as_bytes());
            }
        }
    }
    // Empty lines between entries.
    if fields == b"{" {
        return;
    }
    fields.push(b'}');
    batch.record(&source, |out| {
        batch::time(out, time);
        json::name(out, "event");
        out.extend_from_slice(&fields);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn entries() -> Vec<u8> {
        let mut bytes = b"__REALTIME_TIMESTAMP=1000001\n_HOSTNAME=box\nMESSAGE=a=b\n\n\n".to_vec();
        bytes.extend(b"_HOSTNAME=box\nMESSAGE\n");
        bytes.extend(5_u64.to_le_bytes());
        bytes.extend(b"x\ny\n\n\nDATA\n");
        bytes.extend(2_u64.to_le_bytes());
        bytes.extend(b"\xff\0\n\nMESSAGE=last\n");
        bytes
    }

    /// Parses bytes that come in two pieces; returns the texts of the lines, and the refusals.
    fn parted(bytes: &[u8], at: usize) -> (String, Vec<&'static str>) {
        let mut batch = RecordBatch::new(Timestamp(0));
        let mut journal = Journal::default();
        let taken = journal.parse(&bytes[..at], false, &mut batch);
        assert!(taken <= at && at - taken <= RECORD_BYTES, "little is held");
        assert_eq!(journal.parse(&bytes[taken..], true, &mut batch), bytes.len() - taken);
        let refused = batch.refused.iter().map(|(_, why)| why.kind()).collect();
        let is_there = |lines: &crate::batch::Lines| lines.source == "journal";
        let lines =
            if batch.lines.iter().any(is_there) { batch.text("journal") } else { "".into() };
        (lines, refused)
    }

    fn binary(name: &str, len: u64, value: &[u8]) -> Vec<u8> {
        [name.as_bytes(), b"\n", &len.to_le_bytes(), value, b"\n"].concat()
    }

    #[test]
    fn entries_become_lines() {
        let mut batch = RecordBatch::new(Timestamp(0));
        let bytes = entries();
        assert_eq!(Journal::default().parse(&bytes, true, &mut batch), bytes.len());
        let expected = "{\"time\":\"1970-01-01T00:00:01.000001000Z\",\"event\":{\
             \"__REALTIME_TIMESTAMP\":\"1000001\",\"_HOSTNAME\":\"box\",\"MESSAGE\":\"a=b\"}}\n\
             {\"event\":{\"_HOSTNAME\":\"box\",\"MESSAGE\":\"x\\ny\\n\\n\",\"DATA\":[255,0]}}\n";
        assert_eq!(batch.text("box"), expected);
        assert_eq!(batch.text("journal"), "{\"event\":{\"MESSAGE\":\"last\"}}\n");
    }

    #[test]
    fn entries_are_the_same_wherever_their_bytes_are_parted() {
        let bytes = entries();
        for at in 0..bytes.len() {
            let mut batch = RecordBatch::new(Timestamp(0));
            let mut journal = Journal::default();
            let taken = journal.parse(&bytes[..at], false, &mut batch);
            assert!(taken <= at);
            journal.parse(&bytes[taken..], true, &mut batch);
            assert_eq!((batch.records, batch.refused.len()), (3, 0), "parted at {at}");
        }
    }

    #[test]
    fn a_bad_entry_leaves_the_others() {
        let long = vec![b'x'; RECORD_BYTES + 7];
        // An empty line and a field within a long value are no entry.
        let forged = [b"\n\nMESSAGE=forged\n\n", &long[..]].concat();
        let many = b"FIELD=0123456789\n".repeat(RECORD_BYTES / 16);
        for (bad, kind) in [
            ([b"MESSAGE=", &long[..], b"\n"].concat(), "too_large"),
            (binary("MESSAGE", forged.len() as u64, &forged), "too_large"),
            (many, "too_large"),
            (binary("MESSAGE", long.len() as u64 - 1, &long), "invalid"),
            (binary("MESSAGE", 2, b"abc"), "invalid"),
            (binary("MESSAGE", 1 << 40, b"abc"), "invalid"),
            (binary("MESSAGE", u64::MAX, b"abc"), "invalid"),
        ] {
            let bytes = [b"A=1\n\nB=2\n", &bad[..], b"C=3\n\nD=4\n\n"].concat();
            let end = bytes.len() - 1;
            for at in [0, 6, 7, 12, 18, 20, 26, end / 2, end - 12, end - 11, end - 6, end] {
                let expected = "{\"event\":{\"A\":\"1\"}}\n{\"event\":{\"D\":\"4\"}}\n";
                let (lines, refused) = parted(&bytes, at);
                assert_eq!((&*lines, &refused[..]), (expected, &[kind][..]), "parted at {at}");
            }
        }
    }

    #[test]
    fn an_entry_that_is_cut_off_is_refused_and_those_behind_a_wrong_length_are_not() {
        for cut in [&b"MESSAGE=x"[..], b"MESSAGE\n\x05\0\0\0\0\0\0\0ab"] {
            let bytes = [b"A=1\n\n", cut].concat();
            let (lines, refused) = parted(&bytes, 6);
            assert_eq!((&*lines, refused), ("{\"event\":{\"A\":\"1\"}}\n", vec!["invalid"]));
        }
        let bytes = [&binary("MESSAGE", 1000, b"abc")[..], b"\nA=1\n\n"].concat();
        let (lines, refused) = parted(&bytes, 9);
        assert_eq!((&*lines, refused), ("{\"event\":{\"A\":\"1\"}}\n", vec!["invalid"]));
        // Bytes that are skipped at the end count, too.
        let bytes = binary("MESSAGE", RECORD_BYTES as u64 * 2, &vec![b'x'; RECORD_BYTES + 9]);
        assert_eq!(parted(&bytes, bytes.len()), (String::new(), vec!["too_large"]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(0), any::<u8>()], 0..100),
            at in 0_usize..100,
        ) {
            parted(&bytes, at.min(bytes.len()));
        }
    }
}
