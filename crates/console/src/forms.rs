//! Forms and queries.

use std::borrow::Cow;

use cairn_base::{Error, Result};

/// Limits of a form.
#[derive(Clone, Copy, Debug)]
pub struct FormBounds {
    pub bytes: usize,
    pub fields: usize,
}

/// Memory of a field without its bytes: two texts, and the overhead of the allocator for each.
const FIELD_BYTES: u64 = 2 * (24 + 16);

impl FormBounds {
    /// Returns the memory of a body of `body` bytes and of the form that is made of it, bytes.
    pub fn memory(self, body: u64) -> u64 {
        // A field has a name or `=`, and `&` behind it.
        let fields = (self.fields as u64).min(body.div_ceil(2));
        2 * body + FIELD_BYTES * fields
    }
}

/// Names and values, in order. A name may come several times.
#[derive(Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses a form of at most `most` fields. They are counted before memory is taken for them.
    ///
    /// # Errors
    /// `TooLarge` for more fields; `Invalid` for what no field can have.
    pub fn parse(bytes: &[u8], most: usize) -> Result<Form> {
        let count = bytes.split(|byte| *byte == b'&').filter(|field| !field.is_empty()).count();
        if count > most {
            let text = format!("{count} fields in a form: send at most {most} at a time");
            return Err(Error::TooLarge(text));
        }
        let pairs = form_urlencoded::parse(bytes);
        let owned =
            |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into_owned(), value.into_owned());
        let pairs: Vec<_> = pairs.map(owned).collect();
        if pairs.iter().any(|(_, value)| value.contains('\0')) {
            Err(Error::Invalid("a NUL byte in a form".into()))
        } else {
            Ok(Form(pairs))
        }
    }

    /// Returns the first value of a name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Parses a number; none if the field is empty or absent.
    ///
    /// # Errors
    /// `Invalid` if it is no number, in the words of the form.
    pub fn number(&self, name: &str, label: &str) -> Result<Option<u64>> {
        match self.get(name).trim() {
            "" => Ok(None),
            text => {
                let bad = |_| Error::Invalid(format!("{label}: {text:?} is not a whole number"));
                text.parse().map(Some).map_err(bad)
            }
        }
    }

    pub fn is_confirmed(&self) -> bool {
        self.get("confirm") == "yes"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_before_they_are_read() {
        let form = Form::parse(b"&a=1&&b=2&", 2).unwrap();
        assert_eq!((form.get("a"), form.get("b")), ("1", "2"));
        for long in ["a&b&c", "a=1&b=2&c", "=&=&="] {
            let error = Form::parse(long.as_bytes(), 2).unwrap_err();
            assert!(matches!(error, Error::TooLarge(_)), "{error}");
        }
        assert!(Form::parse(b"a=%00", 2).is_err());
    }

    #[test]
    fn memory_is_counted_with_all_fields_that_a_body_can_have() {
        let bounds = FormBounds { bytes: 1000, fields: 16 };
        assert_eq!(bounds.memory(0), 0);
        assert_eq!(bounds.memory(10), 20 + 5 * FIELD_BYTES);
        assert_eq!(bounds.memory(1000), 2000 + 16 * FIELD_BYTES);
    }
}
