//! A member's state as it tells other nodes.

use std::collections::BTreeSet;

use cairn_meta::engine::raft::MemberStatus;
use serde::{Deserialize, Serialize};

use crate::limits::MEMBER_LAG;

/// The answer of any master about its own member, whether it serves or stands by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its node.
    pub member: u64,
    /// Messages of another generation are refused.
    pub generation: u64,
    pub term: u64,
    /// The leader of this term; 0 if the member knows none.
    pub leader: u64,
    /// A majority of each set decides. Two sets: one follows the other.
    pub voters: Vec<Vec<u64>>,
    pub learners: Vec<u64>,
    /// Term and index of the last entry of its log; (0, 0) for none.
    pub last: (u64, u64),
    /// The same of the last entry that is applied.
    pub applied: (u64, u64),
    /// Milliseconds since it heard a leader, or as the leader a majority.
    pub silence_ms: u64,
    /// As the leader: entries that each other member has not yet, if that is known.
    pub lags: Vec<(u64, Option<u64>)>,
    /// The reason for which its disk takes nothing more; empty for none.
    pub failure: String,
    /// It serves as the master.
    pub serves: bool,
}

/// The report of the newest generation and term: of the leader, if one is there.
pub fn best<'a>(reports: impl Iterator<Item = &'a MemberReport>) -> Option<&'a MemberReport> {
    let leads = |report: &MemberReport| report.leader == report.member;
    reports.max_by_key(|report| (report.generation, report.term, leads(report), report.last))
}

/// The copies that there are of the metadata: voters that answer, work, and have caught up with the
/// leader, as far as one is known. A voter that is away has a copy of another time.
pub fn copies<'a>(reports: impl Iterator<Item = &'a MemberReport> + Clone) -> usize {
    let Some(best) = best(reports.clone()) else { return 0 };
    let works = |id: u64| {
        let mut reports = reports.clone();
        reports.any(|one| {
            one.member == id && one.generation == best.generation && one.failure.is_empty()
        })
    };
    let is_known = best.leader == best.member;
    let caught_up = |id: u64| !is_known || best.lag_of(id).is_some_and(|lag| lag <= MEMBER_LAG);
    best.all_voters().into_iter().filter(|id| works(*id) && caught_up(*id)).count()
}

impl MemberReport {
    /// As the leader: the entries that a member has not yet, if that is known.
    pub fn lag_of(&self, member: u64) -> Option<u64> {
        match member == self.member {
            true => Some(0),
            false => self.lags.iter().find(|(id, _)| *id == member).and_then(|(_, lag)| *lag),
        }
    }

    /// Members that have the metadata and vote.
    pub fn all_voters(&self) -> BTreeSet<u64> {
        self.voters.iter().flatten().copied().collect()
    }

    pub fn of(status: &MemberStatus, serves: bool) -> MemberReport {
        let id = |id: Option<cairn_meta::engine::raft::entry::EntryId>| {
            id.map_or((0, 0), |id| (id.term, id.index))
        };
        MemberReport {
            member: status.member,
            generation: status.generation,
            term: status.term,
            leader: status.leader.unwrap_or(0),
            voters: status.members.voters.iter().map(|ids| ids.iter().copied().collect()).collect(),
            learners: status.members.learners.iter().copied().collect(),
            last: id(status.last),
            applied: id(status.applied),
            silence_ms: u64::try_from(status.silence.as_millis()).unwrap_or(u64::MAX),
            lags: status.followers.keys().map(|one| (*one, status.lag_of(*one))).collect(),
            failure: status.failure.clone().unwrap_or_default(),
            serves,
        }
    }

    pub fn is_voter(&self, member: u64) -> bool {
        self.voters.iter().any(|ids| ids.contains(&member))
    }

    /// Whether `present` are a majority of each set of voters.
    pub fn is_majority(&self, present: impl Fn(u64) -> bool) -> bool {
        let is_one = |ids: &Vec<u64>| ids.iter().filter(|id| present(**id)).count() * 2 > ids.len();
        !self.voters.is_empty() && self.voters.iter().all(is_one)
    }
}

/// The instructions for a new master before it makes its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Entered {
    /// Messages of the members have this generation.
    pub generation: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_that_is_away_or_behind_is_no_copy() {
        let report = |member, generation| MemberReport {
            member,
            generation,
            voters: vec![vec![1, 2, 3]],
            ..MemberReport::default()
        };
        let lags = |two, three| MemberReport {
            leader: 1,
            lags: vec![(2, two), (3, three)],
            ..report(1, 7)
        };
        let of = |reports: &[MemberReport]| copies(reports.iter());
        assert_eq!(of(&[]), 0);
        let leader = lags(Some(0), Some(MEMBER_LAG));
        assert_eq!(of(&[leader.clone(), report(2, 7), report(3, 7)]), 3);
        assert_eq!(of(&[leader.clone(), report(3, 7)]), 2, "2 does not answer");
        assert_eq!(of(&[leader.clone(), report(2, 6), report(3, 7)]), 2, "2 was given up");
        let failed = MemberReport { failure: "its disk".into(), ..report(2, 7) };
        assert_eq!(of(&[leader, failed, report(3, 7)]), 2);
        let behind = lags(Some(MEMBER_LAG + 1), None);
        assert_eq!(of(&[behind, report(2, 7), report(3, 7)]), 1);
        // Nobody leads, so nobody says how far they are.
        assert_eq!(of(&[report(2, 7), report(3, 7)]), 2);
    }
}
