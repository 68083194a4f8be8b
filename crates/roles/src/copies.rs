//! The work of a chunkserver that keeps each of its groups whole on this node. It catches up with
//! the other members, heals blocks that fail their checksum, and forgets groups that it no longer
//! belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::map::Group;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{BlockId, ClusterMap, GroupId, Owner, Result, waits};
use cairn_blocks::{Blocks, Store};
use cairn_cluster::control::Agent;
use cairn_cluster::control::messages::{
    CaughtUp, ControlMethod, Copying, DiskFault, EXTRA_BLOCKS, Extra,
};
use cairn_cluster::data::repair::{self, Options, Progress};
use cairn_cluster::data::{Chunkserver, MapSource, Sick};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Groups that are copied at the same time.
const GROUPS: usize = 2;
/// Period between two looks at all groups, if the map does not change.
const PERIOD: Duration = Duration::from_secs(2);
/// Period at which a failed disk is tried again, and reported to the masters.
const TRIAL_PERIOD: Duration = Duration::from_secs(1);
/// Number of corrupt blocks kept to be tried again because no other member could be asked. Any
/// beyond that are dropped, and found again by the next reader or scrub.
const UNHEALED: usize = 10_000;
/// Number of blocks deleted at once.
const PAGE: usize = 500;

pub struct Copies {
    agent: Arc<Agent>,
    served: Arc<Chunkserver>,
    store: Store,
    running: Mutex<BTreeMap<GroupId, Arc<Progress>>>,
    /// Groups in which this node has not compared itself with the others since it was away.
    unchecked: Mutex<BTreeSet<GroupId>>,
    /// Says of a group that others hold now whether its blocks stay here all the same.
    stays: OnceLock<GroupTest>,
}

/// A test of a group.
pub type GroupTest = Box<dyn Fn(GroupId) -> bool + Send + Sync>;

impl Copies {
    pub fn new(agent: Arc<Agent>, served: Arc<Chunkserver>, store: Store) -> Copies {
        let (running, unchecked, stays) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Copies { agent, served, store, running, unchecked, stays }
    }

    /// Keeps the blocks of groups for which `stays` returns true, also when others hold them.
    /// Later calls have no effect.
    pub fn keep(&self, stays: GroupTest) {
        let _ = self.stays.set(stays);
    }

    /// Returns the progress of each group that is being copied.
    pub fn progress(&self) -> Vec<Copying> {
        let running = self.running.lock();
        let one = |(group, progress): (&GroupId, &Arc<Progress>)| Copying {
            group: *group,
            blocks: progress.copied_blocks.load(Ordering::Relaxed),
            bytes: progress.copied_bytes.load(Ordering::Relaxed),
        };
        running.iter().map(one).collect()
    }

    /// Catches up wherever the map requires it, indefinitely.
    pub async fn keep_up(self: Arc<Self>) {
        let mut epochs = self.agent.epochs();
        let mut work = JoinSet::new();
        loop {
            let map = self.agent.current();
            let own = self.agent.node();
            if map.is_up(own) && self.agent.was_away() {
                self.unchecked.lock().extend(map.groups.keys().copied());
            }
            for (id, group) in &map.groups {
                let behind =
                    group.members.iter().any(|member| member.node == own && !member.in_sync);
                if behind && work.len() < GROUPS && self.begin(*id) {
                    let (copies, map) = (Arc::clone(&self), Arc::clone(&map));
                    let id = *id;
                    work.spawn(async move {
                        if let Err(error) = copies.catch_up(id, &map).await {
                            tracing::warn!(group = %id, %error, "did not catch up");
                            sleep(waits::CATCH_UP_RETRY).await;
                        }
                        // Either way there is, or soon will be, a newer map.
                        let _ = copies.agent.at_least(map.epoch + 1).await;
                        copies.running.lock().remove(&id);
                    });
                }
            }
            if work.is_empty() {
                self.check_one(&map).await;
            }
            self.forget_groups(&map).await;
            tokio::select! {
                biased;
                _ = timeout(PERIOD, epochs.changed()) => {}
                Some(_) = work.join_next() => {}
            }
        }
    }

