//! The duties of a process, repeated until it ends: it checks which nodes are up, ends sessions
//! that have lapsed, collects garbage and compacts segments. All of them give way to requests: one
//! step at a time, with pauses in between.

use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{ClusterMap, Ino, NodeId, Role};
use cairn_blocks::Store;
use cairn_cluster::control::Controller;
use cairn_fs::Fs;
use cairn_fs::ops::gc::{ListDrains, ListFreed};
use cairn_fs::rows::Drain;
use cairn_logs::retention::RetentionLook;
use cairn_logs::settle::Settler;
use cairn_meta::master::host::Sessions;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// Period at which a master checks which nodes are up and updates the map.
const LOOK_AROUND_PERIOD: Duration = Duration::from_millis(500);
/// Period between two checks for sessions that have lapsed.
const SESSIONS_PERIOD: Duration = Duration::from_millis(250);
/// Number of drains read to find any that can be carried out.
const DRAINS: usize = 100;
/// The first look for old logs comes after this fraction of the usual period (`logs`).
const LOGS_FIRST: u32 = 12;

/// Periods of the duties that mostly find nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Period between two checks for garbage.
    pub garbage: Duration,
    /// A full pass is made at each check whose number is a multiple of this, even without known
    /// garbage: abandoned uploads leave no row.
    pub garbage_looks: u64,
    /// A pass forgets calls that were done long ago at each check whose number is a multiple of
    /// this, as it has to read all known calls.
    pub forget_looks: u64,
    /// Period between two checks whether a full disk needs compaction.
    pub compact: Duration,
    /// All segments are considered at each check whose number is a multiple of this, however much
    /// space is free.
    pub compact_looks: u64,
    /// Period at which blocks that were written and not published are deleted.
    pub abandoned: Duration,
    /// Period between two looks for logs that are too old, and the pause after each step of such a
    /// look.
    pub logs: Duration,
    pub logs_rest: Duration,
    /// Period between two looks for log files that have grown or closed and may be compressed.
    pub settle: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            garbage: Duration::from_secs(10),
            garbage_looks: 60,
            forget_looks: 60,
            compact: Duration::from_secs(5),
            compact_looks: 12,
            abandoned: Duration::from_secs(10),
            logs: Duration::from_secs(3600),
            logs_rest: Duration::from_millis(50),
            settle: Duration::from_secs(60),
        }
    }
}

/// Does `work` until `stopped` is true or its sender is dropped.
pub async fn until(mut stopped: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => {}
        () = work => {}
    }
}

