//! Record marking (RFC 5531, 11): a stream of records, each made of fragments with their length
//! before them.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use cairn_base::{Buffers, PooledBytes};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::limits::{COPIED_BYTES, READ_BYTES, RECORD_BYTES};

/// Error: a record is longer than any call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// Bit that is set in the length of the last fragment of a record.
pub const LAST: u32 = 1 << 31;

/// Number of buffers for long records that are kept to be used again.
const WAITING: usize = 16;

/// Splits a stream into records.
#[derive(Default)]
pub struct Records {
    /// Bytes of the stream that were read and not taken yet.
    pub came: BytesMut,
    /// Fragments received so far of a record that has several.
    begun: BytesMut,
    /// The long record of one fragment that is being received. Everything before it was taken.
    long: Option<Long>,
    /// Pool of memory for long records; without a pool each record has memory of its own.
    memory: Option<Buffers>,
}

struct Long {
    memory: PooledBytes,
    bytes: usize,
}

/// Memory for long records, shared by all connections.
pub fn memory() -> Buffers {
    Buffers::new(RECORD_BYTES, WAITING)
}

impl Records {
    pub fn new(memory: Buffers) -> Records {
        Records { memory: Some(memory), ..Records::default() }
    }

    /// Reads from the stream. Cancel safe. Returns the number of bytes, which is 0 at the end.
    pub async fn read(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        match &mut self.long {
            Some(Long { memory, bytes }) => {
                let missing = *bytes - memory.len();
                if missing == 0 {
                    // The record is complete, and was not taken yet.
                    return Ok(*bytes);
                }
                reader.read_buf(&mut memory.memory().limit(missing)).await
            }
            None => reader.read_buf(&mut self.came).await,
        }
    }

