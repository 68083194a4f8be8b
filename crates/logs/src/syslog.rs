//! Syslog messages: where a message ends in a stream (RFC 6587), and its contents (RFC 5424).

use cairn_base::{Error, Result};

use crate::batch::RecordBatch;
use crate::json;
use crate::limits::RECORD_BYTES;

/// Names of severities and facilities, by number.
const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// Returns the first message of a stream, and the number of bytes that it takes with its framing;
/// `None` if it is incomplete. A message begins with its length, or ends with a newline. There is
/// no newline in the first `searched` bytes.
///
/// # Errors
/// `TooLarge` if it is longer than a record may be; `Invalid` if its length is not a number.
pub fn frame(bytes: &[u8], searched: usize) -> Result<Option<(&[u8], usize)>> {
    let too_large =
        || Error::TooLarge(format!("a message of syslog: at most {RECORD_BYTES} bytes"));
    let Some(first) = bytes.first() else { return Ok(None) };
    if !first.is_ascii_digit() {
        let unsearched = bytes.get(searched..).unwrap_or_default();
        let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > RECORD_BYTES { Err(too_large()) } else { Ok(None) };
        };
        let end = searched + end;
        let message = bytes.get(..end).unwrap_or_default();
        return Ok(Some((message.strip_suffix(b"\r").unwrap_or(message), end + 1)));
    }
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 8 {
        return Err(too_large());
    }
    match bytes.get(digits) {
        None => return Ok(None),
        Some(b' ') => {}
        Some(_) => return Err(Error::Invalid("a message of syslog without its length".into())),
    }
    let text = std::str::from_utf8(bytes.get(..digits).unwrap_or_default()).unwrap_or_default();
    let len: usize = text.parse().map_err(|_| too_large())?;
    if len > RECORD_BYTES {
        return Err(too_large());
    }
    let start = digits + 1;
    Ok(bytes.get(start..start + len).map(|message| (message, start + len)))
}

/// Takes a message. A message that does not follow RFC 5424 becomes a line of its `sender`, as it
/// is.
pub fn message(bytes: &[u8], sender: &str, batch: &mut RecordBatch) {
    let text = String::from_utf8_lossy(bytes);
    let (pri, rest) = priority(&text);
    let parsed = rest.strip_prefix("1 ").and_then(Header::parse);
    let host = parsed.as_ref().map_or("-", |(header, _)| header.host);
    let source = if host == "-" { sender } else { host };
    batch.record(source, |out| {
        let member = |out: &mut Vec<u8>, name, value: &str| {
            if value != "-" {
                json::name(out, name);
                json::text(out, value);
            }
        };
        if let Some((header, _)) = &parsed {
            member(out, "time", header.time);
        }
        if let Some(pri) = pri {
            let known = |names: &[&'static str], at: usize| names.get(at).copied().unwrap_or("-");
            member(out, "facility", known(&FACILITIES, pri / 8));
            member(out, "severity", known(&SEVERITIES, pri % 8));
        }
        let Some((header, rest)) = &parsed else {
            member(out, "sender", sender);
            json::name(out, "message");
            json::text(out, rest.trim_end());
            return Ok(());
        };
        member(out, "host", header.host);
        member(out, "app", header.app);
        member(out, "process", header.process);
        member(out, "message_id", header.id);
        member(out, "data", header.data);
        json::name(out, "message");
        // A byte order mark says that the text is UTF-8.
        json::text(out, rest.strip_prefix('\u{feff}').unwrap_or(rest).trim_end_matches('\n'));
        Ok(())
    });
}

/// Returns the number between `<` and `>`, and the text behind it.
fn priority(text: &str) -> (Option<usize>, &str) {
    let found = text.strip_prefix('<').and_then(|text| text.split_once('>'));
    match found.and_then(|(number, rest)| Some((number.parse().ok()?, rest))) {
        Some((number, rest)) if number < 192 => (Some(number), rest),
        _ => (None, text),
    }
}

/// The header of a message; a missing field is `-`.
struct Header<'a> {
    time: &'a str,
    host: &'a str,
    app: &'a str,
    process: &'a str,
    id: &'a str,
    /// Structured data, as it was sent.
    data: &'a str,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Option<(Header<'a>, &'a str)> {
        let mut rest = text;
        let mut word = || {
            let (word, after) = rest.split_once(' ')?;
            rest = after;
            (!word.is_empty()).then_some(word)
        };
        let (time, host, app) = (word()?, word()?, word()?);
        let (process, id) = (word()?, word()?);
        let end = data_end(rest)?;
        let (data, after) = rest.split_at_checked(end)?;
        let message = after.strip_prefix(' ').unwrap_or(after);
        Some((Header { time, host, app, process, id, data }, message))
    }
}