    /// Marks the group as being copied. Returns false if it already was.
    fn begin(&self, group: GroupId) -> bool {
        let mut running = self.running.lock();
        let is_new = !running.contains_key(&group);
        if is_new {
            running.insert(group, Arc::default());
        }
        is_new
    }

    async fn catch_up(&self, group: GroupId, map: &ClusterMap) -> Result<()> {
        let (cancel, canceled) = watch::channel(false);
        let mut options = Options::new(canceled);
        if let Some(progress) = self.running.lock().get(&group) {
            options.progress = Arc::clone(progress);
        }
        tracing::info!(%group, "catching up");
        if is_planted(Bug::InSyncBeforeCompare) {
            let caught = CaughtUp { group, epoch: map.epoch };
            return self.agent.tell(ControlMethod::CaughtUp, &caught).await;
        }
        let report = tokio::select! {
            biased;
            report = repair::catch_up(&self.served, group, map, &options) => report?,
            () = self.is_over(group) => {
                tracing::info!(%group, "catching up is no longer asked for");
                return Ok(());
            }
        };
        drop(cancel);
        let (blocks, bytes, failed) =
            (report.copied_blocks, report.copied_bytes, report.failed.len());
        tracing::info!(%group, blocks, bytes, failed, extra = report.extra.len(), "copied");
        self.tell_of_extra(group, &doubtful(&report)).await?;
        if !report.is_complete() {
            let text = format!("{failed} blocks could not be copied");
            return Err(cairn_base::Error::Unavailable(text));
        }
        let caught = CaughtUp { group, epoch: report.epoch };
        self.agent.tell(ControlMethod::CaughtUp, &caught).await
    }

