//! What the server does by itself in the background: it collects garbage, compacts segments and
//! scrubs blocks. All of it gives way to requests: one step at a time, with rests in between.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_auth::Caller;
use cairn_blocks::{ScrubProgress, ScrubReport, SickBlock, Store};
use cairn_cluster::data::Sick;
use cairn_fs::Fs;
use cairn_fs::ops::gc::{ListDrains, ListFreed};
use cairn_fs::rows::Drain;
use cairn_meta::engine::Engine;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use super::mounts;
use super::open::Parts;
use crate::dir::DataDir;
use crate::offline::scrub;

/// How often there is a look whether there is garbage.
const GARBAGE_PERIOD: Duration = Duration::from_secs(10);
/// Every so many looks a pass is made in any case: uploads that were given up leave no row.
const GARBAGE_LOOKS: u64 = 60;
/// Drains looked at to find one that can be done.
const DRAINS: usize = 100;
/// How often there is a look whether a full disk needs compaction.
const COMPACT_PERIOD: Duration = Duration::from_secs(5);
/// Every so many looks all segments are looked at, however much is free.
const COMPACT_LOOKS: u64 = 12;
const SCRUB_LOOK_PERIOD: Duration = Duration::from_secs(60);
/// What a scrub reads at most, bytes a second.
const SCRUB_RATE: u64 = 16 << 20;
/// A scrub rests so many times as long as it reads.
const SCRUB_REST: u32 = 3;
/// How soon a rest ends when the server stops.
const SLICE: Duration = Duration::from_millis(100);

/// The duties of a server that runs.
pub struct Duties(JoinSet<()>);

