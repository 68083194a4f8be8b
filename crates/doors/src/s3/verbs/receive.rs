//! Receives the bytes of an object or part.

use cairn_base::limits;
use cairn_fs::rows::{Algorithm, Checksum};
use cairn_fs::{WrittenBody, party_of};
use http::header::ETAG;
use http::{Response, StatusCode};
use s3s::{Body, S3ErrorCode, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, refuse, translate};
use super::super::integrity::Integrity;
use super::super::{checksums, reply};

/// Bytes that have arrived, match the client's digests, and are durable.
pub(super) struct ReceivedBody {
    pub(super) written: WrittenBody,
    /// The MD5 in hex.
    pub(super) etag: String,
    pub(super) checksums: Vec<Checksum>,
}

/// Reads the body of an object or part to its end. The checksum `further` is computed in addition
/// to those that the client sent.
pub(super) async fn receive(
    call: &mut Call<'_>,
    integrity: Integrity,
    further: Option<Algorithm>,
    is_part: bool,
) -> S3Result<ReceivedBody> {
    if call.payload.announced().is_some_and(|length| length > limits::PART_BYTES_MAX) {
        let what = "your proposed upload exceeds the maximum allowed size of 5 GiB";
        return Err(refuse(S3ErrorCode::EntityTooLarge, what));
    }
    let fs = &call.store.fs;
    let mut writer = match Box::pin(fs.begin(call.caller, call.bucket())).await {
        Ok(writer) => writer,
        Err(error) => return Err(Box::pin(call.refused(error, Codes::bucket())).await),
    };
    let key = (!is_part).then(|| call.key());
    let expected = Box::pin(writer.expect(call.payload.announced(), key)).await;
    expected.map_err(|error| translate(error, Codes::object()))?;
    call.payload.shares(fs.upload_memory(), party_of(call.caller));
    let mut digester = integrity.digester(further);
    while let Some(piece) = call.payload.next().await? {
        digester.update(&piece);
        // Boxed: the future of a body that waits takes less memory then.
        let pushed = Box::pin(writer.push(piece)).await;
        pushed.map_err(|error| translate(error, Codes::object()))?;
    }
    let digests = digester.finish();
    let checksums = integrity.verify(call.payload, &digests)?;
    let written = Box::pin(writer.finish()).await;
    let written = written.map_err(|error| translate(error, Codes::object()))?;
    Ok(ReceivedBody { written, etag: digests.md5_hex(), checksums })
}

/// Returns the reply about the stored bytes.
pub(super) fn stored(etag: &str, checksums: &[Checksum]) -> Response<Body> {
    let mut response = reply::empty(StatusCode::OK);
    let headers = response.headers_mut();
    reply::insert(headers, ETAG, &format!("\"{etag}\""));
    checksums::write(checksums, 0, headers);
    response
}
