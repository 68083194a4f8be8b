//! The canonical form of a request, which is what is signed.

use http::header::HeaderMap;

use super::UNSIGNED;
use super::request::Request;

/// Percent-encodes bytes as SigV4 requires; `/` only if `slash` is set.
pub(crate) fn encode_into(out: &mut String, bytes: &[u8], slash: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'~' | b'.' => {
                out.push(char::from(byte));
            }
            b'/' if !slash => out.push('/'),
            _ => {
                out.push('%');
                out.push(char::from(HEX[usize::from(byte >> 4)]));
                out.push(char::from(HEX[usize::from(byte & 15)]));
            }
        }
    }
}

/// The form of the request's path that was signed.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathForm {
    /// Decoded and encoded again, as the specification says.
    Encoded,
    /// The path as it is in the request line: some clients leave characters unencoded.
    AsSent,
}

/// Returns the canonical request of a URL that is yet to be sent, whose payload is not signed.
pub(crate) fn canonical(request: &Request<'_>, signed: &str) -> Vec<u8> {
    canonical_request(request, PathForm::Encoded, signed, UNSIGNED)
}

/// Returns the canonical request. `signed` has the lower-case names in the order in which they were
/// signed.
pub(super) fn canonical_request(
    request: &Request<'_>,
    form: PathForm,
    signed: &str,
    payload: &str,
) -> Vec<u8> {
    let mut head = String::with_capacity(512);
    head.push_str(request.method.as_str());
    head.push('\n');
    match form {
        PathForm::Encoded => encode_into(&mut head, request.decoded_path.as_bytes(), false),
        PathForm::AsSent => head.push_str(request.path),
    }
    head.push('\n');
    canonical_query(&mut head, request.query.pairs());
    head.push('\n');
    let mut out = head.into_bytes();
    for name in signed.split(';') {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        canonical_values(&mut out, request, name);
        out.push(b'\n');
    }
    out.push(b'\n');
    out.extend_from_slice(signed.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(payload.as_bytes());
    out
}

fn canonical_query(out: &mut String, pairs: &[(String, String)]) {
    let mut encoded: Vec<(String, String)> = pairs
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| {
            let (mut encoded_name, mut encoded_value) = (String::new(), String::new());
            encode_into(&mut encoded_name, name.as_bytes(), true);
            encode_into(&mut encoded_value, value.as_bytes(), true);
            (encoded_name, encoded_value)
        })
        .collect();
    encoded.sort_unstable();
    for (at, (name, value)) in encoded.iter().enumerate() {
        if at > 0 {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        out.push_str(value);
    }
}

/// Writes the values of a header, joined by commas, each trimmed and with single spaces.
fn canonical_values(out: &mut Vec<u8>, request: &Request<'_>, name: &str) {
    let headers: &HeaderMap = request.headers;
    if name == "host" && !headers.contains_key(name) {
        return squeeze(out, request.host);
    }
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        squeeze(out, value.as_bytes());
    }
}

fn squeeze(out: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    for (at, word) in words.enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_all_but_the_unreserved() {
        let mut out = String::new();
        encode_into(&mut out, "a-_.~/ é+".as_bytes(), false);
        assert_eq!(out, "a-_.~/%20%C3%A9%2B");
        out.clear();
        encode_into(&mut out, b"a/b", true);
        assert_eq!(out, "a%2Fb");
    }

    #[test]
    fn values_are_trimmed_and_squeezed() {
        let mut out = Vec::new();
        squeeze(&mut out, b"  a   b\t c ");
        assert_eq!(out, b"a b c");
    }
}
