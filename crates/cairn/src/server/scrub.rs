//! Scrubs: from time to time a server or chunkserver reads and verifies all its blocks, slowly, and
//! notes in a file when it has done so.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_base::scrub::{NodeScrub, RunOrder, ScrubPhase};
use cairn_base::{BlockId, Error, GroupId, Owner, Timestamp};
use cairn_blocks::{ScrubProgress, ScrubReport, SickBlock, Store};
use cairn_cluster::data::{FOUND, FoundBlock, OrderedScrubs, Sick};
use cairn_console::{DamagedObject, ScrubEnd, ScrubRun, ScrubState, Scrubs};
use cairn_meta::check::damage::ObjectDamage;
use cairn_meta::engine::Engine;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::interval;

use crate::dir::DataDir;
use crate::offline::scrub as offline;

/// Interval of the checks whether a scrub is due.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
/// Bytes that a scrub reads per second, at most.
const RATE: u64 = 16 << 20;
/// Rest of a scrub, as a multiple of the time that it reads.
const REST: u32 = 3;
/// Longest step of a rest: the rest ends this soon when the server stops.
const SLICE: Duration = Duration::from_millis(100);
/// Numbers by which one scrub is known, at most.
const NUMBERS: usize = 16;

/// Starts scrubs of the blocks every `days` days; if it is 0, only when one is ordered.
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

/// Orders of scrubs, and their progress.
pub struct ScrubOrders {
    begin: Notify,
    days: u32,
    file: PathBuf,
    state: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    /// A scrub is to begin.
    is_ordered: bool,
    /// The running scrub is to end.
    is_stopped: bool,
    running: Option<ScrubRun>,
    /// The scrub that runs, or that is ordered while none runs.
    current: Run,
    /// The scrub that is ordered while another is being stopped.
    next: Run,
    last: Option<(ScrubEnd, Run)>,
}

/// A scrub as the network knows it.
#[derive(Default)]
struct Run {
    /// Numbers that were chosen for it: an order that comes while a scrub runs gets that scrub.
    numbers: Vec<u64>,
    found: BTreeMap<(GroupId, BlockId), DamagedBlock>,
    blocks: u64,
    total_blocks: u64,
    bytes: u64,
    damaged: u64,
}

/// A block that failed verification.
#[derive(Clone, Copy)]
struct DamagedBlock {
    owner: Owner,
    /// Result of the repair; nothing while none was tried.
    repaired: Option<bool>,
}

impl Run {
    /// Returns true if this is the scrub of that number; 0 stands for any.
    fn is(&self, number: u64) -> bool {
        number == 0 || self.numbers.contains(&number)
    }

    fn name(&mut self, number: u64) {
        if number != 0 && !self.is(number) {
            if self.numbers.len() >= NUMBERS {
                self.numbers.remove(0);
            }
            self.numbers.push(number);
        }
    }

    fn scrub(&self, phase: ScrubPhase) -> NodeScrub {
        let count = |repaired| self.found.values().filter(|one| one.repaired == repaired).count();
        NodeScrub {
            phase,
            blocks: self.blocks,
            total_blocks: self.total_blocks,
            bytes: self.bytes,
            damaged: self.damaged,
            repaired: count(Some(true)) as u64,
            pending: count(None) as u64,
            ..NodeScrub::default()
        }
    }
}

impl Standing {
    /// Returns the scrub of this number, and its phase.
    fn run(&self, number: u64) -> Option<(&Run, ScrubPhase)> {
        let is_current = self.is_ordered || self.running.is_some();
        if is_current && self.current.is(number) {
            let phase = match self.running {
                Some(_) => ScrubPhase::Runs,
                None => ScrubPhase::Waits,
            };
            return Some((&self.current, phase));
        }
        if self.is_ordered && self.running.is_some() && self.next.is(number) {
            return Some((&self.next, ScrubPhase::Waits));
        }
        let (end, run) = self.last.as_ref().filter(|(_, run)| run.is(number))?;
        Some((
            run,
            match (end.is_stopped, &end.failure) {
                (true, _) => ScrubPhase::Stopped,
                (false, Some(_)) => ScrubPhase::Failed,
                (false, None) => ScrubPhase::Ended,
            },
        ))
    }

    /// Orders a scrub, unless one runs or is ordered, and returns it. A scrub that is being stopped
    /// is followed by another.
    fn begin(&mut self) -> &mut Run {
        if self.running.is_some() && !self.is_stopped {
            return &mut self.current;
        }
        let run = if self.running.is_some() { &mut self.next } else { &mut self.current };
        if !std::mem::replace(&mut self.is_ordered, true) {
            *run = Run::default();
        }
        run
    }

