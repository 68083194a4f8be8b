//! The part of the controller that decides who keeps the metadata, in each process of a master, and
//! the parts of the cluster map that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_cluster::members::{Seats, caught_up, seats};
use cairn_meta::Master;
use cairn_meta::engine::raft::{Member, MemberStatus};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::process::ProcessShown;
use super::verbs::Swap;

/// Between two looks who leads, and in how many of them a master looks at the members.
const LOOK: Duration = Duration::from_millis(100);
const SEATED_EVERY: u32 = 5;
/// A master serves so long before it hands over since its disk is full.
const REST: Duration = Duration::from_secs(3);
/// A register that no client asks for: an edit of the map.
const MAP: u8 = 200;

/// What an operator wants and masters know of it. Clones are the same.
#[derive(Clone, Default)]
pub struct Seating {
    state: Arc<Mutex<SeatingState>>,
}

#[derive(Default)]
pub struct SeatingState {
    /// Those of the cluster map.
    pub masters: BTreeSet<u64>,
    /// Those of them that an operator wants to remove.
    pub asked: BTreeSet<u64>,
    /// Those that beat.
    pub up: BTreeSet<u64>,
    /// New ones that ask whether they may begin, and the answers.
    entering: BTreeMap<u64, Option<bool>>,
    /// The voters, when the master that serves had nothing to change.
    pub settled: Option<BTreeSet<u64>>,
    /// The leader of each term.
    leaders: BTreeMap<u64, u64>,
    pub violations: Vec<String>,
    /// A planted bug.
    pub wiped_may_vote: bool,
    edits: u32,
}

impl Seating {
    pub fn with<T>(&self, work: impl FnOnce(&mut SeatingState) -> T) -> T {
        work(&mut self.state.lock())
    }

    /// Asks whether the member `id`, whose disk is empty, may begin.
    ///
    /// # Errors
    /// `Conflict` if it may not.
    pub async fn enter(&self, id: u64) -> Result<()> {
        self.with(|state| state.entering.insert(id, None));
        loop {
            sleep(LOOK).await;
            match self.with(|state| state.entering.get(&id).copied().flatten()) {
                None => {}
                Some(true) => return Ok(()),
                Some(false) => return Err(Error::Conflict(format!("member {id} has promised"))),
            }
        }
    }

    /// Answers those that ask.
    fn admit(&self, status: &MemberStatus) {
        self.with(|state| {
            let SeatingState { masters, entering, up, wiped_may_vote, .. } = state;
            let waits = entering.iter_mut().filter(|(id, _)| up.contains(*id));
            for (id, answer) in waits.filter(|(_, answer)| answer.is_none()) {
                // One that was removed is not let in at all.
                let may_begin = masters.contains(id) && !has_promised(*id, status);
                *answer = Some(*wiped_may_vote || may_begin);
            }
        });
    }

    fn lead(&self, term: u64, id: u64) {
        self.with(|state| {
            let first = *state.leaders.entry(term).or_insert(id);
            if first != id {
                state.violations.push(format!("members {first} and {id} lead term {term}"));
            }
        });
    }

    fn next(&self, member: &Member, status: &MemberStatus, leaving: Option<u64>) -> Option<Seats> {
        let caught_up = caught_up(status, &member.answering());
        let (mut masters, up) = self.with(|state| (state.masters.clone(), state.up.clone()));
        masters.retain(|id| Some(*id) != leaving);
        seats(&status.members, status.member, &masters, &(&up & &masters), &caught_up)
    }

    /// Those that are up and have caught up.
    fn working(&self, member: &Member, status: &MemberStatus) -> BTreeSet<u64> {
        let up = self.with(|state| &state.up & &state.masters);
        &up & &caught_up(status, &member.answering())
    }

    /// Whether the others can do without `id`, as the controller decides it.
    fn is_removable(&self, id: u64, member: &Member, status: &MemberStatus) -> bool {
        let left = status.members.voters.iter().flatten().filter(|voter| **voter != id);
        let left: BTreeSet<u64> = left.copied().collect();
        (&left & &self.working(member, status)).len() * 2 > left.len()
    }

    /// A master that can serve in place of this one.
    async fn successor(&self, member: &Member, status: &MemberStatus) -> Option<u64> {
        member.successor(&self.working(member, status)).await
    }
}

