//! Objects with names, wherever they are.

use crate::failure::Result;

/// An object of more bytes is not read: no backup has one.
pub const OBJECT_BYTES: u64 = 512 << 20;

/// Objects with names. All of an object appears at once.
pub trait Target: Send + Sync {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()>;

    /// The object; `None` if there is none.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// The names of all objects that begin with `prefix`, which ends in a slash.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    fn remove(&self, name: &str) -> Result<()>;
}
