//! Repair of a member from the others: after it was away, and block by block if its disk does not
//! return what was written.
//!
//! It is not: the decision that a member is in sync (the master decides, from a [`Report`]), the
//! search for damaged blocks (readers do it, and `Store::scrub`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{BlockId, ClusterMap, Error, GroupId, NodeId, Owner, Result};
use cairn_blocks::{BlockInfo, Blocks, How};
use futures_util::StreamExt;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ask::Key;
use super::form::Refusal;
use super::replicated_blocks::{end_of, find, merge, said};
use super::{Chunkserver, Sick};
use crate::limits::{COPIES, COPIES_FAILED, COPIES_NAMED, INVENTORY_BLOCKS};

/// Progress of catching up, for others to see.
#[derive(Debug, Default)]
pub struct Progress {
    /// Blocks of the group, as far as other members have listed them.
    pub listed_blocks: AtomicU64,
    pub listed_bytes: AtomicU64,
    /// Blocks that this member lacks, as far as listed.
    pub lacking_blocks: AtomicU64,
    pub lacking_bytes: AtomicU64,
    pub copied_blocks: AtomicU64,
    pub copied_bytes: AtomicU64,
}

/// Options of catching up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Blocks that are listed at once.
    pub page_blocks: usize,
    /// Limit of the rate; 0 for none.
    pub bytes_per_second: u64,
    pub progress: Arc<Progress>,
    /// Stops when it becomes true, or its sender is gone.
    pub cancel: watch::Receiver<bool>,
}

impl Options {
    pub fn new(cancel: watch::Receiver<bool>) -> Options {
        let progress = Arc::default();
        Options { page_blocks: INVENTORY_BLOCKS, bytes_per_second: 0, progress, cancel }
    }
}

/// The result of catching up.
#[derive(Debug, Default)]
pub struct Report {
    /// Epoch of the map by which it caught up: the member is in sync as long as the group takes no
    /// writes.
    pub epoch: u64,
    pub copied_blocks: u64,
    pub copied_bytes: u64,
    /// The first of the blocks that were copied.
    pub copied: Vec<(BlockId, Owner)>,
    /// Blocks that only this member has. They were never acknowledged, or were deleted.
    pub extra: Vec<(BlockId, Owner)>,
    /// Blocks that no other member could give.
    pub failed: Vec<(BlockId, Error)>,
    pub canceled: bool,
}

impl Report {
    /// Returns true if this member has every block that the others have.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && !self.canceled
    }
}

/// Copies what this member lacks of a group. `map` says which members are in sync; the others
/// refuse writes by older maps before they list what they have.
///
/// # Errors
/// `Unavailable` if no member in sync could be listed to its end; `Full`, `Io` of the disk here.
pub async fn catch_up(
    server: &Chunkserver,
    group: GroupId,
    map: &ClusterMap,
    options: &Options,
) -> Result<Report> {
    let found = map.groups.get(&group);
    let found = found.ok_or_else(|| Error::NotFound(format!("group {group} in the map")))?;
    let sources: Vec<NodeId> =
        found.in_sync().filter(|node| *node != server.own && map.is_up(*node)).collect();
    let bytes_per_second = options.bytes_per_second;
    let pace = Pace { bytes_per_second, next: Mutex::new(Instant::now()) };
    let report = Report { epoch: map.epoch, ..Report::default() };
    let report = Mutex::new(report);
    let mut work = CatchUp { server, group, map, options, sources, pace, report };
    let mut cancel = options.cancel.clone();
    let canceled = tokio::select! {
        biased;
        _ = cancel.wait_for(|cancel| *cancel) => true,
        done = work.run() => {
            done?;
            false
        }
    };
    let mut report = work.report.into_inner();
    report.canceled = canceled;
    Ok(report)
}

struct CatchUp<'a> {
    server: &'a Chunkserver,
    group: GroupId,
    map: &'a ClusterMap,
    options: &'a Options,
    /// Members that have answered everything so far.
    sources: Vec<NodeId>,
    pace: Pace,
    report: Mutex<Report>,
}

