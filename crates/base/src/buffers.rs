//! Reusable memory: fresh memory costs a page fault for each of its pages.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

const PAGE_BYTES: usize = 4096;

/// A pool of buffers of one length. Clones share it.
#[derive(Clone, Debug)]
pub struct Buffers {
    bytes: usize,
    /// Most unused buffers that are kept.
    most: usize,
    waiting: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Bytes in pooled memory, which goes back to its pool on drop. The memory never held a secret.
#[derive(Default, Debug)]
pub struct PooledBytes {
    memory: Vec<u8>,
    /// Offset of the bytes in `memory`.
    start: usize,
    /// Pool that the memory returns to; `None` if it is freed.
    home: Option<Buffers>,
}

impl Buffers {
    /// Creates a pool of buffers of `bytes` bytes each. It keeps at most `most` unused buffers.
    pub fn new(bytes: usize, most: usize) -> Buffers {
        Buffers { bytes, most, waiting: Arc::default() }
    }

    /// Bytes of each buffer.
    pub fn each(&self) -> usize {
        self.bytes
    }

    fn waiting(&self) -> Option<Vec<u8>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn pop(&self) -> Vec<u8> {
        self.waiting().unwrap_or_else(|| Vec::with_capacity(self.bytes))
    }

    /// Returns `len` bytes of any content, of which the one at `at` begins a page: the kernel takes
    /// such bytes page by page. They are in memory of their own if they exceed a buffer.
    pub fn take(&self, len: usize, at: usize) -> PooledBytes {
        if len + PAGE_BYTES > self.bytes {
            return PooledBytes::zeros(len);
        }
        let mut memory = self.pop();
        let start = memory.as_ptr().wrapping_add(at).align_offset(PAGE_BYTES);
        memory.resize(start + len, 0);
        PooledBytes { memory, start, home: Some(self.clone()) }
    }

    /// Returns an empty buffer with the capacity of a pooled one.
    pub fn room(&self) -> PooledBytes {
        let mut memory = self.pop();
        memory.clear();
        PooledBytes { memory, start: 0, home: Some(self.clone()) }
    }
}

impl PooledBytes {
    /// Returns zeros in memory of their own.
    pub fn zeros(len: usize) -> PooledBytes {
        PooledBytes { memory: vec![0; len], start: 0, home: None }
    }

    /// Returns an empty buffer with capacity for `bytes` bytes, in memory of its own.
    pub fn with_room(bytes: usize) -> PooledBytes {
        PooledBytes { memory: Vec::with_capacity(bytes), start: 0, home: None }
    }

    /// The memory, for appending bytes.
    pub fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Number of bytes that fit without another allocation.
    pub fn capacity(&self) -> usize {
        self.memory.capacity() - self.start
    }
}

impl Deref for PooledBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for PooledBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for PooledBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        let mut waiting = home.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < home.most && self.memory.capacity() >= home.bytes {
            waiting.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = (1 << 20) + (128 << 10);
    const MOST: usize = 16;

    fn waiting(buffers: &Buffers) -> usize {
        buffers.waiting.lock().unwrap().len()
    }

    #[test]
    fn memory_is_used_again_and_no_more_of_it_waits_than_is_said() {
        let buffers = Buffers::new(BYTES, MOST);
        let taken: Vec<PooledBytes> = (0..MOST + 5).map(|_| buffers.take(1 << 20, 1100)).collect();
        for buffer in &taken {
            assert_eq!(buffer.len(), 1 << 20);
            assert_eq!(buffer[1100..].as_ptr().align_offset(PAGE_BYTES), 0);
        }
        let first = taken[0].memory.as_ptr();
        drop(taken);
        assert_eq!(waiting(&buffers), MOST);
        let again: Vec<PooledBytes> = (0..MOST).map(|_| buffers.take(1 << 20, 0)).collect();
        assert!(again.iter().any(|buffer| buffer.memory.as_ptr() == first));
    }

    #[test]
    fn what_is_too_long_has_memory_of_its_own() {
        let buffers = Buffers::new(BYTES, MOST);
        for len in [BYTES - PAGE_BYTES + 1, BYTES, 4 << 20] {
            let buffer = buffers.take(len, 0);
            assert_eq!((buffer.len(), buffer.memory.len()), (len, len));
        }
        assert_eq!(waiting(&buffers), 0);
    }

    #[test]
    fn room_is_filled_and_what_has_grown_beyond_it_is_taken_back_too() {
        let buffers = Buffers::new(BYTES, MOST);
        let mut room = buffers.room();
        assert!(room.is_empty() && room.capacity() >= BYTES);
        room.memory().extend_from_slice(b"bytes");
        assert_eq!(&room[..], b"bytes");
        drop(room);
        let mut room = buffers.room();
        assert!(room.is_empty(), "the former bytes are gone");
        room.memory().resize(2 * BYTES, 7);
        drop(room);
        assert_eq!(waiting(&buffers), 1);
        assert_eq!(buffers.take(10, 0).len(), 10);
    }
}
