//! File handles, which name inodes to clients.
//!
//! ```text
//!   version (1), 0 (3) | bucket (8) | export (8) | inode (8) | tag (16)     numbers big-endian
//! ```
//!
//! The tag covers everything before it, under a key of the store. No client can make a handle, so a
//! client that has a handle got it for that export. Inodes stay in their bucket for life, so no
//! handle leads out of it; their numbers are never reused, so there is no generation.

use cairn_auth::{HANDLE_TAG_BYTES, HandleKey};
use cairn_base::{BucketId, Ino};

use crate::status::Status;

const VERSION: [u8; 4] = [1, 0, 0, 0];
const CONTENT_BYTES: usize = 28;
/// Bytes of a handle.
pub const BYTES: usize = CONTENT_BYTES + HANDLE_TAG_BYTES;

/// An inode, as reached through an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    pub bucket: BucketId,
    /// The number of the export.
    pub export: u64,
    pub ino: Ino,
}

impl Handle {
    pub fn seal(&self, key: &HandleKey) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let numbers = [self.bucket.0, self.export, self.ino.0].map(u64::to_be_bytes);
        let content = VERSION.iter().chain(numbers.as_flattened());
        bytes.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
        let (content, tag) = bytes.split_at_mut(CONTENT_BYTES);
        tag.copy_from_slice(&key.tag(content));
        bytes
    }

    /// Opens a handle.
    ///
    /// # Errors
    /// `BADHANDLE` for a handle that this store never made.
    pub fn open(key: &HandleKey, bytes: &[u8]) -> Result<Handle, Status> {
        let split = bytes.split_at_checked(CONTENT_BYTES);
        let (content, tag) = split.ok_or(Status::BADHANDLE)?;
        if !key.verify(content, tag) {
            return Err(Status::BADHANDLE);
        }
        let numbers = content.strip_prefix(&VERSION).ok_or(Status::BADHANDLE)?;
        let ([bucket, export, ino], []) = numbers.as_chunks() else {
            return Err(Status::BADHANDLE);
        };
        let [bucket, export, ino] = [bucket, export, ino].map(|bytes| u64::from_be_bytes(*bytes));
        Ok(Handle { bucket: BucketId(bucket), export, ino: Ino(ino) })
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::Secret;

    use super::*;

    #[test]
    fn a_handle_that_was_changed_opens_nothing() {
        let key = HandleKey::derive(&Secret::new([1; 32]));
        let handle = Handle { bucket: BucketId(7), export: 3, ino: Ino(1 << 40) };
        let bytes = handle.seal(&key);
        assert_eq!(Handle::open(&key, &bytes), Ok(handle));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes;
                other[at] ^= 1 << bit;
                assert_eq!(Handle::open(&key, &other), Err(Status::BADHANDLE));
            }
            assert_eq!(Handle::open(&key, &bytes[..at]), Err(Status::BADHANDLE));
        }
        let other = HandleKey::derive(&Secret::new([2; 32]));
        assert_eq!(Handle::open(&other, &bytes), Err(Status::BADHANDLE));
    }
}
