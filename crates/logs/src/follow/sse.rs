//! Server-sent events (`text/event-stream`), one for each line.

use super::position::Position;
use crate::limits::EVENT_BYTES;

/// Makes events from the bytes of one file, or of the files of a source's days.
#[derive(Default)]
pub struct Sse {
    files: Vec<SentFile>,
}

/// The part of a file that was sent.
struct SentFile {
    /// Number of the file's day, if it belongs to a source.
    day: Option<i64>,
    /// Offset up to which whole lines were sent.
    at: u64,
    /// Bytes taken of the line that begins there: sent as parts, or in `rest`.
    taken: u64,
    rest: Vec<u8>,
}

impl Sse {
    /// Notes that a file is followed from `at` on. Returns an event with this position, so that the
    /// client can resume even before it has seen a line.
    pub fn opened(&mut self, day: Option<i64>, at: u64) -> Vec<u8> {
        self.files.push(SentFile { day, at, taken: 0, rest: Vec::new() });
        format!("id: {}\n\n", self.position().text()).into_bytes()
    }

    /// Notes that a file is no longer followed.
    pub fn closed(&mut self, day: Option<i64>) {
        self.files.retain(|file| file.day != day);
    }

    /// Returns the position of a client that has received all events.
    pub fn position(&self) -> Position {
        let days: Vec<(i64, u64)> =
            self.files.iter().filter_map(|file| Some((file.day?, file.at))).collect();
        match self.files.first() {
            Some(SentFile { day: None, at, .. }) => Position::Offset(*at),
            _ => Position::Days(days),
        }
    }

    /// Returns the events for further bytes of a file. Bytes that are not a whole line yet wait,
    /// unless the line is long.
    pub fn bytes(&mut self, day: Option<i64>, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() * 2);
        let Some(at) = self.files.iter().position(|file| file.day == day) else { return out };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(file) = self.files.get_mut(at) else { return out };
            file.taken += piece.len() as u64;
            file.rest.extend_from_slice(piece);
            if let Some(line) = file.rest.strip_suffix(b"\n") {
                let mut line = line.to_vec();
                file.rest.clear();
                (file.at, file.taken) = (file.at + file.taken, 0);
                while line.len() > EVENT_BYTES {
                    part(&mut line, &mut out);
                }
                out.extend_from_slice(format!("id: {}\n", self.position().text()).as_bytes());
                data(&line, &mut out);
                continue;
            }
            while file.rest.len() > EVENT_BYTES {
                part(&mut file.rest, &mut out);
            }
        }
        out
    }

    /// Returns the event that gives the reason why the stream ends.
    pub fn end(reason: &str) -> Vec<u8> {
        format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n").into_bytes()
    }

    /// Returns a comment, which shows proxies and clients that the connection is alive.
    pub fn alive() -> Vec<u8> {
        b":\n\n".to_vec()
    }

    /// Returns the first field: the milliseconds after which a client reconnects.
    pub fn begin() -> Vec<u8> {
        b"retry: 1000\n\n".to_vec()
    }
}

/// Removes the beginning of a long line, as an event of its own. The event ends at the boundary of
/// a character.
fn part(line: &mut Vec<u8>, out: &mut Vec<u8>) {
    let is_start = |byte: &u8| byte & 0xc0 != 0x80;
    let back = line.get(..=EVENT_BYTES).and_then(|head| head.iter().rev().position(is_start));
    let rest = line.split_off(EVENT_BYTES - back.filter(|back| *back < 4).unwrap_or(0));
    out.extend_from_slice(b"event: part\n");
    data(line, out);
    *line = rest;
}

/// Writes the data of an event. A carriage return would end a line of the event, so it begins
/// another one.
fn data(line: &[u8], out: &mut Vec<u8>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    for line in String::from_utf8_lossy(line).split('\r') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_is_an_event_with_where_the_next_one_begins() {
        let mut sse = Sse::default();
        assert_eq!(text(sse.opened(None, 7)), "id: 7\n\n");
        assert_eq!(
            text(sse.bytes(None, b"a\nb\r\n\nc\rd")),
            "id: 9\ndata: a\n\nid: 12\ndata: b\n\nid: 13\ndata: \n\n"
        );
        assert_eq!(sse.position(), Position::Offset(13));
        assert_eq!(text(sse.bytes(None, b"\xff\n")), "id: 18\ndata: c\ndata: d\u{fffd}\n\n");
    }

    #[test]
    fn days_have_one_position() {
        let mut sse = Sse::default();
        sse.opened(Some(0), 5);
        assert_eq!(text(sse.opened(Some(1), 0)), "id: 1970-01-01:5,1970-01-02:0\n\n");
        assert_eq!(text(sse.bytes(Some(1), b"x")), "");
        let event = text(sse.bytes(Some(0), b"y\n"));
        assert_eq!(event, "id: 1970-01-01:7,1970-01-02:0\ndata: y\n\n");
        sse.closed(Some(0));
        assert_eq!(text(sse.bytes(Some(1), b"\n")), "id: 1970-01-02:2\ndata: x\n\n");
    }

    #[test]
    fn long_lines_come_in_parts_of_whole_characters() {
        let mut sse = Sse::default();
        sse.opened(None, 0);
        let line = format!("x{}", "é".repeat(EVENT_BYTES));
        let mut events = text(sse.bytes(None, line.as_bytes()));
        assert_eq!(sse.position(), Position::Offset(0));
        events += &text(sse.bytes(None, b"\n"));
        assert!(!events.contains('\u{fffd}'));
        let datas: Vec<&str> =
            events.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!((datas.concat(), datas.len()), (line.clone(), 3));
        assert_eq!(events.matches("event: part").count(), 2);
        assert_eq!(sse.position(), Position::Offset(line.len() as u64 + 1));
        // And bytes that are no characters.
        sse.bytes(None, &vec![0x80; 3 * EVENT_BYTES]);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_wherever_bytes_are_parted(
            text in "[ab\\n]{0,40}",
            at in 0_usize..40,
        ) {
            let (mut whole, mut parted) = (Sse::default(), Sse::default());
            whole.opened(None, 0);
            parted.opened(None, 0);
            let (one, other) = text.as_bytes().split_at(at.min(text.len()));
            let expected = whole.bytes(None, text.as_bytes());
            let events = [parted.bytes(None, one), parted.bytes(None, other)].concat();
            prop_assert_eq!(events, expected);
        }
    }
}
