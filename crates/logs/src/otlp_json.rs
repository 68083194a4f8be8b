//! Logs of OpenTelemetry as JSON.

use cairn_base::{Error, Result};

use crate::batch::{self, RecordBatch};
use crate::json::{self, Cursor};
use crate::otlp::{Resource, double, member};

/// Takes an `ExportLogsServiceRequest` in the form of JSON.
///
/// # Errors
/// `Invalid` if the body is not one; then nothing of it counts.
pub fn parse(body: &[u8], batch: &mut RecordBatch) -> Result<()> {
    let mut has_logs = false;
    Cursor::new(body)?.object(|cursor, name| match name {
        "resourceLogs" => {
            has_logs = true;
            cursor.list(|cursor| resource_logs(cursor, batch))
        }
        _ => cursor.skip(),
    })?;
    if has_logs { Ok(()) } else { Err(Error::Invalid("JSON without resourceLogs".into())) }
}

fn resource_logs(cursor: &mut Cursor<'_>, batch: &mut RecordBatch) -> Result<()> {
    let (mut resource, mut scopes) = (Resource::new(), None);
    cursor.object(|cursor, name| match name {
        "resource" => cursor.object(|cursor, name| match name {
            "attributes" => {
                let mut named = cursor.clone();
                named.list(|cursor| {
                    let (name, value) = pair(cursor)?;
                    if let Some(text) = value.and_then(|mut value| string_value(&mut value)) {
                        resource.named(&name, &text);
                    }
                    Ok(())
                })?;
                attributes(cursor, &mut resource.attributes)
            }
            _ => cursor.skip(),
        }),
        "scopeLogs" => {
            scopes = Some(cursor.clone());
            cursor.skip()
        }
        _ => cursor.skip(),
    })?;
    resource.check()?;
    match scopes {
        Some(mut scopes) => scopes.list(|cursor| scope_logs(cursor, &resource, batch)),
        None => Ok(()),
    }
}

fn scope_logs(cursor: &mut Cursor<'_>, resource: &Resource, batch: &mut RecordBatch) -> Result<()> {
    let (mut scope, mut records) = (String::new(), None);
    cursor.object(|cursor, name| match name {
        "scope" => cursor.object(|cursor, name| match name {
            "name" => {
                scope = cursor.string()?.into_owned();
                Ok(())
            }
            _ => cursor.skip(),
        }),
        "logRecords" => {
            records = Some(cursor.clone());
            cursor.skip()
        }
        _ => cursor.skip(),
    })?;
    let Some(mut records) = records else { return Ok(()) };
    records.list(|cursor| {
        let mut record = cursor.clone();
        batch.record(&resource.source, |out| log_record(&mut record, &scope, resource, out));
        cursor.skip()
    })
}

fn log_record(
    cursor: &mut Cursor<'_>,
    scope: &str,
    resource: &Resource,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (mut time, mut observed) = (0, 0);
    let ns = |cursor: &mut Cursor<'_>| -> Result<i64> {
        let bad = |_| Error::Invalid("a time that is no number".into());
        cursor.string_or_number()?.parse().map_err(bad)
    };
    cursor.clone().object(|cursor, name| {
        match name {
            "timeUnixNano" => time = ns(cursor)?,
            "observedTimeUnixNano" => observed = ns(cursor)?,
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    batch::time(out, if time != 0 { time } else { observed });
    let mut pairs = Vec::new();
    cursor.object(|cursor, name| {
        let text = |cursor: &mut Cursor<'_>, out: &mut Vec<u8>, name: &str| -> Result<()> {
            let text = cursor.string()?;
            if !text.is_empty() {
                json::name(out, name);
                json::text(out, &text);
            }
            Ok(())
        };
        match name {
            "severityNumber" => {
                let bad = |_| Error::Invalid("a severityNumber that is no number".into());
                let number: u8 = cursor.string_or_number()?.parse().map_err(bad)?;
                json::name(out, "severity_number");
                out.extend_from_slice(number.to_string().as_bytes());
                Ok(())
            }
            "severityText" => text(cursor, out, "severity"),
            "traceId" => text(cursor, out, "trace_id"),
            "spanId" => text(cursor, out, "span_id"),
            "eventName" => text(cursor, out, "event_name"),
            "body" => {
                json::name(out, "body");
                any_value(cursor, out)
            }
            "attributes" => attributes(cursor, &mut pairs),
            _ => cursor.skip(),
        }
    })?;
    member(out, "attributes", &pairs);
    if !scope.is_empty() {
        json::name(out, "scope");
        json::text(out, scope);
    }
    member(out, "resource", &resource.attributes);
    Ok(())
}

/// Writes pairs as an object; nothing if there are none.
fn attributes(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    pairs(cursor, out)?;
    if out == b"{}" {
        out.clear();
    }
    Ok(())
}

fn pairs(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    cursor.list(|cursor| {
        let (name, value) = pair(cursor)?;
        json::name(out, &name);
        match value {
            Some(mut value) => any_value(&mut value, out),
            None => {
                out.extend_from_slice(b"null");
                Ok(())
            }
        }
    })?;
    out.push(b'}');
    Ok(())
}

/// Returns the name of a pair, and the position of its value.
fn pair<'a>(cursor: &mut Cursor<'a>) -> Result<(String, Option<Cursor<'a>>)> {
    let (mut key, mut value) = (String::new(), None);
    cursor.object(|cursor, name| match name {
        "key" => {
            key = cursor.string()?.into_owned();
            Ok(())
        }
        "value" => {
            value = Some(cursor.clone());
            cursor.skip()
        }
        _ => cursor.skip(),
    })?;
    Ok((key, value))
}

