//! Records of logs, by the protocols of stock shippers.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_logs::limits::{BODY_BYTES, ITEM_BYTES, RECORD_BYTES, RECORDS};
use cairn_logs::{
    Coding, HeldMemory, Item, Key, Outcome, Protocol, RecordBatch, bulk, journal::Journal, key_of,
    loki, otlp, otlp_json,
};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::append::collect;
use super::append_lines::{coding, idempotency_key};
use super::error::Failure;
use super::inner::Inner;
use super::log_path::LogPath;
use super::log_replies::{self, PROTOBUFS, is_of};
use super::{Body, no_content};
use crate::limits::LOGS_PATIENCE;
use crate::metrics::VerbStats;
use crate::room::Room;
use crate::upload::Upload;
use crate::witness::Witness;

/// A request whose caller is known.
pub struct LogRequest<'a> {
    pub parts: &'a Parts,
    pub caller: &'a Caller,
    pub stats: &'a VerbStats,
}

/// Number of items of a `_bulk` for which there is no memory that are answered with a status each;
/// a longer `_bulk` gets a single status.
const ITEMS_UNDER_PRESSURE: usize = 4096;
const NO_ROOM: &str = "too many records at once";
/// Number of further bytes of a journal after which it is parsed again.
const JOURNAL_STEP: usize = RECORD_BYTES / 4;

type Answer = Result<Response<Body>, Failure>;

/// Answers a POST to one of the paths of shippers.
pub async fn push(
    door: &Inner,
    request: &LogRequest<'_>,
    path: LogPath<'_>,
    room: Room,
    upload: &mut Upload,
) -> Answer {
    if request.caller.is_anonymous() {
        let what = "records of logs belong to a user: send credentials";
        return Err(Error::Denied(what.into()).into());
    }
    match path {
        LogPath::Loki => loki_push(door, request, room, upload).await,
        LogPath::Bulk(index) => bulk_push(door, request, &index, room, upload).await,
        LogPath::Otlp => otlp_push(door, request, room, upload).await,
        LogPath::Journal => journal_push(door, request, room, upload).await,
        LogPath::Probe(_) => Err(Failure::Method { allow: log_replies::PROBE }),
    }
}

/// Returns the body, unpacked, and the checksum of a request that may be sent again.
async fn body(
    request: &LogRequest<'_>,
    coding: Coding,
    room: &mut Room,
    upload: &mut Upload,
) -> Result<(Bytes, Option<Key>), Failure> {
    let packed = packed_body(request, room, upload).await?;
    unpack(request, coding, room, packed).await
}

async fn packed_body(
    request: &LogRequest<'_>,
    room: &mut Room,
    upload: &mut Upload,
) -> Result<Bytes, Failure> {
    let packed = collect(upload, BODY_BYTES, room).await?;
    request.stats.received(packed.len() as u64);
    Ok(packed)
}

async fn unpack(
    request: &LogRequest<'_>,
    coding: Coding,
    room: &mut Room,
    packed: Bytes,
) -> Result<(Bytes, Option<Key>), Failure> {
    let held = packed.len();
    // Memory for the body, and for the lines that it becomes.
    hold(room, held + 2 * coding.unpacked_len(&packed, BODY_BYTES)?).await?;
    let body = coding.unpack(packed, BODY_BYTES)?;
    let key = idempotency_key(&request.parts.headers)?;
    let path = request.parts.uri.path().as_bytes();
    Ok((body.clone(), key.map(|key| key_of(&[path, key, &body]))))
}

/// Waits for room, but no longer than a shipper should wait before it hears so.
async fn hold(room: &mut Room, bytes: usize) -> Result<(), Failure> {
    timeout(LOGS_PATIENCE, room.hold(bytes)).await.map_err(|_| Failure::Busy(NO_ROOM))
}

async fn store(
    door: &Inner,
    request: &LogRequest<'_>,
    protocol: Protocol,
    batch: RecordBatch,
    key: Option<Key>,
    held: HeldMemory,
) -> Result<Outcome> {
    batch.check_records()?;
    let outcome = door.intake.push(request.caller, protocol, batch, key, held).await?;
    witness(request, &outcome);
    Ok(outcome)
}

/// Notes in the audit which records were not kept.
fn witness(request: &LogRequest<'_>, outcome: &Outcome) {
    Witness::of(&request.parts.extensions).note(|facts| {
        facts.records += outcome.records;
        for (_, error) in outcome.refused.iter().chain(&outcome.failed) {
            *facts.not_kept.entry(error.kind()).or_default() += 1;
        }
    });
}

