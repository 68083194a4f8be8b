//! The body of a request, as far as it is read before its verb runs.

use bytes::Bytes;
use cairn_fs::Digester;
use futures_util::FutureExt;
use http::header::HeaderMap;
use s3s::{S3ErrorCode, S3Result};

use super::error::{bad_request, refuse};
use super::integrity::Integrity;
use super::operation::Input;
use super::payload::Payload;
use super::{attributes, xml};
use crate::room::Room;

/// Bytes of an XML body; and of an XML body whose sender has no right to the operation.
const XML_BYTES: usize = 2 << 20;
const XML_BYTES_REFUSED: usize = 4 << 10;

/// Checks that the length of the content is known, and that the framing is the signed one.
pub(super) fn check_framing(input: Input, payload: &Payload, headers: &HeaderMap) -> S3Result<()> {
    let (is_chunked, has_length) = (payload.is_chunked(), payload.announced().is_some());
    if is_chunked && !has_length {
        let what = "missing header: x-amz-decoded-content-length";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    // As in S3, a body with the signed hash is the body that the client meant to send.
    let is_known = payload.is_hashed() && !headers.contains_key("x-amz-decoded-content-length");
    if !is_chunked && !is_known && attributes::says_chunked(headers) {
        let what =
            "Content-Encoding: a body of aws-chunked needs x-amz-content-sha256: STREAMING-…";
        return Err(bad_request(what));
    }
    if input == Input::Bytes && !has_length {
        let what = "you must provide the Content-Length HTTP header";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    Ok(())
}

/// The standing of a caller before the body is read.
pub(super) struct Standing {
    /// Error if the caller has no right to this request.
    pub may: S3Result<()>,
    /// True if the caller has shown credentials.
    pub is_known: bool,
}

/// Reads an XML body with these elements below its root, with room for it if its sender has the
/// right to the request. The body of a caller without credentials is not read.
pub(super) async fn read_xml(
    payload: &mut Payload,
    integrity: Integrity,
    elements: &[&str],
    standing: Standing,
    room: &mut Room,
) -> S3Result<Bytes> {
    let is_short = |length| length <= XML_BYTES_REFUSED as u64;
    let Standing { may, is_known } = standing;
    let body = match may {
        Ok(()) => payload.read_all(XML_BYTES, Some(room)).await?,
        // The verb will refuse; such a body needs no room.
        Err(_) if is_known && payload.announced().is_some_and(is_short) => {
            payload.read_all(XML_BYTES_REFUSED, None).await?
        }
        Err(refused) => return Err(refused),
    };
    let mut digester = integrity.digester(None);
    digester.update(&body);
    integrity.verify(payload, &digester.finish())?;
    let body = xml::prepare(body)?;
    xml::check_elements(&body, elements)?;
    Ok(body)
}

/// Reads the end of an empty body. It `is_awaited` if the request may change something: a request
/// that reads, or that will be refused, does not wait for its body.
pub(super) async fn read_nothing(
    payload: &mut Payload,
    headers: &HeaderMap,
    is_awaited: bool,
) -> S3Result<()> {
    let integrity = Integrity::only_md5(headers)?;
    if is_awaited {
        drop(payload.read_all(0, None).await?)
    } else {
        drop(payload.read_all(0, None).now_or_never().transpose()?)
    }
    integrity.verify(payload, &Digester::new(true, &[]).finish()).map(drop)
}