impl Duties {
    /// Waits until all have noticed that the server stops.
    pub async fn join(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

pub fn start(parts: &Parts, scrub_days: u32, stopped: &watch::Receiver<bool>) -> Duties {
    let mut duties = JoinSet::new();
    duties.spawn(until(stopped.clone(), collect_garbage(parts.fs.clone())));
    duties.spawn(until(stopped.clone(), mounts::tick(Arc::clone(&parts.sessions))));
    let named = OnDamage::Name(Arc::clone(&parts.engine));
    look_after(&mut duties, &parts.blocks, named, &parts.dir, scrub_days, stopped);
    Duties(duties)
}

/// What a store of blocks needs, whoever uses it.
pub fn look_after(
    duties: &mut JoinSet<()>,
    blocks: &Store,
    on_damage: OnDamage,
    dir: &DataDir,
    scrub_days: u32,
    stopped: &watch::Receiver<bool>,
) {
    duties.spawn(until(stopped.clone(), compact(blocks.clone())));
    if scrub_days > 0 {
        let scrubber = Scrubber {
            blocks: blocks.clone(),
            on_damage,
            file: dir.scrub(),
            period_secs: u64::from(scrub_days) * 24 * 3600,
            stopped: stopped.clone(),
        };
        duties.spawn(scrubber.run());
    }
}

/// Does `work` until the server stops.
pub async fn until(mut stopped: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => {}
        () = work => {}
    }
}

/// Looks for garbage now and then, for ever.
pub async fn collect_garbage(fs: Fs) {
    let mut timer = interval(GARBAGE_PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 0u64.. {
        timer.tick().await;
        let caller = Caller::system();
        let collected = match look.is_multiple_of(GARBAGE_LOOKS) {
            true => fs.collect_garbage(&caller, false).await,
            false => match has_garbage(&fs).await {
                Ok(false) => continue,
                Ok(true) => fs.collect_known_garbage(&caller).await,
                Err(error) => Err(error),
            },
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

async fn has_garbage(fs: &Fs) -> cairn_base::Result<bool> {
    let caller = Caller::system();
    let drains = fs.read(&caller, ListDrains { after: None, limit: DRAINS }).await?;
    // What is being put together waits for its upload; behind many of them there may be more.
    let is_waiting = |drain: &Drain| matches!(drain, Drain::Prepared { .. });
    if drains.len() == DRAINS || drains.iter().any(|(_, drain)| !is_waiting(drain)) {
        return Ok(true);
    }
    if !fs.read(&caller, ListFreed { before: u64::MAX, limit: 1 }).await?.is_empty() {
        return Ok(true);
    }
    fs.has_sessions_to_reap(&caller).await
}

async fn compact(blocks: Store) {
    let mut timer = interval(COMPACT_PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 0u64.. {
        timer.tick().await;
        let blocks = blocks.clone();
        let step = move || {
            if !look.is_multiple_of(COMPACT_LOOKS) && !blocks.is_short_of_space() {
                return Ok(None);
            }
            match blocks.compact(true)?.segments_removed {
                0 => Ok(None),
                _ => blocks.compact(false).map(Some),
            }
        };
        match spawn_blocking(step).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(report))) => tracing::debug!(?report, "segments compacted"),
            Ok(Err(error)) => tracing::warn!(%error, "segments were not compacted"),
            Err(error) => tracing::error!(%error, "compaction ended early"),
        }
    }
}

/// What is done about damaged blocks that a scrub finds, besides logging them.
pub enum OnDamage {
    /// Whose objects they are is looked up, and logged too.
    Name(Arc<dyn Engine>),
    /// Replacing them by what another node has is asked for.
    Heal(mpsc::Sender<Sick>),
}

struct Scrubber {
    blocks: Store,
    on_damage: OnDamage,
    /// When the last one ended, and what it found.
    file: PathBuf,
    period_secs: u64,
    stopped: watch::Receiver<bool>,
}

impl Scrubber {
    async fn run(self) {
        let scrubber = Arc::new(self);
        let mut stopped = scrubber.stopped.clone();
        let mut timer = interval(SCRUB_LOOK_PERIOD);
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                _ = timer.tick() => {}
            }
            if !scrubber.is_due() {
                continue;
            }
            let scrubber = Arc::clone(&scrubber);
            if let Err(error) = spawn_blocking(move || scrubber.scrub()).await {
                tracing::error!(%error, "the scrub ended early");
            }
        }
    }

    /// A store whose last scrub is not known counts as scrubbed now.
    fn is_due(&self) -> bool {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let last = text.split_whitespace().nth(1).and_then(|secs| secs.parse::<u64>().ok());
        match last {
            Some(last) => now_secs().saturating_sub(last) >= self.period_secs,
            None => {
                self.note(&ScrubReport::default());
                false
            }
        }
    }

    fn note(&self, report: &ScrubReport) {
        let (blocks, sick) = (report.blocks, report.sick.len());
        let text = format!("finished {} blocks {blocks} damaged {sick}\n", now_secs());
        // Replaced as a whole: no reader finds it empty, and a full disk keeps the former one.
        let fresh = self.file.with_extension("new");
        if let Err(error) = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.file)) {
            tracing::warn!(%error, "the end of the scrub was not noted");
        }
    }

    fn scrub(&self) {
        let mut pace = Pace { step: Instant::now(), bytes: 0 };
        let report = self.blocks.scrub(|progress, sick| {
            if let Some(SickBlock { group, block, error, .. }) = sick {
                tracing::error!(%group, %block, %error, "scrub: a damaged block");
                if let OnDamage::Heal(sick) = &self.on_damage {
                    // Nobody takes it any more: the node stops.
                    let _ = sick.blocking_send(Sick { group: *group, block: *block });
                }
            }
            pace.rest(progress, &self.stopped);
            match *self.stopped.borrow() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let report = match report {
            Ok(report) => report,
            Err(error) => return tracing::error!(%error, "the scrub failed"),
        };
        let (blocks, bytes, sick) = (report.blocks, report.bytes, report.sick.len());
        if let OnDamage::Name(engine) = &self.on_damage {
            name_objects(&**engine, &report);
        }
        if !report.stopped {
            self.note(&report);
            tracing::info!(blocks, bytes, damaged = sick, "scrub finished");
        }
    }
}

fn name_objects(engine: &dyn Engine, report: &ScrubReport) {
    let snapshot = engine.snapshot().map_err(Into::into);
    match snapshot.and_then(|all| scrub::name(&*all, report)) {
        Ok(damaged) => {
            for object in damaged {
                let (start, end) = (object.start, object.end);
                tracing::error!(object = object.object, start, end, "scrub: a damaged object");
            }
        }
        Err(error) => tracing::error!(%error, "scrub: damaged objects were not named"),
    }
}

/// Keeps a scrub slow.
struct Pace {
    step: Instant,
    bytes: u64,
}

impl Pace {
    fn rest(&mut self, progress: &ScrubProgress, stopped: &watch::Receiver<bool>) {
        let bytes = progress.bytes - self.bytes;
        let by_rate = Duration::from_micros(bytes * 1_000_000 / SCRUB_RATE);
        let end = Instant::now() + by_rate.max(self.step.elapsed() * SCRUB_REST);
        while let Some(left) = end.checked_duration_since(Instant::now())
            && !left.is_zero()
            && !*stopped.borrow()
        {
            std::thread::sleep(left.min(SLICE));
        }
        *self = Pace { step: Instant::now(), bytes: progress.bytes };
    }
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