async fn loki_push(
    door: &Inner,
    request: &LogRequest<'_>,
    mut room: Room,
    upload: &mut Upload,
) -> Answer {
    let headers = &request.parts.headers;
    let is_json = is_of(headers, &["application/json"]);
    if !is_json && !is_of(headers, &["application/x-protobuf"]) {
        let what = "Content-Type: use application/json or application/x-protobuf";
        return Err(Error::Invalid(what.into()).into());
    }
    let coding = match coding(headers)? {
        Coding::Plain if !is_json => Coding::Snappy,
        other => other,
    };
    let (body, key) = body(request, coding, &mut room, upload).await?;
    let mut batch = door.intake.batch().at_most(RECORDS);
    if is_json {
        loki::json(&body, &mut batch)?
    } else {
        loki::protobuf(&body, &mut batch)?
    }
    drop(body);
    let outcome = store(door, request, Protocol::Loki, batch, key, Arc::new(room)).await?;
    refuse(outcome)?;
    Ok(no_content())
}

/// Returns the error for a protocol without a status of single records: all records that could be
/// kept were kept.
fn refuse(outcome: Outcome) -> Result<()> {
    let Outcome { records, refused, failed } = outcome;
    if let Some((_, error)) = failed.into_iter().next() {
        return Err(error);
    }
    match refused.first() {
        None => Ok(()),
        Some((number, error)) => Err(Error::Invalid(format!(
            "{} of {records} records were refused and the others stored; record {number}: {error}",
            refused.len()
        ))),
    }
}

async fn bulk_push(
    door: &Inner,
    request: &LogRequest<'_>,
    index: &str,
    mut room: Room,
    upload: &mut Upload,
) -> Answer {
    let began = door.fs().clock().monotonic();
    let coding = coding(&request.parts.headers)?;
    let packed = packed_body(request, &mut room, upload).await?;
    // The items point into the body until they are answered.
    let (body, unpacked) = match unpack(request, coding, &mut room, packed.clone()).await {
        Ok((body, key)) => {
            drop(packed);
            (body, Ok(key))
        }
        Err(Failure::Busy(why)) if coding == Coding::Plain => (packed, Err(why)),
        Err(failure) => return Err(failure),
    };
    let (items, outcome) = match unpacked {
        Ok(key) => bulk_store(door, request, index, &body, key, room).await?,
        Err(why) => match bulk::items(&body, index, ITEMS_UNDER_PRESSURE) {
            Ok(items) => {
                let error = Error::Unavailable(why.into());
                let outcome = all_failed(request, items.len(), error)?;
                (items, outcome)
            }
            Err(_) => return Err(Failure::Busy(why)),
        },
    };
    let took: Duration = door.fs().clock().monotonic().saturating_sub(began);
    let mut reply = log_replies::bulk(&items, &outcome, took);
    if !outcome.failed.is_empty() {
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(reply)
}

/// Stores the records of a body. Returns its items, too.
async fn bulk_store<'a>(
    door: &Inner,
    request: &LogRequest<'_>,
    index: &'a str,
    body: &'a Bytes,
    key: Option<Key>,
    mut room: Room,
) -> Result<(Vec<Item<'a>>, Outcome), Failure> {
    let mut batch = door.intake.batch().at_most(RECORDS);
    let items = bulk::parse(body, index, &mut batch)?;
    let stored = match hold(&mut room, 3 * body.len() + items.len() * ITEM_BYTES).await {
        Ok(()) => store(door, request, Protocol::Bulk, batch, key, Arc::new(room)).await,
        Err(_) => Err(Error::Unavailable(NO_ROOM.into())),
    };
    let outcome = match stored {
        Ok(outcome) => outcome,
        Err(error) => all_failed(request, items.len(), error)?,
    };
    Ok((items, outcome))
}

/// Returns the outcome when no record could be stored now. Some shippers read the status of each
/// item, and not that of the reply.
fn all_failed(request: &LogRequest<'_>, records: usize, error: Error) -> Result<Outcome> {
    let outcome = each_failed(records, error)?;
    witness(request, &outcome);
    Ok(outcome)
}

fn each_failed(records: usize, error: Error) -> Result<Outcome> {
    if !matches!(error, Error::Unavailable(_) | Error::Full(_) | Error::ReadOnly(_)) {
        return Err(error);
    }
    let failed = (0..records).map(|number| (number, error.copy())).collect();
    Ok(Outcome { records, failed, ..Outcome::default() })
}

