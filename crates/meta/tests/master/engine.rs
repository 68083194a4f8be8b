//! An engine in memory whose commits can be held up and made to fail.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Error, Result};
use cairn_meta::engine::{Change, Commit, CommitError, Engine, Fence, Later, Snapshot};
use parking_lot::{Condvar, Mutex};

pub type Rows = BTreeMap<Bytes, Bytes>;

type Plan = Box<dyn Fn(u64) -> Fate + Send + Sync>;
type Witness = Box<dyn Fn(&Rows) + Send + Sync>;

/// The fate of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Fine,
    Full,
    Broken,
    /// Reported as unknown.
    UnknownDone,
    UnknownLost,
    /// The commit is reported as unknown, and the fence cannot be read then.
    UnknownForever,
    Poisoned,
    Fenced,
}

#[derive(Default)]
struct EngineState {
    rows: Arc<Rows>,
    fence: Fence,
    /// Fates of the next commits, then all are fine.
    fates: VecDeque<Fate>,
    unreadable: bool,
    low: bool,
    snapshots_fail: bool,
    /// Commits wait while it is set.
    held: bool,
    /// Commits that wait now, and that ever began.
    waiting: usize,
    begun: u64,
}

/// Rows in a map; a snapshot is a clone that is shared until the next commit.
#[derive(Default)]
pub struct TestEngine {
    state: Mutex<EngineState>,
    changed: Condvar,
    /// Fate by the number of the commit, if not in the list.
    plan: Option<Plan>,
    /// Called with the rows, after they are durable and before anybody is answered.
    witness: Option<Witness>,
}

impl TestEngine {
    pub fn new() -> Arc<TestEngine> {
        Arc::default()
    }

    pub fn watched(
        plan: impl Fn(u64) -> Fate + Send + Sync + 'static,
        witness: impl Fn(&Rows) + Send + Sync + 'static,
    ) -> Arc<TestEngine> {
        let (plan, witness) = (Some(Box::new(plan) as Plan), Some(Box::new(witness) as Witness));
        Arc::new(TestEngine { plan, witness, ..TestEngine::default() })
    }

    pub fn plan(&self, fates: impl IntoIterator<Item = Fate>) {
        self.state.lock().fates.extend(fates);
    }

    /// Commits wait from now on.
    pub fn hold(&self) {
        self.state.lock().held = true;
    }

    /// Commits that wait go on, and later ones do not wait.
    pub fn release(&self) {
        self.state.lock().held = false;
        self.changed.notify_all();
    }

    /// Waits until a commit waits.
    pub fn await_commit(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Commits that ever began.
    pub fn begun(&self) -> u64 {
        self.state.lock().begun
    }

    pub fn fail_snapshots(&self, fail: bool) {
        self.state.lock().snapshots_fail = fail;
    }

    /// Sets whether it reports that the disk is full.
    pub fn set_low(&self, low: bool) {
        self.state.lock().low = low;
    }

    pub fn rows(&self) -> Rows {
        (*self.state.lock().rows).clone()
    }

    fn fate(&self, state: &mut EngineState) -> Fate {
        match (state.fates.pop_front(), &self.plan) {
            (Some(fate), _) => fate,
            (None, Some(plan)) => plan(state.begun),
            (None, None) => Fate::Fine,
        }
    }

    fn apply(&self, state: &mut EngineState, changes: Vec<Change>) {
        let rows = Arc::make_mut(&mut state.rows);
        for (key, row) in changes {
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
        }
        state.fence.batch += 1;
        if let Some(witness) = &self.witness {
            witness(&state.rows);
        }
    }
}

impl Engine for TestEngine {
    fn fence(&self) -> Result<Fence> {
        let state = self.state.lock();
        if state.unreadable {
            return Err(Error::Unavailable("no fence today".into()));
        }
        Ok(state.fence)
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let mut state = self.state.lock();
        state.fence.epoch += 1;
        state.fence.batch = state.fence.batch.max(batch);
        Ok(state.fence)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let state = self.state.lock();
        if state.snapshots_fail {
            return Err(Error::Unavailable("no snapshot today".into()));
        }
        Ok(Box::new(TestSnapshot { rows: state.rows.clone(), batch: state.fence.batch }))
    }

    fn is_low_on_space(&self) -> bool {
        self.state.lock().low
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        assert!(!changes.is_empty(), "an empty commit");
        let mut state = self.state.lock();
        state.begun += 1;
        state.waiting += 1;
        self.changed.notify_all();
        while state.held {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        if state.fence != expected {
            return Err(CommitError::Fenced { found: state.fence });
        }
        let unknown = || CommitError::Unknown(Error::Unavailable("line cut".into()));
        match self.fate(&mut state) {
            Fate::Fine => {
                self.apply(&mut state, changes);
                Ok(())
            }
            Fate::Full => Err(CommitError::Failed(Error::Full("test disk".into()))),
            Fate::Broken => Err(CommitError::Failed(Error::Invalid("test".into()))),
            Fate::UnknownDone => {
                self.apply(&mut state, changes);
                Err(unknown())
            }
            Fate::UnknownLost => Err(unknown()),
            Fate::UnknownForever => {
                state.unreadable = true;
                Err(unknown())
            }
            Fate::Poisoned => {
                Err(CommitError::Poisoned(Error::Io(std::io::Error::other("sync failed"))))
            }
            Fate::Fenced => {
                state.fence.epoch += 1;
                Err(CommitError::Fenced { found: state.fence })
            }
        }
    }
}

/// The engine where others decide: a commit and what settles it end on another thread.
pub struct LateEngine(pub Arc<TestEngine>);

impl LateEngine {
    fn elsewhere<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TestEngine) -> T + Send + 'static,
    ) -> Later<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let engine = Arc::clone(&self.0);
        std::thread::spawn(move || drop(sender.send(work(&engine))));
        Box::pin(async move { receiver.await.expect("an outcome") })
    }
}

impl Engine for LateEngine {
    fn fence(&self) -> Result<Fence> {
        panic!("what is unknown is settled by others");
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        self.0.take_over_at(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.0.snapshot()
    }

    fn commit(&self, _: Fence, _: Vec<Change>) -> Result<(), CommitError> {
        panic!("the committer does not block");
    }

    fn commit_later(&self, expected: Fence, changes: Vec<Change>) -> Commit {
        Commit::Later(self.elsewhere(move |engine| engine.commit(expected, changes)))
    }

    fn settle(&self) -> Later<Result<Fence>> {
        self.elsewhere(|engine| engine.fence())
    }
}

struct TestSnapshot {
    rows: Arc<Rows>,
    batch: u64,
}

impl Snapshot for TestSnapshot {
    fn batch(&self) -> u64 {
        self.batch
    }

    fn get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        Ok(keys.iter().map(|key| self.rows.get(key).cloned()).collect())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let range = self.rows.range(Bytes::copy_from_slice(start)..Bytes::copy_from_slice(end));
        Ok(range.take(limit).map(|(key, row)| (key.clone(), row.clone())).collect())
    }
}
