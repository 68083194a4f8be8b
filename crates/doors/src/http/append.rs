//! POST to an object: appends one record to it, whole and once, wherever its end is by then.

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::{Error, Result, limits as store_limits};
use cairn_fs::Fs;
use cairn_fs::ops::put_object::MayWrite;
use http::header::{ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use serde::Serialize;

use super::digest::ExpectedDigests;
use super::error::Failure;
use super::target::check_new;
use super::{Body, headers, json_of};
use crate::metrics::VerbStats;
use crate::room::Room;
use crate::upload::Upload;

pub const X_CAIRN_OFFSET: HeaderName = HeaderName::from_static("x-cairn-offset");
pub const X_CAIRN_SIZE: HeaderName = HeaderName::from_static("x-cairn-size");

/// The body of a request, and the counters that its bytes are added to.
pub struct CountedUpload<'a> {
    pub upload: &'a mut Upload,
    pub stats: &'a VerbStats,
}

#[derive(Serialize)]
struct AppendReply {
    /// Offset of the record.
    offset: u64,
    /// Size of the object with the record, bytes.
    size: u64,
}

pub async fn append(
    fs: &Fs,
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
        return Err(Error::NotImplemented(
            "If-Match, If-None-Match and If-Unmodified-Since on an append".into(),
        )
        .into());
    }
    let expected = ExpectedDigests::parse(headers)?;
    fs.read(caller, MayWrite { bucket: bucket.to_owned() }).await?;
    let record = collect(upload, store_limits::BLOCK_BYTES, &mut room).await?;
    stats.received(record.len() as u64);
    if let Some(mut digester) = expected.digester() {
        digester.update(&record);
        expected.check(&digester.finish())?;
    }
    let (offset, ino, inode) = fs.append(caller, bucket, key, record).await?;
    let mut reply = json_of(StatusCode::OK, &AppendReply { offset, size: inode.size });
    let headers = reply.headers_mut();
    headers.insert(ETAG, headers::quoted(&inode.etag(ino)));
    headers.insert(X_CAIRN_OFFSET, HeaderValue::from(offset));
    headers.insert(X_CAIRN_SIZE, HeaderValue::from(inode.size));
    Ok(reply)
}

/// Returns a whole body of at most `most` bytes. Room for it is taken as it arrives.
pub async fn collect(upload: &mut Upload, most: usize, room: &mut Room) -> Result<Bytes, Failure> {
    let too_large = || {
        Error::TooLarge(format!("the body is longer than the {most} bytes that this request takes"))
    };
    let announced = upload.announced().unwrap_or(0);
    if announced > most as u64 {
        return Err(too_large().into());
    }
    upload.shares(room.all(), room.party());
    let mut whole = BytesMut::new();
    while let Some(frame) = upload.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        if whole.len() + bytes.len() > most {
            return Err(too_large().into());
        }
        room.hold(whole.len() + bytes.len()).await;
        if whole.is_empty() {
            // Memory that is not written to costs nothing.
            whole.reserve((announced as usize).max(bytes.len()));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}
