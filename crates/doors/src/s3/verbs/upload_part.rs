use cairn_base::limits;
use cairn_fs::ops::multipart::GetUpload;
use cairn_fs::rows::{Algorithm, Upload};
use http::Response;
use s3s::{Body, S3Result};

use super::super::call::Call;
use super::super::error::{Codes, bad_request, invalid};
use super::super::integrity::Integrity;
use super::super::query::Query;
use super::super::{checksums, upload_id};
use super::receive::{ReceivedBody, receive, stored};

/// Returns the number of the part that a query names.
pub(super) fn part_of(query: &Query) -> S3Result<u32> {
    part_number(query.parsed("partNumber")?.unwrap_or_default())
}

pub(super) fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(number) if (1..=limits::PARTS).contains(&number) => Ok(number),
        _ => Err(invalid("part number must be an integer between 1 and 10000, inclusive")),
    }
}

pub(crate) async fn run(mut call: Call<'_>) -> S3Result<Response<Body>> {
    let number = part_of(call.query())?;
    let name = upload_id::of(&call);
    let (integrity, wanted) = Integrity::of_object(call.headers())?;
    let read = call.read(Codes::upload(), GetUpload { name: name.clone() });
    let upload = Box::pin(read).await?;
    let further = announced(&upload, integrity.algorithm().or(wanted))?;
    let ReceivedBody { written, etag, checksums } =
        receive(&mut call, integrity, further, true).await?;
    let response = stored(&etag, &checksums);
    let put = call.store.fs.put_part(call.caller, name, number, written, etag, checksums);
    match Box::pin(put).await {
        Ok(()) => Ok(response),
        Err(error) => Err(Box::pin(call.refused(error, Codes::upload())).await),
    }
}

/// Returns the checksum that the upload was announced with: every part has it, whether it was sent
/// or not. Without an announcement, a part has S3's default if none was sent.
fn announced(upload: &Upload, sent: Option<Algorithm>) -> S3Result<Option<Algorithm>> {
    let Some((announced, _)) = upload.checksum else {
        return Ok(sent.or(Some(Algorithm::Crc64Nvme)));
    };
    match sent {
        Some(sent) if sent != announced => Err(bad_request(format!(
            "checksum type mismatch occurred, expected checksum type: {}, actual: {}",
            checksums::word(announced),
            checksums::word(sent)
        ))),
        _ => Ok(Some(announced)),
    }
}
