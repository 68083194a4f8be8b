//! Blocks as they are asked for: the trait, and the values that it takes and gives.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, GroupId, NodeId, Owner, Redundancy, Result};
use serde::{Deserialize, Serialize};

/// Blocks as `fs` sees them, on this machine or on others.
#[async_trait]
pub trait Blocks: Send + Sync + 'static {
    /// Writes a block to every member of a group that takes writes, and says to which; when it
    /// returns, the block is as durable as the store's durability says. `data` has 1 to
    /// `limits::BLOCK_BYTES` bytes. A block is written once: `Exists` if it is there, `Conflict` if
    /// somebody is writing it right now. After another error the block may be in any group.
    async fn write(&self, wish: Wish, block: BlockId, owner: Owner, data: Bytes)
    -> Result<GroupId>;

    /// Bytes `range` of a block, verified. `Corrupt` if they do not check out, `NotFound` if there
    /// is no such block, `RangeNotSatisfiable` if it is not that long.
    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes>;

    /// As `get` where that can be answered without waiting for a device, `None` where not. Never
    /// blocks.
    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>>;

    /// Says that bytes of a block are soon read. `true` if they are then brought into memory that
    /// is not the caller's; `false` if only a `get` brings them nearer. Never blocks.
    fn will_read(&self, _: GroupId, _: BlockId, _: Range<u32>) -> bool {
        false
    }

    /// Forgets blocks, durably. Unknown ones are ignored.
    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()>;

    /// Groups in which blocks may be.
    fn groups(&self) -> Vec<GroupId>;

    /// Up to `limit` blocks after `after`, in the order of their ids: those that any member has.
    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>>;

    /// Whether a block is stored in its compressed form.
    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool>;

    async fn usage(&self) -> Result<Usage>;

    /// As `usage`, with every byte counted once, however many copies there are: what whoever stores
    /// something may reckon with.
    async fn room(&self) -> Result<Usage>;

    /// Whether blocks can be read and written, as far as that is known without asking.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    fn available(&self) -> Result<()>;

    /// Where on a disk of this machine a block lies, for who may read the files there.
    fn place(&self, group: GroupId, block: BlockId) -> Option<BlockPlace>;

    /// How they are best used.
    fn manner(&self) -> Manner;

    /// Counters, in addition to the usage.
    fn counted(&self) -> Counted;
}

/// How a store of blocks is best used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// For how long a write is tried again, as another block, if it could not be done just now.
    pub patience: Duration,
    /// The bytes that `get` returns are in this machine's memory anyway, or soon: a copy is of no
    /// use.
    pub is_near: bool,
}

/// The counters of a block store since this process began.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The requests to other nodes, where blocks are on others.
    pub peers: Peers,
    /// How a disk in front of them fares, if there is one.
    pub kept: Option<KeptStats>,
}

/// Where a block should go, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// `None` for what is usual.
    pub redundancy: Option<Redundancy>,
    /// The group to take if it takes writes and has room: that of the block before in the file.
    pub group: Option<GroupId>,
    /// Compressed, where that saves space. A node that cannot do it stores the block plain.
    pub compress: bool,
}

/// A block as the inventory lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockInfo {
    pub block: BlockId,
    pub owner: Owner,
    /// Logical length, bytes.
    pub length: u32,
}

/// Nodes that were asked for blocks since this process began, and how long they took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peers {
    /// Requests that one of them has from here at the same time, at most, each over a connection
    /// of its own.
    pub connections: u64,
    pub nodes: Vec<NodeCounts>,
}

/// The counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCounts {
    pub node: NodeId,
    /// From asking for bytes of a block to having them, or to not wanting them any more.
    pub read: Spent,
    /// From a block's last byte to the block being durable there, as the node says; if it did not
    /// answer in time, until it was given up.
    pub write: Spent,
    /// Requests that waited here for a connection.
    pub wait: Spent,
    /// Requests that it failed.
    pub failed: u64,
}

/// How often, and for how long altogether.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    pub count: u64,
    pub time: Duration,
}

/// The usage of a disk, and its health.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub blocks: u64,
    /// Bytes of segments taken by records of blocks that exist.
    pub live_bytes: u64,
    /// Bytes of segments taken by all else: what compaction may win, and tombstones.
    pub dead_bytes: u64,
    /// Bytes the file system says are free.
    pub free_bytes: u64,
    pub segments: u64,
    /// Segments that take no more writes because one failed, since the store was opened.
    pub poisoned_segments: u64,
    /// Segments with parts that could not be read when the store was opened.
    pub damaged_segments: u64,
    /// Reads that did not check out since the store was opened.
    pub corrupt_reads: u64,
}

/// Where a block lies on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockPlace {
    pub segment: u32,
    /// Of the segment.
    pub salt: u64,
    /// Of the record in the segment, bytes.
    pub offset: u64,
    pub owner: Owner,
    /// Of the block, bytes.
    pub length: u32,
}

/// How [`KeptBlocks`] fare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptStats {
    pub hits: u64,
    pub misses: u64,
    /// Of segments on the disk.
    pub bytes: u64,
}
