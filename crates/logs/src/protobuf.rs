//! Reads the fields of protocol buffers in place, without allocations.

use cairn_base::{Error, Result};

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// Returns the value of a field with bytes, text or a message.
    pub fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(malformed()),
        }
    }

    /// Returns the value of a field with a number of any type.
    pub fn number(self) -> Result<u64> {
        match self {
            Value::Varint(number) | Value::Fixed64(number) => Ok(number),
            Value::Fixed32(number) => Ok(number.into()),
            Value::Bytes(_) => Err(malformed()),
        }
    }
}

/// Iterates over the fields of a message in order, with their numbers.
#[derive(Clone, Debug)]
pub struct Message<'a>(pub &'a [u8]);

fn malformed() -> Error {
    Error::Invalid("the body is no message of this protocol".into())
}

impl<'a> Message<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = Result<(u64, Value<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(malformed))
    }
}

/// Builds fields for tests.
#[cfg(test)]
pub mod write {
    fn varint(mut number: u64, out: &mut Vec<u8>) {
        while number >= 0x80 {
            out.push(number as u8 | 0x80);
            number >>= 7;
        }
        out.push(number as u8);
    }

    pub fn number(field: u64, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        varint(field << 3, &mut out);
        varint(number, &mut out);
        out
    }

    pub fn fixed(field: u64, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        varint(field << 3 | 1, &mut out);
        out.extend(number.to_le_bytes());
        out
    }

    pub fn bytes(field: u64, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        varint(field << 3 | 2, &mut out);
        varint(bytes.len() as u64, &mut out);
        out.extend(bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_read() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 0, 0, 0, 0x21, 2, 0, 0, 0, 0];
        let bytes = [&bytes[..], &[0, 0, 0]].concat();
        let fields: Vec<_> = Message(&bytes).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed32(1)),
            (4, Value::Fixed64(2)),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in
            [&[0x12, 0xff, 0xff, 0xff, 0xff, 0x0f, 1][..], &[0x12, 3, 1, 2], &[0x0b], &[0x08, 0xff]]
        {
            assert!(Message(bytes).any(|field| field.is_err()), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Message(&bytes).count() <= bytes.len());
        }
    }
}
