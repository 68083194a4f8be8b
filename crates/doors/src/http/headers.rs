//! The headers of an object: those stored with it, and those sent with it.

use bytes::{BufMut, BytesMut};
use cairn_base::{Error, Result, limits as store_limits};
use cairn_fs::Object;
use cairn_fs::rows::ObjectAttributes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_TYPE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::content_type::OCTET_STREAM;
use crate::dates::last_modified;
use crate::limits;

/// Prefix of names of user metadata.
pub const META_PREFIX: &str = "x-cairn-meta-";

/// Returns the headers of a request that are stored with the object. The content type may be empty.
pub fn stored(headers: &HeaderMap) -> Result<ObjectAttributes> {
    let mut object = ObjectAttributes {
        content_type: text(headers, &CONTENT_TYPE)?,
        content_encoding: text(headers, &CONTENT_ENCODING)?,
        content_disposition: text(headers, &CONTENT_DISPOSITION)?,
        content_language: text(headers, &CONTENT_LANGUAGE)?,
        cache_control: text(headers, &CACHE_CONTROL)?,
        expires: text(headers, &EXPIRES)?,
        ..ObjectAttributes::default()
    };
    let mut bytes = 0;
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix(META_PREFIX) else { continue };
        let value = text(headers, name)?;
        bytes += short.len() + value.len();
        object.user_metadata.push((short.to_owned(), value));
    }
    let count = object.user_metadata.len();
    if count > limits::USER_METADATA || bytes > store_limits::USER_METADATA_BYTES {
        let (most, most_bytes) = (limits::USER_METADATA, store_limits::USER_METADATA_BYTES);
        let what = format!("user metadata: at most {most} names and {most_bytes} bytes in all");
        return Err(Error::TooLarge(what));
    }
    Ok(object)
}

/// Refuses conditions and digests, where they are not honoured. `what` is asked for with them.
pub fn refuse_conditions_and_digests(headers: &HeaderMap, what: &str) -> Result<()> {
    let names = [
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "content-md5",
        "content-digest",
        "repr-digest",
        "digest",
    ];
    match names.iter().find(|name| headers.contains_key(**name)) {
        Some(name) => Err(Error::NotImplemented(format!("header {name} on {what}"))),
        None => Ok(()),
    }
}

/// Returns all values of a header as one text; empty if there is none. Control characters are
/// refused.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<String> {
    let mut joined = String::new();
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes()).ok();
        let plain = value.filter(|value| !value.chars().any(char::is_control));
        let value =
            plain.ok_or_else(|| Error::Invalid(format!("header {name}: not plain text")))?;
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(value);
    }
    if joined.len() > store_limits::HEADER_VALUE_BYTES && !name.as_str().starts_with(META_PREFIX) {
        let most = store_limits::HEADER_VALUE_BYTES;
        return Err(Error::TooLarge(format!("header {name}: at most {most} bytes")));
    }
    Ok(joined)
}

/// Sets the headers of an object for every reply, including a 304.
pub fn validators(object: &Object, etag: &str, headers: &mut HeaderMap) {
    headers.insert(ETAG, quoted(etag));
    headers.insert(LAST_MODIFIED, last_modified(object.inode().mtime));
    let own = object.attributes().map(|object| object.cache_control.as_str()).unwrap_or_default();
    let cache_control = if own.is_empty() { &object.bucket().cache_control } else { own };
    put(headers, CACHE_CONTROL, cache_control);
}

/// Sets the headers of an object that is sent, except its length.
pub fn describe(object: &Object, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, content_type(object));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let Some(attributes) = object.attributes() else { return };
    put(headers, CONTENT_ENCODING, &attributes.content_encoding);
    put(headers, CONTENT_LANGUAGE, &attributes.content_language);
    put(headers, CONTENT_DISPOSITION, &attributes.content_disposition);
    put(headers, EXPIRES, &attributes.expires);
    for (name, value) in &attributes.user_metadata {
        let name = HeaderName::from_bytes(format!("{META_PREFIX}{name}").as_bytes());
        if let Ok(name) = name {
            put(headers, name, value);
        }
    }
}

/// Returns the stored type, or by default that of bytes.
fn content_type(object: &Object) -> HeaderValue {
    match object.attributes() {
        Some(object) if !object.content_type.is_empty() => {
            HeaderValue::from_str(&object.content_type)
                .unwrap_or(HeaderValue::from_static(OCTET_STREAM))
        }
        _ => HeaderValue::from_static(OCTET_STREAM),
    }
}

/// Sets a header unless the value is empty or cannot be in a header.
fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if !value.is_empty()
        && let Ok(value) = HeaderValue::from_bytes(value.as_bytes())
    {
        headers.insert(name, value);
    }
}

/// Returns an ETag in quotes.
pub fn quoted(etag: &str) -> HeaderValue {
    let mut text = BytesMut::with_capacity(etag.len() + 2);
    text.put_u8(b'"');
    text.put_slice(etag.as_bytes());
    text.put_u8(b'"');
    HeaderValue::from_maybe_shared(text.freeze()).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Returns `attachment` with the name of a file (RFC 6266): in ASCII for old clients, and in full.
pub fn attachment(name: &str) -> HeaderValue {
    /// All characters but `attr-char` of RFC 8187.
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'!')
        .remove(b'#')
        .remove(b'$')
        .remove(b'&')
        .remove(b'+')
        .remove(b'-')
        .remove(b'.')
        .remove(b'^')
        .remove(b'_')
        .remove(b'`')
        .remove(b'|')
        .remove(b'~');
    let plain = |c: char| match c {
        '"' | '\\' | '/' | '%' => '_',
        ' '..='~' => c,
        _ => '_',
    };
    let ascii: String = name.chars().map(plain).collect();
    let mut text = format!("attachment; filename=\"{ascii}\"");
    if ascii != name {
        text.push_str("; filename*=UTF-8''");
        text.extend(utf8_percent_encode(name, ESCAPED));
    }
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_attachments() {
        assert_eq!(attachment("a b.txt"), "attachment; filename=\"a b.txt\"");
        let expected = "attachment; filename=\"na_ve_.txt\"; filename*=UTF-8''na%C3%AFve%22.txt";
        assert_eq!(attachment("naïve\".txt"), expected);
    }

    #[test]
    fn control_characters_are_not_stored() {
        let with = |name: &'static str, value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_bytes(value).unwrap());
            stored(&headers)
        };
        assert!(with("content-type", b"a\tb").is_err());
        assert!(with("content-type", b"\xff").is_err());
        assert!(with("content-type", &[b'a'; 2000]).is_err());
        assert!(with("x-cairn-meta-a", &[b'a'; 8300]).is_err());
        let object = with("x-cairn-meta-color", "grün".as_bytes()).unwrap();
        assert_eq!(object.user_metadata, [("color".to_owned(), "grün".to_owned())]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]
        #[test]
        fn any_name_is_one_header(name in any::<String>()) {
            let value = attachment(&name);
            let text = value.to_str().unwrap();
            prop_assert!(text.starts_with("attachment; filename=\""));
            prop_assert!(!text.contains(['\r', '\n', '\0']));
            prop_assert_eq!(text.matches('"').count(), 2);
        }
    }
}