fn string_value(cursor: &mut Cursor<'_>) -> Option<String> {
    let mut found = None;
    let read = cursor.object(|cursor, name| match name {
        "stringValue" => {
            found = Some(cursor.string()?.into_owned());
            Ok(())
        }
        _ => cursor.skip(),
    });
    read.ok().and(found)
}

/// The value is no deeper than the body, whose depth was checked.
fn any_value(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<()> {
    batch::check_room(out)?;
    let start = out.len();
    if cursor.kind() != Some(b'{') {
        out.extend_from_slice(b"null");
        return cursor.skip();
    }
    cursor.object(|cursor, name| {
        // The last value counts, as there should be only one.
        out.truncate(start);
        match name {
            "stringValue" | "bytesValue" => json::text(out, &cursor.string()?),
            "boolValue" => {
                out.extend_from_slice(if cursor.raw()? == "true" { b"true" } else { b"false" });
            }
            "intValue" => {
                let bad = |_| Error::Invalid("an intValue that is no number".into());
                let number: i64 = cursor.string_or_number()?.parse().map_err(bad)?;
                out.extend_from_slice(number.to_string().as_bytes());
            }
            "doubleValue" => {
                let bad = |_| Error::Invalid("a doubleValue that is no number".into());
                double(cursor.string_or_number()?.parse().map_err(bad)?, out);
            }
            "arrayValue" => return array(cursor, out),
            "kvlistValue" => {
                let mut is_there = false;
                cursor.object(|cursor, name| match name {
                    "values" => {
                        out.truncate(start);
                        is_there = true;
                        pairs(cursor, out)
                    }
                    _ => cursor.skip(),
                })?;
                if !is_there {
                    out.extend_from_slice(b"{}");
                }
            }
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    if out.len() == start {
        out.extend_from_slice(b"null");
    }
    Ok(())
}

fn array(cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    cursor.object(|cursor, name| match name {
        "values" => cursor.list(|cursor| {
            if out.last() != Some(&b'[') {
                out.push(b',');
            }
            any_value(cursor, out)
        }),
        _ => cursor.skip(),
    })?;
    out.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_become_the_same_lines_as_messages_do() {
        let body = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[
            {"attributes":[
                {"key":"l","value":{"arrayValue":{"values":[{"intValue":"7"},
                    {"arrayValue":{"values":[{"stringValue":"["},{"boolValue":true}]}},{}]}}},
                {"value":{"kvlistValue":{"values":[{"key":"k","value":{"doubleValue":1.5}}]}},
                    "key":"m"}],
             "timeUnixNano":"5","severityNumber":9,"severityText":"INFO","traceId":"ab",
             "spanId":"","body":{"stringValue":"it works"}},
            {"body":{"intValue":"x"}},
            {"severityNumber":{
            }},
            {"observedTimeUnixNano":7}],"scope":{"name":"lib"}}],
            "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]}}]}"#;
        let mut batch = RecordBatch::new(Timestamp(0));
        parse(body, &mut batch).unwrap();
        let end = "\"scope\":\"lib\",\"resource\":{\"service.name\":\"shop\"}}\n";
        let expected = format!(
            "{{\"time\":\"1970-01-01T00:00:00.000000005Z\",\"severity_number\":9,\
             \"severity\":\"INFO\",\"trace_id\":\"ab\",\"body\":\"it works\",\
             \"attributes\":{{\"l\":[7,[\"[\",true],null],\"m\":{{\"k\":1.5}}}},{end}\
             {{\"time\":\"1970-01-01T00:00:00.000000007Z\",{end}"
        );
        assert_eq!(batch.text("shop"), expected);
        let refused: Vec<usize> = batch.refused.iter().map(|(number, _)| *number).collect();
        assert_eq!((batch.records, refused), (4, vec![1, 2]));
        for bad in [&b"{}"[..], b"[]", br#"{"resourceLogs":[1]}"#] {
            assert!(parse(bad, &mut RecordBatch::new(Timestamp(0))).is_err());
        }
    }

    proptest! {
        #[test]
        fn values_become_json(text in "[{}\\[\\]\":,0-9a]{0,30}") {
            let json = format!("{{\"kvlistValue\":{{\"values\":{text}}}}}");
            let Ok(mut cursor) = Cursor::new(json.as_bytes()) else { return Ok(()) };
            let mut out = Vec::new();
            if any_value(&mut cursor, &mut out).is_ok() {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
            }
        }
    }
}
