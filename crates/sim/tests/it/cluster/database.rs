//! The database that masters share: rows, a fence, and a lease that is renewed, as the engine on
//! PostgreSQL has them. Whom it serves is subject to the network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Error, NodeId, Result, Threads};
use cairn_meta::engine::{
    Change, CommitError, CommitFault, Engine, Fence, Lease, Memory, Snapshot,
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::net::Net;

/// The host that the database runs on.
pub const DATABASE: NodeId = NodeId(1000);
/// Lease of a master.
pub const LEASE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(100);
const RENEWAL: Duration = Duration::from_millis(300);

pub struct Database {
    pub rows: Memory,
    net: Net,
    rng: Arc<SeededRng>,
    state: Mutex<DatabaseState>,
}

#[derive(Default)]
struct DatabaseState {
    /// Number of renewals; 0 if nobody holds a lease.
    beats: u64,
    /// Thousandths of commits that fail in some way.
    faults: u64,
}

/// The state that a standby saw last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    beats: u64,
    fence: Fence,
}

impl Database {
    pub fn new(net: Net, rng: Arc<SeededRng>) -> Arc<Database> {
        Arc::new(Database { rows: Memory::new(), net, rng, state: Mutex::default() })
    }

    pub fn set_faults(&self, thousandths: u64) {
        self.state.lock().faults = thousandths;
    }

    fn reached_by(&self, node: NodeId) -> Result<()> {
        if self.net.is_cut(node, DATABASE) {
            return Err(Error::Unavailable("the database does not answer".into()));
        }
        Ok(())
    }

    fn look(&self, node: NodeId) -> Result<Turn> {
        self.reached_by(node)?;
        Ok(Turn { beats: self.state.lock().beats, fence: self.rows.fence()? })
    }

    /// Waits until no other master serves.
    pub async fn wait_for_turn(&self, node: NodeId) -> Turn {
        let mut last: Option<(Turn, Instant)> = None;
        loop {
            match (self.look(node), last) {
                (Ok(turn), _) if turn.beats == 0 => return turn,
                (Ok(turn), Some((seen, since))) if seen == turn => {
                    if since.elapsed() > LEASE * 110 / 100 {
                        return turn;
                    }
                }
                (Ok(turn), _) => last = Some((turn, Instant::now())),
                (Err(_), _) => last = None,
            }
            sleep(POLL).await;
        }
    }
}

/// The database as one master uses it.
pub struct SharedDatabase {
    database: Arc<Database>,
    node: NodeId,
    turn: Turn,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl SharedDatabase {
    pub fn new(
        database: &Arc<Database>,
        node: NodeId,
        turn: Turn,
        (clock, threads): (Arc<dyn Clock>, Arc<dyn Threads>),
    ) -> Arc<SharedDatabase> {
        let database = Arc::clone(database);
        let lease = Mutex::default();
        Arc::new(SharedDatabase { database, node, turn, clock, threads, lease })
    }

    /// Renews until another has taken over, or nobody wants it any more.
    fn renew(&self, lease: &Arc<Lease>, epoch: u64) {
        let (database, node) = (Arc::clone(&self.database), self.node);
        let (clock, lease) = (Arc::clone(&self.clock), Arc::downgrade(lease));
        self.threads.spawn(Box::pin(async move {
            loop {
                sleep(RENEWAL).await;
                let Some(lease) = lease.upgrade() else { return };
                let sent = clock.monotonic();
                let Ok(Turn { fence, .. }) = database.look(node) else { continue };
                if fence.epoch != epoch {
                    return lease.fence(format!("epoch {} has begun", fence.epoch));
                }
                database.state.lock().beats += 1;
                lease.extend(sent);
            }
        }));
    }

    fn draw_fault(&self) -> Option<CommitFault> {
        let (rng, faults) = (&self.database.rng, self.database.state.lock().faults);
        let all = [CommitFault::Failed, CommitFault::UnknownCommitted, CommitFault::UnknownLost];
        (rng.below(1000) < faults).then(|| all[rng.below(3) as usize])
    }
}

impl Engine for SharedDatabase {
    fn fence(&self) -> Result<Fence> {
        self.database.reached_by(self.node)?;
        self.database.rows.fence()
    }

    fn take_over_at(&self, batch: u64) -> Result<Fence> {
        let sent = self.clock.monotonic();
        if self.database.look(self.node)? != self.turn {
            return Err(Error::Unavailable("another master was faster".into()));
        }
        let fence = self.database.rows.take_over_at(batch)?;
        let lease = Arc::new(Lease::new("database".into(), LEASE, Arc::clone(&self.clock), sent));
        self.database.state.lock().beats += 1;
        self.renew(&lease, fence.epoch);
        *self.lease.lock() = Some(lease);
        Ok(fence)
    }

    fn lease(&self) -> Option<Arc<Lease>> {
        self.lease.lock().clone()
    }

    fn give_up(&self) {
        if let Some(lease) = self.lease.lock().take() {
            lease.give_up();
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.database.reached_by(self.node)?;
        self.database.rows.snapshot()
    }

    fn read(&self, keys: &[Bytes]) -> Result<(u64, Vec<Option<Bytes>>)> {
        let snapshot = self.snapshot()?;
        Ok((snapshot.batch(), snapshot.get(keys)?))
    }

    fn commit(&self, expected: Fence, changes: Vec<Change>) -> Result<(), CommitError> {
        let sent = self.clock.monotonic();
        if let Err(error) = self.database.reached_by(self.node) {
            return Err(CommitError::Unknown(error));
        }
        if let Some(fault) = self.draw_fault() {
            self.database.rows.fail_commit(0, fault);
        }
        self.database.rows.commit(expected, changes)?;
        if let Some(lease) = &*self.lease.lock() {
            lease.extend(sent);
        }
        Ok(())
    }
}
