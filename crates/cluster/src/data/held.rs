//! Bytes that take their part of a limit for as long as somebody has them.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

struct Held {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes. `room` is given back when the last of them is dropped.
pub fn held(bytes: Bytes, room: OwnedSemaphorePermit) -> Bytes {
    Bytes::from_owner(Held { bytes, _room: room })
}
