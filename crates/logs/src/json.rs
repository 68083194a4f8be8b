//! JSON: writes texts and values into lines, and reads the JSON of clients in place.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use cairn_base::{Error, Result};
use memchr::memchr2_iter;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, Visitor};

use crate::limits::JSON_DEPTH;

/// Writes a text, quoted.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 => b"",
            _ => continue,
        };
        out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
        out.extend_from_slice(escape);
        if escape.is_empty() {
            let mut number = String::new();
            // Writing to a `String` cannot fail.
            let _ = write!(number, "\\u{byte:04x}");
            out.extend_from_slice(number.as_bytes());
        }
        from = at + 1;
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    out.push(b'"');
}

/// Writes bytes that should be text: invalid UTF-8 becomes U+FFFD.
pub fn lossy(out: &mut Vec<u8>, bytes: &[u8]) {
    text(out, &String::from_utf8_lossy(bytes));
}

/// Writes `,"name":`, without the comma at the beginning of an object.
pub fn name(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{' | b'[') | None) {
        out.push(b',');
    }
    text(out, name);
    out.push(b':');
}

/// Returns the text of a value after checking that it is JSON.
///
/// # Errors
/// `Invalid` if it is not JSON, not UTF-8, or too deep.
pub fn check(bytes: &[u8]) -> Result<&str> {
    let invalid = |error: &dyn std::fmt::Display| Error::Invalid(format!("JSON: {error}"));
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(&error))?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| invalid(&error))?;
    check_depth(bytes)?;
    Ok(text)
}

/// Checks the depth of a value. Code that reads a value recurses for values within it, and
/// `serde_json` has no limit when it only checks.
fn check_depth(json: &[u8]) -> Result<()> {
    let most = JSON_DEPTH as usize;
    // Most values have fewer opening brackets in all, including those within texts.
    if memchr2_iter(b'{', b'[', json).take(most + 1).count() <= most {
        return Ok(());
    }
    let (mut depth, mut is_text) = (0_u32, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if is_text => drop(bytes.next()),
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH {
            return Err(Error::Invalid(format!(
                "JSON: values within values: {JSON_DEPTH} at most"
            )));
        }
    }
    Ok(())
}

/// Decodes a JSON string; invalid UTF-8 becomes U+FFFD.
struct Lossy;

impl Visitor<'_> for Lossy {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Reads JSON that was checked before.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

fn unexpected(what: &str) -> Error {
    Error::Invalid(format!("JSON: {what} was expected"))
}

impl<'a> Cursor<'a> {
    /// Checks `bytes` and returns a cursor at their beginning.
    ///
    /// # Errors
    /// `Invalid` if it is not JSON, not UTF-8, or too deep.
    pub fn new(bytes: &'a [u8]) -> Result<Cursor<'a>> {
        Ok(Cursor { text: check(bytes)?, at: 0 })
    }

    /// Returns the next byte that is not a space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let spaces = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.at += spaces;
        rest.get(spaces).copied()
    }

    fn passes(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    /// Calls `member` with each name of an object; `member` reads or skips the value.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Cursor<'a>, &str) -> Result<()>,
    ) -> Result<()> {
        if !self.passes(b'{') {
            return Err(unexpected("an object"));
        }
        while !self.passes(b'}') {
            let name = self.string()?;
            if !self.passes(b':') {
                return Err(unexpected("a value"));
            }
            member(self, &name)?;
            self.passes(b',');
        }
        Ok(())
    }

    /// Calls `item` for each value of a list; `item` reads or skips the value.
    pub fn list(&mut self, mut item: impl FnMut(&mut Cursor<'a>) -> Result<()>) -> Result<()> {
        if !self.passes(b'[') {
            return Err(unexpected("a list"));
        }
        while !self.passes(b']') {
            if self.peek().is_none() {
                return Err(unexpected("a value"));
            }
            item(self)?;
            self.passes(b',');
        }
        Ok(())
    }

    pub fn string(&mut self) -> Result<Cow<'a, str>> {
        let raw = self.raw_string().ok_or_else(|| unexpected("a text"))?;
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        if !inner.contains('\\') {
            return Ok(Cow::Borrowed(inner));
        }
        // Half of a surrogate pair is not text, but some clients send it.
        let text = serde_json::Deserializer::from_str(raw).deserialize_bytes(Lossy);
        text.map(Cow::Owned).map_err(|_| unexpected("a text"))
    }

