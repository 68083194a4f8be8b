//! PUT of an object.

use cairn_auth::Caller;
use cairn_base::{Error, Result, limits as store_limits};
use cairn_fs::{BodyWriter, Digests, Fs, PutRequest, party_of};
use http::header::{CONTENT_RANGE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;

use super::digest::ExpectedDigests;
use super::error::Failure;
use super::target::check_new;
use super::{Body, conditions, headers};
use crate::content_type;
use crate::dates;
use crate::limits;
use crate::metrics::VerbStats;
use crate::upload::Upload;

/// Takes an object in and publishes it. Rights and headers are decided before the first byte of
/// the body is asked for (so a client that expects `100 Continue` sends none in vain).
pub async fn put(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    key: &str,
    headers: &HeaderMap,
    upload: &mut Upload,
    stats: &VerbStats,
) -> Result<Response<Body>, Failure> {
    check_new(key)?;
    check_length(upload)?;
    if headers.contains_key(CONTENT_RANGE) {
        let what = "a PUT takes whole objects, not a Content-Range";
        return Err(Error::Invalid(what.into()).into());
    }
    let expected = ExpectedDigests::parse(headers)?;
    let mut object = headers::stored(headers)?;
    let conditions = conditions::of_change(headers);
    let mut writer = Box::pin(fs.begin(caller, bucket)).await?;
    Box::pin(writer.expect(upload.announced(), Some(key))).await?;
    upload.shares(fs.upload_memory(), party_of(caller));
    let received = receive(upload, &mut writer, &expected).await?;
    stats.received(writer.size());
    expected.check(&received.digests)?;
    if object.content_type.is_empty() {
        object.content_type = content_type::guess(key, &received.head);
    }
    object.etag = received.digests.md5_hex();
    let request = PutRequest {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
        object,
        tags: Vec::new(),
        conditions,
    };
    let written = Box::pin(writer.finish()).await?;
    let made = Box::pin(fs.put_object(caller, request, written)).await?;
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = if made.replaced { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    reply.headers_mut().insert(ETAG, headers::quoted(&made.etag));
    reply.headers_mut().insert(LAST_MODIFIED, dates::last_modified(made.modified));
    Ok(reply)
}

/// Facts about the bytes that were received.
struct ReceivedUpload {
    /// The first bytes.
    head: Vec<u8>,
    digests: Digests,
}

async fn receive(
    upload: &mut Upload,
    writer: &mut BodyWriter,
    expected: &ExpectedDigests,
) -> Result<ReceivedUpload, Failure> {
    let mut digester = expected.digester();
    let mut head = Vec::new();
    while let Some(frame) = upload.frame().await {
        let Ok(bytes) = frame?.into_data() else { continue };
        let missing = limits::SNIFF_BYTES - head.len();
        head.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        if let Some(digester) = &mut digester {
            digester.update(&bytes);
        }
        // Boxed: the future of a body that waits takes less memory then.
        Box::pin(writer.push(bytes)).await?;
    }
    Ok(ReceivedUpload {
        head,
        digests: digester.map(|digester| digester.finish()).unwrap_or_default(),
    })
}

fn check_length(upload: &Upload) -> Result<()> {
    match upload.announced() {
        Some(length) if length > store_limits::OBJECT_BYTES => {
            let most = store_limits::OBJECT_BYTES;
            Err(Error::TooLarge(format!("an object of {length} bytes; must be at most {most}")))
        }
        _ => Ok(()),
    }
}