    /// Returns the next record, if it is complete.
    ///
    /// # Errors
    /// [`TooLong`] as soon as a record is known to be too long: the rest of the stream is
    /// meaningless.
    pub fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        if let Some(long) = self.long.take_if(|long| long.memory.len() == long.bytes) {
            return Ok(Some(Bytes::from_owner(long.memory)));
        }
        loop {
            let Some((len, is_last)) = self.fragment()? else { return Ok(None) };
            if self.came.len() - 4 < len {
                return Ok(None);
            }
            self.came.advance(4);
            let fragment = self.came.split_to(len);
            if is_last && self.begun.is_empty() {
                // A short record must not keep a long buffer.
                return Ok(Some(if len <= COPIED_BYTES {
                    Bytes::copy_from_slice(&fragment)
                } else {
                    fragment.freeze()
                }));
            }
            self.begun.extend_from_slice(&fragment);
            if is_last {
                return Ok(Some(std::mem::take(&mut self.begun).freeze()));
            }
        }
    }

    /// Returns the length of the fragment that has begun, and whether it is the last fragment of
    /// its record.
    fn fragment(&self) -> Result<Option<(usize, bool)>, TooLong> {
        if self.long.is_some() {
            return Ok(None);
        }
        let Some(mark) = self.came.first_chunk() else { return Ok(None) };
        let mark = u32::from_be_bytes(*mark);
        let len = (mark & !LAST) as usize;
        if len.saturating_add(self.begun.len()) > RECORD_BYTES {
            Err(TooLong)
        } else {
            Ok(Some((len, mark & LAST != 0)))
        }
    }

    /// Makes room for the next read: as much as the current record still needs, or a little. A long
    /// record that has begun to arrive is moved into memory from the pool.
    pub fn reserve(&mut self) {
        if self.long.is_some() {
            return;
        }
        if let Ok(Some((len, true))) = self.fragment()
            && self.begun.is_empty()
            && len > COPIED_BYTES
            && (READ_BYTES..len + 4).contains(&self.came.len())
        {
            // A buffer much longer than the record would hold memory that is counted nowhere.
            let mut memory = match &self.memory {
                Some(memory) if len > RECORD_BYTES / 2 => memory.room(),
                _ => PooledBytes::with_room(len),
            };
            memory.memory().extend_from_slice(self.came.get(4..).unwrap_or_default());
            self.came.clear();
            self.long = Some(Long { memory, bytes: len });
            return;
        }
        let missing = match self.fragment() {
            Ok(Some((len, _))) => (len + 4).saturating_sub(self.came.len()),
            _ => 0,
        };
        let more = missing.clamp(READ_BYTES, self.came.len().max(READ_BYTES));
        if more <= READ_BYTES {
            self.came.reserve(more);
        } else if self.came.capacity() - self.came.len() < more {
            // Reserved exactly: a buffer that grows by itself doubles its length.
            let mut longer = BytesMut::with_capacity(self.came.len() + more);
            longer.extend_from_slice(&self.came);
            self.came = longer;
        }
    }

    /// Returns whether [`Records::next`] has something to return: a record, a part of a record, or
    /// an error.
    pub fn is_ready(&self) -> bool {
        if let Some(long) = &self.long {
            return long.memory.len() == long.bytes;
        }
        match self.fragment() {
            Ok(Some((len, _))) => self.came.len() - 4 >= len,
            Ok(None) => false,
            Err(TooLong) => true,
        }
    }

    /// Returns whether a record has begun to arrive and is incomplete.
    pub fn is_partial(&self) -> bool {
        !self.came.is_empty() || !self.begun.is_empty() || self.long.is_some()
    }

    /// Returns the length of the record that has begun, if it is a long one: its upper bound, while
    /// the length is unknown.
    pub fn long(&self) -> Option<usize> {
        if let Some(long) = &self.long {
            return Some(long.bytes);
        }
        let len = match self.fragment() {
            Ok(Some((len, true))) => self.begun.len() + len,
            Ok(Some((_, false))) => RECORD_BYTES,
            _ if self.begun.is_empty() => 0,
            _ => RECORD_BYTES,
        };
        (len > COPIED_BYTES).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark(len: u32, is_last: bool) -> [u8; 4] {
        (len | if is_last { LAST } else { 0 }).to_be_bytes()
    }

    #[test]
    fn a_record_of_several_fragments_is_one() {
        let mut records = Records::default();
        for (fragment, is_last) in [("ab", false), ("", false), ("cde", true), ("x", true)] {
            records.came.extend_from_slice(&mark(fragment.len() as u32, is_last));
            records.came.extend_from_slice(fragment.as_bytes());
        }
        records.came.extend_from_slice(&mark(3, true));
        assert_eq!(records.next().unwrap().unwrap(), "abcde");
        assert_eq!(records.next().unwrap().unwrap(), "x");
        assert_eq!(records.next(), Ok(None));
        records.came.extend_from_slice(b"yz");
        assert_eq!(records.next(), Ok(None));
    }

    /// Reads all of a stream as a connection does.
    async fn read_all(mut stream: &[u8], records: &mut Records) -> Vec<Bytes> {
        let mut read = Vec::new();
        loop {
            while let Some(record) = records.next().unwrap() {
                read.push(record);
            }
            records.reserve();
            if records.read(&mut stream).await.unwrap() == 0 {
                assert!(!records.is_partial());
                return read;
            }
        }
    }

    #[tokio::test]
    async fn long_records_are_read_into_memory_that_was_used_before() {
        let memory = memory();
        let mut records = Records::new(memory.clone());
        let record = |len: usize| (0..len).map(|at| ((at * 7) >> 3) as u8).collect::<Vec<_>>();
        let lens = [RECORD_BYTES, 3, COPIED_BYTES + 1, COPIED_BYTES, 1 << 20, 100, 200_000];
        let mut stream = Vec::new();
        for len in lens {
            stream.extend(mark(len as u32, true));
            stream.extend(record(len));
        }
        let mut places = Vec::new();
        for _ in 0..3 {
            let read = read_all(&stream, &mut records).await;
            assert_eq!(read.iter().map(Bytes::len).collect::<Vec<_>>(), lens);
            assert!(read.iter().zip(lens).all(|(read, len)| read[..] == record(len)));
            places.push(read[0].as_ptr());
        }
        let (first, rest) = places.split_first().unwrap();
        assert!(rest.contains(first), "{places:?}");
    }

    #[test]
    fn a_length_that_lies_is_refused_and_takes_no_memory() {
        for len in [RECORD_BYTES as u32 + 1, !LAST] {
            let mut records = Records::default();
            records.came.extend_from_slice(&mark(len, true));
            records.reserve();
            assert_eq!(records.next(), Err(TooLong));
            assert!(records.came.capacity() <= 2 * READ_BYTES);
        }
        let mut records = Records::default();
        records.came.extend_from_slice(&mark(RECORD_BYTES as u32, true));
        records.reserve();
        assert_eq!(records.next(), Ok(None));
        assert!(records.came.capacity() <= 2 * READ_BYTES, "nothing of it has come");
        // Many fragments are one record, too.
        let mut records = Records::default();
        let fragment = vec![0; 1 << 18];
        for _ in 0..4 {
            records.came.extend_from_slice(&mark(1 << 18, false));
            records.came.extend_from_slice(&fragment);
            assert_eq!(records.next(), Ok(None));
        }
        records.came.extend_from_slice(&mark(1 << 18, false));
        assert_eq!(records.next(), Err(TooLong));
    }

    /// Bytes that announce more or less than there is.
    fn announced() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0u32..60, Just(RECORD_BYTES as u32), any::<u32>()];
        let fragment = (len, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60));
        let fragments = proptest::collection::vec(fragment, 0..12);
        fragments.prop_map(|fragments| {
            let one = |(len, is_last, bytes): (u32, bool, Vec<u8>)| {
                [&mark(len, is_last)[..], &bytes].concat()
            };
            fragments.into_iter().flat_map(one).collect()
        })
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_no_more_than_they_are(
            stream in announced(),
            step in 1usize..50,
        ) {
            let (mut taken, mut reader) = (0, Records::default());
            'stream: for part in stream.chunks(step) {
                reader.reserve();
                reader.came.extend_from_slice(part);
                loop {
                    match reader.next() {
                        Ok(Some(record)) => taken += record.len(),
                        Ok(None) => break,
                        Err(TooLong) => break 'stream,
                    }
                }
                prop_assert!(reader.came.capacity() <= 2 * (stream.len() + READ_BYTES));
                prop_assert!(reader.begun.len() <= stream.len());
            }
            prop_assert!(taken <= stream.len());
        }

        #[test]
        fn records_are_the_same_however_they_come(
            records in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..4),
                1..6,
            ),
            step in 1usize..50,
        ) {
            let mut stream = Vec::new();
            for fragments in &records {
                for (at, fragment) in fragments.iter().enumerate() {
                    stream.extend(mark(fragment.len() as u32, at + 1 == fragments.len()));
                    stream.extend(fragment);
                }
            }
            let (mut taken, mut reader) = (Vec::new(), Records::default());
            for part in stream.chunks(step) {
                reader.reserve();
                reader.came.extend_from_slice(part);
                while let Some(record) = reader.next().unwrap() {
                    taken.push(record.to_vec());
                }
            }
            let sent: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
            prop_assert_eq!(taken, sent);
        }
    }
}
