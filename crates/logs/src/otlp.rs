//! Logs of OpenTelemetry (OTLP), as messages of protocol buffers. Lines have the texts and numbers
//! of a record as plain JSON, whichever form they arrived in.

use cairn_base::{Error, Result};

use crate::batch::{self, RecordBatch};
use crate::json;
use crate::limits::{DEPTH, LABELS_BYTES};
use crate::protobuf::{Message, Value};

/// Attributes that name a source, the best first.
const SOURCES: [&str; 3] = ["service.name", "host.name", "k8s.pod.name"];
/// Source of records without any of these attributes.
const DEFAULT: &str = "otlp";

/// The common fields of the records of a resource.
pub(crate) struct Resource {
    rank: usize,
    pub(crate) source: String,
    /// Attributes as JSON.
    pub(crate) attributes: Vec<u8>,
}

impl Resource {
    pub(crate) fn new() -> Resource {
        Resource { rank: SOURCES.len(), source: DEFAULT.to_owned(), attributes: Vec::new() }
    }

    /// Takes the value of an attribute as the source, if the attribute is a better one than before.
    pub(crate) fn named(&mut self, name: &str, value: &str) {
        let rank = SOURCES.iter().position(|source| *source == name);
        if let Some(rank) = rank.filter(|rank| *rank < self.rank && !value.is_empty()) {
            (self.rank, self.source) = (rank, value.to_owned());
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.attributes.len() > LABELS_BYTES {
            let what = format!("attributes of a resource: at most {LABELS_BYTES} bytes");
            Err(Error::TooLarge(what))
        } else {
            Ok(())
        }
    }
}

/// Writes a member whose value is a JSON object, unless the object is empty.
pub(crate) fn member(out: &mut Vec<u8>, name: &str, object: &[u8]) {
    if !object.is_empty() {
        json::name(out, name);
        out.extend_from_slice(object);
    }
}

/// Returns bytes, such as the id of a trace, in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Takes an `ExportLogsServiceRequest`.
///
/// # Errors
/// `Invalid` if the body is not one; then nothing of it counts.
pub fn protobuf(body: &[u8], batch: &mut RecordBatch) -> Result<()> {
    for field in Message(body) {
        if let (1, logs) = field? {
            resource_logs(logs.bytes()?, batch)?;
        }
    }
    Ok(())
}

fn resource_logs(logs: &[u8], batch: &mut RecordBatch) -> Result<()> {
    let mut resource = Resource::new();
    for field in Message(logs) {
        if let (1, message) = field? {
            let message = message.bytes()?;
            for field in Message(message) {
                if let (1, pair) = field? {
                    let (name, value) = key_value(pair.bytes()?)?;
                    if let Some((1, Value::Bytes(text))) = value {
                        resource.named(&name, &String::from_utf8_lossy(text));
                    }
                }
            }
            resource.attributes = attributes(message, 1)?;
        }
    }
    resource.check()?;
    for field in Message(logs) {
        if let (2, scope) = field? {
            scope_logs(scope.bytes()?, &resource, batch)?;
        }
    }
    Ok(())
}

fn scope_logs(logs: &[u8], resource: &Resource, batch: &mut RecordBatch) -> Result<()> {
    let mut scope = String::new();
    for field in Message(logs) {
        if let (1, message) = field? {
            for field in Message(message.bytes()?) {
                if let (1, name) = field? {
                    scope = String::from_utf8_lossy(name.bytes()?).into_owned();
                }
            }
        }
    }
    for field in Message(logs) {
        if let (2, record) = field? {
            let record = record.bytes()?;
            batch.record(&resource.source, |out| log_record(record, &scope, resource, out));
        }
    }
    Ok(())
}

fn log_record(record: &[u8], scope: &str, resource: &Resource, out: &mut Vec<u8>) -> Result<()> {
    let (mut time, mut observed, mut severity) = (0, 0, 0);
    for field in Message(record) {
        match field? {
            (1, value) => time = value.number()?,
            (11, value) => observed = value.number()?,
            (2, value) => severity = value.number()?,
            _ => {}
        }
    }
    batch::time(out, if time != 0 { time } else { observed } as i64);
    if severity != 0 {
        json::name(out, "severity_number");
        out.extend_from_slice(severity.to_string().as_bytes());
    }
    for field in Message(record) {
        match field? {
            (3, text) => text_member(out, "severity", text)?,
            (5, body) => {
                json::name(out, "body");
                any_value(body.bytes()?, DEPTH, out)?;
            }
            (9, id) => id_member(out, "trace_id", id)?,
            (10, id) => id_member(out, "span_id", id)?,
            (12, text) => text_member(out, "event_name", text)?,
            _ => {}
        }
    }
    member(out, "attributes", &attributes(record, 6)?);
    if !scope.is_empty() {
        json::name(out, "scope");
        json::text(out, scope);
    }
    member(out, "resource", &resource.attributes);
    Ok(())
}

fn text_member(out: &mut Vec<u8>, name: &str, text: Value<'_>) -> Result<()> {
    let text = text.bytes()?;
    if !text.is_empty() {
        json::name(out, name);
        json::lossy(out, text);
    }
    Ok(())
}

fn id_member(out: &mut Vec<u8>, name: &str, id: Value<'_>) -> Result<()> {
    let id = id.bytes()?;
    if id.iter().any(|byte| *byte != 0) {
        json::name(out, name);
        json::text(out, &hex(id));
    }
    Ok(())
}

/// Writes the pairs in a field of a message as an object; nothing if there are none.
fn attributes(message: &[u8], field: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    pairs(message, field, DEPTH, &mut out)?;
    if out == b"{}" {
        out.clear();
    }
    Ok(out)
}

fn pairs(message: &[u8], field: u64, depth: u32, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    for found in Message(message) {
        let (number, pair) = found?;
        if number == field {
            let pair = pair.bytes()?;
            let (name, _) = key_value(pair)?;
            json::name(out, &name);
            let mut has_value = false;
            for part in Message(pair) {
                if let (2, value) = part? {
                    any_value(value.bytes()?, depth, out)?;
                    has_value = true;
                    break;
                }
            }
            if !has_value {
                out.extend_from_slice(b"null");
            }
        }
    }
    out.push(b'}');
    Ok(())
}

/// Returns the name of a pair, and the first field of its value.
fn key_value(pair: &[u8]) -> Result<(String, Option<(u64, Value<'_>)>)> {
    let (mut name, mut value) = (String::new(), None);
    for part in Message(pair) {
        match part? {
            (1, text) => name = String::from_utf8_lossy(text.bytes()?).into_owned(),
            (2, message) => value = Message(message.bytes()?).next().transpose()?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn any_value(value: &[u8], depth: u32, out: &mut Vec<u8>) -> Result<()> {
    batch::check_room(out)?;
    let deeper = || {
        let what = format!("values within values: {DEPTH} deep at most");
        depth.checked_sub(1).ok_or(Error::TooLarge(what))
    };
    match Message(value).next().transpose()? {
        Some((1, text)) => json::lossy(out, text.bytes()?),
        Some((2, flag)) => {
            out.extend_from_slice(if flag.number()? != 0 { b"true" } else { b"false" });
        }
        Some((3, number)) => {
            out.extend_from_slice((number.number()? as i64).to_string().as_bytes());
        }
        Some((4, number)) => double(f64::from_bits(number.number()?), out),
        Some((5, list)) => {
            let depth = deeper()?;
            out.push(b'[');
            for item in Message(list.bytes()?) {
                if let (1, item) = item? {
                    if out.last() != Some(&b'[') {
                        out.push(b',');
                    }
                    any_value(item.bytes()?, depth, out)?;
                }
            }
            out.push(b']');
        }
        Some((6, list)) => pairs(list.bytes()?, 1, deeper()?, out)?,
        Some((7, bytes)) => json::text(out, &hex(bytes.bytes()?)),
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

/// Writes a number as JSON, or as a text if it is infinite or not a number.
pub(crate) fn double(number: f64, out: &mut Vec<u8>) {
    if number.is_finite() {
        out.extend_from_slice(number.to_string().as_bytes())
    } else {
        json::text(out, &number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::write::{bytes, fixed, number};

    fn pair(name: &str, value: &[u8]) -> Vec<u8> {
        [bytes(1, name.as_bytes()), bytes(2, value)].concat()
    }

    #[test]
    fn records_become_lines() {
        let name = bytes(1, &pair("service.name", &bytes(1, b"shop")));
        let list = [bytes(1, &number(3, 7)), bytes(1, &bytes(1, b"x")), bytes(1, &[])].concat();
        let map = bytes(1, &pair("k", &fixed(4, 1.5_f64.to_bits())));
        let attributes = [pair("l", &bytes(5, &list)), pair("m", &bytes(6, &map))];
        let record = [
            fixed(1, 5),
            number(2, 9),
            bytes(3, b"INFO"),
            bytes(5, &bytes(1, b"it \"works\"\n")),
            bytes(6, &attributes[0]),
            bytes(6, &attributes[1]),
            bytes(9, &[0xab; 16]),
            bytes(10, &[0; 8]),
        ]
        .concat();
        let scope = [bytes(2, &record), bytes(1, &bytes(1, b"lib"))].concat();
        let body = bytes(1, &[bytes(2, &scope), bytes(1, &name)].concat());
        let mut batch = RecordBatch::new(Timestamp(0));
        protobuf(&body, &mut batch).unwrap();
        let expected = "{\"time\":\"1970-01-01T00:00:00.000000005Z\",\"severity_number\":9,\
             \"severity\":\"INFO\",\"body\":\"it \\\"works\\\"\\n\",\
             \"trace_id\":\"abababababababababababababababab\",\
             \"attributes\":{\"l\":[7,\"x\",null],\"m\":{\"k\":1.5}},\"scope\":\"lib\",\
             \"resource\":{\"service.name\":\"shop\"}}\n";
        assert_eq!(batch.text("shop"), expected);
    }

    #[test]
    fn a_deep_value_is_refused_and_the_others_stay() {
        let mut deep = bytes(1, b"x");
        for _ in 0..100 {
            deep = bytes(5, &bytes(1, &deep));
        }
        let records = [bytes(2, &bytes(5, &deep)), bytes(2, &bytes(5, &bytes(1, b"y")))].concat();
        let mut batch = RecordBatch::new(Timestamp(0));
        protobuf(&bytes(1, &bytes(2, &records)), &mut batch).unwrap();
        assert_eq!(batch.text("otlp"), "{\"body\":\"y\"}\n");
        assert_eq!((batch.refused.len(), batch.records), (1, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = protobuf(&bytes, &mut RecordBatch::new(Timestamp(0)));
            let mut out = Vec::new();
            if any_value(&bytes, DEPTH, &mut out).is_ok() {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
            }
        }
    }
}
