//! Objects with names, wherever they are.

use std::ops::Range;

use bytes::Bytes;

use crate::failure::Result;

/// An object of more bytes is not read: no backup has one.
pub const OBJECT_BYTES: u64 = 512 << 20;

/// Objects with names. All of an object appears at once.
pub trait Target: Send + Sync {
    fn put(&self, name: &str, bytes: &Bytes) -> Result<()>;

    /// Makes an object unless there is one of this name; whether it was made. Of several that do
    /// it at the same time one makes it, where the place can tell.
    fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool>;

    /// The object; `None` if there is none.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// These bytes of the object, or fewer if it ends before; `None` if there is none.
    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>>;

    /// The names of all objects that begin with `prefix`, which ends in a slash.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    fn remove(&self, name: &str) -> Result<()>;
}

/// A range of an object that was sent whole.
pub fn part_of(bytes: &[u8], range: &Range<u64>) -> Vec<u8> {
    let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(at(range.start)..at(range.end)).unwrap_or_default().to_vec()
}
