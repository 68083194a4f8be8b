//! The blocks of a store, and what is asked of them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Error, GroupId, Owner, Redundancy, Result};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Store, Usage, Wish};
use parking_lot::Mutex;

pub struct Watched {
    store: Store,
    /// The wish for each block that was written.
    pub wishes: Mutex<Vec<u8>>,
    /// How many reads there were, and how often it was told of one that comes.
    pub reads: AtomicU32,
    pub told: AtomicU32,
    /// So many reads are refused, as by a server that forgot that it told a mount of a block.
    pub refusals: AtomicU32,
    /// So many writes fail.
    pub failures: AtomicU32,
    /// No block can be written.
    pub takes_none: AtomicBool,
    /// Bytes that are being written, and how many that were at most.
    writing: AtomicU64,
    pub writing_most: AtomicU64,
}

impl Watched {
    pub fn new(store: Store) -> Arc<Watched> {
        Arc::new(Watched {
            store,
            wishes: Mutex::default(),
            reads: AtomicU32::new(0),
            told: AtomicU32::new(0),
            refusals: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            takes_none: AtomicBool::new(false),
            writing: AtomicU64::new(0),
            writing_most: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl Blocks for Watched {
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        self.wishes.lock().push(wish.redundancy.map_or(0, Redundancy::number));
        let failures = |left: u32| left.checked_sub(1);
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, failures).is_ok() {
            return Err(Error::Unavailable("a write that fails".into()));
        }
        if self.takes_none.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("no group takes blocks".into()));
        }
        let len = data.len() as u64;
        let writing = self.writing.fetch_add(len, Ordering::SeqCst) + len;
        self.writing_most.fetch_max(writing, Ordering::SeqCst);
        let written = Blocks::write(&self.store, wish, block, owner, data).await;
        self.writing.fetch_sub(len, Ordering::SeqCst);
        written
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let refusals = |left: u32| left.checked_sub(1);
        match self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refusals) {
            Ok(_) => Err(Error::Denied(format!("block {block}: open the file again"))),
            Err(_) => self.store.get(group, block, range).await,
        }
    }

    fn will_read(&self, group: GroupId, block: BlockId, range: Range<u32>) -> bool {
        self.told.fetch_add(1, Ordering::SeqCst);
        self.store.will_read(group, block, range)
    }

    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.refusals.load(Ordering::SeqCst) {
            0 => self.store.get_now(group, block, range),
            _ => Ok(None),
        }
    }

    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        Blocks::delete(&self.store, group, blocks).await
    }

    fn groups(&self) -> Vec<GroupId> {
        Blocks::groups(&self.store)
    }

    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>> {
        self.store.inventory(group, after, limit).await
    }

    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool> {
        self.store.is_compressed(group, block).await
    }

    async fn usage(&self) -> Result<Usage> {
        self.store.usage().await
    }

    async fn room(&self) -> Result<Usage> {
        self.store.room().await
    }

    fn available(&self) -> Result<()> {
        self.store.available()
    }

    fn place(&self, group: GroupId, block: BlockId) -> Option<BlockPlace> {
        self.store.place(group, block)
    }

    fn manner(&self) -> Manner {
        self.store.manner()
    }

    fn counted(&self) -> BlockCounters {
        self.store.counted()
    }
}
