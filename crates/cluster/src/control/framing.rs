//! Messages with opaque bytes behind them.

use bytes::{BufMut, Bytes, BytesMut};
use cairn_base::{Error, Result};
use cairn_meta::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::Payload;

/// Joins a message and opaque bytes.
pub fn join<M: Serialize>(message: &M, bytes: Bytes) -> Result<Payload> {
    let message = wire::encode(message)?;
    let mut head = BytesMut::with_capacity(4 + message.len());
    head.put_u32_le(message.len() as u32);
    head.put_slice(&message);
    Ok(Payload { head: head.freeze(), rest: bytes })
}

/// Takes apart a result of [`join`].
pub fn split<M: DeserializeOwned>(joined: &Bytes) -> Result<(M, Bytes)> {
    let short = || Error::Invalid("the message is cut short".into());
    let (length, _) = joined.split_first_chunk::<4>().ok_or_else(short)?;
    let end = (u32::from_le_bytes(*length) as usize).checked_add(4).ok_or_else(short)?;
    let head = joined.get(4..end).ok_or_else(short)?;
    Ok((wire::decode(head)?, joined.slice(end..)))
}

#[cfg(test)]
mod tests {
    use cairn_base::SessionId;

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
