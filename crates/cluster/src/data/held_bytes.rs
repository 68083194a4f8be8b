//! Bytes that occupy their part of a limit as long as they exist.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

struct HeldBytes {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the same bytes, as an owner of `room` until the last clone of them is dropped.
pub fn held(bytes: Bytes, room: OwnedSemaphorePermit) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _room: room })
}
