//! The part of the controller that decides who keeps the metadata, in each process of a master, and
//! the parts of the cluster map that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_cluster::members::{Seats, seats};
use cairn_meta::Master;
use cairn_meta::engine::raft::{Member, MemberStatus};
use parking_lot::Mutex;

use super::process::ProcessShown;
use super::verbs::Swap;

/// Between two looks who leads, and in how many of them a master looks at the members.
const LOOK: Duration = Duration::from_millis(100);
const SEATED_EVERY: u32 = 5;
/// Entries that a member may lack when it gets a vote. The log is short.
const LAG: u64 = 40;
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
            tokio::time::sleep(LOOK).await;
            match self.with(|state| state.entering.get(&id).copied().flatten()) {
                None => {}
                Some(true) => return Ok(()),
                Some(false) => return Err(Error::Conflict(format!("member {id} has promised"))),
            }
        }
    }

    fn lead(&self, term: u64, id: u64) {
        self.with(|state| {
            let first = *state.leaders.entry(term).or_insert(id);
            if first != id {
                state.violations.push(format!("members {first} and {id} lead term {term}"));
            }
        });
    }

    fn next(&self, status: &MemberStatus, leaving: Option<u64>) -> Option<Seats> {
        self.with(|state| {
            let masters = state.masters.iter().copied().filter(|id| Some(*id) != leaving).collect();
            let has_all = |id: &&u64| status.lag_of(**id).is_some_and(|lag| lag <= LAG);
            let caught_up = status.followers.keys().filter(has_all).copied().collect();
            seats(&status.members, &masters, &state.up, &caught_up)
        })
    }

    /// Whether the others can do without `id`, as the controller decides it.
    fn is_removable(&self, id: u64, status: &MemberStatus) -> bool {
        let left = status.members.voters.iter().flatten().filter(|voter| **voter != id);
        let left: BTreeSet<u64> = left.copied().collect();
        let up = self.with(|state| left.intersection(&state.up).count());
        id != status.member && up * 2 > left.len()
    }
}

/// Runs as long as the process of a member.
pub async fn attend(member: Arc<Member>, shown: ProcessShown, seating: Seating, changes: bool) {
    for look in 0_u32.. {
        tokio::time::sleep(LOOK).await;
        if let Some(lead) = member.lead().await {
            seating.lead(lead.term, member.id());
        }
        let master = shown.master.lock().as_ref().map(|(_, master)| master.clone());
        let Some(master) = master.filter(|_| changes && look.is_multiple_of(SEATED_EVERY)) else {
            continue;
        };
        if let Err(error) = seat(&member, &master, &seating).await {
            tracing::info!(member = member.id(), %error, "no change of members");
        }
    }
}

/// What the controller of a master that serves does about twice a second.
async fn seat(member: &Arc<Member>, master: &Master, seating: &Seating) -> Result<()> {
    let status = member.status().await?;
    if master.check_serving().is_ok() {
        seating.with(|state| {
            let up = &state.up;
            let waits = state
                .entering
                .iter_mut()
                .filter(|(id, answer)| answer.is_none() && up.contains(*id));
            waits.for_each(|(id, answer)| {
                *answer = Some(!has_promised(*id, &status) || state.wiped_may_vote)
            });
        });
    }
    if !status.leads() {
        return Ok(());
    }
    let asked = seating.with(|state| state.asked.clone());
    for id in asked {
        remove(id, member, master, seating).await?;
    }
    let status = member.status().await?;
    let Some(next) = seating.next(&status, None) else {
        if let [voters] = &status.members.voters[..] {
            let served = master.run(&Caller::system(), edit(seating)).await.is_ok();
            seating.with(|state| {
                let is_asked = !state.asked.is_empty();
                state.settled = Some(voters.clone()).filter(|_| served && !is_asked);
            });
        }
        return Ok(());
    };
    change(member, &next, seating).await
}

/// Whether `id` may not begin with an empty disk, as the controller decides it.
fn has_promised(id: u64, status: &MemberStatus) -> bool {
    let votes = status.members.voters.iter().any(|ids| ids.contains(&id));
    votes || status.followers.get(&id).is_some_and(Option::is_some)
}

async fn change(member: &Member, next: &Seats, seating: &Seating) -> Result<()> {
    tracing::info!(leader = member.id(), ?next, "members change");
    seating.with(|state| state.settled = None);
    member.change_members(&next.voters, &next.learners).await
}

/// A master leaves the members, and then the map.
async fn remove(id: u64, member: &Arc<Member>, master: &Master, seating: &Seating) -> Result<()> {
    let status = member.status().await?;
    let mut known = status.members.voters.iter().flatten().chain(&status.members.learners);
    if known.any(|known| *known == id) {
        if !seating.is_removable(id, &status) {
            return Err(Error::Conflict(format!("member {id} cannot be removed now")));
        }
        if let Some(next) = seating.next(&status, Some(id)) {
            change(member, &next, seating).await?;
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

fn edit(seating: &Seating) -> Swap {
    seating.with(|state| {
        state.edits += 1;
        Swap(MAP, state.edits)
    })
}
