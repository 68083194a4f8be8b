//! The trait of a block store, with the values that it takes and returns.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, GroupId, NodeId, Owner, Redundancy, Result};
use serde::{Deserialize, Serialize};

/// Blocks as `fs` sees them, on this machine or on others.
#[async_trait]
pub trait Blocks: Send + Sync + 'static {
    /// Writes a block to every member of a group that takes writes, and returns the group; the
    /// block is then as durable as the store's durability says. `data` has 1 to
    /// `limits::BLOCK_BYTES` bytes. A block is written once: `Exists` if it is there, `Conflict` if
    /// another write of it is in progress. After another error the block may be in any group.
    async fn write(&self, wish: Wish, block: BlockId, owner: Owner, data: Bytes)
    -> Result<GroupId>;

    /// Returns bytes `range` of a block, verified. `Corrupt` if they fail verification, `NotFound`
    /// if there is no such block, `RangeNotSatisfiable` if the block is shorter.
    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes>;

    /// Does the same as `get` if that needs no wait for a device; otherwise returns `None`. Never
    /// blocks.
    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>>;

    /// Announces that bytes of a block will be read soon. Returns true if they are then brought
    /// into memory outside the caller, and false if only a `get` brings them nearer. Never blocks.
    fn will_read(&self, _: GroupId, _: BlockId, _: Range<u32>) -> bool {
        false
    }

    /// Deletes blocks, durably. Unknown blocks are ignored.
    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()>;

    /// Returns the groups in which blocks may be.
    fn groups(&self) -> Vec<GroupId>;

    /// Returns up to `limit` blocks after `after`, in the order of their ids: all that any member
    /// has.
    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>>;

    /// Returns whether a block is stored in its compressed form.
    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool>;

    async fn usage(&self) -> Result<Usage>;

    /// Returns the same as `usage`, except that every byte counts once, however many copies there
    /// are: the room that callers may count on.
    async fn room(&self) -> Result<Usage>;

    /// Checks whether blocks can be read and written, as far as that is known without asking.
    ///
    /// # Errors
    /// `Unavailable` with the reason.
    fn available(&self) -> Result<()>;

    /// Returns the place of a block on a disk of this machine, for callers that may read the files
    /// there.
    fn place(&self, group: GroupId, block: BlockId) -> Option<BlockPlace>;

    /// Returns how the store is best used.
    fn manner(&self) -> Manner;

    /// Returns the counters that are not in the usage.
    fn counted(&self) -> BlockCounters;
}

/// Hints for the best use of a block store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// Time for which a failed write is tried again, as another block.
    pub patience: Duration,
    /// True if the bytes that `get` returns are in this machine's memory anyway, or soon will be,
    /// so that caching a copy is useless.
    pub is_near: bool,
}

/// The counters of a block store since this process started.
#[derive(Clone, Debug, Default)]
pub struct BlockCounters {
    /// Requests to other nodes, if blocks are on others.
    pub peers: Peers,
    /// Counters of a cache on disk in front of these blocks, if there is one.
    pub kept: Option<KeptStats>,
}

/// The preferred place and form of a new block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// Redundancy; `None` for the default.
    pub redundancy: Option<Redundancy>,
    /// Group to use if it takes writes and has room: the group of the file's previous block.
    pub group: Option<GroupId>,
    /// Compresses the block if that saves space. A node that cannot compress stores the block
    /// plain.
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

/// Counters of requests for blocks to other nodes since this process started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peers {
    /// Most requests that one node has from here at the same time, each over a connection of its
    /// own.
    pub connections: u64,
    pub nodes: Vec<NodeCounts>,
}

/// The counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCounts {
    pub node: NodeId,
    /// Reads: from the request to the bytes, or to the moment when they are no longer wanted.
    pub read: TimedCount,
    /// Writes: from a block's last byte to the node's report that the block is durable, or to
    /// giving up.
    pub write: TimedCount,
    /// Waits of requests here for a connection.
    pub wait: TimedCount,
    /// Number of requests that the node failed.
    pub failed: u64,
}

/// A count of events, and their total time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimedCount {
    pub count: u64,
    pub time: Duration,
}

/// The usage of a disk, and its health.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub blocks: u64,
    /// Bytes of segments taken by records of blocks that exist.
    pub live_bytes: u64,
    /// Bytes of segments taken by everything else: tombstones, and bytes that compaction may free.
    pub dead_bytes: u64,
    /// Bytes that are free according to the file system.
    pub free_bytes: u64,
    pub segments: u64,
    /// Number of segments that take no more writes since a write failed, since the store was
    /// opened.
    pub poisoned_segments: u64,
    /// Number of segments with parts that could not be read when the store was opened.
    pub damaged_segments: u64,
    /// Number of reads that failed verification since the store was opened.
    pub corrupt_reads: u64,
}

/// The place of a block on a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockPlace {
    pub segment: u32,
    /// Salt of the segment.
    pub salt: u64,
    /// Offset of the record in the segment, bytes.
    pub offset: u64,
    pub owner: Owner,
    /// Length of the block, bytes.
    pub length: u32,
}

/// The counters of [`KeptBlocks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeptStats {
    pub hits: u64,
    pub misses: u64,
    /// Bytes of segments on the disk.
    pub bytes: u64,
}
