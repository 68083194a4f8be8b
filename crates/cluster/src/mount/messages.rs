//! Messages between a mount and a server, without those of sessions (`cairn_meta::session`).

use cairn_base::{BlockId, GroupId, Owner, SessionId};
use serde::{Deserialize, Serialize};

/// Ping; answered with an empty message.
pub const SERVES: u16 = 7;
/// [`Put`] and the bytes, answered with the group.
pub const PUT: u16 = 32;
/// [`Get`], answered with the bytes.
pub const GET: u16 = 33;
/// Answered with [`Space`].
pub const SPACE: u16 = 34;
/// Answered with an `Option` of the directory of a store: a mount on the same machine may read the
/// files there, if the operating system allows it.
pub const NEAR: u16 = 35;
/// [`Locate`], answered with an `Option` of `cairn_blocks::BlockPlace` there.
pub const LOCATE: u16 = 36;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Put {
    /// Session of the block.
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
