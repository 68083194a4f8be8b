//! The status of a member, and changes of the membership.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cairn_base::{Error, Result};
use openraft::{ChangeMembers, EmptyNode, ServerState};
use tokio::time::timeout;

use super::entry::{EntryId, Members};
use super::member::{Member, View};
use super::progress::{FollowerProgress, ProgressSample, Stall};
use super::scrub_results::Damage;
use super::types::members_of;

/// The state of a member, as far as it knows itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    pub member: u64,
    pub generation: u64,
    pub term: u64,
    /// The leader of this term, if the member knows one.
    pub leader: Option<u64>,
    /// Members as of the last entry of its log, applied or not.
    pub members: Members,
    /// The last entry of its log, and the last applied one.
    pub last: Option<EntryId>,
    pub applied: Option<EntryId>,
    /// Time since it last heard a leader, or, as the leader, a majority.
    pub silence: Duration,
    /// Last entry, on a leader, of each other member, if it is known.
    pub followers: BTreeMap<u64, Option<u64>>,
    /// Reason why its disk accepts nothing until a restart.
    pub failure: Option<String>,
    /// Stalls without a known reason, with their durations.
    pub stalls: BTreeMap<Stall, Duration>,
    /// Damage at rest that is not healed.
    pub damage: Option<Damage>,
    /// Rows that differ among members, where no majority agrees.
    pub undecided: Option<Damage>,
}

impl MemberStatus {
    /// Returns whether this member is the leader of its term.
    pub fn leads(&self) -> bool {
        self.leader == Some(self.member)
    }

    /// Returns the number of entries of the leader's log that `other` lacks; `None` if it is
    /// unknown here.
    pub fn lag_of(&self, other: u64) -> Option<u64> {
        let last = self.last.map_or(0, |id| id.index);
        let has = (*self.followers.get(&other)?)?;
        Some(last.saturating_sub(has))
    }
}

impl Member {
    /// Returns the stalls without a known reason, with their durations.
    pub fn stalls(&self) -> BTreeMap<Stall, Duration> {
        self.stalls.lock().clone()
    }

    /// Number of ranges of entries that could not be sent, since their first entry was overwritten.
    /// Each was begun anew.
    pub fn ranges_overwritten(&self) -> u64 {
        self.shared.transfers.overwritten()
    }

    /// Largest number of requests in a row for one range whose first entry was overwritten.
    pub fn most_repeated_range(&self) -> u64 {
        self.shared.transfers.most_repeated()
    }

    /// Returns a sample of everything in this member that has to make progress.
    pub(super) fn progress_sample(&self, view: &View, now: Duration) -> ProgressSample {
        let (shared, store) = (&self.shared, &self.shared.store);
        let lately = now.saturating_sub(shared.timing.lease);
        let since = self.led.lock().map_or(now, |lead| lead.since);
        let heard = shared.contact.majority(shared.me, &view.voters, since, now);
        let answering = shared.contact.answering(lately);
        let replication = self.raft.metrics().borrow().replication.clone();
        let followers = replication.filter(|_| view.leads).unwrap_or_default();
        let followers = followers.into_iter().filter(|(id, _)| answering.contains(id));
        let progress = |(id, last): (u64, Option<openraft::LogId<u64>>)| {
            let entries = last.map_or(0, |id| id.index + 1);
            (id, FollowerProgress { entries, pages: shared.transfers.pages_of(id) })
        };
        ProgressSample {
            term: view.vote.term,
            entries: store.next(),
            committed: view.committed,
            applied: store.applied_next(),
            has_majority: view.leads && heard >= lately,
            followers: followers.map(progress).collect(),
        }
    }

    /// Returns the state of this member.
    ///
    /// # Errors
    /// `Unavailable` when the member has ended.
    pub async fn status(&self) -> Result<MemberStatus> {
        let (shared, store) = (&self.shared, &self.shared.store);
        let look = |state: &openraft::RaftState<_, _, _>| {
            let members = members_of(state.membership_state.effective().membership());
            (state.server_state == ServerState::Leader, members)
        };
        let looked = self.raft.with_raft_state(look).await;
        let (leads, members) = looked.map_err(|fatal| Error::Unavailable(fatal.to_string()))?;
        let view = self.view().await?;
        let now = shared.now();
        let heard = match *self.led.lock() {
            Some(lead) if leads => {
                shared.contact.majority(shared.me, &members.voters, lead.since, now)
            }
            _ => shared.contact.heard_leader(),
        };
        let metrics = self.raft.metrics().borrow().clone();
        let replication = metrics.replication.filter(|_| leads).unwrap_or_default();
        let others = replication.into_iter().filter(|(id, _)| *id != shared.me);
        Ok(MemberStatus {
            member: shared.me,
            generation: shared.generation,
            term: view.vote.term,
            leader: if leads { Some(shared.me) } else { metrics.current_leader },
            members,
            last: store.last().or(store.applied().0),
            applied: store.applied().0,
            silence: now.saturating_sub(heard),
            followers: others.map(|(id, last)| (id, last.map(|id| id.index))).collect(),
            failure: shared.superseded().or_else(|| store.failure()),
            stalls: self.stalls(),
            damage: self.damage(),
            undecided: self.undecided(),
        })
    }

    /// Changes the members to exactly these, step by step: new ones are learners first, voters
    /// change in one joint step, removed ones go last. Called on the leader; it may be repeated if
    /// it was interrupted.
    ///
    /// # Errors
    /// `Invalid` without this member among the voters. `Unavailable` if this member does not lead,
    /// or no majority has answered in time: the change may go on, or not.
    pub async fn change_members(
        &self,
        voters: &BTreeSet<u64>,
        learners: &BTreeSet<u64>,
    ) -> Result<()> {
        if !voters.contains(&self.id()) || voters.contains(&0) || learners.contains(&0) {
            let text = format!("members {voters:?} without the one that leads, or with a 0");
            return Err(Error::Invalid(text));
        }
        let wanted: BTreeSet<u64> = voters.union(learners).copied().collect();
        for new in &wanted - &self.known_members().await? {
            let adding = BTreeMap::from([(new, EmptyNode {})]);
            self.change(ChangeMembers::AddNodes(adding), true).await?;
        }
        let members = self.status().await?.members;
        if members.voters != [voters.clone()] {
            self.change(ChangeMembers::ReplaceAllVoters(voters.clone()), true).await?;
        }
        let left = &self.known_members().await? - &wanted;
        if !left.is_empty() {
            self.change(ChangeMembers::RemoveNodes(left), true).await?;
        }
        Ok(())
    }

    async fn known_members(&self) -> Result<BTreeSet<u64>> {
        let Members { voters, learners } = self.status().await?.members;
        Ok(voters.into_iter().flatten().chain(learners).collect())
    }

    async fn change(&self, change: ChangeMembers<u64, EmptyNode>, retain: bool) -> Result<()> {
        let changing = self.raft.change_membership(change, retain);
        let changed = timeout(self.shared.timing.settle(), changing).await;
        let late = |_| Error::Unavailable("no majority has agreed to a change of members".into());
        match changed.map_err(late)? {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Unavailable(format!("changing the members: {error}"))),
        }
    }
}
