//! The consensus library's types as used here, and conversions between them and the types of a
//! member's disk.

use std::collections::BTreeMap;

use openraft::{
    CommittedLeaderId, EmptyNode, EntryPayload, LeaderId, LogId, StoredMembership, TokioRuntime,
};

use super::apply::Outcome;
use super::entry::{Entry, EntryId, Members, Proposal};
use super::member_record::Membership;
use super::outgoing::{Outgoing, SnapshotState};
use super::record::Vote;
use super::snapshot::Incoming;

/// Rows that are sent from one member to another.
pub enum Rows {
    Sent(Outgoing),
    Received(Box<(SnapshotState, Incoming)>),
}

openraft::declare_raft_types!(
    /// A simulated host has a runtime of its own, with its own time, and one thread. So the
    /// library's tasks and timers are subject to it, and the library draws no random numbers.
    pub Types:
        D = Proposal,
        R = Outcome,
        NodeId = u64,
        Node = EmptyNode,
        SnapshotData = Rows,
        AsyncRuntime = TokioRuntime,
);

pub type LogEntry = openraft::Entry<Types>;
pub type LibraryMembership = StoredMembership<u64, EmptyNode>;

pub fn id_of(id: LogId<u64>) -> EntryId {
    EntryId { term: id.leader_id.term, index: id.index }
}

pub fn log_id(id: EntryId) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(id.term, 0), id.index)
}

pub fn vote_of(vote: &openraft::Vote<u64>) -> Vote {
    let member = vote.leader_id.voted_for.unwrap_or(0);
    Vote { term: vote.leader_id.term, member, committed: vote.committed }
}

pub fn library_vote(vote: Vote) -> openraft::Vote<u64> {
    let voted_for = (vote.member != 0).then_some(vote.member);
    openraft::Vote { leader_id: LeaderId { term: vote.term, voted_for }, committed: vote.committed }
}

pub fn entry_of(entry: LogEntry) -> Entry {
    let proposal = match entry.payload {
        EntryPayload::Blank => Proposal::Empty,
        EntryPayload::Normal(proposal) => proposal,
        EntryPayload::Membership(members) => Proposal::Members(members_of(&members)),
    };
    Entry { id: id_of(entry.log_id), proposal }
}

pub fn log_entry(entry: Entry) -> LogEntry {
    let payload = match entry.proposal {
        Proposal::Empty => EntryPayload::Blank,
        Proposal::Members(members) => EntryPayload::Membership(library_members(members)),
        proposal => EntryPayload::Normal(proposal),
    };
    LogEntry { log_id: log_id(entry.id), payload }
}

pub fn library_membership(membership: &Membership) -> LibraryMembership {
    let members = library_members(membership.members.clone());
    StoredMembership::new(membership.entry.map(log_id), members)
}

/// Returns the description of a snapshot for the library.
pub fn meta_of(taken: &SnapshotState) -> openraft::SnapshotMeta<u64, EmptyNode> {
    let EntryId { term, index } = taken.applied;
    openraft::SnapshotMeta {
        last_log_id: Some(log_id(taken.applied)),
        last_membership: library_membership(&taken.membership),
        snapshot_id: format!("{term}-{index}"),
    }
}

pub fn members_of(members: &openraft::Membership<u64, EmptyNode>) -> Members {
    let voters = members.get_joint_config().clone();
    Members { voters, learners: members.learner_ids().collect() }
}

fn library_members(members: Members) -> openraft::Membership<u64, EmptyNode> {
    let ids = members.voters.iter().flatten().chain(&members.learners);
    let nodes: BTreeMap<u64, EmptyNode> = ids.map(|id| (*id, EmptyNode {})).collect();
    openraft::Membership::new(members.voters, nodes)
}