/// Returns the end of structured data: of `-`, or of elements in brackets, in which texts are
/// quoted.
fn data_end(text: &str) -> Option<usize> {
    if text == "-" || text.starts_with("- ") {
        return Some(1);
    }
    let (mut is_quoted, mut is_open, mut end) = (false, false, 0);
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' if is_quoted => drop(bytes.next()),
            b'"' if is_open => is_quoted = !is_quoted,
            b'[' if !is_open => is_open = true,
            b']' if is_open && !is_quoted => (is_open, end) = (false, at + 1),
            b' ' if !is_open => break,
            _ if !is_open => return None,
            _ => {}
        }
    }
    (end > 0 && !is_open).then_some(end)
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn line(message: &str) -> (String, String) {
        let mut batch = RecordBatch::new(Timestamp(0));
        super::message(message.as_bytes(), "10.0.0.1", &mut batch);
        let source = batch.lines[0].source.clone();
        (batch.text(&source), source)
    }

    #[test]
    fn messages_become_lines() {
        let data = r#"[a@1 b="c\"] d"][e]"#;
        let sent = format!("<165>1 2003-10-11T22:14:15.003Z box app 12 ID {data} \u{feff}it works");
        let (text, source) = line(&sent);
        let expected = "{\"time\":\"2003-10-11T22:14:15.003Z\",\"facility\":\"local4\",\
             \"severity\":\"notice\",\"host\":\"box\",\"app\":\"app\",\"process\":\"12\",\
             \"message_id\":\"ID\",\"data\":\"[a@1 b=\\\"c\\\\\\\"] d\\\"][e]\",\
             \"message\":\"it works\"}\n";
        assert_eq!((text.as_str(), source.as_str()), (expected, "box"));
        let (text, source) = line("<14>1 - - - - - -");
        assert_eq!(text, "{\"facility\":\"user\",\"severity\":\"info\",\"message\":\"\"}\n");
        assert_eq!(source, "10.0.0.1");
        // Messages from before RFC 5424, and unknown formats.
        let (text, _) = line("<13>Oct 11 22:14:15 box app: it works");
        assert!(text.contains("\"message\":\"Oct 11 22:14:15 box app: it works\""), "{text}");
        let (text, _) = line("<999>1 x");
        assert_eq!(text, "{\"sender\":\"10.0.0.1\",\"message\":\"<999>1 x\"}\n");
    }

    #[test]
    fn messages_are_found_in_a_stream() {
        assert_eq!(frame(b"5 abcde6 ", 0).unwrap(), Some((&b"abcde"[..], 7)));
        assert_eq!(frame(b"<1>a\r\n<2>", 0).unwrap(), Some((&b"<1>a"[..], 6)));
        for part in [&b""[..], b"5", b"5 abcd", b"<1>a"] {
            assert_eq!(frame(part, 0).unwrap(), None, "{part:?}");
        }
        // Bytes that were searched before are not searched again.
        assert_eq!(frame(b"<1>a\nb", 5).unwrap(), None);
        assert_eq!(frame(b"<1>a\nb\n", 5).unwrap(), Some((&b"<1>a\nb"[..], 7)));
        assert_eq!(frame(b"123456789", 0).unwrap_err().kind(), "too_large");
        assert_eq!(frame(b"99999999 x", 0).unwrap_err().kind(), "too_large");
        assert_eq!(frame(&vec![b'x'; RECORD_BYTES + 1], 0).unwrap_err().kind(), "too_large");
        assert_eq!(frame(b"5x", 0).unwrap_err().kind(), "invalid");
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            text in ".{0,60}",
        ) {
            let _ = frame(&bytes, 0);
            let with_header = format!("<1>1 a b c d e {text}");
            for bytes in [&bytes, text.as_bytes(), with_header.as_bytes()] {
                let mut batch = RecordBatch::new(Timestamp(0));
                message(bytes, "x", &mut batch);
                let ends = batch.lines[0].bytes.iter().filter(|byte| **byte == b'\n');
                prop_assert_eq!(ends.count(), 1);
            }
        }
    }
}
