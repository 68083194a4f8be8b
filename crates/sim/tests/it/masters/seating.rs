//! The duties of a master that serves towards the members, as its process does them, and the parts
//! of the cluster map that they need. What is decided, and in which order it is done, is the
//! product's code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cairn_auth::Caller;
use cairn_base::{Error, NodeId, Result};
use cairn_cluster::members::{Roster, Seating};
use cairn_meta::Master;
use cairn_meta::engine::raft::Member;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::verbs::Swap;

/// Between two looks who leads, and who may begin.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between two looks of a master at the members.
const SEATED: Duration = Duration::from_millis(500);
/// Time that a master serves before it hands over because its disk is full.
const REST: Duration = Duration::from_secs(3);
/// Time that an operator waits for the answer to a removal.
const PATIENCE: Duration = Duration::from_secs(8);
/// Register that no client uses: an edit of the map.
const MAP: u8 = 200;

/// The masters of the map, what an operator wants, and what masters know of it. Clones are the
/// same.
#[derive(Clone, Default)]
pub struct MasterList {
    state: Arc<Mutex<MasterListState>>,
}

#[derive(Default)]
pub struct MasterListState {
    /// Masters of the cluster map.
    pub masters: BTreeSet<u64>,
    /// Masters that an operator wants to remove.
    pub asked: BTreeSet<u64>,
    /// Masters that beat.
    pub up: BTreeSet<u64>,
    /// New masters that ask whether they may begin, and the generations that they get.
    entering: BTreeMap<u64, Option<Result<u64, String>>>,
    /// Voters when the serving master had nothing to change.
    pub settled: Option<BTreeSet<u64>>,
    /// Masters that were given up.
    pub former: BTreeSet<u64>,
    /// The leader of each term of each generation.
    leaders: BTreeMap<(u64, u64), u64>,
    pub violations: Vec<String>,
    /// A planted bug.
    pub wiped_may_vote: bool,
    edits: u32,
}

impl MasterList {
    pub fn with<T>(&self, work: impl FnOnce(&mut MasterListState) -> T) -> T {
        work(&mut self.state.lock())
    }

    /// Asks whether the member `id`, whose disk is empty, may begin, and in which generation.
    ///
    /// # Errors
    /// `Conflict` if it may not.
    pub async fn enter(&self, id: u64) -> Result<u64> {
        self.with(|state| state.entering.insert(id, None));
        loop {
            sleep(LOOK).await;
            if let Some(Some(answer)) = self.with(|state| state.entering.get(&id).cloned()) {
                return answer.map_err(Error::Conflict);
            }
        }
    }

    /// Those that wait for an answer.
    fn entering(&self) -> Vec<u64> {
        self.with(|state| {
            let waits =
                |(id, answer): &(&u64, &Option<_>)| answer.is_none() && state.up.contains(id);
            state.entering.iter().filter(waits).map(|(id, _)| *id).collect()
        })
    }

    fn lead(&self, term: (u64, u64), id: u64) {
        self.with(|state| {
            let first = *state.leaders.entry(term).or_insert(id);
            if first != id {
                state.violations.push(format!("members {first} and {id} lead term {term:?}"));
            }
        });
    }

    /// Looks whether `member` leads, as long as it does not end.
    pub async fn watch(self, member: Arc<Member>, generation: u64) {
        loop {
            sleep(LOOK).await;
            if let Some(lead) = member.lead().await {
                self.lead((generation, lead.term), member.id());
            }
        }
    }
}

/// The list as a master that serves sees and changes it.
pub struct Served {
    pub list: MasterList,
    pub master: Master,
}

impl Served {
    /// Makes a change that only a master can make that serves.
    async fn edit(&self) -> Result<()> {
        let edit = self.list.with(|state| {
            state.edits += 1;
            Swap(MAP, state.edits)
        });
        self.master.run(&Caller::system(), edit).await.map(drop)
    }
}

#[async_trait]
impl Roster for Served {
    fn masters(&self) -> BTreeSet<u64> {
        self.list.with(|state| state.masters.clone())
    }

    fn up(&self) -> BTreeSet<u64> {
        self.list.with(|state| &state.up & &state.masters)
    }

    async fn strike(&self, node: NodeId) -> Result<()> {
        self.edit().await?;
        tracing::info!(%node, "is removed");
        self.list.with(|state| {
            state.settled = None;
            state.asked.remove(&node.0);
            state.masters.remove(&node.0);
        });
        Ok(())
    }

    fn former_numbers(&self, _: NodeId) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }

    async fn renumber(&self, node: NodeId) -> Result<NodeId> {
        Err(Error::NotImplemented(format!("a new number for node {node}")))
    }
}

/// The duties of one master, as long as it serves.
pub struct Duties {
    pub served: Arc<Served>,
    pub seating: Arc<Seating>,
    /// An operator has masters come and go.
    pub changes: bool,
}

impl Duties {
    /// Returns never.
    pub async fn attend(self) {
        let begun = Instant::now();
        let mut removing: Option<JoinHandle<()>> = None;
        loop {
            sleep(SEATED).await;
            let has_served = begun.elapsed() >= REST;
            if let Err(error) = self.seat(has_served).await {
                tracing::info!(%error, "no change of members");
            }
            let is_busy = removing.as_ref().is_some_and(|task| !task.is_finished());
            let asked = self.served.list.with(|state| state.asked.clone());
            if self.changes && !is_busy && !asked.is_empty() {
                // Its operator does not ask for less since this master serves no longer.
                let (served, seating) = (Arc::clone(&self.served), Arc::clone(&self.seating));
                removing = Some(tokio::spawn(remove(served, seating, asked)));
            }
        }
    }

    async fn seat(&self, has_served: bool) -> Result<()> {
        let Duties { served, seating, .. } = self;
        let list = &served.list;
        for id in list.entering() {
            self.admit(id).await;
        }
        seating.seat(&**served, has_served, has_served).await?;
        if !self.changes {
            return Ok(());
        }
        let standing = seating.standing(&**served).await?;
        if let [voters] = &standing.status.members.voters[..]
            && standing.status.leads()
            && standing.next_seats().is_none()
        {
            let is_served = served.edit().await.is_ok();
            list.with(|state| {
                let is_asked = !state.asked.is_empty();
                state.settled = Some(voters.clone()).filter(|_| is_served && !is_asked);
            });
        } else {
            list.with(|state| state.settled = None);
        }
        Ok(())
    }

    /// Answers a new master that asks whether it may begin. A removed one is refused.
    async fn admit(&self, id: u64) {
        let Duties { served, seating, .. } = self;
        let entered = if served.masters().contains(&id) {
            seating.enter(&**served, NodeId(id), &served.master).await
        } else {
            Err(Error::Denied(format!("member {id} is none")))
        };
        served.list.with(|state| {
            let answer = match entered {
                Err(Error::Unavailable(_)) => return,
                Err(_) if state.wiped_may_vote => Ok(0),
                Err(error) => Err(error.to_string()),
                Ok(entered) => Ok(entered.generation),
            };
            state.entering.insert(id, Some(answer));
        });
    }
}

/// Has the master remove these, one after another.
async fn remove(served: Arc<Served>, seating: Arc<Seating>, asked: BTreeSet<u64>) {
    for id in asked {
        match timeout(PATIENCE, seating.remove(&*served, NodeId(id))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(id, %error, "not removed"),
            Err(_) => tracing::info!(id, "a removal takes too long"),
        }
    }
}