    fn stop(&mut self) {
        self.is_stopped = self.running.is_some();
        let was_ordered = std::mem::take(&mut self.is_ordered);
        if self.is_stopped {
            // The scrub that was to follow ends with the running one.
            std::mem::take(&mut self.next).numbers.into_iter().for_each(|of| self.current.name(of));
        } else if was_ordered {
            let end = ScrubEnd { ended: now(), is_stopped: true, ..ScrubEnd::default() };
            self.last = Some((end, std::mem::take(&mut self.current)));
        }
    }
}

impl ScrubOrders {
    fn new(days: u32, file: PathBuf) -> ScrubOrders {
        ScrubOrders { begin: Notify::new(), days, file, state: Mutex::default() }
    }

    /// Begins a scrub if one is ordered or due. Returns true if it began. An ordered scrub may have
    /// been stopped.
    fn began(&self, is_due: bool) -> bool {
        let mut state = self.state.lock();
        if !state.is_ordered && !is_due {
            return false;
        }
        if !std::mem::take(&mut state.is_ordered) {
            state.current = Run::default();
        }
        state.is_stopped = false;
        state.running = Some(ScrubRun { began: now(), ..ScrubRun::default() });
        true
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    fn goes_on(&self, progress: &ScrubProgress, sick: Option<&SickBlock>) {
        let mut state = self.state.lock();
        let Standing { running: Some(run), current, .. } = &mut *state else { return };
        (run.blocks, run.bytes) = (progress.blocks, progress.bytes);
        run.total_blocks = progress.total_blocks;
        run.damaged_blocks += u64::from(sick.is_some());
        (current.blocks, current.bytes) = (run.blocks, run.bytes);
        (current.total_blocks, current.damaged) = (run.total_blocks, run.damaged_blocks);
        if let Some(sick) = sick.filter(|_| current.found.len() < FOUND) {
            let found = DamagedBlock { owner: sick.owner, repaired: None };
            current.found.insert((sick.group, sick.block), found);
        }
    }

    fn ended(&self, end: ScrubEnd) {
        let mut state = self.state.lock();
        state.running = None;
        let next = std::mem::take(&mut state.next);
        state.last = Some((end, std::mem::replace(&mut state.current, next)));
    }
}

impl Scrubs for ScrubOrders {
    fn state(&self) -> ScrubState {
        let state = self.state.lock();
        let (running, last) =
            (state.running.clone(), state.last.as_ref().map(|(end, _)| end.clone()));
        drop(state);
        // A new store counts as scrubbed, with no blocks.
        let noted = noted(&self.file).filter(|(_, blocks)| *blocks > 0);
        let noted = noted.map(|(secs, _)| Timestamp::from_secs(secs as i64));
        ScrubState { running, last, noted, every_days: self.days, rate: RATE }
    }

    fn begin(&self) {
        self.state.lock().begin();
        self.begin.notify_one();
    }

    fn stop(&self) {
        self.state.lock().stop();
    }
}

impl OrderedScrubs for ScrubOrders {
    fn order(&self, run: u64, order: RunOrder) -> NodeScrub {
        let mut state = self.state.lock();
        match order {
            // A scrub that has ended under this number is not begun again.
            RunOrder::Begin if run != 0 && state.run(run).is_none() => {
                state.begin().name(run);
                self.begin.notify_one();
            }
            RunOrder::Stop if state.run(run).is_some_and(|(_, phase)| phase.is_under_way()) => {
                state.stop();
            }
            RunOrder::Begin | RunOrder::Stop | RunOrder::Look => {}
        }
        let Some((run, phase)) = state.run(run) else { return NodeScrub::default() };
        let failure = state.last.as_ref().and_then(|(end, _)| end.failure.clone());
        let failure = failure.filter(|_| phase == ScrubPhase::Failed).unwrap_or_default();
        NodeScrub { failure, ..run.scrub(phase) }
    }

    fn found(&self, run: u64) -> cairn_base::Result<Vec<FoundBlock>> {
        let unknown = || Error::NotFound("the node was restarted, or has scrubbed again".into());
        let state = self.state.lock();
        let found = &state.run(run).ok_or_else(unknown)?.0.found;
        let one = |(&(group, block), found): (&(GroupId, BlockId), &DamagedBlock)| FoundBlock {
            group,
            block,
            owner: found.owner,
            is_repaired: found.repaired == Some(true),
        };
        Ok(found.iter().map(one).collect())
    }