impl CatchUp<'_> {
    async fn run(&mut self) -> Result<()> {
        let limit = self.options.page_blocks.clamp(1, INVENTORY_BLOCKS);
        let mut after = None;
        loop {
            let pages = self.list(after, limit).await?;
            let end = end_of(&pages, limit);
            let union = merge(&pages, usize::MAX);
            let within = |info: &BlockInfo| end.is_none_or(|end| info.block <= end);
            let union: Vec<BlockInfo> = union.into_iter().filter(within).collect();
            let own = self.own(after, end);
            let lacking = self.compare(&union, &own);
            let holders = |block: BlockId| self.holders(&pages, block);
            let mut copies = futures_util::stream::iter(lacking)
                .map(|info| self.copy(info, find(&own, info.block), holders(info.block)))
                .buffer_unordered(COPIES);
            while let Some(copied) = copies.next().await {
                copied?;
            }
            drop(copies);
            match end {
                Some(end) => after = Some(end),
                None => return Ok(()),
            }
        }
    }

    /// Lists a page of each source. A member that fails is not asked again: the remaining members
    /// still list all that was acknowledged.
    async fn list(&mut self, after: Option<BlockId>, limit: usize) -> Result<Vec<Vec<BlockInfo>>> {
        let CatchUp { server, group, map, .. } = *self;
        let each = self.sources.iter().map(|node| async move {
            (*node, server.pool.inventory(map, *node, group, after, limit).await)
        });
        let (mut pages, mut left) = (Vec::new(), Vec::new());
        let mut last = "no other member that is in sync is up".to_owned();
        for (node, page) in join_all(each).await {
            match page {
                Ok(page) => {
                    pages.push(page);
                    left.push(node);
                }
                Err(refused) => last = refused.to_string(),
            }
        }
        self.sources = left;
        if self.sources.is_empty() {
            return Err(Error::Unavailable(format!("catching up in group {group}: {last}")));
        }
        Ok(pages)
    }

    /// Lists the blocks here, to the end of a page.
    fn own(&self, mut after: Option<BlockId>, end: Option<BlockId>) -> Vec<BlockInfo> {
        let within = |block: BlockId| end.is_none_or(|end| block <= end);
        let mut own = Vec::new();
        loop {
            let page = self.server.store.inventory_now(self.group, after, INVENTORY_BLOCKS);
            let Some(last) = page.last().map(|info| info.block) else { return own };
            own.extend(page.into_iter().filter(|info| within(info.block)));
            if end.is_some_and(|end| last >= end) {
                return own;
            }
            after = Some(last);
        }
    }

    /// Notes the blocks that are only here, and returns those that are not here.
    fn compare(&self, theirs: &[BlockInfo], own: &[BlockInfo]) -> Vec<BlockInfo> {
        let lacking = theirs.iter().filter(|info| find(own, info.block) != Some(*info));
        let lacking: Vec<BlockInfo> = lacking.copied().collect();
        let extra = own.iter().filter(|info| find(theirs, info.block).is_none());
        self.report.lock().extra.extend(extra.map(|info| (info.block, info.owner)));
        let progress = &self.options.progress;
        let count = |blocks: &AtomicU64, bytes: &AtomicU64, infos: &[BlockInfo]| {
            let sum: u64 = infos.iter().map(|info| u64::from(info.length)).sum();
            blocks.fetch_add(infos.len() as u64, Ordering::Relaxed);
            bytes.fetch_add(sum, Ordering::Relaxed);
        };
        count(&progress.listed_blocks, &progress.listed_bytes, theirs);
        count(&progress.lacking_blocks, &progress.lacking_bytes, &lacking);
        lacking
    }

    /// Returns the members whose page has the block, each time beginning with another one.
    fn holders(&self, pages: &[Vec<BlockInfo>], block: BlockId) -> Vec<NodeId> {
        let all = self.sources.iter().zip(pages).filter(|(_, page)| find(page, block).is_some());
        let mut holders: Vec<NodeId> = all.map(|(node, _)| *node).collect();
        let turn = (block.counter as usize).checked_rem(holders.len()).unwrap_or(0);
        holders.rotate_left(turn);
        holders
    }

    async fn copy(
        &self,
        info: BlockInfo,
        here: Option<&BlockInfo>,
        holders: Vec<NodeId>,
    ) -> Result<()> {
        let key = Key { group: self.group, block: info.block };
        self.pace.wait(info.length).await;
        match replace(self.server, self.map, key, info, here, &holders).await {
            Ok(true) => {
                let length = u64::from(info.length);
                self.options.progress.copied_blocks.fetch_add(1, Ordering::Relaxed);
                self.options.progress.copied_bytes.fetch_add(length, Ordering::Relaxed);
                let mut report = self.report.lock();
                report.copied_blocks += 1;
                report.copied_bytes += length;
                if report.copied.len() < COPIES_NAMED {
                    report.copied.push((info.block, info.owner));
                }
                Ok(())
            }
            // It was deleted since it was listed.
            Ok(false) | Err(Error::NotFound(_)) => Ok(()),
            Err(error @ (Error::Full(_) | Error::Io(_))) => Err(error),
            Err(error) => {
                let mut report = self.report.lock();
                report.failed.push((info.block, error));
                if report.failed.len() > COPIES_FAILED {
                    let text = format!("group {}: too many blocks not to be had", self.group);
                    return Err(Error::Unavailable(text));
                }
                Ok(())
            }
        }
    }
}

