//! Makes the first files of a member, and lets one survivor continue without the others.

use std::collections::BTreeSet;

use cairn_base::{Disk, Error, Result};

use super::super::config::Config;
use super::super::{Change, files};
use super::entry::{Entry, EntryId, Members, Proposal};
use super::member_record::MemberRecord;
use super::record::Vote;
use super::shared::superseded;
use super::store::MemberStore;

impl MemberStore {
    /// Makes the files of a new member, whose messages are of this generation.
    ///
    /// # Errors
    /// `Exists` if there are metadata; those of the disk.
    pub fn make(disk: &dyn Disk, config: &Config, member: u64, generation: u64) -> Result<()> {
        if disk.list()?.iter().any(|name| name == files::ROWS) {
            return Err(Error::Exists(format!("the metadata of member {member}")));
        }
        let held = MemberRecord { generation, ..MemberRecord::new(member) };
        files::open_rows(disk, config, held.encode()?).map(drop)
    }

    /// Returns the members as of the last entry of the log, applied or not.
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
    /// Those of the disk.
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

    /// Makes this member the only one, of a new `generation` that nobody else has, with the content
    /// of its log. `changes` are applied to it. For a member whose process does not run. If it is
    /// interrupted, it may be called again with another generation.
    ///
    /// # Errors
    /// `Invalid` for a generation that is not newer; those of the disk.
    pub fn survive(&self, generation: u64, changes: Vec<Change>) -> Result<()> {
        let former = self.generation().max(self.superseded());
        if generation <= former {
            let text = format!("generation {generation} does not follow generation {former}");
            return Err(Error::Invalid(text));
        }
        // The generation comes first: members of the former one learn nothing of what follows.
        self.note(|held| (held.generation, held.superseded) = (generation, 0))?;
        self.apply_all()?;
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

    /// Returns the generation that has begun without this member; 0 for none.
    pub fn superseded(&self) -> u64 {
        self.state.lock().held.superseded
    }

    /// Notes durably that `generation` has begun without this member. The store accepts nothing
    /// more from now on, even if that fails.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn supersede(&self, generation: u64) -> Result<()> {
        let noted = self.note(|held| held.superseded = held.superseded.max(generation));
        let why = superseded(self.member(), self.generation(), generation);
        self.rows.writer().poison(why);
        noted
    }

    fn note(&self, change: impl FnOnce(&mut MemberRecord)) -> Result<()> {
        let writer = self.rows.writer();
        let mut state = self.state.lock();
        change(&mut state.held);
        self.publish(writer, state, 0)?;
        self.checkpoint()
    }
}
