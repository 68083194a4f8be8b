//! Taking the bytes of an object or part.

use cairn_base::limits;
use cairn_fs::rows::{Algorithm, Checksum};
use cairn_fs::{Written, party_of};
use s3s::{S3ErrorCode, S3Result};

use super::super::error::{Codes, bad_request, refuse, translate};
use super::super::integrity::Integrity;
use super::super::library::Asked;
use super::super::payload::Payload;
use super::super::store::Store;

/// Bytes that came, were what the client said, and are durable.
pub(super) struct Received {
    pub(super) written: Written,
    /// The MD5 in hex.
    pub(super) etag: String,
    pub(super) checksums: Vec<Checksum>,
}

/// Reads the body to its end. `further` is computed besides what the client sent. What is left of
/// the body after an error stays with the request.
pub(super) async fn receive(
    store: &Store,
    asked: &Asked,
    bucket: &str,
    integrity: Integrity,
    further: Option<Algorithm>,
) -> S3Result<Received> {
    let payload = asked.payload.lock().take();
    let mut payload = payload.ok_or_else(|| bad_request("the body was read already"))?;
    let received = read(store, asked, bucket, &mut payload, integrity, further).await;
    if received.is_err() {
        *asked.payload.lock() = Some(payload);
    }
    received
}

async fn read(
    store: &Store,
    asked: &Asked,
    bucket: &str,
    payload: &mut Payload,
    integrity: Integrity,
    further: Option<Algorithm>,
) -> S3Result<Received> {
    if payload.announced().is_some_and(|length| length > limits::PART_BYTES_MAX) {
        let what = "your proposed upload exceeds the maximum allowed size of 5 GiB";
        return Err(refuse(S3ErrorCode::EntityTooLarge, what));
    }
    let mut writer = match store.fs.begin(&asked.caller, bucket).await {
        Ok(writer) => writer,
        Err(error) => {
            let codes = Codes::bucket();
            return Err(store.refused(&asked.caller, &[bucket], error, codes).await);
        }
    };
    payload.shares(store.fs.upload_memory(), party_of(&asked.caller));
    let mut digester = integrity.digester(further);
    while let Some(piece) = payload.next().await? {
        digester.update(&piece);
        writer.push(piece).await.map_err(|error| translate(error, Codes::object()))?;
    }
    let digests = digester.finish();
    let checksums = integrity.verify(payload, &digests)?;
    let written = writer.finish().await.map_err(|error| translate(error, Codes::object()))?;
    Ok(Received { written, etag: digests.md5_hex(), checksums })
}
