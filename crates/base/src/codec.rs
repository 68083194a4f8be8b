//! The encoding of metadata rows: one format byte, then fields `tag, length, bytes`, where tag and
//! length are LEB128 numbers. A reader keeps the fields that it does not know and writes them back,
//! so an older version never destroys what a newer one added. Nothing here panics on any bytes.
//!
//! A row that must not be read without its newer fields has the format byte 2 and, before its
//! fields, the count and the numbers of the capabilities that its reader must have.

use bytes::Bytes;

use crate::{Capability, CapabilitySet, Error, Result};

/// The format byte of rows that name the capabilities of their readers.
const REQUIRING: u8 = 2;
/// The format byte of rows that name no capabilities.
const PLAIN: u8 = 1;

/// Builds one row. Fields are written in the order of the calls; absent fields are left out.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub fn new(format: u8) -> Writer {
        let mut out = Vec::with_capacity(128);
        out.push(format);
        Writer { out }
    }

    /// Begins a row whose reader must have these capabilities: a plain one if there are none.
    pub fn requiring(capabilities: CapabilitySet) -> Writer {
        if capabilities.is_empty() {
            return Writer::new(PLAIN);
        }
        let mut writer = Writer::new(REQUIRING);
        put_varint(&mut writer.out, capabilities.iter().count() as u64);
        for capability in capabilities.iter() {
            put_varint(&mut writer.out, capability.number().into());
        }
        writer
    }

    pub fn bytes(&mut self, tag: u32, value: &[u8]) -> &mut Writer {
        put_varint(&mut self.out, u64::from(tag));
        put_varint(&mut self.out, value.len() as u64);
        self.out.extend_from_slice(value);
        self
    }

    /// Writes a number, unless it is 0, which a reader assumes for an absent field.
    pub fn number(&mut self, tag: u32, value: u64) -> &mut Writer {
        if value != 0 {
            put_varint(&mut self.out, u64::from(tag));
            put_varint(&mut self.out, varint_len(value) as u64);
            put_varint(&mut self.out, value);
        }
        self
    }

    /// Writes text, unless it is empty.
    pub fn text(&mut self, tag: u32, value: &str) -> &mut Writer {
        if !value.is_empty() {
            self.bytes(tag, value.as_bytes());
        }
        self
    }

    /// Writes fields kept from a newer version, as returned by [`Fields::unknown`].
    pub fn raw(&mut self, fields: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(fields);
        self
    }

    pub fn finish(self) -> Bytes {
        // Rows are kept for long, so the spare capacity of the vector is dropped.
        Bytes::from(self.out.into_boxed_slice())
    }
}

/// A field of a row.
#[derive(Debug, Clone)]
pub struct Field {
    pub tag: u32,
    pub value: Bytes,
    raw: Bytes,
}

impl Field {
    pub fn number(&self) -> Result<u64> {
        let mut rest: &[u8] = &self.value;
        let number = take_varint(&mut rest)?;
        if rest.is_empty() { Ok(number) } else { Err(bad("a number with trailing bytes")) }
    }

    pub fn text(&self) -> Result<String> {
        String::from_utf8(self.value.to_vec()).map_err(|_| bad("text that is not UTF-8"))
    }

    /// Appends the field with tag and length to `unknown`, for [`Writer::raw`].
    pub fn keep(&self, unknown: &mut Vec<u8>) {
        unknown.extend_from_slice(&self.raw);
    }
}

/// Reads one row field by field.
#[derive(Debug)]
pub struct Fields {
    rest: Bytes,
}

impl Fields {
    /// Opens a row of a kind that names no capabilities: its format byte must be `format`.
    ///
    /// # Errors
    /// `Corrupt` for another format, `NotImplemented` for a capability of a later release.
    pub fn open(row: &Bytes, format: u8) -> Result<Fields> {
        let (required, fields) = Fields::open_requiring(row, format)?;
        if required.is_empty() {
            return Ok(fields);
        }
        // The row would be written back without its capabilities.
        Err(Error::corrupt("format of a metadata row", REQUIRING, format))
    }

    /// Opens a row of a kind that may name capabilities, which are returned. Its format byte must
    /// be `format`; if that is the byte of plain rows, the byte of rows with capabilities is
    /// accepted too.
    ///
    /// # Errors
    /// Returns the errors of [`Fields::open`].
    pub fn open_requiring(row: &Bytes, format: u8) -> Result<(CapabilitySet, Fields)> {
        match row.first() {
            Some(&got) if got == format => {
                Ok((CapabilitySet::NONE, Fields { rest: row.slice(1..) }))
            }
            Some(&REQUIRING) if format == PLAIN => take_capabilities(row.slice(1..)),
            Some(&got) => Err(Error::corrupt("format of a metadata row", got, format)),
            None => Err(Error::corrupt("metadata row", "no bytes", "a format byte")),
        }
    }

