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

/// A body that is XML, bytes; and one of a caller who may do nothing with it.
const XML_BYTES: usize = 2 << 20;
const XML_BYTES_REFUSED: usize = 4 << 10;

/// Whether the length of what comes is known, and its framing is what the signature says.
pub(super) fn check_framing(input: Input, payload: &Payload, headers: &HeaderMap) -> S3Result<()> {
    let (is_chunked, has_length) = (payload.is_chunked(), payload.announced().is_some());
    if is_chunked && !has_length {
        let what = "missing header: x-amz-decoded-content-length";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    // As at S3, a body that has the hash of the signature is what the client meant to send.
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
    /// Whether it may ask for something with a body.
    pub may: S3Result<()>,
    /// Whether it has shown credentials.
    pub is_known: bool,
}

/// A body of XML with these elements below its root, in room that is taken for it if its sender
/// `may` ask for something with it. Of a caller without credentials nothing is read.
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
        // It is the verb that refuses, where there is no need for room.
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

/// The end of a body that has no bytes. It `is_awaited` where something may be changed: nobody
/// waits for the body of a request that reads, or that will be refused.
pub(super) async fn read_nothing(
    payload: &mut Payload,
    headers: &HeaderMap,
    is_awaited: bool,
) -> S3Result<()> {
    let integrity = Integrity::only_md5(headers)?;
    match is_awaited {
        true => drop(payload.read_all(0, None).await?),
        false => drop(payload.read_all(0, None).now_or_never().transpose()?),
    }
    integrity.verify(payload, &Digester::new(true, &[]).finish()).map(drop)
}