    /// Compares one group in which this node is in sync with the other members. It has all that was
    /// acknowledged, but it may have missed deletions while it was away, or have lost a block while
    /// that was healed.
    async fn check_one(&self, map: &ClusterMap) {
        let own = self.agent.node();
        let group = {
            let mut unchecked = self.unchecked.lock();
            unchecked.retain(|id| map.groups.get(id).is_some_and(|group| group.has(own)));
            let checkable = |id: &&GroupId| {
                let in_sync = || map.groups.get(id).into_iter().flat_map(Group::in_sync);
                in_sync().any(|node| node == own)
                    && in_sync().any(|node| node != own && map.is_up(node))
            };
            let Some(group) = unchecked.iter().find(checkable).copied() else { return };
            unchecked.remove(&group);
            group
        };
        let (_cancel, canceled) = watch::channel(false);
        let compared = repair::catch_up(&self.served, group, map, &Options::new(canceled)).await;
        let told = match compared {
            Ok(report) => {
                let (copied, extra) = (report.copied_blocks, report.extra.len());
                tracing::debug!(%group, copied, extra, "compared with the other members");
                self.tell_of_extra(group, &doubtful(&report)).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            tracing::debug!(%group, %error, "not compared with the other members");
            self.unchecked.lock().insert(group);
        }
    }

    /// Waits until this node need not catch up in a group.
    async fn is_over(&self, group: GroupId) {
        let own = self.agent.node();
        let mut epochs = self.agent.epochs();
        loop {
            let map = self.agent.current();
            let members = map.groups.get(&group).map(|group| &group.members[..]);
            let behind = |all: &[cairn_base::map::Member]| {
                all.iter().any(|member| member.node == own && !member.in_sync)
            };
            if !members.is_some_and(behind) {
                return;
            }
            epochs.changed().await;
        }
    }

    /// Reports blocks that only this node has to the master, which decides whether they were ever
    /// published.
    async fn tell_of_extra(&self, group: GroupId, extra: &[(BlockId, Owner)]) -> Result<()> {
        for page in extra.chunks(EXTRA_BLOCKS) {
            let extra = Extra { group, blocks: page.to_vec() };
            self.agent.tell(ControlMethod::Extra, &extra).await?;
        }
        Ok(())
    }

    /// Tries the disk again and again while it fails, and reports that to the masters,
    /// indefinitely. When the disk takes writes again, all groups are compared: this node has
    /// missed deletions.
    pub async fn watch_disk(self: Arc<Self>) {
        let mut has_failed = false;
        loop {
            sleep(TRIAL_PERIOD).await;
            let trying = self.store.blocking(|store| {
                store.try_disk();
                Ok(())
            });
            // A trial that hangs goes on, and no other trial begins meanwhile.
            let _ = timeout(TRIAL_PERIOD, trying).await;
            let failure = self.store.disk_failure();
            match (&failure, has_failed) {
                (Some(error), false) => tracing::error!(
                    error,
                    "the disk takes no writes, so other chunkservers get them: see the kernel's \
                     log; restart this node when the disk is mounted again, or replace the disk"
                ),
                (None, true) => {
                    tracing::info!("the disk takes writes again");
                    let map = self.agent.current();
                    self.unchecked.lock().extend(map.groups.keys().copied());
                }
                _ => {}
            }
            has_failed = failure.is_some();
            if let Some(error) = failure {
                let fault = DiskFault { error };
                let told = self.agent.tell(ControlMethod::DiskFault, &fault);
                // A master of an earlier version treats the disk as full.
                let _ = timeout(waits::BEAT, told).await;
            }
        }
    }

    /// Deletes the blocks of groups that others hold now, all of them in sync.
    async fn forget_groups(&self, map: &ClusterMap) {
        if self.store.disk_failure().is_some() {
            return;
        }
        let own = self.agent.node();
        for id in self.store.groups() {
            let Some(group) = map.groups.get(&id) else { continue };
            if group.has(own) || !map.takes_writes(group) || self.running.lock().contains_key(&id) {
                continue;
            }
            if self.stays.get().is_some_and(|stays| stays(id)) {
                continue;
            }
            let blocks = self.store.inventory_now(id, None, PAGE);
            let blocks: Vec<BlockId> = blocks.iter().map(|info| info.block).collect();
            match self.store.delete(id, &blocks).await {
                Ok(()) => tracing::info!(group = %id, blocks = blocks.len(), "left to others"),
                Err(error) => tracing::warn!(group = %id, %error, "blocks were not deleted"),
            }
        }
    }

    /// Heals blocks that readers and scrubs found to fail their checksum, indefinitely.
    pub async fn heal(self: Arc<Self>, mut sick: mpsc::Receiver<Sick>) {
        let mut failed = BTreeSet::new();
        loop {
            match timeout(PERIOD, sick.recv()).await {
                Ok(None) => return,
                Ok(Some(Sick { group, block })) => {
                    if let Err(error) = self.heal_one(group, block).await {
                        tracing::error!(
                            %group,
                            %block,
                            %error,
                            "a corrupt block is not replaced, and tried again: start nodes that \
                             are down; `cairn cluster scrub DIR` names the objects"
                        );
                        failed.insert((group, block));
                    }
                }
                // The other members may be up by now.
                Err(_) => {
                    for (group, block) in std::mem::take(&mut failed) {
                        if self.heal_one(group, block).await.is_err() {
                            failed.insert((group, block));
                        }
                    }
                }
            }
            while failed.len() > UNHEALED {
                failed.pop_first();
            }
        }
    }

    async fn heal_one(&self, group: GroupId, block: BlockId) -> Result<()> {
        let healed = repair::heal(&self.served, group, block).await;
        self.served.tried(Sick { group, block }, healed.is_ok());
        if healed? {
            tracing::warn!(%group, %block, "a corrupt block was replaced");
        }
        Ok(())
    }
}

/// Returns the blocks that may not be needed any more. A block that was copied may have been
/// deleted while the member that had it was away: now that two members have it, neither would find
/// that out.
fn doubtful(report: &repair::Report) -> Vec<(BlockId, Owner)> {
    [&report.extra[..], &report.copied].concat()
}
