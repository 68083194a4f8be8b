//! POST with `append`: adds lines at the end of an object, whole, in one durable append together
//! with those of other requests.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::{Error, Result, limits as store_limits};
use cairn_fs::ops::append_once::AppendedOnce;
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::rows::ObjectAttributes;
use cairn_logs::{Coding, Intake, call_of, key_of};
use http::header::{CONTENT_ENCODING, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::append::{CountedUpload, X_CAIRN_OFFSET, collect};
use super::digest::ExpectedDigests;
use super::error::Failure;
use super::target::check_new;
use super::{Body, json_of};
use crate::limits::IDEMPOTENCY_KEY_BYTES;
use crate::room::Room;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Serialize)]
struct AppendLinesReply {
    /// Offset of the lines.
    offset: u64,
    /// Their length, bytes.
    length: u64,
    /// True if an earlier request with the same key appended them.
    repeated: bool,
}

pub async fn append_lines(
    intake: &Intake,
    mut room: Room,
    caller: &Caller,
    bucket: &str,
    key: &str,
    headers: &HeaderMap,
    CountedUpload { upload, stats }: CountedUpload<'_>,
) -> Result<Response<Body>, Failure> {
    check_new(key)?;
    if [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| headers.contains_key(name))
    {
        return Err(Error::NotImplemented("conditions on an append".into()).into());
    }
    let (expected, coding) = (ExpectedDigests::parse(headers)?, coding(headers)?);
    let request = idempotency_key(headers)?;
    intake.gather().fs().read(caller, MayWrite { bucket: bucket.to_owned() }).await?;
    let most = store_limits::BLOCK_BYTES;
    let packed = collect(upload, most, &mut room).await?;
    stats.received(packed.len() as u64);
    if let Some(mut digester) = expected.digester() {
        digester.update(&packed);
        expected.check(&digester.finish())?;
    }
    let held = packed.len();
    room.hold(held + coding.unpacked_len(&packed, most)?).await;
    let lines = whole(coding.unpack(packed, most)?, most)?;
    let length = lines.len() as u64;
    let (offset, repeated) = match request {
        None => {
            let (gather, made) = (intake.gather(), ObjectAttributes::default());
            (gather.append(caller, bucket, key, lines, made, Arc::new(room)).await?, false)
        }
        Some(request) => {
            let place = (bucket, key);
            let key = key_of(&[b"lines", bucket.as_bytes(), key.as_bytes(), request, &lines]);
            let call = call_of(caller.user(), &key);
            let made = ObjectAttributes::default();
            match intake.gather().fs().append_once(caller, call, place, lines, made).await? {
                (_, AppendedOnce::Done(appended)) => (appended.offset, false),
                (_, AppendedOnce::Before(offset)) => (offset, true),
            }
        }
    };
    let mut reply = json_of(StatusCode::OK, &AppendLinesReply { offset, length, repeated });
    reply.headers_mut().insert(X_CAIRN_OFFSET, HeaderValue::from(offset));
    Ok(reply)
}

/// Returns the lines, with a newline after the last one.
fn whole(lines: Bytes, most: usize) -> Result<Bytes> {
    match lines.last() {
        None => Err(Error::Invalid("there are no lines to append".into())),
        Some(b'\n') => Ok(lines),
        Some(_) if lines.len() == most => {
            Err(Error::TooLarge(format!("lines: at most {most} bytes here")))
        }
        Some(_) => {
            let mut more = BytesMut::from(lines);
            more.extend_from_slice(b"\n");
            Ok(more.freeze())
        }
    }
}

/// Returns the compression of a request's body.
pub fn coding(headers: &HeaderMap) -> Result<Coding> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(Coding::Plain),
        (Some(value), None) => Coding::parse(value.to_str().unwrap_or("?")),
        _ => Err(Error::Invalid("more than one Content-Encoding".into())),
    }
}

/// Returns the key by which a request that is sent again is recognised.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&[u8]>> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let is_good = (1..=IDEMPOTENCY_KEY_BYTES).contains(&value.len()) && values.next().is_none();
    if is_good {
        Ok(Some(value.as_bytes()))
    } else {
        let what = format!("Idempotency-Key: one, of 1 to {IDEMPOTENCY_KEY_BYTES} bytes");
        Err(Error::Invalid(what))
    }
}
