//! The executor: one thread that runs operations one after another on what is not yet durable.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::{Error, Ino, Timestamp};
use parking_lot::MutexGuard;

use super::batch::{Batch, PipeState, Verdict};
use super::delegations::Delegations;
use super::disk::Disk;
use super::inbox::{FetchedJob, InboxContents};
use super::lacking::Lacking;
use super::leases::{Event, Leases};
use super::op::{Early, Haste, Job, Ran};
use super::overlay::Overlay;
use super::pins::Pins;
use super::recall_deadlines::Step;
use super::shared::MasterShared;
use super::source::{Inline, Newest, Sight, UncommittedRows};
use crate::{Changes, View, Want, keys};

/// Runs after which an operation keeps the executor until it has all its rows.
const MISSES: u32 = 8;
/// Bytes of published changes that are kept for operations that wait for rows; beyond that, no new
/// operation starts.
const HELD_BYTES: usize = 64 << 20;
/// Operations after which an idle committer gets the open batch.
const FIRST_OPS: usize = 128;

pub struct Executor {
    shared: Arc<MasterShared>,
    overlay: Overlay,
    queue: VecDeque<Job>,
    fetched: VecDeque<FetchedJob>,
    parked: ParkedOperations,
    disk: Disk,
    leases: Leases,
    delegations: Delegations,
    /// Buffer for jobs from the inbox.
    arrived: InboxContents,
}

/// Operations that wait for rows.
#[derive(Default)]
struct ParkedOperations {
    count: usize,
    /// Number of operations that need the changes of all batches after this one.
    holds: BTreeMap<u64, usize>,
    generation: u64,
}

/// The state that is shared by the operations that are executed in one go.
struct Turn<'a> {
    inline: Inline<'a>,
}

/// The outcome of a run of an operation.
enum Outcome {
    Ended(Changes, Sight),
    Lacks(Vec<Want>),
}

impl Outcome {
    fn changes(&self) -> Option<&Changes> {
        match self {
            Outcome::Ended(changes, _) => Some(changes),
            Outcome::Lacks(_) => None,
        }
    }
}

/// Makes the error for a session that posted an operation that it must not post.
fn not_its_own() -> Error {
    let what = "a posted operation changes more than the directories that its session holds";
    Error::Denied(what.into())
}

impl Executor {
    pub fn new(shared: Arc<MasterShared>) -> Executor {
        let asked = || Arc::clone(&shared.asked);
        let unsettled = || Arc::clone(&shared.unsettled);
        let leases = Leases::new(shared.config.lease_bytes, unsettled(), asked());
        Executor {
            delegations: Delegations::new(unsettled(), asked()),
            shared,
            leases,
            overlay: Overlay::default(),
            queue: VecDeque::new(),
            fetched: VecDeque::new(),
            parked: ParkedOperations::default(),
            disk: Disk::default(),
            arrived: Default::default(),
        }
    }

