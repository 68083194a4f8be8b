//! Upload ids in the form of S3: `u` and 31 hex digits. The letter keeps parsers from taking them
//! for numbers; older ids have 32 hex digits, and stay valid.

use cairn_base::UploadId;
use cairn_fs::ops::multipart::UploadName;

use super::call::Call;

pub(super) fn encode(upload: UploadId) -> String {
    format!("u{:031x}", upload.0)
}

pub(super) fn decode(text: &str) -> Option<UploadId> {
    let digits = text.strip_prefix('u').unwrap_or(text);
    let plain = text.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten().map(UploadId)
}

/// Returns the upload that a request names. A malformed id names no upload.
pub(super) fn of(call: &Call<'_>) -> UploadName {
    let upload = call.query().get("uploadId").and_then(decode).unwrap_or(UploadId(0));
    UploadName { bucket: call.bucket().to_owned(), key: call.key().to_owned(), upload }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_no_numbers_and_old_ones_stay() {
        for number in [1, 0x6342, 0x62e1, u64::MAX] {
            let text = encode(UploadId(number));
            assert!(text.starts_with('u') && text.len() == 32, "{text}");
            assert_eq!(decode(&text), Some(UploadId(number)));
            assert_eq!(decode(&format!("{number:032x}")), Some(UploadId(number)));
        }
        for text in ["", "u", "6342", "nonsense", "u000000000000000000000000000000g"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
