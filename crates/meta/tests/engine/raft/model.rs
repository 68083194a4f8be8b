//! A member's disk beside a model of what it must hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use cairn_base::rng::SeededRng;
use cairn_base::{Disk, Result};
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::raft::entry::{Entry, EntryId, Members, Proposal};
use cairn_meta::engine::raft::{MemberStore, Outcome, Vote};
use cairn_meta::engine::{Change, Fence};
use cairn_sim::SimDisk;

use crate::support::{Rows, apply, random_changes, short_log, small};

pub const MEMBER: u64 = 7;

/// Small, in one of two ways, but with room for as much as a model leaves unapplied.
pub fn config(seed: u64) -> Config {
    let config = if seed % 4 < 2 { small(seed) } else { short_log(seed) };
    Config { log_segments: 9, ..config }
}

pub fn open(disk: &SimDisk, config: Config) -> Result<MemberStore> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    MemberStore::open(disk, config, MEMBER)
}

pub fn rows(store: &MemberStore) -> Rows {
    store.snapshot().scan(b"", &[0xff; 40], usize::MAX).unwrap().into_iter().collect()
}

pub fn entry(term: u64, index: u64, proposal: Proposal) -> Entry {
    Entry { id: EntryId { term, index }, proposal }
}

pub fn batch(term: u64, index: u64, expected: Fence, changes: Vec<Change>) -> Entry {
    entry(term, index, Proposal::Batch { expected, changes })
}

/// All entries that the store can return.
pub fn log(store: &MemberStore) -> Vec<Entry> {
    try_log(store).unwrap()
}

fn try_log(store: &MemberStore) -> cairn_base::Result<Vec<Entry>> {
    let first = store.before().map_or(0, |id| id.index + 1);
    store.entries(first, u64::MAX, usize::MAX)
}

/// Rows and fence after a number of entries.
#[derive(Clone, Default)]
pub struct Applied {
    pub rows: Rows,
    pub fence: Fence,
}

impl Applied {
    /// The state machine, once more.
    pub fn after(&self, entry: &Entry) -> (Applied, Outcome) {
        let mut next = self.clone();
        let outcome = match &entry.proposal {
            Proposal::Batch { expected, .. } if *expected != self.fence => {
                Outcome::Fenced { found: self.fence }
            }
            Proposal::Batch { changes, .. } => {
                apply(&mut next.rows, changes);
                next.fence.batch += 1;
                Outcome::Done
            }
            Proposal::TakeOver { batch } => {
                let batch = self.fence.batch.max(*batch);
                next.fence = Fence { epoch: self.fence.epoch + 1, batch };
                Outcome::TookOver { fence: next.fence, alone: false }
            }
            _ => Outcome::Done,
        };
        (next, outcome)
    }
}

/// A member as it must be.
#[derive(Clone)]
pub struct Model {
    /// The log as the last append left it on the disk, and as it is after truncations, of which
    /// the disk may know nothing.
    pub on_disk: Vec<Entry>,
    pub log: Vec<Entry>,
    pub vote: Vote,
    pub applied: usize,
    /// After no entry, one entry, ...: all that were ever applied.
    pub states: Vec<Applied>,
    /// Steps since all entries were applied.
    behind: u32,
}

impl Default for Model {
    fn default() -> Model {
        let (on_disk, log) = (Vec::new(), Vec::new());
        let states = vec![Applied::default()];
        Model { on_disk, log, vote: Vote::default(), applied: 0, states, behind: 0 }
    }
}

impl Model {
    pub fn committed(&self) -> usize {
        self.states.len() - 1
    }

    fn last_term(&self) -> u64 {
        self.log.last().map_or(1, |entry| entry.id.term)
    }

    /// Entries from `from` on, as a leader of `term` may have proposed them.
    fn entries(&self, rng: &SeededRng, from: usize, term: u64) -> Vec<Entry> {
        let mut tip = self.states.last().cloned().unwrap_or_default();
        for entry in &self.log[self.committed()..from] {
            tip = tip.after(entry).0;
        }
        let mut out = Vec::new();
        for number in 0..=rng.below(3) {
            let index = from as u64 + number;
            let proposal = match rng.below(12) {
                0 => Proposal::Empty,
                1 => Proposal::TakeOver { batch: rng.below(2) * (tip.fence.batch + 3) },
                2 => Proposal::Members(members(rng)),
                3 => {
                    let expected = Fence { epoch: tip.fence.epoch + 1, ..tip.fence };
                    Proposal::Batch { expected, changes: random_changes(rng, 30) }
                }
                _ => Proposal::Batch { expected: tip.fence, changes: random_changes(rng, 30) },
            };
            let entry = entry(term, index, proposal);
            tip = tip.after(&entry).0;
            out.push(entry);
        }
        out
    }

    /// Does one thing to the store and to the model.
    pub fn step(&mut self, store: &MemberStore, rng: &SeededRng) {
        self.try_step(store, rng).unwrap();
        self.check_rows(store, "step");
    }