    /// Returns the next field, or `None` at the end of the row.
    pub fn next_field(&mut self) -> Result<Option<Field>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut cursor: &[u8] = &self.rest;
        let tag = u32::try_from(take_varint(&mut cursor)?).map_err(|_| bad("a field tag"))?;
        let len = usize::try_from(take_varint(&mut cursor)?).map_err(|_| bad("a length"))?;
        if cursor.len() < len {
            return Err(bad("a field that is cut short"));
        }
        let head = self.rest.len() - cursor.len();
        let raw = self.rest.split_to(head + len);
        Ok(Some(Field { tag, value: raw.slice(head..), raw }))
    }
}

/// Takes the capabilities off the front of a row, after its format byte.
fn take_capabilities(row: Bytes) -> Result<(CapabilitySet, Fields)> {
    let mut rest: &[u8] = &row;
    let count = take_varint(&mut rest)?;
    let (mut last, mut capabilities) = (0, CapabilitySet::NONE);
    for _ in 0..count {
        let number = take_varint(&mut rest)?;
        if number <= last {
            return Err(bad("capabilities out of order"));
        }
        last = number;
        capabilities = capabilities.with(Capability::from_number(number)?);
    }
    if capabilities.is_empty() {
        return Err(bad("no capability"));
    }
    let fields = row.slice(row.len() - rest.len()..);
    Ok((capabilities, Fields { rest: fields }))
}

fn bad(got: &str) -> Error {
    Error::corrupt("metadata row", got, "a well-formed field")
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `value` as LEB128: seven bits a byte, low bits first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a LEB128 number off the front of `bytes`.
pub fn take_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or_else(|| bad("a number cut short"))?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(bad("a number beyond 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            let mut rest = &out[..];
            assert_eq!(take_varint(&mut rest).unwrap(), value);
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn unknown_fields_survive() {
        let mut newer = Writer::new(1);
        newer.number(1, 7).text(99, "from the future");
        let mut fields = Fields::open(&newer.finish(), 1).unwrap();
        let mut unknown = Vec::new();
        while let Some(field) = fields.next_field().unwrap() {
            if field.tag != 1 {
                field.keep(&mut unknown);
            }
        }
        let mut older = Writer::new(1);
        older.number(1, 7).raw(&unknown);
        let mut fields = Fields::open(&older.finish(), 1).unwrap();
        fields.next_field().unwrap();
        assert_eq!(fields.next_field().unwrap().unwrap().text().unwrap(), "from the future");
    }

    #[test]
    fn a_row_names_what_its_reader_must_know() {
        let all = CapabilitySet::own();
        let mut writer = Writer::requiring(all);
        writer.number(1, 7);
        let row = writer.finish();
        let (required, mut fields) = Fields::open_requiring(&row, PLAIN).unwrap();
        assert_eq!((required, fields.next_field().unwrap().unwrap().number().unwrap()), (all, 7));
        assert_eq!(Writer::requiring(CapabilitySet::NONE).finish(), [PLAIN][..]);
        // Earlier programs take the byte for damage.
        assert_ne!(row[0], PLAIN);
        for (bytes, kind) in [
            (&[REQUIRING, 1, 63, 1, 1, 7][..], "not_implemented"),
            (&[REQUIRING, 2, 1, 63, 1, 1, 7], "not_implemented"),
            (&[REQUIRING, 0, 1, 1, 7], "corrupt"),
            (&[REQUIRING, 2, 1, 1, 1, 1, 7], "corrupt"),
            (&[REQUIRING, 1], "corrupt"),
            (&[REQUIRING], "corrupt"),
            (&[REQUIRING + 1, 1, 1], "corrupt"),
        ] {
            let error = Fields::open(&Bytes::copy_from_slice(bytes), PLAIN).unwrap_err();
            assert_eq!(error.kind(), kind, "{bytes:?}: {error}");
        }
        // Rows of other kinds have none, and other formats have no such rows.
        assert_eq!(Fields::open(&row, PLAIN).unwrap_err().kind(), "corrupt");
        Fields::open_requiring(&row, 9).unwrap_err();
    }

    #[test]
    fn every_cut_is_an_error_or_a_shorter_row() {
        let mut writer = Writer::new(1);
        writer.number(1, u64::MAX).text(2, "abc").bytes(300, &[0; 200]);
        let row = writer.finish();
        for end in 0..row.len() {
            let Ok(mut fields) = Fields::open(&row.slice(..end), 1) else { continue };
            while let Ok(Some(_)) = fields.next_field() {}
        }
    }
}