/// The part of the controller of one process.
pub struct Seater {
    pub member: Arc<Member>,
    pub shown: ProcessShown,
    pub seating: Seating,
    /// The one that is to serve in place of this one.
    pub handing: Arc<watch::Sender<Option<u64>>>,
    /// Masters of the map become members, and others leave.
    pub changes: bool,
}

impl Seater {
    /// Runs as long as the process of a member.
    pub async fn attend(self) {
        let mut serving = None;
        for look in 0_u32.. {
            sleep(LOOK).await;
            if let Some(lead) = self.member.lead().await {
                self.seating.lead(lead.term, self.member.id());
            }
            let shown = self.shown.master.lock().clone();
            let Some((number, master)) = shown else { continue };
            let since = match serving {
                Some((of, since)) if of == number => since,
                _ => Instant::now(),
            };
            serving = Some((number, since));
            if !look.is_multiple_of(SEATED_EVERY) || self.handing.borrow().is_some() {
                continue;
            }
            if let Err(error) = self.seat(&master, since.elapsed()).await {
                tracing::info!(member = self.member.id(), %error, "no change of members");
            }
        }
    }

    /// What the controller of a master that serves since `served` does about twice a second.
    async fn seat(&self, master: &Master, served: Duration) -> Result<()> {
        let Seater { member, seating, .. } = self;
        let status = member.status().await?;
        if master.check_serving().is_ok() {
            seating.admit(&status);
        }
        if !status.leads() {
            return Ok(());
        }
        if member.is_low_on_space()
            && served >= REST
            && let Some(to) = seating.successor(member, &status).await
        {
            self.hand_over(to);
            return Ok(());
        }
        if !self.changes {
            return Ok(());
        }
        for id in seating.with(|state| state.asked.clone()) {
            if let Err(error) = self.remove(id, master).await {
                tracing::info!(member = member.id(), %error, "not removed");
            }
        }
        if self.handing.borrow().is_some() {
            return Ok(());
        }
        let status = member.status().await?;
        if let Some(next) = seating.next(member, &status, None) {
            return self.change(&next).await;
        }
        if let [voters] = &status.members.voters[..] {
            let served = master.run(&Caller::system(), edit(seating)).await.is_ok();
            seating.with(|state| {
                let is_asked = !state.asked.is_empty();
                state.settled = Some(voters.clone()).filter(|_| served && !is_asked);
            });
        }
        Ok(())
    }

    fn hand_over(&self, to: u64) {
        tracing::info!(leader = self.member.id(), to, "is to hand over");
        self.handing.send_replace(Some(to));
    }

    async fn change(&self, next: &Seats) -> Result<()> {
        tracing::info!(leader = self.member.id(), ?next, "members change");
        self.seating.with(|state| state.settled = None);
        self.member.change_members(&next.voters, &next.learners).await
    }

    /// A master leaves the members, and then the map. If it serves, another one is to serve first.
    async fn remove(&self, id: u64, master: &Master) -> Result<()> {
        let Seater { member, seating, .. } = self;
        let status = member.status().await?;
        let mut known = status.members.voters.iter().flatten().chain(&status.members.learners);
        if known.any(|known| *known == id) {
            if !status.leads() || !seating.is_removable(id, member, &status) {
                return Err(Error::Conflict(format!("member {id} cannot be removed now")));
            }
            if id == member.id() {
                let to = seating.successor(member, &status).await;
                to.into_iter().for_each(|to| self.hand_over(to));
                return Err(Error::Unavailable(format!("member {id} serves: {to:?} would")));
            }
            if let Some(next) = seating.next(member, &status, Some(id)) {
                self.change(&next).await?;
            }
        }
        master.run(&Caller::system(), edit(seating)).await?;
        tracing::info!(leader = member.id(), id, "is removed");
        seating.with(|state| {
            state.settled = None;
            state.asked.remove(&id);
            state.masters.remove(&id);
        });
        Ok(())
    }
}

/// Whether `id` may not begin with an empty disk, as the controller decides it.
fn has_promised(id: u64, status: &MemberStatus) -> bool {
    let votes = status.members.voters.iter().any(|ids| ids.contains(&id));
    votes || status.followers.get(&id).is_some_and(Option::is_some)
}

fn edit(seating: &Seating) -> Swap {
    seating.with(|state| {
        state.edits += 1;
        Swap(MAP, state.edits)
    })
}
