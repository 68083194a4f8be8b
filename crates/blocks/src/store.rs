//! The store of one disk: its public interface.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{BlockId, Disk, Error, GroupId, Owner, Result, Stage, stage};

use crate::append::How;
use crate::blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, Usage, Wish};
use crate::config::{Config, Durability};
use crate::format::Key;
use crate::index::Location;
use crate::log::Log;
use crate::near::place_of;
use crate::recover::OpenReport;
use crate::shared::StoreShared;

/// Longest read, bytes, that is tried on the caller's thread first. Copying and verifying this much
/// takes as long as handing the read to another thread.
const INLINE_READ_BYTES: usize = 128 << 10;

/// The blocks of one disk. Clones are the same store. Must be used within a tokio runtime, except
/// for calls that block.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<StoreShared>,
    report: OpenReport,
}

impl Store {
    /// Opens the store in a directory of its own; an empty directory becomes a new store. Blocks
    /// the thread for as long as it takes to read segments without hints.
    pub fn open(disk: Arc<dyn Disk>, config: Config) -> Result<Store> {
        let (shared, report) = crate::recover::open(disk, config)?;
        Ok(Store { shared: Arc::new(shared), report })
    }

    /// Returns the number of the disk that holds the blocks.
    pub fn disk(&self) -> u128 {
        u128::from_be_bytes(self.shared.config.disk)
    }

    /// Returns the findings of opening the store.
    pub fn open_report(&self) -> OpenReport {
        self.report
    }

    /// Makes everything durable that was acknowledged, and writes hints so that the next start is
    /// fast. The store takes no writes from then on. Blocks the thread. Without a close, nothing
    /// durable is lost.
    pub fn close(&self) -> Result<()> {
        let shared = &self.shared;
        let mut writer = shared.writer.lock();
        while writer.rolling {
            shared.changed.wait(&mut writer);
        }
        writer.closed = true;
        if let Some(active) = writer.active.take()
            && active.close()
        {
            shared.tell(&active);
        }
        while writer.open_logs > 0 {
            shared.changed.wait(&mut writer);
        }
        let failed = shared.state.read().segments.values().any(|segment| segment.poisoned);
        if failed && shared.config.durability == Durability::Async {
            return Err(Error::Unavailable(
                "a segment failed: some blocks written to it are not durable".to_owned(),
            ));
        }
        Ok(())
    }