/// Returns a timer that does not catch up on ticks that were missed.
fn every(period: Duration) -> Interval {
    let mut timer = interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Updates the cluster map, indefinitely.
pub async fn look_around(controller: Arc<Controller>) {
    let mut timer = every(LOOK_AROUND_PERIOD);
    loop {
        timer.tick().await;
        if let Err(error) = controller.look_around().await {
            tracing::warn!(%error, "the cluster map was not brought up to date");
        }
    }
}

/// Keeps the members that hold the metadata in line with the masters of the map, indefinitely.
pub async fn seat_members(controller: Arc<Controller>) {
    let mut timer = every(LOOK_AROUND_PERIOD);
    loop {
        timer.tick().await;
        if let Err(error) = controller.seat_members().await {
            tracing::warn!(%error, "the members that keep the metadata did not change");
        }
    }
}

/// Ends sessions that have lapsed, indefinitely.
pub async fn end_sessions(sessions: Arc<Sessions>) {
    let mut timer = every(SESSIONS_PERIOD);
    loop {
        timer.tick().await;
        if let Err(error) = sessions.tick().await {
            tracing::warn!(%error, "sessions that lapsed were not ended");
        }
    }
}

/// Collects garbage, indefinitely.
pub async fn collect_garbage(fs: Fs, pace: Pace) {
    let mut timer = every(pace.garbage);
    for look in 0u64.. {
        timer.tick().await;
        let caller = Caller::system();
        let forgets = look.is_multiple_of(pace.forget_looks);
        let collected = if look.is_multiple_of(pace.garbage_looks) {
            fs.collect_garbage(&caller, false).await
        } else {
            match has_garbage(&fs).await {
                Ok(false) => continue,
                Ok(true) => fs.collect_known_garbage(&caller, forgets).await,
                Err(error) => Err(error),
            }
        };
        match collected {
            Ok(report) if report.blocks_unknown > 0 => {
                let blocks = report.blocks_unknown;
                tracing::error!(blocks, "blocks that the metadata does not know: is it a copy?");
            }
            Ok(report) => tracing::debug!(?report, "garbage collected"),
            Err(error) => tracing::warn!(%error, "garbage was not collected"),
        }
    }
}

/// Deletes logs that are too old, indefinitely: step by step, with pauses. The first look is soon
/// but not immediate: a process may not live until the next one.
pub async fn delete_old_logs(fs: Fs, pace: Pace) {
    sleep(pace.logs / LOGS_FIRST).await;
    loop {
        let mut look = RetentionLook::default();
        let looked = loop {
            match look.step(&fs).await {
                Ok(false) => sleep(pace.logs_rest).await,
                Ok(true) => break Ok(look.retained),
                Err(error) => break Err(error),
            }
        };
        match looked {
            Ok(retained) => tracing::debug!(?retained, "looked for old logs"),
            Err(error) => tracing::warn!(%error, "old logs were not looked for"),
        }
        sleep(pace.logs).await;
    }
}

/// Compresses the log files for which `mine` returns true, indefinitely.
pub async fn settle_logs(fs: Fs, mine: impl Fn(Ino) -> bool, pace: Pace) {
    let (mut timer, mut settler) = (every(pace.settle), Settler::default());
    // Not at the start, when there is much other work.
    timer.tick().await;
    loop {
        timer.tick().await;
        match settler.settle(&fs, &mine).await {
            Ok(settled) => tracing::debug!(?settled, "looked for logs to compress"),
            Err(error) => tracing::warn!(%error, "logs to compress were not looked for"),
        }
    }
}

/// Returns whether this gateway, of those that are up, compresses a file: each file is assigned to
/// exactly one gateway.
pub fn is_of_gateway(map: &ClusterMap, own: NodeId, ino: Ino) -> bool {
    let is_one = |(_, node): &(&NodeId, &cairn_base::map::Node)| {
        node.is_up && node.pin.roles.contains(Role::Gateway)
    };
    let up: Vec<NodeId> = map.nodes.iter().filter(is_one).map(|(id, _)| *id).collect();
    let turn = ino.0.checked_rem(up.len() as u64).unwrap_or(0) as usize;
    up.get(turn) == Some(&own)
}

async fn has_garbage(fs: &Fs) -> cairn_base::Result<bool> {
    let caller = Caller::system();
    let drains = fs.read(&caller, ListDrains { after: None, limit: DRAINS }).await?;
    // A body that is being assembled waits for its upload; behind a full page of them there may be
    // more drains.
    let is_waiting = |drain: &Drain| matches!(drain, Drain::Prepared { .. });
    if drains.len() == DRAINS || drains.iter().any(|(_, drain)| !is_waiting(drain)) {
        return Ok(true);
    }
    if !fs.read(&caller, ListFreed { before: u64::MAX, limit: 1 }).await?.is_empty() {
        return Ok(true);
    }
    fs.has_sessions_to_reap(&caller).await
}

/// Reclaims the space of deleted blocks, indefinitely.
pub async fn compact(blocks: Store, pace: Pace) {
    let mut timer = every(pace.compact);
    for look in 0u64.. {
        timer.tick().await;
        let step = move |blocks: &Store| {
            if !look.is_multiple_of(pace.compact_looks) && !blocks.is_short_of_space() {
                return Ok(None);
            }
            match blocks.compact(true)?.segments_removed {
                0 => Ok(None),
                _ => blocks.compact(false).map(Some),
            }
        };
        match blocks.blocking(step).await {
            Ok(None) => {}
            Ok(Some(report)) => tracing::debug!(?report, "segments compacted"),
            Err(error) => tracing::warn!(%error, "segments were not compacted"),
        }
    }
}

/// Deletes blocks that were written and will not be published, indefinitely.
pub async fn drop_abandoned(fs: Fs, pace: Pace) {
    let mut timer = every(pace.abandoned);
    loop {
        timer.tick().await;
        drop_abandoned_now(&fs).await;
    }
}

/// Deletes blocks that were written and will not be published, once.
pub async fn drop_abandoned_now(fs: &Fs) {
    if let Err(error) = fs.drop_abandoned().await {
        tracing::debug!(%error, "blocks that were not published stay for the garbage collector");
    }
}
