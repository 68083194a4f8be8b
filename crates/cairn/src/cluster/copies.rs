//! Number of copies of the metadata: of all names, and of objects that are too small for blocks.

use std::path::Path;

use cairn_base::{ClusterMap, Role};

use super::members::MastersSaid;
use crate::dir::{self, MetaPlace};
use crate::failure::Result;
use crate::node::directory_of;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// In the directory of the one master.
    One,
    /// In the directories of this number of masters, which answer and have caught up.
    OfMembers(usize),
    /// In a database, which has copies of its own.
    OfDatabase,
    /// Only a master's directory says whether there is a database.
    Unknown,
}

impl Copies {
    pub fn of(dir: &Path, map: &ClusterMap, said: &MastersSaid) -> Result<Copies> {
        if let Some(members) = said.members() {
            let copies = members.copies();
            return Ok(if copies > 1 { Copies::OfMembers(copies) } else { Copies::One });
        }
        if map.masters().count() > 1 {
            return Ok(match said {
                MastersSaid::Nothing => Copies::Unknown,
                _ => Copies::OfDatabase,
            });
        }
        Ok(match dir::place(&directory_of(dir, Role::Master))? {
            Some((MetaPlace::Directory, true)) => Copies::One,
            Some((MetaPlace::Postgres, _)) => Copies::OfDatabase,
            _ => Copies::Unknown,
        })
    }

    pub fn word(self) -> &'static str {
        match self {
            Copies::One => "one",
            Copies::OfMembers(_) => "members",
            Copies::OfDatabase => "database",
            Copies::Unknown => "unknown",
        }
    }

    /// Returns the number; none if this process cannot know it.
    pub fn number(self) -> Option<u64> {
        match self {
            Copies::One => Some(1),
            Copies::OfMembers(copies) => Some(copies as u64),
            Copies::OfDatabase | Copies::Unknown => None,
        }
    }

    /// Returns true if it is known that names and small objects have fewer copies than blocks.
    pub fn are_few(self, map: &ClusterMap) -> bool {
        self.number().is_some_and(|copies| copies < u64::from(map.most_replicas()))
    }

    /// Returns a warning about the copies, for the case that members report nothing about them.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Copies::One => Some(
                "WARNING: one copy of the metadata: all names, and objects of up to 16 KiB, are on \
                 the disk of the master alone; docs/cluster.md says how to back them up",
            ),
            Copies::OfDatabase | Copies::OfMembers(_) => None,
            Copies::Unknown => Some(
                "one master: unless its metadata are in a database, all names, and objects of up to \
                 16 KiB, are on its disk alone (ask with its directory)",
            ),
        }
    }
}

/// Returns a warning if names and small objects are known to be less safe than blocks.
pub fn warning(copies: Copies, map: &ClusterMap) -> Option<String> {
    let number = copies.number().filter(|_| copies.are_few(map))?;
    let (copy, replicas) = (if number == 1 { "copy" } else { "copies" }, map.most_replicas());
    Some(format!(
        "FEW COPIES: names, and objects of up to 16 KiB, have {number} {copy}, and blocks have \
         {replicas}. Start masters that are down, or let more join, three or five in all (cairn \
         cluster token DIR --role master)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_fewer_copies_than_blocks_are_told_of() {
        let with = |replicas, of_buckets: &[u8]| ClusterMap {
            replicas,
            replica_counts: of_buckets.iter().copied().collect(),
            ..ClusterMap::default()
        };
        for (copies, map, few) in [
            (Copies::One, with(3, &[]), true),
            (Copies::One, with(1, &[]), false),
            (Copies::OfMembers(2), with(3, &[]), true),
            (Copies::OfMembers(3), with(3, &[]), false),
            (Copies::OfMembers(3), with(3, &[5]), true),
            (Copies::OfDatabase, with(3, &[]), false),
            (Copies::Unknown, with(3, &[]), false),
        ] {
            assert_eq!(copies.are_few(&map), few, "{copies:?}");
            assert_eq!(warning(copies, &map).is_some(), few, "{copies:?}");
        }
        let text = warning(Copies::One, &with(3, &[])).unwrap();
        assert!(text.contains("have 1 copy, and blocks have 3"), "{text}");
    }
}
