//! The export format of the systemd journal: entries of fields, each followed by an empty line.

use cairn_base::{Error, Result};

use crate::batch::{self, RecordBatch};
use crate::json;
use crate::limits::RECORD_BYTES;

/// The field that names a source.
const SOURCE: &[u8] = b"_HOSTNAME";
/// Source of entries without that field.
const DEFAULT: &str = "journal";
const TIME: &[u8] = b"__REALTIME_TIMESTAMP";

/// A field, and the bytes behind it; `None` if the field is incomplete. An inner `None` is the end
/// of an entry.
type Field<'a> = Option<(Option<(&'a [u8], &'a [u8])>, &'a [u8])>;

fn too_large() -> Error {
    Error::TooLarge(format!("an entry of the journal: at most {RECORD_BYTES} bytes"))
}

/// Returns the next field, or the end of an entry.
fn field(bytes: &[u8]) -> Result<Field<'_>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > RECORD_BYTES { Err(too_large()) } else { Ok(None) };
    };
    let (line, rest) = (bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..));
    let rest = rest.unwrap_or_default();
    if line.is_empty() {
        return Ok(Some((None, rest)));
    }
    if let Some(equals) = line.iter().position(|byte| *byte == b'=') {
        let value = line.get(equals + 1..).unwrap_or_default();
        return Ok(Some((Some((line.get(..equals).unwrap_or_default(), value)), rest)));
    }
    // A binary value: its length in 8 bytes, the value, and a newline.
    let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let len = u64::from_le_bytes(*len);
    if len > RECORD_BYTES as u64 {
        return Err(too_large());
    }
    let Some((value, rest)) = rest.split_at_checked(len as usize) else { return Ok(None) };
    match rest.split_first() {
        None => Ok(None),
        Some((b'\n', rest)) => Ok(Some((Some((line, value)), rest))),
        Some(_) => Err(Error::Invalid("a field of the journal is longer than it says".into())),
    }
}

/// Returns the length of the first entry, with the empty line behind it; `None` if the entry is
/// incomplete.
fn entry_len(bytes: &[u8]) -> Result<Option<usize>> {
    let mut rest = bytes;
    while let Some((found, after)) = field(rest)? {
        rest = after;
        if found.is_none() {
            return Ok(Some(bytes.len() - rest.len()));
        }
        if bytes.len() - rest.len() > RECORD_BYTES {
            return Err(too_large());
        }
    }
    if bytes.len() > 2 * RECORD_BYTES { Err(too_large()) } else { Ok(None) }
}

/// Takes the complete entries, and returns their length in bytes. The last entry of a body needs no
/// empty line behind it.
///
/// # Errors
/// `Invalid` or `TooLarge` for bytes that are not entries; the entries before them were taken.
pub fn parse(bytes: &[u8], is_end: bool, batch: &mut RecordBatch) -> Result<usize> {
    let mut taken = 0;
    while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
        match entry_len(rest)? {
            Some(len) => {
                entry(rest.get(..len).unwrap_or_default(), batch)?;
                taken += len;
            }
            None if is_end => {
                let whole = [rest, b"\n"].concat();
                if entry_len(&whole)? != Some(whole.len()) {
                    return Err(Error::Invalid("the last entry of the journal is cut off".into()));
                }
                entry(&whole, batch)?;
                return Ok(bytes.len());
            }
            None => break,
        }
    }
    Ok(taken)
}

fn entry(bytes: &[u8], batch: &mut RecordBatch) -> Result<()> {
    let (mut rest, mut fields, mut time) = (bytes, b"{".to_vec(), 0);
    let mut source = DEFAULT.to_owned();
    while let Some((Some((name, value)), after)) = field(rest)? {
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
        return Ok(());
    }
    fields.push(b'}');
    batch.record(&source, |out| {
        batch::time(out, time);
        json::name(out, "event");
        out.extend_from_slice(&fields);
        Ok(())
    });
    Ok(())
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

    #[test]
    fn entries_become_lines() {
        let mut batch = RecordBatch::new(Timestamp(0));
        let bytes = entries();
        assert_eq!(parse(&bytes, true, &mut batch).unwrap(), bytes.len());
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
            let taken = parse(&bytes[..at], false, &mut batch).unwrap();
            assert!(taken <= at);
            parse(&bytes[taken..], true, &mut batch).unwrap();
            assert_eq!(batch.records, 3, "parted at {at}");
        }
    }

    #[test]
    fn what_is_too_long_or_cut_off_is_refused() {
        let long = [b"A\n", &u64::MAX.to_le_bytes()[..]].concat();
        assert_eq!(
            parse(&long, false, &mut RecordBatch::new(Timestamp(0))).unwrap_err().kind(),
            "too_large"
        );
        let wide = vec![b'x'; RECORD_BYTES + 1];
        assert!(parse(&wide, false, &mut RecordBatch::new(Timestamp(0))).is_err());
        for cut in [&b"MESSAGE=x"[..], b"MESSAGE\n\x05\0\0\0\0\0\0\0ab"] {
            assert!(parse(cut, true, &mut RecordBatch::new(Timestamp(0))).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes, true, &mut RecordBatch::new(Timestamp(0)));
        }
    }
}
