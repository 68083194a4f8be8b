//! What a mount and a server say to each other, besides sessions (`cairn_meta::session`).

use bytes::{BufMut, Bytes, BytesMut};
use cairn_base::{BlockId, Error, GroupId, Owner, Result, SessionId};
use cairn_meta::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::wire::Payload;

/// Answered with nothing: there is somebody.
pub const SERVES: u16 = 7;
/// [`Put`] and the bytes, answered with the group.
pub const PUT: u16 = 32;
/// [`Get`], answered with the bytes.
pub const GET: u16 = 33;
/// Answered with [`Space`].
pub const SPACE: u16 = 34;
/// Answered with an `Option` of the directory of a store: who is on the same machine may read the
/// files there, if the operating system lets it.
pub const NEAR: u16 = 35;
/// [`Locate`], answered with an `Option` of `cairn_blocks::BlockPlace` there.
pub const LOCATE: u16 = 36;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Put {
    /// Of which the block is.
    pub session: SessionId,
    pub group: Option<GroupId>,
    pub replicas: u8,
    pub block: BlockId,
    pub owner: Owner,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Get {
    pub session: SessionId,
    pub group: GroupId,
    pub block: BlockId,
    pub start: u32,
    pub end: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Locate {
    pub session: SessionId,
    pub group: GroupId,
    pub block: BlockId,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Space {
    pub live_bytes: u64,
    pub free_bytes: u64,
}

/// A message, and bytes behind it as they are.
pub fn join<M: Serialize>(message: &M, bytes: Bytes) -> Result<Payload> {
    let message = wire::encode(message)?;
    let mut head = BytesMut::with_capacity(4 + message.len());
    head.put_u32_le(message.len() as u32);
    head.put_slice(&message);
    Ok(Payload { head: head.freeze(), rest: bytes })
}

/// What [`join`] joined.
pub fn split<M: DeserializeOwned>(joined: &Bytes) -> Result<(M, Bytes)> {
    let short = || Error::Invalid("a message that ends too soon".into());
    let (length, _) = joined.split_first_chunk::<4>().ok_or_else(short)?;
    let end = (u32::from_le_bytes(*length) as usize).checked_add(4).ok_or_else(short)?;
    let head = joined.get(4..end).ok_or_else(short)?;
    Ok((wire::decode(head)?, joined.slice(end..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_joined_is_split() {
        let bytes = Bytes::from_static(b"bytes");
        let Payload { head, rest } = join(&SessionId(7), bytes.clone()).unwrap();
        let joined = Bytes::from([head, rest].concat());
        assert_eq!(split::<SessionId>(&joined).unwrap(), (SessionId(7), bytes));
        for end in 0..joined.len() - 5 {
            assert!(split::<SessionId>(&joined.slice(..end)).is_err());
        }
        assert!(split::<SessionId>(&Bytes::from_static(&[255; 40])).is_err());
    }
}
