//! Work on blocks of a group that is in progress, and must be known to other tasks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use cairn_base::{BlockId, ClusterMap, GroupId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::MapSource;

/// PUTs that have begun and not ended, each with the epoch under which it began.
#[derive(Default)]
pub(super) struct Running {
    puts: Mutex<Puts>,
    ended: Notify,
}

#[derive(Default)]
struct Puts {
    next: u64,
    epochs: BTreeMap<(GroupId, u64), u64>,
}

/// A PUT in progress; it ends when this is dropped.
pub(super) struct Ticket<'a> {
    running: &'a Running,
    key: (GroupId, u64),
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.running.puts.lock().epochs.remove(&self.key);
        self.running.ended.notify_waiters();
    }
}

impl Running {
    /// Begins a PUT under the current map, which decides whether it is allowed.
    pub(super) fn begin(
        &self,
        group: GroupId,
        source: &dyn MapSource,
    ) -> (Arc<ClusterMap>, Ticket<'_>) {
        let mut puts = self.puts.lock();
        // The lock has the effect that a task which adopted a newer map sees this PUT, or this PUT
        // sees that map.
        let map = source.current();
        let key = (group, puts.next);
        puts.next += 1;
        puts.epochs.insert(key, map.epoch);
        (map, Ticket { running: self, key })
    }

    /// Returns the number of PUTs that have begun and not ended.
    pub(super) fn puts(&self) -> usize {
        self.puts.lock().epochs.len()
    }

    /// Waits until no PUT to the group is left that began under a map older than `epoch`, which
    /// must have been adopted.
    pub(super) async fn settled(&self, group: GroupId, epoch: u64) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let is_older = |(_, began): (_, &u64)| *began < epoch;
            let of_group = (group, 0)..=(group, u64::MAX);
            if !self.puts.lock().epochs.range(of_group).any(is_older) {
                return;
            }
            ended.await;
        }
    }
}

/// Blocks that are being copied to this member. A block that is deleted meanwhile must not come
/// back.
#[derive(Default)]
pub(super) struct Copying(Mutex<BTreeMap<(GroupId, BlockId), bool>>);

/// A copy in progress; it ends when this is dropped.
pub(super) struct Copy<'a> {
    copying: &'a Copying,
    key: (GroupId, BlockId),
}

impl Copying {
    /// Begins a copy. Returns `None` if the block is being copied already.
    pub(super) fn begin(&self, group: GroupId, block: BlockId) -> Option<Copy<'_>> {
        let key = (group, block);
        match self.0.lock().entry(key) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(false);
                Some(Copy { copying: self, key })
            }
        }
    }

    /// Marks blocks as deleted; to be called before they are deleted. If a copy of one of them is
    /// stored here afterwards, the task that copies deletes it.
    pub(super) fn delete(&self, group: GroupId, blocks: &[BlockId]) {
        let mut copying = self.0.lock();
        if copying.is_empty() {
            return;
        }
        for block in blocks {
            if let Some(deleted) = copying.get_mut(&(group, *block)) {
                *deleted = true;
            }
        }
    }
}

impl Copy<'_> {
    pub(super) fn is_deleted(&self) -> bool {
        self.copying.0.lock().get(&self.key).copied().unwrap_or(false)
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        self.copying.0.lock().remove(&self.key);
    }
}
