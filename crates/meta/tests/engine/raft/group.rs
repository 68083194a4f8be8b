//! Members on disks of their own, whose messages go through one another's hands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, Error, Result, Thread, Threads, Timestamp};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::message::{self, Message};
use cairn_meta::engine::raft::{Member, Peers, RaftEngine, Seams, Timing};
use cairn_meta::engine::{Change, Commit, CommitError, Engine, Fence, Later};
use cairn_sim::SimDisk;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

pub const MEMBERS: [u64; 3] = [1, 2, 3];
/// No wait in these tests is as long, by their clock.
const FOREVER: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// Time as tests have it: that of the runtime.
pub struct RuntimeClock(pub Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1000) + self.0.elapsed()
    }
}

/// Does all work on the thread of the runtime, at once.
#[derive(Debug)]
pub struct Inline;

impl Threads for Inline {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        tokio::spawn(async move { work() });
    }

    fn spawn(&self, thread: Thread) {
        tokio::spawn(thread);
    }
}

type Delays = Box<dyn Fn(u64, u64, &Message) -> Duration + Send>;

/// The ways between members.
#[derive(Default)]
pub struct Wires {
    members: Mutex<BTreeMap<u64, Arc<Member>>>,
    /// Tells how long messages are on their way, by their senders and receivers.
    delays: Mutex<Option<Delays>>,
    /// From whom nothing reaches whom.
    cuts: Mutex<BTreeSet<(u64, u64)>>,
    /// Members that the others gave up.
    former: Mutex<BTreeSet<u64>>,
    /// The lengths of parts of snapshots that arrived.
    pub sections: Mutex<Vec<usize>>,
}

struct Port {
    from: u64,
    wires: Arc<Wires>,
}

impl Wires {
    pub fn cut(&self, from: u64, to: u64) {
        self.cuts.lock().insert((from, to));
    }

    /// From now on the other members know `member` as a former one.
    pub fn give_up(&self, member: u64) {
        self.former.lock().insert(member);
    }

    /// Cuts `member` off, in both directions.
    pub fn isolate(&self, member: u64) {
        for other in MEMBERS {
            self.cut(member, other);
            self.cut(other, member);
        }
    }

    /// Delays messages from now on, by their senders and receivers.
    pub fn delay(&self, delays: impl Fn(u64, u64, &Message) -> Duration + Send + 'static) {
        *self.delays.lock() = Some(Box::new(delays));
    }

    pub fn heal(&self) {
        self.cuts.lock().clear();
        self.delays.lock().take();
    }

    fn delay_of(&self, from: u64, to: u64, message: &Message) -> Duration {
        self.delays.lock().as_ref().map_or(Duration::ZERO, |delays| delays(from, to, message))
    }

    fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.lock().contains(&(from, to))
    }
}

impl Peers for Port {
    fn send(&self, to: u64, bytes: Bytes) -> Later<Result<Bytes>> {
        let (wires, from) = (Arc::clone(&self.wires), self.from);
        Box::pin(async move {
            if wires.is_cut(from, to) {
                return pending().await;
            }
            let target = wires.members.lock().get(&to).cloned();
            let target = target.ok_or_else(|| Error::Unavailable("nobody listens".into()))?;
            if let Ok((_, message)) = message::parse(&bytes) {
                let delay = wires.delay_of(from, to, &message);
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                if matches!(message, Message::Page { .. } | Message::Begin { .. }) {
                    wires.sections.lock().push(bytes.len());
                }
            }
            let reply = target.receive(from, bytes).await;
            if wires.is_cut(to, from) {
                return pending().await;
            }
            Ok(reply)
        })
    }

    fn former(&self) -> BTreeSet<u64> {
        let mut former = self.wires.former.lock().clone();
        former.remove(&self.from);
        former
    }
}

/// The seams and times of members.
#[derive(Clone)]
pub struct Hosts {
    pub clock: Arc<dyn Clock>,
    pub threads: Option<Arc<dyn Threads>>,
    pub timing: Timing,
}

pub struct Group {
    pub disks: BTreeMap<u64, SimDisk>,
    pub engines: BTreeMap<u64, RaftEngine>,
    pub wires: Arc<Wires>,
    hosts: Hosts,
    config: fn(u64) -> Config,
    seed: u64,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("engines", &self.engines).finish_non_exhaustive()
    }
}

impl Group {
    /// Three members with a log. The first one was elected, or will be.
    pub async fn found(hosts: Hosts, config: fn(u64) -> Config) -> Group {
        let mut group = Group::new(hosts, config);
        for id in MEMBERS {
            group.open(id).await.unwrap();
        }
        group.engines[&1].member().found(&MEMBERS.into()).await.unwrap();
        group
    }

    /// Three members of which the first one keeps a log, and the others know of none. On the
    /// virtual time of a runtime that is paused.
    pub async fn alone(config: fn(u64) -> Config) -> Group {
        let mut group = Group::new(Hosts::paused(), config);
        for id in MEMBERS {
            group.open(id).await.unwrap();
        }
        group.engines[&1].member().found(&[1].into()).await.unwrap();
        group
    }

