//! Loki's push: streams of lines, with labels.

use cairn_base::{Error, Result};

use crate::batch::{self, RecordBatch};
use crate::json::{self, Cursor};
use crate::limits::LABELS_BYTES;
use crate::protobuf::Message;

/// Labels that name a source, the best first.
const SOURCES: [&str; 9] =
    ["service_name", "job", "app", "container", "unit", "filename", "host", "hostname", "instance"];
/// Source of a stream without any of these labels.
const DEFAULT: &str = "loki";

/// Nanoseconds of a second.
const NS: i64 = 1_000_000_000;

/// Labels of a stream.
struct Labels {
    /// Rank of the label that names the source: smaller is better.
    rank: usize,
    source: String,
    /// Labels as JSON.
    json: Vec<u8>,
}

impl Labels {
    fn new() -> Labels {
        Labels { rank: SOURCES.len(), source: DEFAULT.to_owned(), json: b"{".to_vec() }
    }

    fn add(&mut self, name: &str, value: &str) -> Result<()> {
        json::name(&mut self.json, name);
        json::text(&mut self.json, value);
        if self.json.len() > LABELS_BYTES {
            return Err(too_many());
        }
        let rank = SOURCES.iter().position(|source| *source == name);
        if let Some(rank) = rank.filter(|rank| *rank < self.rank && !value.is_empty()) {
            (self.rank, self.source) = (rank, value.to_owned());
        }
        Ok(())
    }

    /// Reads `{name="value", …}`, the form of a stream in queries.
    fn parse(text: &str) -> Result<Labels> {
        let mut labels = Labels::new();
        let bad = || Error::Invalid(format!("labels {text:.100}: use {{name=\"value\", …}}"));
        let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let mut rest = inner.ok_or_else(bad)?.trim_start();
        while !rest.is_empty() {
            let (name, value) = rest.split_once('=').ok_or_else(bad)?;
            let value = value.trim_start();
            let end = quoted_end(value).ok_or_else(bad)?;
            let (quoted, after) = value.split_at_checked(end).ok_or_else(bad)?;
            labels.add(name.trim(), &unquote(quoted).ok_or_else(bad)?)?;
            let after = after.trim_start();
            rest = after.strip_prefix(',').unwrap_or(after).trim_start();
            if !after.is_empty() && !after.starts_with(',') {
                return Err(bad());
            }
        }
        labels.json.push(b'}');
        Ok(labels)
    }
}

fn too_many() -> Error {
    Error::TooLarge(format!("labels or metadata: at most {LABELS_BYTES} bytes as JSON"))
}

/// Returns the end of a quoted text.
fn quoted_end(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    let (_, quote) = bytes.next().filter(|(_, byte)| matches!(byte, b'"' | b'`'))?;
    while let Some((at, byte)) = bytes.next() {
        if byte == quote {
            return Some(at + 1);
        }
        if byte == b'\\' && quote == b'"' {
            bytes.next();
        }
    }
    None
}