    /// Reads a value with `read`; if that fails, the value is skipped.
    ///
    /// # Errors
    /// The outer error: there is no value. The inner error: the one of `read`.
    pub fn attempt(
        &mut self,
        read: impl FnOnce(&mut Cursor<'a>) -> Result<()>,
    ) -> Result<Result<()>> {
        let before = self.clone();
        match read(self) {
            Ok(()) => Ok(Ok(())),
            Err(error) => {
                *self = before;
                self.skip()?;
                Ok(Err(error))
            }
        }
    }

    /// Reads a text, or a number as it is written.
    pub fn string_or_number(&mut self) -> Result<Cow<'a, str>> {
        match self.peek() {
            Some(b'"') => self.string(),
            _ => Ok(Cow::Borrowed(self.raw()?)),
        }
    }

    /// Reads a text with its quotes.
    fn raw_string(&mut self) -> Option<&'a str> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let (start, bytes) = (self.at, self.text.as_bytes());
        let mut at = start + 1;
        loop {
            match bytes.get(at)? {
                b'"' => break,
                b'\\' => at += 2,
                _ => at += 1,
            }
        }
        self.at = at + 1;
        self.text.get(start..self.at)
    }

    /// Returns the next value as it is written.
    pub fn raw(&mut self) -> Result<&'a str> {
        let missing = || unexpected("a value");
        let first = self.peek().ok_or_else(missing)?;
        let start = self.at;
        match first {
            b'"' => {
                self.raw_string().ok_or_else(missing)?;
            }
            b'{' | b'[' => {
                let mut depth = 0_u32;
                loop {
                    match self.peek().ok_or_else(missing)? {
                        b'"' => {
                            self.raw_string().ok_or_else(missing)?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                let rest = self.text.as_bytes().get(start..).unwrap_or_default();
                let ends =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
                self.at = start + rest.iter().position(ends).unwrap_or(rest.len());
                if self.at == start {
                    return Err(missing());
                }
            }
        }
        self.text.get(start..self.at).ok_or_else(missing)
    }

    pub fn skip(&mut self) -> Result<()> {
        self.raw().map(|_| ())
    }

    /// Returns the first byte of the next value, which tells its type.
    pub fn kind(&mut self) -> Option<u8> {
        self.peek()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_read_where_they_lie() {
        let json = br#" {"a" : [1, "x\n", {"b":{}}, []], "c":null , "d\"":"e"} "#;
        let mut seen = Vec::new();
        let mut cursor = Cursor::new(json).unwrap();
        cursor
            .object(|cursor, name| {
                if name == "a" {
                    return cursor.list(|cursor| {
                        seen.push(("item".to_owned(), cursor.raw()?.to_owned()));
                        Ok(())
                    });
                }
                seen.push((name.to_owned(), cursor.string_or_number()?.into_owned()));
                Ok(())
            })
            .unwrap();
        let expected = [
            ("item", "1"),
            ("item", r#""x\n""#),
            ("item", r#"{"b":{}}"#),
            ("item", "[]"),
            ("c", "null"),
            ("d\"", "e"),
        ];
        assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn other_things_are_refused() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Cursor::new(deep(128).as_bytes()).is_ok());
        assert!(Cursor::new(("[\"".to_owned() + &"[".repeat(200) + "\"]").as_bytes()).is_ok());
        let mut cursor = Cursor::new(br#""a\ud800\n""#).unwrap();
        let text = cursor.string().unwrap();
        assert!(text.starts_with("a\u{fffd}") && text.ends_with('\n'), "{text:?}");
        let deep = deep(129);
        for bad in [&b"{"[..], b"{} x", b"\"\xff\"", b"", deep.as_bytes()] {
            assert!(Cursor::new(bad).is_err());
        }
        assert!(Cursor::new(b"[1]").unwrap().object(|cursor, _| cursor.skip()).is_err());
        assert!(Cursor::new(b"1").unwrap().string().is_err());
    }

    proptest! {
        #[test]
        fn texts_are_what_they_were(text in any::<String>()) {
            let mut out = Vec::new();
            super::text(&mut out, &text);
            prop_assert!(!out.contains(&b'\n'));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text.clone());
            prop_assert_eq!(Cursor::new(&out).unwrap().string().unwrap(), text);
        }

        #[test]
        fn any_json_is_passed_whole(bytes in "[\\[\\]{}\",:0-9a\\\\ ]{0,40}") {
            if let Ok(mut cursor) = Cursor::new(bytes.as_bytes()) {
                prop_assert_eq!(cursor.raw().unwrap().trim(), bytes.trim());
            }
        }
    }
}
