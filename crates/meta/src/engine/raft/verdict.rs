//! The verdict of a member about its own rows, by the digests that members have as of one entry.

use std::collections::{BTreeMap, BTreeSet};

use super::digest::RowDigests;

/// A member's verdict about its own rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// A majority has the same.
    Sound,
    /// No difference is known, and too few have answered.
    Unknown,
    /// A majority of the voters agrees, and differs from this member in tables of these letters.
    Wrong(Vec<u8>),
    /// Members differ in tables of these letters, and no majority agrees.
    Undecided(Vec<u8>),
}

impl Verdict {
    /// Judges the member `own` by the digests of members, itself among them. Digests of another
    /// entry than its own do not count. Only `voters` are a majority, whether they answered or not.
    pub fn of(own: u64, voters: &BTreeSet<u64>, digests: &BTreeMap<u64, RowDigests>) -> Verdict {
        let Some(mine) = digests.get(&own) else { return Verdict::Unknown };
        let mut groups: Vec<(&RowDigests, usize)> = Vec::new();
        for (member, digests) in digests.iter().filter(|(_, one)| one.entry == mine.entry) {
            let votes = usize::from(voters.contains(member));
            match groups.iter_mut().find(|(other, _)| *other == digests) {
                Some((_, count)) => *count += votes,
                None => groups.push((digests, votes)),
            }
        }
        let majority = groups.iter().find(|(_, count)| count * 2 > voters.len());
        let other = groups.iter().find(|(other, _)| *other != mine);
        match (majority, other) {
            (Some((right, _)), _) if *right != mine => Verdict::Wrong(mine.differing(right)),
            (None, Some((other, _))) => Verdict::Undecided(mine.differing(other)),
            (Some(_), _) => Verdict::Sound,
            (None, None) => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::digest::TableDigest;
    use super::super::entry::EntryId;
    use super::*;

    fn digests(index: u64, sum: u64) -> RowDigests {
        let tables = BTreeMap::from([(b'i', TableDigest { rows: 7, sum })]);
        RowDigests { entry: EntryId { term: 1, index }, tables }
    }

    fn verdict(own: u64, voters: u64, digests: &[(u64, RowDigests)]) -> Verdict {
        Verdict::of(own, &(1..=voters).collect(), &digests.iter().cloned().collect())
    }

    #[test]
    fn a_majority_decides_about_a_member_that_differs() {
        let all = [(1, digests(9, 5)), (2, digests(9, 5)), (3, digests(9, 6))];
        assert_eq!(verdict(1, 3, &all), Verdict::Sound);
        assert_eq!(verdict(2, 3, &all), Verdict::Sound);
        assert_eq!(verdict(3, 3, &all), Verdict::Wrong(vec![b'i']));
    }

    #[test]
    fn two_that_differ_decide_nothing() {
        let two = [(1, digests(9, 5)), (2, digests(9, 6))];
        for own in [1, 2] {
            assert_eq!(verdict(own, 2, &two), Verdict::Undecided(vec![b'i']), "of two");
            assert_eq!(verdict(own, 3, &two), Verdict::Undecided(vec![b'i']), "of three");
        }
        let all = [(1, digests(9, 5)), (2, digests(9, 6)), (3, digests(9, 7))];
        assert_eq!(verdict(3, 3, &all), Verdict::Undecided(vec![b'i']));
        let four = [(1, digests(9, 5)), (2, digests(9, 5)), (3, digests(9, 6)), (4, digests(9, 6))];
        assert_eq!(verdict(3, 5, &four), Verdict::Undecided(vec![b'i']));
    }

    #[test]
    fn digests_of_other_entries_say_nothing() {
        let late = [(1, digests(9, 5)), (2, digests(9, 5)), (3, digests(8, 6))];
        assert_eq!(verdict(3, 3, &late), Verdict::Unknown);
        assert_eq!(verdict(1, 3, &[(2, digests(9, 5)), (3, digests(9, 5))]), Verdict::Unknown);
        assert_eq!(verdict(1, 3, &[(1, digests(9, 5))]), Verdict::Unknown);
    }

    #[test]
    fn voters_decide_about_a_learner() {
        let all = [(1, digests(9, 5)), (2, digests(9, 6)), (3, digests(9, 6))];
        assert_eq!(verdict(2, 1, &all), Verdict::Wrong(vec![b'i']));
        assert_eq!(verdict(1, 1, &all), Verdict::Sound);
    }
}
