//! Memory that blocks are read into, used again and again: fresh memory costs a page fault for
//! each of its pages.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use parking_lot::Mutex;

/// Longer runs get memory of their own. This is as much as a mount is asked for at once, and a
/// page.
const BUFFER_BYTES: usize = (1 << 20) + (128 << 10);
/// A caller that got fewer bytes may keep them, and would keep a whole buffer.
const SHORT_BYTES: usize = 256 << 10;
/// Buffers that wait to be used again.
const WAITING: usize = 16;
const PAGE_BYTES: usize = 4096;

/// Buffers of one length. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Buffers {
    waiting: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Bytes to be read into: whatever they are before that, they were never anybody's secret here.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    part: Range<usize>,
    /// Where the memory goes.
    home: Option<Buffers>,
}

impl Buffers {
    /// For a read by which somebody is given so many bytes.
    pub(crate) fn for_reading(&self, bytes: usize) -> Option<&Buffers> {
        (bytes > SHORT_BYTES).then_some(self)
    }

    /// `len` bytes, of which that at `at` begins a page: the kernel takes such bytes page by page.
    pub(crate) fn take(&self, len: usize, at: usize) -> Buffer {
        if len > BUFFER_BYTES - PAGE_BYTES {
            return Buffer::fresh(len);
        }
        let waiting = self.waiting.lock().pop();
        let memory = waiting.unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let start = memory.as_ptr().wrapping_add(at).align_offset(PAGE_BYTES);
        Buffer { memory, part: start..start + len, home: Some(self.clone()) }
    }
}

impl Buffer {
    /// `len` bytes in memory of their own.
    pub(crate) fn fresh(len: usize) -> Buffer {
        Buffer { memory: vec![0; len], part: 0..len, home: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.part.clone()]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.part.clone()]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        let mut waiting = home.waiting.lock();
        if waiting.len() < WAITING {
            waiting.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_no_more_of_it_waits_than_is_said() {
        let buffers = Buffers::default();
        let taken: Vec<Buffer> = (0..WAITING + 5).map(|_| buffers.take(1 << 20, 1100)).collect();
        for buffer in &taken {
            assert_eq!(buffer.len(), 1 << 20);
            assert_eq!(buffer[1100..].as_ptr().align_offset(PAGE_BYTES), 0);
        }
        let first = taken[0].memory.as_ptr();
        drop(taken);
        assert_eq!(buffers.waiting.lock().len(), WAITING);
        let again: Vec<Buffer> = (0..WAITING).map(|_| buffers.take(1 << 20, 0)).collect();
        assert!(again.iter().any(|buffer| buffer.memory.as_ptr() == first));
    }

    #[test]
    fn what_may_be_kept_or_is_too_long_has_memory_of_its_own() {
        let buffers = Buffers::default();
        assert!(buffers.for_reading(SHORT_BYTES).is_none());
        assert!(buffers.for_reading(SHORT_BYTES + 1).is_some());
        for len in [BUFFER_BYTES - PAGE_BYTES + 1, BUFFER_BYTES, 4 << 20] {
            let buffer = buffers.take(len, 0);
            assert_eq!((buffer.len(), buffer.memory.len()), (len, len));
        }
        assert!(buffers.waiting.lock().is_empty());
    }
}