/// Decodes a text as quoted by Go.
fn unquote(quoted: &str) -> Option<String> {
    let inner = quoted.get(1..quoted.len() - 1)?;
    if quoted.starts_with('`') {
        return Some(inner.to_owned());
    }
    let (mut out, mut rest) = (Vec::new(), inner.chars());
    let number = |rest: &mut std::str::Chars<'_>, digits: usize, base: u32| {
        (0..digits).try_fold(0, |number, _| Some(number * base + rest.next()?.to_digit(base)?))
    };
    while let Some(char) = rest.next() {
        let mut push = |char: char| {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        };
        if char != '\\' {
            push(char);
            continue;
        }
        match rest.next()? {
            'n' => push('\n'),
            't' => push('\t'),
            'r' => push('\r'),
            'a' => push('\x07'),
            'b' => push('\x08'),
            'f' => push('\x0c'),
            'v' => push('\x0b'),
            'x' => out.push(number(&mut rest, 2, 16)? as u8),
            'u' => push(char::from_u32(number(&mut rest, 4, 16)?)?),
            'U' => push(char::from_u32(number(&mut rest, 8, 16)?)?),
            other => push(other),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Takes one line of a stream; `metadata` is a JSON object, or empty.
fn entry(batch: &mut RecordBatch, labels: &Labels, ns: i64, line: &[u8], metadata: &[u8]) {
    batch.record(&labels.source, |out| {
        batch::time(out, ns);
        json::name(out, "labels");
        out.extend_from_slice(&labels.json);
        if !metadata.is_empty() {
            json::name(out, "metadata");
            out.extend_from_slice(metadata);
        }
        json::name(out, "line");
        json::lossy(out, line);
        Ok(())
    });
}

/// Takes a `PushRequest`, unpacked. If labels or an entry are malformed, only their records are
/// refused.
///
/// # Errors
/// `Invalid` if the body is not one; then nothing of it counts.
pub fn protobuf(body: &[u8], batch: &mut RecordBatch) -> Result<()> {
    for field in Message(body) {
        if let (1, stream) = field? {
            protobuf_stream(stream.bytes()?, batch)?;
        }
    }
    Ok(())
}

fn protobuf_stream(stream: &[u8], batch: &mut RecordBatch) -> Result<()> {
    let mut labels = String::new();
    for field in Message(stream) {
        if let (1, text) = field? {
            labels = String::from_utf8_lossy(text.bytes()?).into_owned();
        }
    }
    let labels = Labels::parse(if labels.is_empty() { "{}" } else { &labels });
    for field in Message(stream) {
        let (2, field) = field? else { continue };
        let bytes = field.bytes()?;
        let taken = match &labels {
            Ok(labels) => protobuf_entry(bytes, labels, batch),
            Err(error) => Err(error.copy()),
        };
        taken.unwrap_or_else(|error| batch.refuse(error));
    }
    Ok(())
}

fn protobuf_entry(bytes: &[u8], labels: &Labels, batch: &mut RecordBatch) -> Result<()> {
    let (mut ns, mut line, mut metadata) = (0_i64, &[][..], Labels::new());
    for field in Message(bytes) {
        match field? {
            (1, time) => {
                for part in Message(time.bytes()?) {
                    match part? {
                        (1, s) => ns = ns.wrapping_add((s.number()? as i64).wrapping_mul(NS)),
                        (2, of_second) => ns = ns.wrapping_add(of_second.number()? as i64),
                        _ => {}
                    }
                }
            }
            (2, text) => line = text.bytes()?,
            (3, pair) => {
                let (mut name, mut value) = (&[][..], &[][..]);
                for part in Message(pair.bytes()?) {
                    match part? {
                        (1, text) => name = text.bytes()?,
                        (2, text) => value = text.bytes()?,
                        _ => {}
                    }
                }
                metadata.add(&String::from_utf8_lossy(name), &String::from_utf8_lossy(value))?;
            }
            _ => {}
        }
    }
    let has_metadata = metadata.json.len() > 1;
    metadata.json.push(b'}');
    let metadata = if has_metadata { &metadata.json[..] } else { &[] };
    entry(batch, labels, ns, line, metadata);
    Ok(())
}

/// Takes a push in the form of JSON.
///
/// # Errors
/// `Invalid` if the body is not one; then nothing of it counts.
pub fn json(body: &[u8], batch: &mut RecordBatch) -> Result<()> {
    let mut has_streams = false;
    Cursor::new(body)?.object(|cursor, name| match name {
        "streams" => {
            has_streams = true;
            cursor.list(|cursor| {
                let taken = cursor.attempt(|cursor| json_stream(cursor, batch))?;
                taken.unwrap_or_else(|error| batch.refuse(error));
                Ok(())
            })
        }
        _ => cursor.skip(),
    })?;
    if has_streams { Ok(()) } else { Err(Error::Invalid("JSON without streams".into())) }
}

fn json_stream(cursor: &mut Cursor<'_>, batch: &mut RecordBatch) -> Result<()> {
    let (mut labels, mut values, mut outcome) = (Labels::new(), None, Ok(()));
    cursor.object(|cursor, name| match name {
        "stream" => {
            outcome = cursor.attempt(|cursor| {
                cursor.object(|cursor, name| {
                    let value = cursor.string_or_number()?;
                    labels.add(name, &value)
                })
            })?;
            Ok(())
        }
        "values" => {
            values = Some(cursor.clone());
            cursor.skip()
        }
        _ => cursor.skip(),
    })?;
    labels.json.push(b'}');
    let missing = || Error::Invalid("a stream without values".into());
    values.ok_or_else(missing)?.list(|cursor| {
        let taken = match &outcome {
            Ok(()) => cursor.attempt(|cursor| json_entry(cursor, &labels, batch))?,
            Err(error) => {
                cursor.skip()?;
                Err(error.copy())
            }
        };
        taken.unwrap_or_else(|error| batch.refuse(error));
        Ok(())
    })
}

fn json_entry(cursor: &mut Cursor<'_>, labels: &Labels, batch: &mut RecordBatch) -> Result<()> {
    let (mut at, mut ns, mut line, mut metadata) = (0, None, None, Labels::new());
    cursor.list(|cursor| {
        at += 1;
        match at {
            1 => ns = cursor.string_or_number()?.parse::<i64>().ok(),
            2 => line = Some(cursor.string()?),
            3 => cursor.object(|cursor, name| {
                let value = cursor.string_or_number()?;
                metadata.add(name, &value)
            })?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    let has_metadata = metadata.json.len() > 1;
    metadata.json.push(b'}');
    let metadata = if has_metadata { &metadata.json[..] } else { &[] };
    match (ns, line) {
        (Some(ns), Some(line)) => entry(batch, labels, ns, line.as_bytes(), metadata),
        _ => batch.refuse(Error::Invalid("a value: use [\"nanoseconds\", \"line\"]".into())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::write::{bytes, number};

    fn batch() -> RecordBatch {
        RecordBatch::new(Timestamp(0))
    }

    #[test]
    fn json_becomes_lines() {
        let body = br#"{"streams":[
            {"values":[["1","a\"b"],["x","y"],["2000000000","c",{"id":"7"}]],
             "stream":{"job":"j","service_name":"web/1"}},
            {"stream":{},"values":[["0","d"]]}]}"#;
        let mut batch = batch();
        json(body, &mut batch).unwrap();
        let labels = r#""labels":{"job":"j","service_name":"web/1"}"#;
        let expected = format!(
            "{{\"time\":\"1970-01-01T00:00:00.000000001Z\",{labels},\"line\":\"a\\\"b\"}}\n\
             {{\"time\":\"1970-01-01T00:00:02.000000000Z\",{labels},\"metadata\":{{\"id\":\"7\"}},\
             \"line\":\"c\"}}\n"
        );
        assert_eq!(batch.text("web%2F1"), expected);
        assert_eq!(batch.text("loki"), "{\"labels\":{},\"line\":\"d\"}\n");
        assert_eq!((batch.records, batch.refused.len(), batch.refused[0].0), (4, 1, 1));
        for bad in [&b"{}"[..], b"[]", br#"{"streams":{}}"#] {
            assert!(json(bad, &mut super::tests::batch()).is_err());
        }
    }

    /// Returns the number of records, and the numbers of refused ones.
    fn refused(batch: &RecordBatch) -> (usize, Vec<usize>) {
        (batch.records, batch.refused.iter().map(|(number, _)| *number).collect())
    }

    #[test]
    fn what_is_bad_is_refused_alone() {
        let long = "x".repeat(LABELS_BYTES);
        let body = format!(
            r#"{{"streams":[{{"stream":{{"job":"{long}"}},"values":[["1","a"],["2","b"]]}},
                {{"stream":{{"job":"j"}},"values":[["1",7],["2","half \ud800"],8,["3","c",{{"x":"{long}"}}]]}},
                {{"stream":[],"values":[["1","d"]]}},{{"stream":{{}}}},9,
                {{"stream":{{"job":"j"}},"values":[["1","e"]]}}]}}"#
        );
        let mut batch = batch();
        json(body.as_bytes(), &mut batch).unwrap();
        assert_eq!(refused(&batch), (10, vec![0, 1, 2, 4, 5, 6, 7, 8]));
        let lines: Vec<serde_json::Value> =
            batch.text("j").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines[0]["line"].as_str().unwrap().starts_with("half \u{fffd}"));
        assert_eq!((lines.len(), &lines[1]["line"]), (2, &"e".into()));

        let entry = |line: &[u8]| bytes(2, &bytes(2, line));
        let bad = [bytes(1, b"{job=}"), entry(b"a"), entry(b"b")].concat();
        let broken = bytes(2, &[0x12, 9]);
        let good = [bytes(1, b"{job=\"j\"}"), entry(b"c"), broken, entry(b"d")].concat();
        let mut batch = super::tests::batch();
        protobuf(&[bytes(1, &bad), bytes(1, &good)].concat(), &mut batch).unwrap();
        assert_eq!(refused(&batch), (5, vec![0, 1, 3]));
        assert_eq!(batch.text("j").lines().count(), 2);
    }

    #[test]
    fn protobuf_becomes_the_same_lines() {
        let time = [number(1, 2), number(2, 5)].concat();
        let metadata = [bytes(1, b"id"), bytes(2, b"7")].concat();
        let entry = [bytes(1, &time), bytes(2, b"c\xff"), bytes(3, &metadata)].concat();
        let stream = [bytes(2, &entry), bytes(1, r#"{app="x\"y", b="é" }"#.as_bytes())].concat();
        let mut batch = batch();
        protobuf(&bytes(1, &stream), &mut batch).unwrap();
        let expected = "{\"time\":\"1970-01-01T00:00:02.000000005Z\",\
                        \"labels\":{\"app\":\"x\\\"y\",\"b\":\"é\"},\
                        \"metadata\":{\"id\":\"7\"},\"line\":\"c\u{fffd}\"}\n";
        assert_eq!(batch.text("x%22y"), expected);
    }

    #[test]
    fn labels_are_read_as_go_writes_them() {
        let labels = Labels::parse(r#"{a="\x41\u00e9\n", b=`c\d`,}"#).unwrap();
        assert_eq!(String::from_utf8(labels.json).unwrap(), r#"{"a":"Aé\n","b":"c\\d"}"#);
        for bad in ["", "{", "{a}", "{a=}", "{a=\"}", "{a=\"b\" c=\"d\"}", "{a=\"\\u\"}"] {
            assert!(Labels::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            text in "[{}\\[\\]a=\",`\\\\x]{0,30}",
        ) {
            let _ = protobuf(&bytes, &mut batch());
            let _ = json(text.as_bytes(), &mut batch());
            let _ = Labels::parse(&text);
        }
    }
}