    /// Runs until the master has failed, or was ordered to stop and has answered all operations.
    pub async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while shared.failure().is_none() {
            if !self.has_work() {
                shared.working.rest(Step::Execute);
                self.wait().await;
            }
            shared.working.begin(Step::Execute);
            self.gather();
            let mut pipe = shared.pipe.lock_with_room().await;
            if let Some(verdict) = pipe.verdict.take() {
                self.start_over(&mut pipe, verdict);
            }
            self.overlay.release(self.floor());
            self.execute_some(&mut pipe);
            self.show();
            let done = self.answer_or_offer(pipe);
            if done && self.is_drained() {
                break;
            }
        }
        let mut waiting = VecDeque::new();
        self.delegations.end_all(&mut waiting);
        shared.refuse(waiting.into(), || shared.gone());
    }

    /// Sets the gauges of the tables that only the executor sees.
    fn show(&self) {
        let counters = &self.shared.counters;
        let (leases, lease_bytes) = self.leases.usage();
        let (directories, files) = self.delegations.usage();
        for (gauge, value) in [
            (&counters.leases, leases),
            (&counters.lease_bytes, lease_bytes),
            (&counters.recalls, self.leases.recalls()),
            (&counters.delegated_directories, directories),
            (&counters.delegated_files, files),
        ] {
            gauge.store(value, Ordering::Relaxed);
        }
    }

    /// Waits until something has arrived.
    async fn wait(&mut self) {
        if self.shared.config.threads.is_none() {
            self.shared.inbox.spin();
        }
        self.shared.inbox.wait().await;
    }

    /// Takes the jobs that have arrived.
    fn gather(&mut self) {
        self.shared.inbox.take(&mut self.arrived);
        let InboxContents { jobs, fetched, events } = &mut self.arrived;
        self.queue.extend(jobs.drain(..));
        self.fetched.extend(fetched.drain(..));
        let mut ready = Vec::new();
        for event in events.drain(..) {
            match &event {
                Event::Ended { session } => {
                    self.shared.hasty.forget(*session);
                    self.delegations.end(*session, &mut self.queue);
                }
                Event::Replayed { session } => self.delegations.end(*session, &mut self.queue),
                Event::GivenBack { session, directories } => {
                    self.delegations.give_back(*session, directories, &mut self.queue);
                }
                Event::Unwelcome { session } => {
                    for ask in self.delegations.ask_for_all(*session) {
                        self.leases.ask(ask);
                    }
                }
                Event::Attached { .. } | Event::Acknowledged { .. } | Event::AllRecalled { .. } => {
                }
            }
            self.leases.take(event, &mut ready);
        }
        self.shared.answer(ready);
    }

    fn has_work(&self) -> bool {
        !self.fetched.is_empty() || (!self.queue.is_empty() && self.may_start())
    }

    /// Returns whether a new operation may start: operations that wait for rows are few, and so are
    /// the changes kept for them.
    fn may_start(&self) -> bool {
        let held = self.parked.count > 0 && self.overlay.bytes() > HELD_BYTES;
        self.parked.count < self.shared.config.parked_ops.max(1) && !held
    }

    /// Returns the batch up to which changes may leave the overlay.
    fn floor(&self) -> u64 {
        let held = self.parked.holds.first_key_value().map_or(u64::MAX, |(hold, _)| *hold);
        held.min(self.shared.durable.batch())
    }

    fn execute_some(&mut self, pipe: &mut PipeState) {
        let shared = Arc::clone(&self.shared);
        shared.now();
        let turn = Turn { inline: Inline::new(&shared) };
        while !pipe.open.is_full() {
            if let Some(fetched) = self.fetched.pop_front() {
                self.execute_fetched(fetched, &mut pipe.open, &turn);
            } else if self.may_start()
                && let Some(job) = self.queue.pop_front()
            {
                self.execute(job, None, &mut pipe.open, &turn);
            } else {
                break;
            }
            if shared.pipe.wanted() {
                break;
            }
            if pipe.open.jobs.len() == FIRST_OPS {
                shared.pipe.offer(pipe);
            }
        }
    }

    fn execute_fetched(&mut self, fetched: FetchedJob, open: &mut Batch, turn: &Turn<'_>) {
        let FetchedJob { job, mut pins } = fetched;
        self.parked.leave(&pins);
        if let Some(error) = pins.failed.take() {
            self.fail(job, error, open);
        } else if pins.generation == self.parked.generation {
            self.execute(job, Some(pins), open, turn);
        } else {
            // The changes that belong over these rows are gone.
            self.execute(job, None, open, turn);
        }
    }

    fn execute(
        &mut self,
        mut job: Job,
        pins: Option<Box<Pins>>,
        open: &mut Batch,
        turn: &Turn<'_>,
    ) {
        let patient = pins.as_ref().is_some_and(|pins| pins.misses >= MISSES);
        let near = self.disk.aloof == 0 && self.shared.config.inline_us > 0;
        // An operation that was answered before runs in its order.
        let in_order = job.early.is_some() || job.op.is_posted();
        let inline = (near || patient || in_order).then_some(&turn.inline);
        if let Some(wish) = job.op.wish()
            && !self.delegations.may_hold(wish)
        {
            let error = Error::Conflict(
                "other sessions use the directory, so it cannot be delegated".into(),
            );
            return self.fail(job, error, open);
        }
        let now = self.shared.tick();
        let outcome = self.attempt(&mut job, pins.as_deref(), open.number, now, inline);
        if job.early.is_none() {
            let obstacle = self.obstacle(&job, &outcome);
            if job.op.is_confined() {
                if obstacle.is_some() || !self.is_own(&job, &outcome) {
                    return self.fail(job, not_its_own(), open);
                }
            } else if let Some(directory) = obstacle {
                return self.put_off(job, &outcome, directory);
            }
        }
        match outcome {
            Outcome::Ended(changes, sight) => {
                self.delegate(&mut job, &changes);
                self.end(job, changes, &sight, open, pins.as_deref(), inline);
            }
            Outcome::Lacks(wants) => {
                self.shared.counters.op_misses.add(1);
                let fresh =
                    || Box::new(Pins::new(self.shared.durable.batch(), self.parked.generation));
                let mut pins = pins.unwrap_or_else(fresh);
                pins.misses += 1;
                self.disk.aloof = self.disk.aloof.saturating_sub(1);
                self.park(Lacking { job, pins, wants });
            }
        }
    }

    /// Returns the directory that an operation has to wait for before it has any effect.
    fn obstacle(&mut self, job: &Job, outcome: &Outcome) -> Option<Ino> {
        let nothing = Changes::new();
        let changes = outcome.changes().unwrap_or(&nothing);
        let released = job.op.released().map_or(&[][..], |(_, released)| released);
        self.delegations.obstacle(changes, job.op.session(), released)
    }

    /// Puts an operation off until a directory is given back; if it concerns all directories of a
    /// ground, until all are. A ground that it closed stays closed until it has run.
    fn put_off(&mut self, mut job: Job, outcome: &Outcome, directory: Ino) {
        let ground = outcome.changes().and_then(|changes| self.delegations.ground_of(changes));
        if let Some(ground) = ground.filter(|_| job.closes.is_none()) {
            job.closes = Some(ground);
            for ask in self.delegations.close(ground) {
                self.leases.ask(ask);
            }
        }
        if let Some(ask) = self.delegations.wait(directory, job) {
            self.leases.ask(ask);
        }
    }

    /// Returns whether an operation would change only rows of the tree that no other session knows.
    fn is_own(&self, job: &Job, outcome: &Outcome) -> bool {
        let rows = outcome.changes().into_iter().flat_map(Changes::keys);
        self.delegations.are_own(rows, job.op.session(), job.op.made())
    }

    /// Updates the delegations after an operation has run.
    fn delegate(&mut self, job: &mut Job, changes: &Changes) {
        if let Some(wish) = job.op.wish().filter(|_| !job.op.has_failed()) {
            job.op.granted(self.delegations.hold(wish));
        }
        if let (Some(made), Some(by)) = (job.op.made_directory(), job.op.session()) {
            self.delegations.made(made, by);
        }
        if job.early.is_none()
            && job.op.is_confined()
            && let Some(file) = job.op.made()
            && let Some(directory) = changes.keys().find_map(|key| keys::directory_of(key))
            && let Some(ask) = self.delegations.made_file(file, directory)
        {
            self.leases.ask(ask);
        }
    }

    /// Fails an operation.
    fn fail(&mut self, mut job: Job, error: Error, open: &mut Batch) {
        job.op.fail(error);
        let sight = Sight::new(job.op.haste(), self.shared.durable.batch());
        self.end(job, Changes::new(), &sight, open, None, None);
    }

    fn attempt(
        &mut self,
        job: &mut Job,
        pins: Option<&Pins>,
        batch: u64,
        now: Timestamp,
        inline: Option<&Inline<'_>>,
    ) -> Outcome {
        let unknown = Cell::new(false);
        if job.op.reads_settled() {
            let outcome = self.attempt_on(job, pins, batch, now, inline, Some(&unknown));
            if !unknown.get() {
                return outcome;
            }
        }
        self.attempt_on(job, pins, batch, now, inline, None)
    }

    fn attempt_on(
        &mut self,
        job: &mut Job,
        pins: Option<&Pins>,
        batch: u64,
        now: Timestamp,
        inline: Option<&Inline<'_>>,
        settled: Option<&Cell<bool>>,
    ) -> Outcome {
        self.leases.forget_seen();
        self.delegations.forget_met();
        let by = job.op.session();
        let delegations = job.early.is_none().then_some((&self.delegations, by));
        let sight = Sight::new(job.op.haste(), self.shared.durable.batch());
        let newest = Newest { overlay: &self.overlay, pins, cache: &self.shared.cache, inline };
        let leases = &self.leases;
        let source = UncommittedRows { newest, leases, delegations, sight: &sight, settled };
        let mut view = View::new(&source);
        let ran = job.op.apply(&mut view, now, batch);
        let failed = inline.and_then(|inline| self.disk.look_at(inline, &self.shared));
        match (ran, failed) {
            (Ran::Miss, None) => {
                let wants = view.into_wants();
                assert!(!wants.is_empty(), "an operation stops for want of nothing");
                return Outcome::Lacks(wants);
            }
            (Ran::Miss, Some(error)) => job.op.fail(error),
            (Ran::Failed, _) => {}
            (Ran::Done, _) => match view.into_changes() {
                Ok(changes) => return Outcome::Ended(changes, sight),
                Err(error) => job.op.fail(error),
            },
        }
        Outcome::Ended(Changes::new(), sight)
    }

    /// Makes the changes of an operation visible to later operations.
    fn end(
        &mut self,
        mut job: Job,
        changes: Changes,
        sight: &Sight,
        open: &mut Batch,
        pins: Option<&Pins>,
        inline: Option<&Inline<'_>>,
    ) {
        if let Some(ground) = job.closes.take() {
            self.delegations.open(ground);
        }
        job.changed = !changes.is_empty();
        if job.changed
            && let Some((session, released)) = job.op.released()
        {
            self.leases.release(session, released);
        }
        // The session of a posted operation has reported it as done, so the operation waits for no
        // acknowledgements of others; operations that see its changes do.
        let is_by_itself = job.op.is_posted();
        let newest = Newest { overlay: &self.overlay, pins, cache: &self.shared.cache, inline };
        let was_told = job.early.is_some();
        let before = |key: &Bytes| {
            let is_told = was_told || (is_by_itself && !keys::is_counter(key));
            if is_told { None } else { newest.get(key) }
        };
        let settle = self.leases.ran(changes.keys(), open.number, job.op.grant(), before);
        job.settle = settle.filter(|_| !is_by_itself);
        let is_over = self.hasten(&mut job, sight, open.number);
        let by = job.early.map(|early| early.session);
        for (key, row) in changes {
            self.overlay.put(key, row, by, open);
        }
        if is_over { self.shared.answer(vec![job]) } else { open.jobs.push(job) }
    }

    /// Answers an operation that has just run, if it may be answered before it is durable. Returns
    /// whether the operation is complete.
    fn hasten(&self, job: &mut Job, sight: &Sight, batch: u64) -> bool {
        let (hasty, unsettled) = (&self.shared.hasty, &self.shared.unsettled);
        if let Some(early) = &mut job.early {
            unsettled.begin(batch);
            unsettled.end(std::mem::replace(&mut early.batch, batch));
            return false;
        }
        let haste = job.op.haste();
        if haste == Haste::Never || sight.others() || !self.shared.serves() {
            return false;
        }
        if let Haste::Keeper(session) = haste
            && job.changed
        {
            let Some(serial) = hasty.begin(session) else { return false };
            // A reader of durable rows only would miss changes that its session knows to be done.
            unsettled.begin(batch);
            job.early = Some(Early { session, serial, batch });
            let answer = job.op.early_answer(serial);
            match &job.settle {
                Some(settle) => settle.answer_early(answer),
                None => answer(),
            }
            return false;
        }
        // The change that an operation of the same session made may be this operation, sent again.
        !matches!(haste, Haste::Keeper(_)) || !sight.own()
    }

    fn park(&mut self, mut lacking: Lacking) {
        for want in &mut lacking.wants {
            // Fetches as many more rows as were deleted in the range since.
            if let Want::Range { start, end, limit } = want {
                *limit += self.overlay.deleted(start, end);
            }
        }
        self.parked.enter(&lacking.pins);
        self.shared.fetches.push(lacking);
    }

    /// Forgets everything that is not durable, and puts the operations that were executed on it
    /// back into the queue.
    fn start_over(&mut self, pipe: &mut PipeState, verdict: Verdict) {
        let next = self.shared.durable.batch() + 1;
        let open = std::mem::replace(&mut pipe.open, Batch::new(next));
        let void = std::mem::take(&mut self.overlay).changed_since(next - 1);
        self.leases.start_over(next - 1, &void);
        self.parked.generation += 1;
        for job in verdict.redo.into_iter().chain(open.jobs).rev() {
            self.queue.push_front(job);
        }
    }

    /// Answers operations that changed nothing and wait for nobody, or leaves them to the
    /// committer. Returns whether all executed operations are answered.
    fn answer_or_offer(&mut self, mut pipe: MutexGuard<'_, PipeState>) -> bool {
        if pipe.committing || !pipe.open.changes.is_empty() {
            self.shared.pipe.offer(&mut pipe);
            MutexGuard::unlock_fair(pipe);
            return false;
        }
        let jobs = std::mem::take(&mut pipe.open.jobs);
        MutexGuard::unlock_fair(pipe);
        self.shared.answer_unchanged(jobs);
        true
    }

    /// Returns whether there is nothing left to do, ever.
    fn is_drained(&self) -> bool {
        let idle = self.queue.is_empty() && self.fetched.is_empty() && self.parked.count == 0;
        idle && self.shared.stopping.load(Ordering::SeqCst) && self.shared.inbox.close_if_empty()
    }
}

impl ParkedOperations {
    fn enter(&mut self, pins: &Pins) {
        self.count += 1;
        *self.holds.entry(pins.hold).or_default() += 1;
    }

    fn leave(&mut self, pins: &Pins) {
        self.count -= 1;
        if let Some(count) = self.holds.get_mut(&pins.hold) {
            *count -= 1;
            if *count == 0 {
                self.holds.remove(&pins.hold);
            }
        }
    }
}
