//! Blocks between nodes: HTTP/1.1 in TLS, in which both sides show their certificates.
//!
//! It is not: the place where blocks are (that is `blocks`), who decides which groups there are
//! (that is the master, by the cluster map), a cache.
//!
//! ```text
//!   fs ──► Replicated ──► Pool ══ HTTP ══► Chunkserver ──► Store
//!              │                               │  Pool ══► the next member of the chain
//!          MapSource                       MapSource
//!                                              │
//!                               repair: catch up, heal  ◄── other members
//! ```
//!
//! A block is written to all members of its group. The writer sends it to one, and each sends it on
//! to the next while it receives it. A member answers when it and all members after it have the
//! block. Every request names the epoch of its sender's map; docs/protocol.md has the bytes.

mod answer;
mod ask;
mod body;
mod chunkserver;
mod compare;
#[deny(clippy::indexing_slicing)]
mod form;
mod held_bytes;
mod nodes;
mod place;
mod pool;
mod put;
mod read;
pub mod repair;
mod replicated_blocks;
mod running;
mod scrubs;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use cairn_base::{ClusterMap, Result};

pub use chunkserver::{Chunkserver, Sick};
pub use compare::{MemberSays, NamedBlock};
pub use form::Refusal;
pub use held_bytes::held;
pub use nodes::{Loads, NodeLoad};
pub use pool::Pool;
pub use replicated_blocks::ReplicatedBlocks;
pub use scrubs::{FOUND, FoundBlock, OrderedScrubs};

/// Source of this node's copy of the cluster map.
#[async_trait]
pub trait MapSource: Send + Sync + 'static {
    /// Returns the copy, from memory. Its epoch never goes back.
    fn current(&self) -> Arc<ClusterMap>;

    /// Returns a map of this epoch or newer, which is current from then on. Asks for it if the copy
    /// is older.
    ///
    /// # Errors
    /// `Unavailable` if no such map can be had.
    async fn at_least(&self, epoch: u64) -> Result<Arc<ClusterMap>>;
}
