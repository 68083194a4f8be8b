//! Scrubs: now and then a server or chunkserver reads and verifies all its blocks, slowly, and
//! notes in a file when that was done.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_base::Timestamp;
use cairn_blocks::{ScrubProgress, ScrubReport, SickBlock, Store};
use cairn_cluster::data::Sick;
use cairn_console::{DamagedObject, ScrubEnd, ScrubRun, ScrubState, Scrubs};
use cairn_meta::engine::Engine;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::interval;

use crate::dir::DataDir;
use crate::offline::damage::Damaged;
use crate::offline::scrub as offline;

/// How often there is a look whether one is due.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
/// The most that a scrub reads, bytes a second.
const RATE: u64 = 16 << 20;
/// A scrub rests so many times as long as it reads.
const REST: u32 = 3;
/// How soon a rest ends when the server stops.
const SLICE: Duration = Duration::from_millis(100);

/// Has the blocks scrubbed every so many days; 0 for only when that is ordered.
pub fn start(
    work: &mut JoinSet<()>,
    blocks: &Store,
    on_damage: OnDamage,
    dir: &DataDir,
    days: u32,
    stopped: &watch::Receiver<bool>,
) -> Arc<ScrubOrders> {
    let orders = Arc::new(ScrubOrders::new(days, dir.scrub()));
    let scrubber = Scrubber {
        blocks: blocks.clone(),
        on_damage,
        file: dir.scrub(),
        period_secs: u64::from(days) * 24 * 3600,
        stopped: stopped.clone(),
        orders: Arc::clone(&orders),
    };
    work.spawn(scrubber.run());
    orders
}

/// What is ordered by hand, and how scrubs stand.
pub struct ScrubOrders {
    begin: Notify,
    stop: AtomicBool,
    days: u32,
    file: PathBuf,
    state: Mutex<(Option<ScrubRun>, Option<ScrubEnd>)>,
}

impl ScrubOrders {
    fn new(days: u32, file: PathBuf) -> ScrubOrders {
        let (begin, stop, state) = (Notify::new(), AtomicBool::new(false), Mutex::default());
        ScrubOrders { begin, stop, days, file, state }
    }

    fn began(&self) {
        self.stop.store(false, Relaxed);
        self.state.lock().0 = Some(ScrubRun { began: now(), ..ScrubRun::default() });
    }

    fn goes_on(&self, progress: &ScrubProgress, is_sick: bool) {
        if let Some(run) = &mut self.state.lock().0 {
            (run.blocks, run.bytes) = (progress.blocks, progress.bytes);
            run.total_blocks = progress.total_blocks;
            run.damaged_blocks += u64::from(is_sick);
        }
    }

    fn ended(&self, end: ScrubEnd) {
        *self.state.lock() = (None, Some(end));
    }
}

impl Scrubs for ScrubOrders {
    fn state(&self) -> ScrubState {
        let (running, last) = self.state.lock().clone();
        // A store that is new counts as scrubbed, of no blocks.
        let noted = noted(&self.file).filter(|(_, blocks)| *blocks > 0);
        let noted = noted.map(|(secs, _)| Timestamp::from_secs(secs as i64));
        ScrubState { running, last, noted, every_days: self.days, rate: RATE }
    }

    fn begin(&self) {
        if self.state.lock().0.is_none() {
            self.begin.notify_one();
        }
    }

    fn stop(&self) {
        self.stop.store(true, Relaxed);
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
    orders: Arc<ScrubOrders>,
}

impl Scrubber {
    async fn run(self) {
        let scrubber = Arc::new(self);
        let mut stopped = scrubber.stopped.clone();
        let mut timer = interval(LOOK_PERIOD);
        loop {
            let is_ordered = tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                _ = timer.tick() => false,
                () = scrubber.orders.begin.notified() => true,
            };
            if !is_ordered && !scrubber.is_due() {
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
        if self.period_secs == 0 {
            return false;
        }
        match noted(&self.file) {
            Some((last, _)) => now_secs().saturating_sub(last) >= self.period_secs,
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
        self.orders.began();
        let end = self.scrub_all();
        self.orders.ended(ScrubEnd { ended: now(), ..end });
    }

    fn scrub_all(&self) -> ScrubEnd {
        let mut pace = Pace { step: Instant::now(), bytes: 0 };
        let is_over = || *self.stopped.borrow() || self.orders.stop.load(Relaxed);
        let report = self.blocks.scrub(|progress, sick| {
            self.orders.goes_on(progress, sick.is_some());
            if let Some(SickBlock { group, block, error, .. }) = sick {
                tracing::error!(%group, %block, %error, "scrub: a damaged block");
                if let OnDamage::Heal(sick) = &self.on_damage {
                    // Nobody takes it any more: the node stops.
                    let _ = sick.blocking_send(Sick { group: *group, block: *block });
                }
            }
            pace.rest(progress, &is_over);
            match is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let report = match report {
            Ok(report) => report,
            Err(error) => {
                tracing::error!(%error, "the scrub failed");
                let failure = Some(format!("The scrub failed: {error}."));
                return ScrubEnd { failure, ..ScrubEnd::default() };
            }
        };
        let (blocks, bytes, sick) = (report.blocks, report.bytes, report.sick.len());
        let named = match &self.on_damage {
            OnDamage::Name(engine) => name_objects(&**engine, &report),
            OnDamage::Heal(_) => Ok(Vec::new()),
        };
        if !report.stopped {
            self.note(&report);
            tracing::info!(blocks, bytes, damaged = sick, "scrub finished");
        }
        let (damaged, failure) = match named {
            Ok(damaged) => (damaged, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        ScrubEnd {
            blocks,
            bytes,
            damaged_blocks: sick as u64,
            damaged,
            is_stopped: report.stopped,
            failure,
            ..ScrubEnd::default()
        }
    }
}

/// Logs the objects that are damaged, and returns them.
///
/// # Errors
/// A sentence, where they cannot be named.
fn name_objects(engine: &dyn Engine, report: &ScrubReport) -> Result<Vec<DamagedObject>, String> {
    let snapshot = engine.snapshot().map_err(Into::into);
    let named = snapshot.and_then(|all| offline::name(&*all, report)).map_err(|error| {
        tracing::error!(%error, "scrub: damaged objects were not named");
        format!("The damaged objects could not be named: {error}.")
    })?;
    let shown = named.into_iter().map(|Damaged { object, start, end, what: why }| {
        tracing::error!(object, start, end, "scrub: a damaged object");
        DamagedObject { object, start, end, why }
    });
    Ok(shown.collect())
}

/// When a scrub reached its end last, in seconds since 1970, and how many blocks it saw.
fn noted(file: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    let mut number = |at| words.nth(at)?.parse::<u64>().ok();
    let secs = number(1)?;
    Some((secs, number(1).unwrap_or_default()))
}

/// Keeps a scrub slow.
struct Pace {
    step: Instant,
    bytes: u64,
}

impl Pace {
    fn rest(&mut self, progress: &ScrubProgress, is_over: &impl Fn() -> bool) {
        let bytes = progress.bytes - self.bytes;
        let by_rate = Duration::from_micros(bytes * 1_000_000 / RATE);
        let end = Instant::now() + by_rate.max(self.step.elapsed() * REST);
        while let Some(left) = end.checked_duration_since(Instant::now())
            && !left.is_zero()
            && !is_over()
        {
            std::thread::sleep(left.min(SLICE));
        }
        *self = Pace { step: Instant::now(), bytes: progress.bytes };
    }
}

fn now() -> Timestamp {
    Timestamp::from_system_time(SystemTime::now())
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
