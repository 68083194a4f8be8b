//! An operator: has masters join, removes them, replaces those that are wiped, and recovers one
//! where the others are lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_base::{Error, Result};
use cairn_meta::engine::raft::MemberStore;
use cairn_sim::SimDisk;

use super::faults::Fault;
use super::world::World;
use crate::member::config;

const MS: u64 = 1_000;
/// Most masters at a time.
const MASTERS_MAX: usize = 5;
/// Longest time for which a machine whose master was removed runs on.
const RETIRES_US: u64 = 12_000 * MS;

/// Something that an operator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Join,
    /// A master is removed.
    Leave,
    /// A new master joins, and an old one leaves.
    Replace,
    /// Replaces a master like `Replace`, after its process was ended.
    ReplaceDead,
    /// Replaces a master like `Replace`, after it has lost its disk.
    ReplaceWiped,
}

/// A part of a change.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Join,
    Remove(u64),
}

/// The operator's list.
#[derive(Default)]
pub struct Operator {
    pub acts: Vec<(u64, Act)>,
    /// Machines whose masters were removed, and when they are switched off.
    pub retiring: Vec<(u64, u64)>,
    pub begun: usize,
}

impl World {
    /// Begins a change, unless another one is under way.
    pub fn change(&mut self, change: Change) {
        let (settled, masters, is_free) = self
            .list
            .with(|state| (state.settled.clone(), state.masters.clone(), state.asked.is_empty()));
        let Some(voters) = settled.filter(|_| is_free && self.operator.acts.is_empty()) else {
            return;
        };
        let is_enough = match change {
            Change::Join => masters.len() < MASTERS_MAX,
            Change::Leave => voters.len() >= 3 && (masters.len() > 3 || self.rng.below(3) == 0),
            _ => voters.len() >= 3,
        };
        let mut victims: Vec<u64> = masters.into_iter().collect();
        if victims.len() > 1 && self.rng.below(4) > 0 {
            victims.retain(|id| voters.contains(id));
        }
        let Some(victim) = victims.get(self.rng.below(victims.len().max(1) as u64) as usize) else {
            return;
        };
        if is_enough {
            self.change_of(change, *victim);
        }
    }

    /// Begins a change of this master.
    pub fn change_of(&mut self, change: Change, id: u64) {
        tracing::info!(now_ms = self.now_us / 1000, ?change, id, "an operator begins");
        self.operator.begun += 1;
        self.list.with(|state| state.settled = None);
        match change {
            Change::ReplaceDead => {
                self.stop(id, self.rng.below(2) == 0);
                self.places.get_mut(&id).into_iter().for_each(|place| place.stays_down = true);
            }
            Change::ReplaceWiped => self.wipe(id),
            _ => {}
        }
        let soon = || self.now_us + self.rng.below(4_000 * MS);
        if change != Change::Leave {
            self.operator.acts.push((soon(), Act::Join));
        }
        if change != Change::Join {
            self.operator.acts.push((soon(), Act::Remove(id)));
        }
    }

    /// Ends all masters. The member with the longest log recovers, so nothing acknowledged is lost,
    /// and others join. The former masters come back after `returns_us`, and one of them may not
    /// reach the recovered member.
    pub fn go_on_alone(&mut self, returns_us: u64) {
        let masters = self.members();
        for id in &masters {
            let power = self.rng.below(2) == 0;
            self.stop(*id, power);
        }
        let end = |id: &u64| {
            let store = self.opened(*id).ok()?;
            Some((store.last().or(store.applied().0)?, *id))
        };
        let Some((_, own)) = masters.iter().filter_map(end).max() else { return };
        if let Err(error) = self.recover_member(own) {
            self.list.with(|list| list.violations.push(format!("no recovery of {own}: {error}")));
            return;
        }
        let others: BTreeSet<u64> = masters.into_iter().filter(|id| *id != own).collect();
        for id in &others {
            self.places.get_mut(id).into_iter().for_each(|place| place.stays_down = true);
        }
        let former = self.list.with(|list| {
            list.former.extend(&others);
            (list.masters, list.settled) = ([own].into(), None);
            list.asked.clear();
            list.former.clone()
        });
        self.places.get_mut(&own).into_iter().for_each(|place| place.former = former.clone());
        self.start(own);
        let soon = || self.now_us + self.rng.below(4_000 * MS);
        self.operator.acts = vec![(soon(), Act::Join), (soon(), Act::Join)];
        self.operator.begun += 1;
        let lasts_us = returns_us + 2_000 * MS + self.rng.below(8_000 * MS);
        if let Some(one) = others.first().copied().filter(|_| self.rng.below(2) == 0) {
            self.begin(Fault::Cut(own, one), lasts_us);
            self.begin(Fault::Cut(one, own), lasts_us);
        }
    }

