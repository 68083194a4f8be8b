//! The headers of an object, in requests and replies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cairn_base::limits;
use cairn_fs::rows::ObjectAttributes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES,
    HeaderMap, HeaderName, HeaderValue,
};
use s3s::{S3ErrorCode, S3Result};

use super::error::{bad_request, refuse};
use super::headers::text;

const META: &str = "x-amz-meta-";

/// Reads the headers of a request that describe the object to be made.
pub(super) fn parse(headers: &HeaderMap) -> S3Result<ObjectAttributes> {
    Ok(ObjectAttributes {
        content_type: value(headers, &CONTENT_TYPE)?,
        content_encoding: encoding(&value(headers, &CONTENT_ENCODING)?),
        content_disposition: value(headers, &CONTENT_DISPOSITION)?,
        content_language: value(headers, &CONTENT_LANGUAGE)?,
        cache_control: value(headers, &CACHE_CONTROL)?,
        expires: value(headers, &EXPIRES)?,
        user_metadata: user_metadata(headers)?,
        ..ObjectAttributes::default()
    })
}

fn value(headers: &HeaderMap, name: &HeaderName) -> S3Result<String> {
    let value = text(headers, name.as_str())?.unwrap_or_default();
    if value.len() > limits::HEADER_VALUE_BYTES {
        return Err(bad_request(format!(
            "the header {name} has {} bytes; at most {} are allowed",
            value.len(),
            limits::HEADER_VALUE_BYTES
        )));
    }
    Ok(value.to_owned())
}

/// Removes `aws-chunked`, which describes the transfer of the bytes, not the bytes.
fn encoding(value: &str) -> String {
    let codings = value.split(',').map(str::trim).filter(|coding| !is_aws_chunked(coding));
    codings.collect::<Vec<_>>().join(", ")
}

fn is_aws_chunked(coding: &str) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case("aws-chunked")
}

/// Returns whether the request says that its body is framed.
pub(super) fn says_chunked(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    values.filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("aws-chunked"))
    })
}

fn user_metadata(headers: &HeaderMap) -> S3Result<Vec<(String, String)>> {
    let mut metadata: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(META).filter(|name| !name.is_empty()) else {
            continue;
        };
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| bad_request(format!("the header {META}{name} is not UTF-8")))?;
        match metadata.iter_mut().find(|(other, _)| other == name) {
            // A header that is given more than once is joined, as in S3.
            Some((_, present)) => {
                present.push(',');
                present.push_str(value);
            }
            None => metadata.push((name.to_owned(), value.to_owned())),
        }
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > limits::USER_METADATA_BYTES || metadata.len() > crate::limits::USER_METADATA {
        let what = format!(
            "your metadata headers exceed the maximum allowed size of {} bytes and {} headers",
            limits::USER_METADATA_BYTES,
            crate::limits::USER_METADATA
        );
        return Err(refuse(S3ErrorCode::MetadataTooLarge, what));
    }
    Ok(metadata)
}

/// Writes the headers of an object into a reply.
pub(super) fn write(object: &ObjectAttributes, headers: &mut HeaderMap) {
    let known = [
        (CONTENT_ENCODING, &object.content_encoding),
        (CONTENT_DISPOSITION, &object.content_disposition),
        (CONTENT_LANGUAGE, &object.content_language),
        (CACHE_CONTROL, &object.cache_control),
        (EXPIRES, &object.expires),
    ];
    for (name, value) in known {
        if !value.is_empty()
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(name, value);
        }
    }
    for (name, value) in &object.user_metadata {
        let name = HeaderName::try_from(format!("{META}{name}"));
        if let (Ok(name), Some(value)) = (name, metadata_value(value)) {
            headers.insert(name, value);
        }
    }
}

/// Encodes text beyond ASCII according to RFC 2047, like S3.
fn metadata_value(value: &str) -> Option<HeaderValue> {
    if value.bytes().all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte)) {
        return HeaderValue::from_str(value).ok();
    }
    HeaderValue::from_str(&format!("=?UTF-8?B?{}?=", BASE64.encode(value))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_chunked_is_no_encoding() {
        assert_eq!(encoding("aws-chunked"), "");
        assert_eq!(encoding("gzip,aws-chunked"), "gzip");
        assert_eq!(encoding("aws-chunked, gzip , br"), "gzip, br");
    }

    #[test]
    fn metadata_round_trips() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("1"));
        headers.append("x-amz-meta-a", HeaderValue::from_static("2"));
        headers.append("x-amz-meta-b", HeaderValue::from_bytes("é".as_bytes()).unwrap());
        headers.append("content-type", HeaderValue::from_static("text/plain"));
        let object = parse(&headers).unwrap();
        let pairs = [("a", "1,2"), ("b", "é")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(object.user_metadata, pairs);
        let mut out = HeaderMap::new();
        write(&object, &mut out);
        assert_eq!(out["x-amz-meta-a"], "1,2");
        assert_eq!(out["x-amz-meta-b"], "=?UTF-8?B?w6k=?=");
    }
}
