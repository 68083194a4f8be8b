//! XML in and out, by the library, with the checks and repairs that it needs before and after.

use bytes::Bytes;
use s3s::xml::{Deserialize, Deserializer, Serialize, Serializer};
use s3s::{S3ErrorCode, S3Result};

use super::error::{internal, refuse};

pub(super) const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// Parses a body that was prepared by [`prepare`].
pub(super) fn parse<T: for<'xml> Deserialize<'xml>>(body: &[u8]) -> S3Result<T> {
    if body.is_empty() {
        return Err(S3ErrorCode::MissingRequestBodyError.into());
    }
    let mut xml = Deserializer::new(body);
    let read = T::deserialize(&mut xml).and_then(|read| xml.expect_eof().map(|()| read));
    read.map_err(|_| S3ErrorCode::MalformedXML.into())
}

/// Parses a body that may be left out.
pub(super) fn parse_some<T: for<'xml> Deserialize<'xml>>(body: &[u8]) -> S3Result<Option<T>> {
    if body.is_empty() { Ok(None) } else { parse(body).map(Some) }
}

/// Writes a document, after `declaration`.
pub(super) fn write(document: &impl Serialize, declaration: &str) -> S3Result<Bytes> {
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(declaration.as_bytes());
    match document.serialize(&mut Serializer::new(&mut text)) {
        Ok(()) => {
            let text = Bytes::from(text);
            Ok(escape_controls(&text).unwrap_or(text))
        }
        Err(error) => Err(internal(&cairn_base::Error::Io(std::io::Error::other(error)))),
    }
}

/// Prepares a body for the library. The library would silently ignore CDATA and document types (a
/// key in CDATA would be another key), and it refuses some characters as references.
pub(super) fn prepare(body: Bytes) -> S3Result<Bytes> {
    let declares = |at: usize| body[at..].starts_with(b"<!") && !body[at..].starts_with(b"<!--");
    if (0..body.len()).any(declares) {
        let what = "document types and CDATA sections are not allowed";
        return Err(refuse(S3ErrorCode::MalformedXML, what));
    }
    Ok(resolve_references(&body).unwrap_or(body))
}

/// Refuses elements right below the root other than these, which the library would silently ignore.
pub(super) fn check_elements(xml: &[u8], known: &[&str]) -> S3Result<()> {
    let mut depth = 0usize;
    let mut rest = xml;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        rest = &rest[at..];
        let end: &[u8] = if rest.starts_with(b"<!--") { b"-->" } else { b">" };
        let Some(len) = rest.windows(end.len()).position(|window| window == end) else { break };
        let tag = &rest[1..len];
        rest = &rest[len + end.len()..];
        match tag.first() {
            Some(b'/') => depth = depth.saturating_sub(1),
            Some(b'!' | b'?') | None => {}
            Some(_) => {
                let name = tag.split(|byte| byte.is_ascii_whitespace() || *byte == b'/').next();
                let name = String::from_utf8_lossy(name.unwrap_or_default());
                if depth == 1 && !known.contains(&name.as_ref()) {
                    let what = format!("the element {name} is not known here");
                    return Err(refuse(S3ErrorCode::MalformedXML, what));
                }
                depth += usize::from(!tag.ends_with(b"/"));
            }
        }
    }
    Ok(())
}

/// Replaces references to control characters and to those beyond 16 bits by the characters.
fn resolve_references(xml: &[u8]) -> Option<Bytes> {
    let mut out = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.windows(2).position(|window| window == b"&#") {
        let end = rest[at..].iter().take(12).position(|byte| *byte == b';');
        let char = end.and_then(|end| refused(&rest[at + 2..at + end]));
        let taken = match (char, end) {
            (Some(char), Some(end)) => {
                out.extend_from_slice(&rest[..at]);
                out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                at + end + 1
            }
            _ => {
                out.extend_from_slice(&rest[..at + 2]);
                at + 2
            }
        };
        rest = &rest[taken..];
    }
    (rest.len() < xml.len()).then(|| {
        out.extend_from_slice(rest);
        out.into()
    })
}

/// Returns the character of a reference that the library refuses.
fn refused(reference: &[u8]) -> Option<char> {
    let text = std::str::from_utf8(reference).ok()?;
    let code = match text.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => text.parse().ok()?,
    };
    let is_control = (1..0x20).contains(&code) && !matches!(code, 9 | 10 | 13);
    char::from_u32(code).filter(|_| is_control || code > 0xFFFF)
}

/// Replaces control characters that the library let through: a parser would change or refuse
/// them, and keys may have any.
fn escape_controls(xml: &Bytes) -> Option<Bytes> {
    let control = |byte: u8| byte < b' ' && byte != b'\n';
    xml.iter().copied().any(control).then(|| {
        let mut out = Vec::with_capacity(xml.len() + 64);
        for &byte in xml {
            if control(byte) {
                out.extend_from_slice(format!("&#{byte};").as_bytes())
            } else {
                out.push(byte)
            }
        }
        out.into()
    })
}

/// Returns text for XML; control characters become references, as in S3.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            control if control < ' ' => out.push_str(&format!("&#{};", control as u32)),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_the_library_refuses_become_characters() {
        let prepare = |text: &str| prepare(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        assert_eq!(prepare("a&#1;b&#x1F4A9;c"), "a\u{1}b\u{1f4a9}c");
        for kept in ["a&#65;&#13;&lt;", "&#", "&#;", "&#x;", "&#0;", "&#xD800;", "&#999999999999;"]
        {
            assert_eq!(prepare(kept), kept);
        }
    }

    #[test]
    fn unknown_elements_are_refused() {
        let check = |text: &str| check_elements(text.as_bytes(), &["A", "B"]).is_ok();
        for good in ["", "<R/>", "<R><A><X/></A><B a='1'/></R>", "<R><!-- <X> --><A>1</A></R>"] {
            assert!(check(good), "{good}");
        }
        for bad in ["<R><C/></R>", "<?xml?><R><A/><C>1</C></R>", "<R><A><A/></A><C a='b'></C></R>"]
        {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn declarations_are_refused() {
        for text in ["<!DOCTYPE a>", "<a><![CDATA[b]]></a>", "<!-- c --><!ENTITY x>", "<!"] {
            assert!(prepare(Bytes::copy_from_slice(text.as_bytes())).is_err(), "{text}");
        }
        assert!(prepare(Bytes::from_static(b"<a><!-- b --></a>")).is_ok());
    }
}
