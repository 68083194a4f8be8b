//! State of a member in reports to other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{NodeId, Timestamp, rfc3339};
use cairn_meta::engine::raft::{Damage, MemberStatus, Stall};
use serde::{Deserialize, Serialize};

use crate::limits::MEMBER_LAG;

/// Answer of any master about its own member, whether it serves or stands by.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberReport {
    /// Number of its node.
    pub member: u64,
    /// Messages of another generation are refused.
    pub generation: u64,
    pub term: u64,
    /// The leader of this term; 0 if the member knows none.
    pub leader: u64,
    /// Sets of voters; a majority of each decides. Two sets while one replaces the other.
    pub voters: Vec<Vec<u64>>,
    pub learners: Vec<u64>,
    /// Term and index of the last entry of its log; (0, 0) for none.
    pub last: (u64, u64),
    /// Term and index of the last entry that is applied; (0, 0) for none.
    pub applied: (u64, u64),
    /// Milliseconds since it heard a leader, or as the leader a majority.
    pub silence_ms: u64,
    /// Number of entries that each other member still lacks, as far as known. Only the leader has
    /// them.
    pub lags: Vec<(u64, Option<u64>)>,
    /// Reason why its disk takes nothing more; empty for none.
    pub failure: String,
    /// Set while it serves as the master.
    pub serves: bool,
    /// Answer to a separate message (43); empty for a master of an earlier version.
    #[serde(skip)]
    pub stalls: Vec<StallReport>,
    /// Answer to a separate message (44); empty for a master of an earlier version.
    #[serde(skip)]
    pub damage: Vec<DamageReport>,
}

/// Damage of the metadata of one member. See [`Damage`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DamageReport {
    /// The file or the row, and what is wrong with it.
    pub what: String,
    /// Time at which it was noticed, in milliseconds since 1970.
    pub since_ms: u64,
    /// The member fills itself again. If not, it is unknown which of two members is right.
    pub heals: bool,
}

impl DamageReport {
    /// Returns the reports of a member: of its damage, and of rows that differ where no majority
    /// agrees.
    pub fn of(damage: Option<Damage>, undecided: Option<Damage>) -> Vec<DamageReport> {
        let report = |damage: Damage, heals| DamageReport {
            what: damage.what,
            since_ms: u64::try_from(damage.since.0 / 1_000_000).unwrap_or(0),
            heals,
        };
        let damage = damage.map(|damage| report(damage, true));
        let undecided = undecided.map(|damage| report(damage, false));
        damage.into_iter().chain(undecided).collect()
    }

    /// Returns what an operator reads about this damage of the member `of`, with a remedy.
    pub fn text(&self, of: u64) -> String {
        let node = NodeId(of);
        let since = Timestamp(i64::try_from(self.since_ms).unwrap_or(0).saturating_mul(1_000_000));
        let (since, what) = (rfc3339(since), &self.what);
        if !self.heals {
            return format!(
                "master {node} has found at {since}: {what}. Nothing decides which is right, and \
                 nothing is overwritten. Start all masters, and let more join until there are \
                 three (cairn cluster token DIR --role master): they decide"
            );
        }
        format!(
            "the metadata of master {node} are damaged since {since}: {what}. It serves only if no \
             other master can, and fills itself again from the others, under a new number. If this \
             stays, look whether the others are up and have caught up; look at its disk, too. If \
             it is the only master of the cluster, stop it, move its directory `meta` away, and \
             load a dump (cairn meta load FILE DIR)"
        )
    }
}

/// Work of a member that makes no progress. See [`Stall`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StallReport {
    pub stall: StallKind,
    pub lasts_ms: u64,
}

/// The kinds of [`Stall`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StallKind {
    Follower(u64),
    Commits,
    Applying,
    Elections,
}

impl StallReport {
    /// Returns the reports of a member's stalls, and how long each has lasted.
    pub fn of(stalls: &BTreeMap<Stall, Duration>) -> Vec<StallReport> {
        let report = |(stall, lasts): (&Stall, &Duration)| StallReport {
            stall: match stall {
                Stall::Follower(member) => StallKind::Follower(*member),
                Stall::Commits => StallKind::Commits,
                Stall::Applying => StallKind::Applying,
                Stall::Elections => StallKind::Elections,
            },
            lasts_ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
        };
        stalls.iter().map(report).collect()
    }

    /// Returns what an operator reads about this stall of the member `of`, with a remedy.
    pub fn text(&self, of: u64) -> String {
        let (node, secs) = (NodeId(of), self.lasts_ms / 1000);
        match self.stall {
            StallKind::Follower(member) => format!(
                "node {} answers master {node} and has got no entries for {secs} s, though it \
                 lacks some. The transfer begins anew by itself. If this stays, restart node {node}",
                NodeId(member)
            ),
            StallKind::Commits => format!(
                "a majority answers master {node} and has confirmed nothing for {secs} s. Another \
                 master is elected by itself. If this stays, restart node {node}"
            ),
            StallKind::Applying => format!(
                "master {node} has applied no entry for {secs} s, though some are committed: look \
                 whether its disk is full or slow. If it is not, restart node {node}"
            ),
            StallKind::Elections => format!(
                "master {node} has seen too many elections for {secs} s: look whether messages \
                 between the masters are lost or late, and whether their disks are slow"
            ),
        }
    }
}

impl fmt::Display for StallKind {
    /// Writes the name of the kind, as metrics have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StallKind::Follower(_) => "follower",
            StallKind::Commits => "commits",
            StallKind::Applying => "applying",
            StallKind::Elections => "elections",
        })
    }
}

/// Returns the report of the newest generation and term, preferably of the leader.
pub fn best<'a>(reports: impl Iterator<Item = &'a MemberReport>) -> Option<&'a MemberReport> {
    let leads = |report: &MemberReport| report.leader == report.member;
    reports.max_by_key(|report| (report.generation, report.term, leads(report), report.last))
}

/// Counts the current copies of the metadata: voters that answer, work, and have caught up with the
/// leader, as far as one is known. A voter that is away has an older copy.
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
    /// Returns the number of entries that a member still lacks, if this member leads and knows it.
    pub fn lag_of(&self, member: u64) -> Option<u64> {
        if member == self.member {
            Some(0)
        } else {
            self.lags.iter().find(|(id, _)| *id == member).and_then(|(_, lag)| *lag)
        }
    }

    /// Returns the members that have the metadata and vote.
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
            stalls: StallReport::of(&status.stalls),
            damage: DamageReport::of(status.damage.clone(), status.undecided.clone()),
        }
    }

    pub fn is_voter(&self, member: u64) -> bool {
        self.voters.iter().any(|ids| ids.contains(&member))
    }

    /// Returns true if the members for which `present` holds are a majority of each set of voters.
    pub fn is_majority(&self, present: impl Fn(u64) -> bool) -> bool {
        let is_one = |ids: &Vec<u64>| ids.iter().filter(|id| present(**id)).count() * 2 > ids.len();
        !self.voters.is_empty() && self.voters.iter().all(is_one)
    }
}

/// Answer to a master whose member is to be replaced by a new one: the number of its node from now
/// on, and a certificate for its key under this number.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RenumberReply {
    pub node: u64,
    pub certificate: Bytes,
}

/// Instructions for a new master before it makes its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EnterReply {
    /// Generation of the members' messages.
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
        // No member leads, so it is unknown how far they are.
        assert_eq!(of(&[report(2, 7), report(3, 7)]), 2);
    }
}
