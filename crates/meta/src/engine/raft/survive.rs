//! The first files of a member, and one survivor that goes on without the others.

use std::collections::BTreeSet;

use bytes::Bytes;
use cairn_base::{Disk, Error, Result};

use super::super::config::Config;
use super::super::files;
use super::entry::{Entry, EntryId, Members, Proposal};
use super::held::Held;
use super::record::Vote;
use super::store::MemberStore;

impl MemberStore {
    /// Makes the files of a new member, whose messages are of this generation.
    ///
    /// # Errors
    /// `Exists` where there are metadata; those of the disk.
    pub fn make(disk: &dyn Disk, config: &Config, member: u64, generation: u64) -> Result<()> {
        if disk.list()?.iter().any(|name| name == files::ROWS) {
            return Err(Error::Exists(format!("the metadata of member {member}")));
        }
        let held = Held { generation, ..Held::new(member) };
        files::open_rows(disk, config, held.encode()?).map(drop)
    }

    /// The members as of the last entry of the log, applied or not.
    ///
    /// # Errors
    /// `Corrupt` and `Io`.
    pub fn members(&self) -> Result<Members> {
        let mut members = self.applied().1.members;
        let mut next = self.applied_next();
        while next < self.next() {
            let entries = self.entries(next, self.next(), self.portion())?;
            let Some(last) = entries.last() else { break };
            next = last.id.index + 1;
            for entry in entries {
                if let Proposal::Members(named) = entry.proposal {
                    members = named;
                }
            }
        }
        Ok(members)
    }

    /// Applies all entries, whether a majority had them or not.
    ///
    /// # Errors
    /// Of the disk.
    pub fn apply_all(&self) -> Result<()> {
        while self.applied_next() < self.next() {
            let entries = self.entries(self.applied_next(), self.next(), self.portion())?;
            if entries.is_empty() {
                let what = format!("entry {} of the log", self.applied_next());
                return Err(Error::corrupt(what, "nothing", "all entries after those applied"));
            }
            self.apply(entries)?;
        }
        Ok(())
    }

    /// Makes this member the only one, of a new generation, whose log says whatever this one's does
    /// now. `rewrite` is told all rows, and says which of them change with it. For a member whose
    /// process does not run. If it is interrupted, it may be called again.
    ///
    /// # Errors
    /// Those of the disk and of `rewrite`.
    pub fn survive(
        &self,
        rewrite: impl FnOnce(&MemberStore) -> Result<Vec<(Bytes, Option<Bytes>)>>,
    ) -> Result<()> {
        // The generation comes first: members of the former one hear nothing of what follows.
        let generation = self.generation() + 1;
        self.set_generation(generation)?;
        self.apply_all()?;
        let changes = rewrite(self)?;
        let (vote, member) = (self.vote(), self.member());
        let term = vote.term.max(self.last().map_or(0, |id| id.term)) + 1;
        let only = Members { voters: vec![BTreeSet::from([member])], learners: BTreeSet::new() };
        let index = self.next();
        let entry =
            |offset, proposal| Entry { id: EntryId { term, index: index + offset }, proposal };
        let expected = self.fence();
        let entries = vec![
            entry(0, Proposal::Members(only)),
            entry(1, Proposal::Batch { expected, changes }),
        ];
        self.save_vote(Vote { term, member, committed: false })?;
        self.append(entries)?;
        self.apply_all()?;
        self.checkpoint()
    }

    fn set_generation(&self, generation: u64) -> Result<()> {
        let writer = self.rows.writer();
        let mut state = self.state.lock();
        state.held.generation = generation;
        self.publish(writer, state, 0)?;
        self.checkpoint()
    }
}