/// Limits the rate to `bytes_per_second`.
struct Pace {
    bytes_per_second: u64,
    next: Mutex<Instant>,
}

impl Pace {
    async fn wait(&self, bytes: u32) {
        if self.bytes_per_second == 0 {
            return;
        }
        let takes = Duration::from_secs_f64(f64::from(bytes) / self.bytes_per_second as f64);
        let turn = {
            let mut next = self.next.lock();
            let turn = (*next).max(Instant::now());
            *next = turn + takes;
            turn
        };
        sleep_until(turn).await;
    }
}

/// Replaces a block that fails verification here by another member's replica. Returns false if
/// there was nothing to do.
///
/// # Errors
/// The answers of the others, if none of them has it: then the block here is left as it is.
pub async fn heal(server: &Chunkserver, group: GroupId, block: BlockId) -> Result<bool> {
    let sick = Sick { group, block };
    match server.store.blocking(move |store| store.verify(group, block)).await {
        Err(Error::Corrupt { .. } | Error::Io(_)) => server.damage.find(sick),
        Ok(_) | Err(Error::NotFound(_)) => {
            server.damage.forget(sick);
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    let info = server.store.stat(group, block)?;
    let map = server.map.current();
    let members = map.groups.get(&group).map(|group| &group.members[..]).unwrap_or_default();
    let mut others: Vec<_> = members.iter().filter(|member| member.node != server.own).collect();
    others.sort_by_key(|member| !(member.in_sync && map.is_up(member.node)));
    let others: Vec<NodeId> = others.into_iter().map(|member| member.node).collect();
    let healed = replace(server, &map, Key { group, block }, info, Some(&info), &others).await?;
    if healed {
        server.damage.heal(sick)
    } else {
        server.damage.forget(sick)
    }
    Ok(healed)
}

/// Fetches a block and replaces the replica that was found here. A block that its writer has sent
/// since is not touched: it may be acknowledged. Returns false if it was deleted meanwhile.
///
/// # Errors
/// `NotFound` if none of the others has it, `Conflict` if it is being copied already.
async fn replace(
    server: &Chunkserver,
    map: &ClusterMap,
    key: Key,
    info: BlockInfo,
    here: Option<&BlockInfo>,
    holders: &[NodeId],
) -> Result<bool> {
    let Key { group, block } = key;
    let twice = || Error::Conflict(format!("block {block} is being copied already"));
    let copying = server.copying.begin(group, block).ok_or_else(twice)?;
    let (data, compress) = match fetch(server, map, key, info, holders).await {
        Ok(fetched) => fetched,
        Err(Error::NotFound(_)) if copying.is_deleted() => return Ok(false),
        Err(error) => return Err(error),
    };
    if here.is_some() && server.store.stat(group, block).ok().as_ref() == here {
        // The old block goes when this is durable: if it cannot be written, it is tried again.
        let how = How { over: true, compress };
        server.store.put_as(group, block, info.owner, data, how).await?;
    } else {
        server.keep(key, info.owner, data, compress).await?;
    }
    if copying.is_deleted() {
        server.store.delete(group, &[block]).await?;
        return Ok(false);
    }
    Ok(true)
}

/// Returns the bytes of a block, and whether it is compressed at its source. `NotFound` only if all
/// members say so.
async fn fetch(
    server: &Chunkserver,
    map: &ClusterMap,
    key: Key,
    info: BlockInfo,
    holders: &[NodeId],
) -> Result<(Bytes, bool)> {
    let nobody = || Error::Unavailable(format!("no other member to get block {} of", key.block));
    let mut worst: Option<Refusal> = None;
    for node in holders {
        let refused = match server.pool.get_as(map, *node, key, None).await {
            Ok(fetched) if fetched.0.len() == info.length as usize => return Ok(fetched),
            Ok((data, _)) => {
                let what = format!("block {} on node {node}", key.block);
                Error::corrupt(what, data.len(), info.length).into()
            }
            Err(refused) => refused,
        };
        if !matches!(refused.error, Error::NotFound(_)) || worst.is_none() {
            worst = Some(refused);
        }
    }
    Err(worst.map_or_else(nobody, said))
}