    fn tried(&self, group: GroupId, block: BlockId, is_repaired: bool) {
        let mut state = self.state.lock();
        let Standing { current, last, .. } = &mut *state;
        for run in [Some(current), last.as_mut().map(|(_, run)| run)].into_iter().flatten() {
            if let Some(found) = run.found.get_mut(&(group, block)) {
                found.repaired = Some(is_repaired);
            }
        }
    }
}

/// Treatment of damaged blocks that a scrub finds, in addition to logging them.
pub enum OnDamage {
    /// The objects that have them are looked up and logged too.
    Name(Arc<dyn Engine>),
    /// The blocks are sent to be replaced by another node's replicas.
    Heal(mpsc::Sender<Sick>),
}

struct Scrubber {
    blocks: Store,
    on_damage: OnDamage,
    /// File that notes when the last scrub ended, and what it found.
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
            let is_due = !is_ordered && scrubber.is_due();
            if !scrubber.orders.began(is_due) {
                continue;
            }
            let (orders, scrubber) = (Arc::clone(&scrubber.orders), Arc::clone(&scrubber));
            if let Err(error) = spawn_blocking(move || scrubber.scrub()).await {
                tracing::error!(%error, "the scrub ended early");
                let failure = Some(format!("The scrub ended early: {error}."));
                orders.ended(ScrubEnd { ended: now(), failure, ..ScrubEnd::default() });
            }
        }
    }

    /// Returns true if a scrub is due. A store whose last scrub is unknown counts as scrubbed now.
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
        // The file is replaced as a whole: no reader finds it empty, and a full disk keeps the
        // former one.
        let fresh = self.file.with_extension("new");
        if let Err(error) = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.file)) {
            tracing::warn!(%error, "the end of the scrub was not noted");
        }
    }

    fn scrub(&self) {
        let end = self.scrub_all();
        self.orders.ended(ScrubEnd { ended: now(), ..end });
    }

    fn scrub_all(&self) -> ScrubEnd {
        let mut pace = Pace { step: Instant::now(), bytes: 0 };
        let is_over = || *self.stopped.borrow() || self.orders.is_stopped();
        let report = self.blocks.scrub(|progress, sick| {
            self.orders.goes_on(progress, sick);
            if let Some(SickBlock { group, block, error, .. }) = sick {
                tracing::error!(%group, %block, %error, "scrub: a damaged block");
                if let OnDamage::Heal(sick) = &self.on_damage {
                    // The receiver is gone while the node stops.
                    let _ = sick.blocking_send(Sick { group: *group, block: *block });
                }
            }
            pace.rest(progress, &is_over);
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
/// A sentence, if they cannot be named.
fn name_objects(engine: &dyn Engine, report: &ScrubReport) -> Result<Vec<DamagedObject>, String> {
    let snapshot = engine.snapshot().map_err(Into::into);
    let named = snapshot.and_then(|all| offline::name(&*all, report)).map_err(|error| {
        tracing::error!(%error, "scrub: damaged objects were not named");
        format!("The damaged objects could not be named: {error}.")
    })?;
    let shown = named.into_iter().map(|ObjectDamage { object, start, end, what: why }| {
        tracing::error!(object, start, end, "scrub: a damaged object");
        DamagedObject { object, start, end, why }
    });
    Ok(shown.collect())
}

/// Returns the time at which a scrub last reached its end, in seconds since 1970, and the number of
/// its blocks.
fn noted(file: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(file).ok()?;
    let mut words = text.split_whitespace();
    let mut number = |at| words.nth(at)?.parse::<u64>().ok();
    let secs = number(1)?;
    Some((secs, number(1).unwrap_or_default()))
}

/// Limits the rate of a scrub.
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

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::{BodyId, SessionId};

    fn orders() -> (tempfile::TempDir, ScrubOrders) {
        let directory = tempfile::tempdir().unwrap();
        let orders = ScrubOrders::new(0, directory.path().join("scrub"));
        (directory, orders)
    }

    fn phase(orders: &ScrubOrders, run: u64, order: RunOrder) -> ScrubPhase {
        orders.order(run, order).phase
    }

    #[test]
    fn a_scrub_that_is_stopped_right_after_it_was_ordered_does_not_run() {
        let (_directory, orders) = orders();
        assert_eq!(phase(&orders, 5, RunOrder::Begin), ScrubPhase::Waits);
        assert_eq!(phase(&orders, 5, RunOrder::Stop), ScrubPhase::Stopped);
        assert!(!orders.began(false), "it was stopped");
        assert_eq!(phase(&orders, 5, RunOrder::Begin), ScrubPhase::Stopped, "it has ended");
        assert_eq!(phase(&orders, 6, RunOrder::Begin), ScrubPhase::Waits);
        assert!(orders.began(false) && !orders.is_stopped());
        Scrubs::stop(&orders);
        assert!(orders.is_stopped());
        orders.ended(ScrubEnd { is_stopped: true, ..ScrubEnd::default() });
        assert_eq!(phase(&orders, 6, RunOrder::Look), ScrubPhase::Stopped);
        assert_eq!(phase(&orders, 5, RunOrder::Look), ScrubPhase::Unknown, "of before");
    }

    #[test]
    fn whoever_orders_a_scrub_while_one_is_being_stopped_gets_the_next_one() {
        let (_directory, orders) = orders();
        orders.order(5, RunOrder::Begin);
        assert!(orders.began(false));
        assert_eq!(phase(&orders, 5, RunOrder::Stop), ScrubPhase::Runs);
        assert_eq!(phase(&orders, 6, RunOrder::Begin), ScrubPhase::Waits);
        assert_eq!(phase(&orders, 7, RunOrder::Begin), ScrubPhase::Waits);
        assert!(orders.is_stopped());
        orders.ended(ScrubEnd { is_stopped: true, ..ScrubEnd::default() });
        assert_eq!(phase(&orders, 5, RunOrder::Look), ScrubPhase::Stopped);
        assert_eq!(phase(&orders, 6, RunOrder::Look), ScrubPhase::Waits);
        assert!(orders.began(false) && !orders.is_stopped());
        assert_eq!(phase(&orders, 7, RunOrder::Look), ScrubPhase::Runs);
        // Stopping again also ends the scrubs that were to follow.
        orders.order(6, RunOrder::Stop);
        assert_eq!(phase(&orders, 8, RunOrder::Begin), ScrubPhase::Waits);
        orders.order(0, RunOrder::Stop);
        orders.ended(ScrubEnd { is_stopped: true, ..ScrubEnd::default() });
        assert_eq!(phase(&orders, 8, RunOrder::Look), ScrubPhase::Stopped);
        assert!(!orders.began(false));
    }

    #[test]
    fn whoever_orders_a_scrub_while_one_runs_gets_that_one() {
        let (_directory, orders) = orders();
        assert!(orders.began(true), "one that is due");
        assert_eq!(phase(&orders, 5, RunOrder::Look), ScrubPhase::Unknown);
        assert_eq!(phase(&orders, 5, RunOrder::Begin), ScrubPhase::Runs);
        assert_eq!(phase(&orders, 6, RunOrder::Begin), ScrubPhase::Runs);
        orders.ended(ScrubEnd::default());
        for run in [0, 5, 6] {
            assert_eq!(phase(&orders, run, RunOrder::Look), ScrubPhase::Ended);
        }
        assert!(!orders.began(false), "nothing is ordered any more");
    }

    #[test]
    fn a_damaged_block_is_pending_until_its_repair_was_tried() {
        let (_directory, orders) = orders();
        orders.order(5, RunOrder::Begin);
        assert!(orders.began(false));
        let block = |counter| BlockId { session: SessionId(1), counter };
        let body = BodyId { session: SessionId(1), counter: 1 };
        for counter in [1, 2] {
            let sick = SickBlock {
                group: GroupId(1),
                block: block(counter),
                owner: Owner { body, chunk: 0 },
                error: cairn_base::Error::corrupt("a block", 1, 2),
            };
            let progress = ScrubProgress { blocks: counter, bytes: 9, total_blocks: 2 };
            orders.goes_on(&progress, Some(&sick));
        }
        orders.tried(GroupId(1), block(1), true);
        let of = |scrub: NodeScrub| (scrub.damaged, scrub.repaired, scrub.pending);
        assert_eq!(of(orders.order(5, RunOrder::Look)), (2, 1, 1));
        orders.ended(ScrubEnd::default());
        orders.tried(GroupId(1), block(2), false);
        assert_eq!(of(orders.order(5, RunOrder::Look)), (2, 1, 0));
        let repaired = |run| -> cairn_base::Result<Vec<bool>> {
            Ok(orders.found(run)?.iter().map(|one| one.is_repaired).collect())
        };
        assert_eq!(repaired(5).unwrap(), [true, false]);
        assert_eq!(repaired(6).unwrap_err().kind(), "not_found", "nobody knows what it found");
        orders.order(6, RunOrder::Begin);
        assert!(orders.began(false));
        orders.ended(ScrubEnd::default());
        assert!(repaired(6).unwrap().is_empty());
        assert_eq!(repaired(5).unwrap_err().kind(), "not_found", "another one followed");
    }
}
