//! Scrubs: now and then a server or chunkserver reads and verifies all its blocks, slowly, and
//! notes in a file when that was done.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_blocks::{ScrubProgress, ScrubReport, SickBlock, Store};
use cairn_cluster::data::Sick;
use cairn_meta::engine::Engine;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::interval;

use crate::dir::DataDir;
use crate::offline::scrub as offline;

/// How often there is a look whether one is due.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
/// The most that a scrub reads, bytes a second.
const RATE: u64 = 16 << 20;
/// A scrub rests so many times as long as it reads.
const REST: u32 = 3;
/// How soon a rest ends when the server stops.
const SLICE: Duration = Duration::from_millis(100);

/// Has the blocks scrubbed every so many days; 0 for never.
pub fn start(
    work: &mut JoinSet<()>,
    blocks: &Store,
    on_damage: OnDamage,
    dir: &DataDir,
    days: u32,
    stopped: &watch::Receiver<bool>,
) {
    if days > 0 {
        let scrubber = Scrubber {
            blocks: blocks.clone(),
            on_damage,
            file: dir.scrub(),
            period_secs: u64::from(days) * 24 * 3600,
            stopped: stopped.clone(),
        };
        work.spawn(scrubber.run());
    }
}

/// The treatment of damaged blocks that a scrub finds, besides logging them.
pub enum OnDamage {
    /// The objects that have them are looked up, and logged too.
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
        let mut timer = interval(LOOK_PERIOD);
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
    match snapshot.and_then(|all| offline::name(&*all, report)) {
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
        let by_rate = Duration::from_micros(bytes * 1_000_000 / RATE);
        let end = Instant::now() + by_rate.max(self.step.elapsed() * REST);
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