    /// Runs a step like `step`. After an error the model is as if there had been none.
    pub fn try_step(&mut self, store: &MemberStore, rng: &SeededRng) -> Result<()> {
        self.behind = if self.applied < self.log.len() { self.behind + 1 } else { 0 };
        match rng.below(12) {
            _ if self.behind > 5 => self.try_apply(store, self.log.len()),
            0..=4 => self.append(store, rng),
            5 => {
                let from = self.pick(rng);
                self.log.truncate(from);
                store.truncate(from as u64)
            }
            6 => {
                self.vote = match rng.below(2) {
                    0 => Vote { committed: true, ..self.vote },
                    _ => Vote {
                        term: self.vote.term.max(self.last_term()) + 1,
                        member: 1 + rng.below(3),
                        committed: false,
                    },
                };
                store.save_vote(self.vote)
            }
            7..=10 => self.try_apply(store, self.applied + rng.below(5) as usize),
            _ if rng.below(2) == 0 => store.checkpoint(),
            _ => {
                store.checkpoint()?;
                self.on_disk.clone_from(&self.log);
                store.set_aside()
            }
        }
    }

    /// An index from which on entries may be replaced.
    fn pick(&self, rng: &SeededRng) -> usize {
        let loose = (self.log.len() - self.committed()) as u64;
        self.log.len() - rng.below(loose.min(4) + 1) as usize
    }

    fn append(&mut self, store: &MemberStore, rng: &SeededRng) -> Result<()> {
        let (mut from, mut term) = (self.log.len(), self.last_term());
        if rng.below(3) == 0 {
            from = self.pick(rng);
            term += 1;
            if rng.below(2) == 0 {
                store.truncate(from as u64)?;
            }
        }
        let entries = self.entries(rng, from, term);
        self.log.truncate(from);
        self.log.extend(entries.clone());
        self.on_disk.clone_from(&self.log);
        store.append(entries)
    }

    pub fn apply(&mut self, store: &MemberStore, end: usize) {
        self.try_apply(store, end).unwrap();
        self.check_rows(store, "applied");
    }

    pub fn try_apply(&mut self, store: &MemberStore, end: usize) -> Result<()> {
        let end = end.min(self.log.len());
        let entries = self.log[self.applied..end].to_vec();
        let mut wanted = Vec::new();
        for entry in &entries {
            let (next, outcome) = self.states[self.applied].after(entry);
            wanted.push(outcome);
            self.applied += 1;
            if self.applied == self.states.len() {
                self.states.push(next);
            }
        }
        assert_eq!(store.apply(entries)?, wanted);
        Ok(())
    }

    pub fn check_rows(&self, store: &MemberStore, what: &str) {
        let state = &self.states[self.applied];
        assert_eq!(store.fence(), state.fence, "{what}");
        assert!(rows(store) == state.rows, "{what}: rows after {} entries", self.applied);
    }

    /// Compares the store with what it may be: one of `allowed`. Returns that one.
    pub fn find(store: &MemberStore, allowed: &[&Model], what: &str) -> Model {
        let found = Model::adopt(store, allowed, what);
        found.check_rows(store, what);
        found
    }

    /// Finds the model like `find`, without comparing the rows.
    pub fn adopt(store: &MemberStore, allowed: &[&Model], what: &str) -> Model {
        Model::try_adopt(store, allowed, what).unwrap()
    }

    /// Finds the model like `adopt`; returns an error if the disk does not let the log be read.
    pub fn try_adopt(
        store: &MemberStore,
        allowed: &[&Model],
        what: &str,
    ) -> cairn_base::Result<Model> {
        let (id, membership) = store.applied();
        let applied = id.map_or(0, |id| id.index as usize + 1);
        let (found, vote, last) = (try_log(store)?, store.vote(), store.last());
        let votes: Vec<Vote> = allowed.iter().map(|model| model.vote).collect();
        assert!(votes.contains(&vote), "{what}: vote {vote:?}, not one of {votes:?}");
        for model in allowed {
            for log in [&model.on_disk, &model.log] {
                let start = store.before().map_or(0, |id| id.index as usize + 1);
                let same = start <= log.len()
                    && log[start..] == found[..]
                    && log.last().map(|entry| entry.id) == last
                    && applied <= model.committed();
                if !same {
                    continue;
                }
                assert!(start <= applied, "{what}: entries after those applied are missing");
                assert_eq!(id, log[..applied].last().map(|entry| entry.id), "{what}");
                let members = log[..applied].iter().rfind(|entry| is_members(entry));
                assert_eq!(membership.entry, members.map(|entry| entry.id), "{what}");
                let (on_disk, log, states) = (log.clone(), log.clone(), model.states.clone());
                return Ok(Model { on_disk, log, vote, applied, states, behind: 0 });
            }
        }
        panic!("{what}: a log that ends at {last:?}, {applied} applied, fits none");
    }
}

fn is_members(entry: &Entry) -> bool {
    matches!(entry.proposal, Proposal::Members(_))
}

fn members(rng: &SeededRng) -> Members {
    let set = || (0..rng.below(4)).map(|_| 1 + rng.below(9)).collect::<BTreeSet<u64>>();
    Members { voters: vec![set(), set()], learners: set() }
}