    /// The disk of a member whose process does not run.
    fn opened(&self, id: u64) -> Result<MemberStore> {
        let none = || Error::NotFound(format!("member {id}"));
        let place = self.places.get(&id).ok_or_else(none)?;
        MemberStore::open_any(Arc::new(place.disk.clone()), config(&self.rng))
    }

    /// Does the same as `cairn cluster recover` with the disk of a member.
    fn recover_member(&self, id: u64) -> Result<()> {
        let store = self.opened(id)?;
        let former = store.generation().max(store.superseded());
        let generation = former.max(self.now_us) + 1;
        tracing::info!(id, generation, now_ms = self.now_us / 1000, "goes on alone");
        store.survive(generation, vec![(Bytes::from_static(b"map"), Some(Bytes::new()))])
    }

    /// Masters that were given up are started again.
    pub fn former_return(&mut self) {
        for id in self.list.with(|list| list.former.clone()) {
            self.places.get_mut(&id).into_iter().for_each(|place| place.stays_down = false);
            self.start_again(id);
        }
    }

    /// Makes another master join after `after_us`, and then this one leave.
    pub fn replace(&mut self, id: u64, after_us: u64) {
        self.operator.begun += 1;
        let at_us = self.now_us + after_us;
        self.operator.acts.extend([(at_us, Act::Join), (at_us + 500 * MS, Act::Remove(id))]);
    }

    /// The disk of a member is empty, and it starts again.
    pub fn wipe(&mut self, id: u64) {
        self.stop(id, true);
        let seed = self.rng.below(u64::MAX);
        let Some(place) = self.places.get_mut(&id) else { return };
        place.disk = SimDisk::new(seed);
        place.shown.member.entered.store(false, Ordering::Relaxed);
        (place.enters, place.founds) = (true, BTreeSet::new());
        self.start_again(id);
    }

    /// Does what is due.
    pub fn operate(&mut self) {
        let now_us = self.now_us;
        let due: Vec<_> = self.operator.acts.extract_if(.., |(at, _)| *at <= now_us).collect();
        for (_, act) in due {
            match act {
                Act::Join => self.join(),
                Act::Remove(id) => self.list.with(|state| {
                    state.settled = None;
                    state.asked.insert(id);
                }),
            }
        }
        self.retire();
    }

    pub fn join(&mut self) {
        let id = self.next_id;
        self.next_id += 1;
        let place = self.new_place(id, BTreeSet::new());
        self.places.insert(id, place);
        self.list.with(|state| {
            state.settled = None;
            state.masters.insert(id);
        });
        self.start(id);
    }

    /// Machines of masters that were removed are switched off some time later.
    fn retire(&mut self) {
        let masters = self.list.with(|state| state.masters.clone());
        for id in self.places.keys().filter(|id| !masters.contains(id)) {
            if self.operator.retiring.iter().all(|(retires, _)| retires != id) {
                let after_us =
                    if self.keeps_removed { u64::MAX / 2 } else { self.rng.below(RETIRES_US) };
                self.operator.retiring.push((*id, self.now_us + after_us));
            }
        }
        let now_us = self.now_us;
        let retired = self.operator.retiring.iter().filter(|(_, at)| *at <= now_us);
        for (id, _) in retired.copied().collect::<Vec<_>>() {
            self.stop(id, true);
            self.places.remove(&id);
        }
        let places = &self.places;
        self.operator.retiring.retain(|(id, _)| places.contains_key(id));
    }
}
