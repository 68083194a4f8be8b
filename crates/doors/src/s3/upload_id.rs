//! Upload ids as S3 shows them: 32 hex digits.

use cairn_base::UploadId;
use cairn_fs::ops::multipart::UploadName;
use s3s::{S3ErrorCode, S3Result};

use super::error::refuse;

pub(super) fn encode(upload: UploadId) -> String {
    format!("{:032x}", upload.0)
}

pub(super) fn decode(text: &str) -> Option<UploadId> {
    let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(UploadId)
}

pub(super) fn name(bucket: String, key: String, text: &str) -> S3Result<UploadName> {
    match decode(text) {
        Some(upload) => Ok(UploadName { bucket, key, upload }),
        None => Err(refuse(S3ErrorCode::NoSuchUpload, "the specified upload does not exist")),
    }
}