async fn otlp_push(
    door: &Inner,
    request: &LogRequest<'_>,
    mut room: Room,
    upload: &mut Upload,
) -> Answer {
    let headers = &request.parts.headers;
    let is_json = is_of(headers, &["application/json"]);
    if !is_json && !is_of(headers, &PROTOBUFS) {
        let what = "Content-Type: use application/json or application/x-protobuf";
        return Err(Error::Invalid(what.into()).into());
    }
    let (body, key) = body(request, coding(headers)?, &mut room, upload).await?;
    let mut batch = door.intake.batch().at_most(RECORDS);
    if is_json {
        otlp_json::parse(&body, &mut batch)?
    } else {
        otlp::protobuf(&body, &mut batch)?
    }
    drop(body);
    let outcome = store(door, request, Protocol::Otlp, batch, key, Arc::new(room)).await?;
    let Outcome { records, refused, failed } = outcome;
    if let Some((_, error)) = failed.into_iter().next() {
        // Exporters try again after 503, and after few other statuses.
        let what = format!("records were not stored: {error}");
        return Err(Error::Unavailable(what).into());
    }
    let why = refused.first().map(|(number, error)| {
        format!("{} of {records} records were refused; record {number}: {error}", refused.len())
    });
    Ok(log_replies::otlp(is_json, refused.len(), why.as_deref()))
}

/// Takes entries as they arrive: a journal may be sent for as long as the journal lasts.
async fn journal_push(
    door: &Inner,
    request: &LogRequest<'_>,
    mut room: Room,
    upload: &mut Upload,
) -> Answer {
    let headers = &request.parts.headers;
    if !is_of(headers, &["application/vnd.fdo.journal"]) {
        let what = "Content-Type: use application/vnd.fdo.journal";
        return Err(Error::Invalid(what.into()).into());
    }
    if coding(headers)? != Coding::Plain {
        let what = "a Content-Encoding of a journal: send it as it is";
        return Err(Error::NotImplemented(what.into()).into());
    }
    if idempotency_key(headers)?.is_some() {
        let what = "an Idempotency-Key of a journal: entries are stored as they come";
        return Err(Error::NotImplemented(what.into()).into());
    }
    // Room for twice the most waiting bytes, and the lines that these become.
    hold(&mut room, 6 * RECORD_BYTES).await?;
    upload.shares(room.all(), room.party());
    let room: HeldMemory = Arc::new(room);
    let (mut waiting, mut next_look) = (BytesMut::new(), RECORD_BYTES);
    let (mut journal, mut refused) = (Journal::default(), 0);
    while let Some(frame) = upload.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        request.stats.received(bytes.len() as u64);
        waiting.extend_from_slice(&bytes);
        if waiting.len() >= next_look {
            let batch = entries_of(door, &mut journal, &mut waiting, false);
            refused += store_entries(door, request, batch, &room).await?;
            // An incomplete entry is not parsed again for each byte.
            next_look = (waiting.len() + JOURNAL_STEP).max(RECORD_BYTES);
        }
    }
    let batch = entries_of(door, &mut journal, &mut waiting, true);
    refused += store_entries(door, request, batch, &room).await?;
    // An uploader ends at any other status, and would begin again before the refused entries.
    Ok(if refused == 0 {
        log_replies::text(StatusCode::ACCEPTED, "OK.\n".to_owned())
    } else {
        let text = format!("{refused} entries were refused, and the others stored: see the log.\n");
        log_replies::text(StatusCode::ACCEPTED, text)
    })
}

/// Takes the entries that have come whole.
fn entries_of(
    door: &Inner,
    journal: &mut Journal,
    waiting: &mut BytesMut,
    is_end: bool,
) -> RecordBatch {
    let mut batch = door.intake.batch();
    let taken = journal.parse(waiting, is_end, &mut batch);
    waiting.advance(taken);
    batch
}

/// Stores entries, and returns how many were refused.
async fn store_entries(
    door: &Inner,
    request: &LogRequest<'_>,
    batch: RecordBatch,
    room: &HeldMemory,
) -> Result<usize> {
    if batch.records == 0 {
        return Ok(0);
    }
    let outcome = store(door, request, Protocol::Journal, batch, None, Arc::clone(room)).await?;
    let refused = outcome.refused.len();
    if let Some((number, error)) = outcome.refused.first() {
        tracing::warn!(refused, number, %error, "entries of a journal are not kept");
    }
    refuse(Outcome { refused: Vec::new(), ..outcome })?;
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_could_not_be_stored_now_is_said_of_each_item() {
        let body = b"{\"create\":{\"_index\":\"a\"}}\n{}\n{\"index\":{}}\n{}\n";
        let items = bulk::items(body, "b", ITEMS_UNDER_PRESSURE).unwrap();
        let outcome = each_failed(items.len(), Error::Unavailable("no memory".into())).unwrap();
        let reply = log_replies::bulk(&items, &outcome, Duration::ZERO);
        assert_eq!(reply.status(), StatusCode::OK);
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let statuses = [&json["items"][0]["create"], &json["items"][1]["index"]];
        assert_eq!(statuses.map(|item| item["status"].as_u64()), [Some(429); 2]);
        assert_eq!(json["errors"], true);
        assert!(each_failed(2, Error::Denied("never".into())).is_err());
    }
}