    /// Makes everything durable that was acknowledged, if the durability is `Async`. Blocks the
    /// thread.
    pub fn sync(&self) -> Result<()> {
        let state = self.shared.state.read();
        let logs: Vec<Arc<Log>> =
            state.segments.values().filter_map(|segment| segment.log.clone()).collect();
        drop(state);
        for log in logs {
            if let Err(error) = log.file.sync_data() {
                self.shared.poison(&log, &error);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Writes a block of a group, under the rules of [`Blocks::write`].
    pub async fn put(
        &self,
        group: GroupId,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<()> {
        self.put_as(group, block, owner, data, How::default()).await
    }

    /// Writes a block in the place of its damaged record ([`How::over`]); otherwise like
    /// [`Store::put`].
    pub async fn replace(
        &self,
        group: GroupId,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<()> {
        let how = How { over: true, ..How::default() };
        self.put_as(group, block, owner, data, how).await
    }

    /// Writes a block with options; otherwise like [`Store::put`].
    pub async fn put_as(
        &self,
        group: GroupId,
        block: BlockId,
        owner: Owner,
        data: Bytes,
        how: How,
    ) -> Result<()> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (written, is_written) = tokio::sync::oneshot::channel();
        let shared = Arc::clone(&self.shared);
        self.shared.run(move || {
            // If the caller gave up, the receiver is gone; the block is written all the same.
            let done = Box::new(move |result| drop(sender.send(result)));
            shared.put(Key { group, block }, how, owner, &data, done);
            let _ = written.send(());
        });
        // An error means that the write ended early, which the receiver reports, too.
        let _ = stage::time(Stage::Write, is_written).await;
        let ended =
            || Error::Unavailable("the thread that writes a segment ended: see the log".to_owned());
        stage::time(Stage::Sync, receiver).await.unwrap_or_else(|_| Err(ended()))
    }

    /// Runs work that blocks on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let store = self.clone();
        self.shared.run(move || drop(sender.send(work(&store))));
        let ended = || {
            Error::Unavailable(
                "a task of the block store ended without a result: see the log".to_owned(),
            )
        };
        receiver.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns the error because of which the disk takes no writes, until trials succeed.
    pub fn disk_failure(&self) -> Option<String> {
        self.shared.health.failure()
    }

    /// Writes a little to the disk, if a call to it has failed before. Blocks the thread.
    pub fn try_disk(&self) {
        self.shared.health.try_disk(&*self.shared.disk);
    }

    /// Returns the groups that have blocks here.
    pub fn groups(&self) -> Vec<GroupId> {
        self.shared.state.read().index.groups().map(|(group, _)| group).collect()
    }

    /// Returns the groups that have blocks here, with the bytes of segments that these take.
    pub fn bytes_by_group(&self) -> Vec<(GroupId, u64)> {
        self.shared.state.read().index.groups().collect()
    }

    /// Returns the entry of one block in the index.
    pub fn stat(&self, group: GroupId, block: BlockId) -> Result<BlockInfo> {
        let state = self.shared.state.read();
        let found = state.index.get(Key { group, block });
        let (location, owner) = found.ok_or_else(|| Error::NotFound(format!("block {block}")))?;
        Ok(BlockInfo { block, owner, length: location.length })
    }

    /// Returns whether a block is compressed, as [`Blocks::is_compressed`], without any wait.
    pub fn is_compressed_now(&self, group: GroupId, block: BlockId) -> Result<bool> {
        let found = self.shared.find(Key { group, block })?;
        Ok(found.stored != Some(found.length))
    }

    /// Reads and verifies one whole block. Blocks the thread.
    pub fn verify(&self, group: GroupId, block: BlockId) -> Result<BlockInfo> {
        let info = self.stat(group, block)?;
        self.shared.read(Key { group, block }, &(0..info.length))?;
        Ok(info)
    }

    /// Lists blocks, as [`Blocks::inventory`], without any wait.
    pub fn inventory_now(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Vec<BlockInfo> {
        let state = self.shared.state.read();
        let info = |(block, owner, Location { length, .. })| BlockInfo { block, owner, length };
        state.index.after(group, after).take(limit).map(info).collect()
    }

    /// Returns the usage, as [`Blocks::usage`]. Blocks the thread.
    pub fn usage_now(&self) -> Result<Usage> {
        let free_bytes = self.shared.disk.free_bytes()?;
        let state = self.shared.state.read();
        let count = |which: fn(&crate::state::Segment) -> bool| {
            state.segments.values().filter(|segment| which(segment)).count() as u64
        };
        let used_bytes: u64 = state.segments.values().map(|segment| segment.used_bytes()).sum();
        let live_bytes = state.segments.values().map(|segment| segment.live_bytes).sum();
        Ok(Usage {
            blocks: state.index.len(),
            live_bytes,
            dead_bytes: used_bytes.saturating_sub(live_bytes),
            free_bytes,
            segments: state.segments.len() as u64,
            poisoned_segments: count(|segment| segment.poisoned),
            damaged_segments: count(|segment| segment.damaged),
            corrupt_reads: self.shared.corrupt_reads.load(Ordering::Relaxed),
        })
    }
}

#[async_trait]
impl Blocks for Store {
    /// A store on one disk has one group only, so the wishes for a group and redundancy do not
    /// count.
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        let how = How { over: false, compress: wish.compress };
        self.put_as(GroupId::LOCAL, block, owner, data, how).await?;
        Ok(GroupId::LOCAL)
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        let _reading = stage::enter(Stage::Read);
        let key = Key { group, block };
        if range.len() <= INLINE_READ_BYTES
            && let Some(bytes) = self.shared.read_now(key, &range)?
        {
            return Ok(bytes);
        }
        self.blocking(move |store| store.shared.read(key, &range)).await
    }

    fn get_now(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Option<Bytes>> {
        let _reading = stage::enter(Stage::Read);
        self.shared.read_now(Key { group, block }, &range)
    }

    fn will_read(&self, group: GroupId, block: BlockId, range: Range<u32>) -> bool {
        let Ok(found) = self.shared.find(Key { group, block }) else { return false };
        self.shared.run(move || found.will_read(&range));
        true
    }

    async fn delete(&self, group: GroupId, blocks: &[BlockId]) -> Result<()> {
        let blocks = blocks.to_vec();
        self.blocking(move |store| store.shared.delete(group, &blocks)).await
    }

    fn groups(&self) -> Vec<GroupId> {
        vec![GroupId::LOCAL]
    }

    async fn inventory(
        &self,
        group: GroupId,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<BlockInfo>> {
        Ok(self.inventory_now(group, after, limit))
    }

    async fn is_compressed(&self, group: GroupId, block: BlockId) -> Result<bool> {
        self.is_compressed_now(group, block)
    }

    async fn usage(&self) -> Result<Usage> {
        self.blocking(Store::usage_now).await
    }

    async fn room(&self) -> Result<Usage> {
        self.blocking(Store::usage_now).await
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self, group: GroupId, block: BlockId) -> Option<BlockPlace> {
        self.shared.find(Key { group, block }).ok().map(|found| place_of(&found))
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}
