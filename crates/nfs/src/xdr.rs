//! XDR (RFC 4506): big-endian numbers of four or eight bytes, and bytes with their length before
//! them and zeros behind them up to a multiple of four.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Error: the bytes are not in the form that is required.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbage;

/// Reads data from a client, without copying bytes.
#[derive(Clone)]
pub struct Reader(Bytes);

impl Reader {
    pub fn new(bytes: Bytes) -> Reader {
        Reader(bytes)
    }

    pub fn number(&mut self) -> Result<u32, Garbage> {
        self.0.try_get_u32().map_err(|_| Garbage)
    }

    pub fn long(&mut self) -> Result<u64, Garbage> {
        self.0.try_get_u64().map_err(|_| Garbage)
    }

    pub fn flag(&mut self) -> Result<bool, Garbage> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Reads eight bytes that mean something to the client only.
    pub fn verifier(&mut self) -> Result<[u8; 8], Garbage> {
        Ok(self.long()?.to_be_bytes())
    }

    /// Reads bytes, `most` at most.
    pub fn bytes(&mut self, most: usize) -> Result<Bytes, Garbage> {
        let len = usize::try_from(self.number()?).map_err(|_| Garbage)?;
        let padding = padding(len);
        if len > most || self.0.len() < len.saturating_add(padding) {
            return Err(Garbage);
        }
        let bytes = self.0.split_to(len);
        self.0.advance(padding);
        Ok(bytes)
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), Garbage> {
        if self.0.is_empty() { Ok(()) } else { Err(Garbage) }
    }
}

/// Returns the number of zeros behind `len` bytes.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// Writes data for a client.
#[derive(Default)]
pub struct Writer(BytesMut);

impl Writer {
    /// Returns a writer with room for this many bytes.
    pub fn with_room(bytes: usize) -> Writer {
        Writer(BytesMut::with_capacity(bytes))
    }

    /// Replaces the first four bytes by a number.
    pub fn begin_with(&mut self, number: u32) {
        if let Some(first) = self.0.first_chunk_mut() {
            *first = number.to_be_bytes();
        }
    }

    pub fn number(&mut self, number: u32) -> &mut Writer {
        self.0.put_u32(number);
        self
    }

    pub fn long(&mut self, number: u64) -> &mut Writer {
        self.0.put_u64(number);
        self
    }

    pub fn flag(&mut self, flag: bool) -> &mut Writer {
        self.number(flag.into())
    }

    /// Writes bytes of a length that the client knows.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.put_slice(bytes);
        self.0.put_bytes(0, padding(bytes.len()));
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.number(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.fixed(bytes)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn append(&mut self, other: &Writer) -> &mut Writer {
        self.0.put_slice(&other.0);
        self
    }

    pub fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.number(7).long(u64::MAX - 1).flag(true).bytes(b"abcde").fixed(b"12345678");
        let bytes = writer.finish();
        assert_eq!(bytes.len(), 4 + 8 + 4 + 4 + 8 + 8);
        let mut reader = Reader::new(bytes);
        assert_eq!(reader.number(), Ok(7));
        assert_eq!(reader.long(), Ok(u64::MAX - 1));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!(reader.bytes(5).unwrap(), "abcde");
        assert_eq!(reader.end(), Err(Garbage));
        assert_eq!(reader.verifier(), Ok(*b"12345678"));
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(reader.number(), Err(Garbage));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for (bytes, most) in [
            (&[0xff, 0xff, 0xff, 0xff][..], usize::MAX),
            (&[0, 0, 0, 5, 1, 2, 3, 4, 5], 8),
            (&[0, 0, 0, 4, 1, 2, 3, 4], 3),
            (&[0, 0, 0, 1], 8),
            (&[0, 0, 0], 8),
        ] {
            assert_eq!(Reader::new(Bytes::copy_from_slice(bytes)).bytes(most), Err(Garbage));
        }
        assert_eq!(Reader::new(Bytes::from_static(&[0, 0, 0, 2])).flag(), Err(Garbage));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            most in 0usize..80,
        ) {
            let len = bytes.len();
            let mut reader = Reader::new(bytes.into());
            if let Ok(read) = reader.bytes(most) {
                prop_assert!(read.len() <= most && 4 + read.len() + reader.0.len() <= len);
            }
        }
    }
}