    /// On the virtual time of a runtime that is paused.
    pub async fn paused(config: fn(u64) -> Config) -> Group {
        Group::found(Hosts::paused(), config).await
    }
}

impl Hosts {
    fn paused() -> Hosts {
        let clock = Arc::new(RuntimeClock(Instant::now()));
        let threads: Option<Arc<dyn Threads>> = Some(Arc::new(Inline));
        Hosts { clock, threads, timing: Timing::default() }
    }
}

impl Group {
    fn new(hosts: Hosts, config: fn(u64) -> Config) -> Group {
        let disks = MEMBERS.map(|id| (id, SimDisk::new(id))).into();
        let (engines, wires) = (BTreeMap::new(), Arc::default());
        Group { disks, engines, wires, hosts, config, seed: 0 }
    }

    pub async fn open(&mut self, id: u64) -> Result<()> {
        self.seed += 1;
        let hosts = &self.hosts;
        let seams = Seams {
            peers: Arc::new(Port { from: id, wires: Arc::clone(&self.wires) }),
            clock: Arc::clone(&hosts.clock),
            rng: Arc::new(SeededRng::new(self.seed << 8 | id)),
            threads: hosts.threads.clone(),
        };
        let disk = Arc::new(self.disks[&id].clone());
        let member = Member::open(disk, (self.config)(id), id, seams, hosts.timing).await?;
        self.wires.members.lock().insert(id, Arc::clone(&member));
        self.engines.insert(id, RaftEngine::new(member));
        Ok(())
    }

    /// Ends the process of a member, which says that it gives up if its master serves.
    pub async fn close(&mut self, id: u64) {
        let Some(engine) = self.engines.remove(&id) else { return };
        engine.give_up();
        engine.given_up().await;
        self.end(id, engine).await;
    }

    /// Cuts the power of a member: what it had not synced is lost, in part.
    pub async fn kill(&mut self, id: u64) {
        let Some(engine) = self.engines.remove(&id) else { return };
        self.seed += 1;
        let left = self.disks[&id].crash_image(self.seed);
        self.disks.insert(id, left);
        // The rest of the process writes to a disk that nobody reads.
        self.wires.members.lock().remove(&id);
        let member = Arc::clone(engine.member());
        member.close().await;
        drop(engine);
        member.close_all().await;
    }

    async fn end(&mut self, id: u64, engine: RaftEngine) {
        self.wires.members.lock().remove(&id);
        let member = Arc::clone(engine.member());
        member.close().await;
        drop(engine);
        member.close_all().await;
    }

    pub async fn restart_all(&mut self) {
        for id in MEMBERS {
            self.close(id).await;
        }
        for id in MEMBERS {
            self.open(id).await.unwrap();
        }
    }

    /// The member among `of` that leads, and has applied all that was committed before.
    pub async fn leader_of(&self, of: &[u64]) -> u64 {
        let begun = self.now();
        while self.now() - begun < FOREVER {
            for (id, engine) in self.engines.iter().filter(|(id, _)| of.contains(id)) {
                if engine.member().lead().await.is_some() && engine.settle().await.is_ok() {
                    return *id;
                }
            }
            sleep(LOOK).await;
        }
        panic!("no member leads: {self:?}");
    }

    pub async fn leader(&self) -> u64 {
        self.leader_of(&MEMBERS).await
    }

    /// Has a master among `of` serve; returns its member, and the fence of its take-over.
    pub async fn serve(&self, of: &[u64]) -> (u64, Fence) {
        let begun = self.now();
        while self.now() - begun < FOREVER {
            let id = self.leader_of(of).await;
            let turn = self.engines[&id].wait_for_turn();
            if let Ok(turn) = tokio::time::timeout(Duration::from_secs(10), turn).await {
                turn.unwrap();
                return (id, self.engines[&id].take_over().unwrap());
            }
        }
        panic!("no master serves: {self:?}");
    }

    pub async fn commit(
        &self,
        id: u64,
        expected: Fence,
        changes: Vec<Change>,
    ) -> Result<(), CommitError> {
        match self.engines[&id].commit_later(expected, changes) {
            Commit::Done(result) => result,
            Commit::Later(result) => result.await,
        }
    }

    /// Commits what must be committed, and follows the fence.
    pub async fn put(&self, id: u64, fence: &mut Fence, changes: Vec<Change>) {
        self.commit(id, *fence, changes).await.unwrap();
        fence.batch += 1;
    }

    pub fn now(&self) -> Duration {
        self.hosts.clock.monotonic()
    }

    /// Waits until `done`.
    pub async fn until(&self, what: &str, done: impl Fn(&Group) -> bool) {
        let begun = self.now();
        while !done(self) {
            assert!(self.now() - begun < FOREVER, "{what}");
            sleep(LOOK).await;
        }
    }
}
