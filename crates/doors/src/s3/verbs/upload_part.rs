use cairn_base::limits;
use cairn_fs::ops::multipart::GetUpload;
use cairn_fs::rows::{Algorithm, Upload};
use s3s::S3Result;
use s3s::dto::{ETag, UploadPartInput, UploadPartOutput};

use super::super::checksums::{self, fill_checksums};
use super::super::error::{Codes, bad_request, invalid};
use super::super::integrity::Integrity;
use super::super::library::Asked;
use super::super::store::Store;
use super::super::upload_id;
use super::receive::{Received, receive};

pub(super) fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(number) if (1..=limits::PARTS).contains(&number) => Ok(number),
        _ => Err(invalid("part number must be an integer between 1 and 10000, inclusive")),
    }
}

pub(crate) async fn run(
    store: &Store,
    asked: Asked,
    input: UploadPartInput,
) -> S3Result<UploadPartOutput> {
    let bucket = input.bucket;
    let number = part_number(input.part_number)?;
    let name = upload_id::name(bucket.clone(), input.key, &input.upload_id);
    let (integrity, wanted) = Integrity::of_object(&asked.headers)?;
    let verb = GetUpload { name: name.clone() };
    let upload = store.read(&asked.caller, &bucket, Codes::upload(), verb).await?;
    let further = announced(&upload, integrity.algorithm().or(wanted))?;
    let received = receive(store, &asked, &bucket, integrity, further).await?;
    let Received { written, etag, checksums } = received;
    let outcome = store
        .fs
        .put_part(&asked.caller, name, number, written, etag.clone(), checksums.clone())
        .await;
    if let Err(error) = outcome {
        let codes = Codes::upload();
        return Err(store.refused(&asked.caller, &[&bucket], error, codes).await);
    }
    let mut output =
        UploadPartOutput { e_tag: Some(ETag::Strong(etag)), ..UploadPartOutput::default() };
    fill_checksums!(output, &checksums, 0);
    Ok(output)
}

/// The checksum the upload was announced with: every part has it, whether it was sent or not.
fn announced(upload: &Upload, sent: Option<Algorithm>) -> S3Result<Option<Algorithm>> {
    let Some((announced, _)) = upload.checksum else { return Ok(sent) };
    match sent {
        Some(sent) if sent != announced => Err(bad_request(format!(
            "checksum type mismatch occurred, expected checksum type: {}, actual: {}",
            checksums::word(announced),
            checksums::word(sent)
        ))),
        _ => Ok(Some(announced)),
    }
}
