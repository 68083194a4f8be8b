//! Masters on one thread, from a seed: first everything goes wrong and must stay right, then
//! nothing goes wrong and all must become well.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::Error;
use cairn_base::planted::plant;
use cairn_base::rng::SeededRng;
use cairn_meta::engine::raft::message::{self, Reply};
use cairn_meta::engine::{Engine, Fence};
use cairn_sim::SimDisk;
use parking_lot::Mutex;

use super::clients::{Answer, Client, clients};
use super::faults::{Begun, Fault};
use super::history::History;
use super::operator::{Act, Change, Operator};
use super::planted::{Planted, ToldVoters};
use super::process::{self, ProcessShown, Start};
use super::scripts::{Planned, Script, Step, draw_script, founder_dies, play};
use super::seating::{MasterList, MasterListState};
use super::wires::{Item, Wires, has_entries};
use crate::cluster::host::Host;

/// A turn of the world, microseconds.
const TICK_US: u64 = 2_000;
/// Duration of the faults, and time that all may take to become well.
const FAULTS_US: u64 = 30_000_000;
const RECOVERY_US: u64 = 120_000_000;
/// Time that members may take to agree while clients rest. A leader waits 30 s for an answer to a
/// part of a snapshot that is lost, and then begins anew.
const AGREEING_US: u64 = 75_000_000;
const RESTING_US: u64 = 500_000;
/// Most requests in a row for a range whose first entry is overwritten, by several members.
const RANGE_REPEATS: u64 = 12;
/// Interval between two looks at processes that have ended by themselves.
const LOOK_US: u64 = 500_000;
/// Clocks differ by less than a tenth, the margin of leases.
const RATES_PPM: [u64; 2] = [20_000, 45_000];
/// Changes that operators make; a change is as frequent as it is listed.
const CHANGES: [Change; 8] = [
    Change::Join,
    Change::Leave,
    Change::Replace,
    Change::Replace,
    Change::ReplaceDead,
    Change::ReplaceDead,
    Change::ReplaceWiped,
    Change::ReplaceWiped,
];

/// The result of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub digest: u64,
    pub violations: Vec<String>,
    pub ops: usize,
    pub answered: usize,
    pub faults: usize,
    pub changes: usize,
    pub recovery_ms: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { digest, ops, answered, faults, changes, recovery_ms, .. } = self;
        write!(f, "{answered} of {ops} operations answered, {faults} faults, {changes} changes, ")?;
        write!(f, "well after {recovery_ms} ms, digest {digest:016x}")
    }
}

/// A machine.
pub struct Place {
    pub host: Host,
    pub disk: SimDisk,
    pub shown: ProcessShown,
    /// The members with which it makes the log, if it does.
    pub founds: BTreeSet<u64>,
    /// It asks first whether it may begin.
    pub enters: bool,
    /// Members that were given up, as its map says.
    pub former: BTreeSet<u64>,
    /// Nobody starts its process again.
    pub stays_down: bool,
}

/// The subject of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Set if members come and go.
    pub changes: bool,
    /// Script to repeat; `None` for any.
    pub script: Option<Script>,
    /// Wall clocks jump where the faults say so.
    pub jumps: bool,
}

pub struct World {
    pub now_us: u64,
    pub rng: Arc<SeededRng>,
    pub wires: Wires,
    pub places: BTreeMap<u64, Place>,
    pub clients: Vec<Client>,
    /// Answers that masters have given, and those that are on their way, with their times.
    pub answers: Arc<Mutex<Vec<Answer>>>,
    pub arriving: Vec<(u64, Answer)>,
    pub history: History,
    most_ppm: u64,
    seed: u64,
    /// Number of questions that were asked.
    pub turns: u64,
    /// Number of masters that have begun.
    masters: Arc<AtomicU64>,
    planned: VecDeque<Planned>,
    pub ending: Vec<Begun>,
    pub scene: Scene,
    pub list: MasterList,
    pub operator: Operator,
    /// For a planted bug.
    told: Option<ToldVoters>,
    /// For another one: clocks stand still while machines are suspended.
    pub clocks_stop: bool,
    /// Masters that were removed run on until the end.
    pub keeps_removed: bool,
    pub next_id: u64,
    /// Member to be stopped at its next answer, and for how long.
    pub awaited: Option<(u64, u64)>,
    /// Member to be mute once its next entries have arrived, and for how long.
    pub awaited_entry: Option<(u64, u64)>,
    /// Time for which the member that gets the next vote is isolated.
    pub awaited_vote: Option<u64>,
    pub faults: usize,
}

/// Runs one seed, with a bug or without.
pub fn run(seed: u64, scene: Scene, bug: Option<Planted>) -> Report {
    plant(Planted::of_product(bug));
    let mut world = World::new(seed, scene);
    world.told = (bug == Some(Planted::RemovedVotes)).then(ToldVoters::default);
    world.clocks_stop = bug == Some(Planted::ClockStops);
    world.list.with(|state| state.wiped_may_vote = bug == Some(Planted::WipedVotes));
    world.misbehave(seed);
    let mut violations = world.history.check();
    let mut recovery_ms = 0;
    if violations.is_empty() {
        let healed_us = world.now_us;
        violations = world.recover();
        world.list.with(|state| violations.append(&mut state.violations));
        recovery_ms = (world.now_us - healed_us) / 1000;
    }
    let report = Report {
        digest: world.wires.digest(),
        violations,
        ops: world.history.len(),
        answered: world.history.answered,
        faults: world.faults,
        changes: world.operator.begun,
        recovery_ms,
    };
    world.end();
    plant(None);
    report
}

impl World {
    fn new(seed: u64, scene: Scene) -> World {
        let rng = Arc::new(SeededRng::new(seed));
        let most_ppm = RATES_PPM[rng.below(2) as usize];
        let mut world = World {
            now_us: 0,
            wires: Wires::new(Arc::clone(&rng)),
            rng,
            places: BTreeMap::new(),
            clients: clients(),
            answers: Arc::default(),
            arriving: Vec::new(),
            history: History::default(),
            turns: 0,
            masters: Arc::default(),
            planned: VecDeque::new(),
            ending: Vec::new(),
            scene,
            list: MasterList::default(),
            operator: Operator::default(),
            told: None,
            clocks_stop: false,
            keeps_removed: scene.script.is_some(),
            next_id: 1,
            most_ppm,
            seed,
            awaited: None,
            awaited_entry: None,
            awaited_vote: None,
            faults: 0,
        };
        world.found();
        world
    }

    /// The first one makes the log. The others are among its members from the begin, or join.
    fn found(&mut self) {
        let first: BTreeSet<u64> = if self.scene.changes { [1].into() } else { [1, 2, 3].into() };
        for id in &first {
            let founds = if *id == 1 { first.clone() } else { BTreeSet::new() };
            let place = self.new_place(*id, founds);
            self.places.insert(*id, place);
        }
        self.next_id = first.len() as u64 + 1;
        self.list.with(|state| state.masters = first.clone());
        first.iter().for_each(|id| self.start(*id));
        if self.scene.changes {
            let most_us = if self.scene.script.is_some() { 300_000 } else { 4_000_000 };
            let at_us = || 100_000 + self.rng.below(most_us);
            self.operator.acts = vec![(at_us(), Act::Join), (at_us(), Act::Join)];
        }
    }

    pub fn new_place(&self, id: u64, founds: BTreeSet<u64>) -> Place {
        let most = self.most_ppm;
        let rate = self.rng.below(2 * most + 1) as i64 - most as i64;
        Place {
            host: Host::new(rate),
            disk: SimDisk::new(self.seed << 8 | id),
            shown: ProcessShown::default(),
            enters: self.scene.changes && founds.is_empty(),
            former: self.list.with(|list| list.former.clone()),
            founds,
            stays_down: false,
        }
    }

    /// All machines.
    pub fn ids(&self) -> Vec<u64> {
        self.places.keys().copied().collect()
    }

    /// The masters of the map.
    pub fn members(&self) -> Vec<u64> {
        self.list.with(|state| state.masters.iter().copied().collect())
    }

    pub fn start(&mut self, id: u64) {
        let Some(place) = self.places.get_mut(&id) else { return };
        place.enters &= !place.shown.member.has_entered();
        let start = Start {
            id,
            disk: place.disk.clone(),
            wires: self.wires.clone(),
            rng: Arc::clone(&self.rng),
            founds: place.founds.clone(),
            enters: place.enters,
            former: place.former.clone(),
            changes: self.scene.changes,
            list: self.list.clone(),
            shown: place.shown.clone(),
            masters: Arc::clone(&self.masters),
        };
        place.host.start(self.now_us, &self.rng, |given| process::start(start, given));
    }

    /// Ends a process; what is left of its disk.
    pub fn stop(&mut self, id: u64, power: bool) {
        let seed = self.rng.below(u64::MAX);
        let Some(place) = self.places.get_mut(&id).filter(|place| place.host.is_running()) else {
            return;
        };
        let left = if power { place.disk.crash_image(seed) } else { place.disk.kill() };
        place.disk.clear_faults();
        place.host.end();
        place.shown.clear();
        place.disk = left;
    }

    pub fn start_again(&mut self, id: u64) {
        let can_start = |place: &Place| !place.host.is_running() && !place.stays_down;
        if self.places.get(&id).is_some_and(can_start) {
            self.start(id);
        }
    }

    fn end(&mut self) {
        self.ids().into_iter().for_each(|id| self.stop(id, false));
    }

    fn misbehave(&mut self, seed: u64) {
        let kinds = SeededRng::new(seed ^ 0xFA17).below(u64::MAX) | 1;
        let mut next_us = 1_000_000 + self.rng.below(2_000_000);
        if let Some(script) = self.scene.script {
            self.repeat(script);
        } else {
            if self.rng.below(6) == 0 {
                next_us = self.plan(founder_dies(&self.rng));
            }
            let mut change_us = 5_000_000 + self.rng.below(4_000_000);
            while self.now_us < FAULTS_US {
                if self.now_us >= next_us {
                    let (members, newest) = (self.members(), self.newest());
                    next_us = self.plan(draw_script(&self.rng, &members, newest, kinds));
                }
                if self.scene.changes && self.now_us >= change_us {
                    change_us = self.now_us + 500_000 + self.rng.below(3_000_000);
                    self.change(CHANGES[self.rng.below(CHANGES.len() as u64) as usize]);
                }
                self.turn();
            }
        }
        self.planned.clear();
        (self.awaited, self.awaited_entry, self.awaited_vote) = (None, None, None);
    }

    /// Plays one script again and again, each time when a master serves.
    fn repeat(&mut self, script: Script) {
        let mut next_us = 4_000_000;
        while self.now_us < FAULTS_US {
            if self.now_us >= next_us && self.planned.is_empty() && self.is_settled() {
                let (members, newest) = (self.members(), self.newest());
                next_us = self.plan(play(&self.rng, &members, newest, script));
            }
            self.turn();
        }
    }

    fn is_settled(&self) -> bool {
        let is_settled = |voters: &BTreeSet<u64>| voters.len() >= 3;
        self.newest().is_some()
            && self.operator.acts.is_empty()
            && (!self.scene.changes
                || self.list.with(|state| state.settled.as_ref().is_some_and(is_settled)))
    }

    /// Begins what is due, and lets time go on.
    fn turn(&mut self) {
        while self.planned.front().is_some_and(|(at_us, ..)| *at_us <= self.now_us) {
            let Some((_, step, lasts_us)) = self.planned.pop_front() else { break };
            match step {
                Step::Of(fault) => self.begin(fault, lasts_us),
                Step::OfServing(fault) => {
                    if let Some(id) = self.newest() {
                        self.begin(fault(id), lasts_us);
                    }
                }
                Step::OfFollower(fault) => {
                    let newest = self.newest();
                    let id = self.members().into_iter().rev().find(|id| Some(*id) != newest);
                    if let Some(id) = id {
                        self.begin(fault(id), lasts_us);
                    }
                }
                Step::Change(change) => self.change(change),
            }
        }
        self.end_faults(false);
        self.tick(true);
    }

    /// Takes a script; returns when the next one may begin.
    fn plan(&mut self, mut script: Vec<Planned>) -> u64 {
        script.sort_by_key(|(at_us, ..)| *at_us);
        let mut end_us = self.now_us;
        for (at_us, step, lasts_us) in script {
            end_us = end_us.max(self.now_us + at_us + lasts_us);
            self.planned.push_back((self.now_us + at_us, step, lasts_us));
        }
        end_us + self.rng.below(2_500_000)
    }

    /// The member whose master began last, of those that say that they serve.
    pub fn newest(&self) -> Option<u64> {
        let begun = |id: &u64| self.begun(*id);
        self.ids().into_iter().filter(|id| begun(id).is_some()).max_by_key(begun)
    }

    /// Returns the number of masters that began before that of `id`, if it claims to serve.
    pub fn begun(&self, id: u64) -> Option<u64> {
        self.places[&id].shown.master.lock().as_ref().map(|(begun, _)| *begun)
    }

    /// All are started anew if they have ended, and the clients are served. Then the clients rest,
    /// and all members must have the same rows.
    fn recover(&mut self) -> Vec<String> {
        self.end_faults(true);
        self.ids().into_iter().for_each(|id| self.start_again(id));
        self.operator.acts.iter_mut().for_each(|(at_us, _)| *at_us = 0);
        let begun = (self.now_us, self.history.answered);
        while self.history.answered <= begun.1 + 40 || self.agreed().is_none() || !self.is_seated()
        {
            if self.now_us - begun.0 > RECOVERY_US {
                let answered = self.history.answered - begun.1;
                let fences: Vec<_> = self.fences().collect();
                let seats = self.list.with(|state| {
                    let MasterListState { masters, asked, up, settled, .. } = state;
                    format!("{masters:?} without {asked:?}, up {up:?}, voters {settled:?}")
                });
                return vec![format!("not well: {answered} answered since, {fences:?}, {seats}")];
            }
            self.tick(true);
        }
        let rests_us = self.now_us;
        while self.agreed() != Some(0) || self.now_us - rests_us < RESTING_US {
            if self.now_us - rests_us > AGREEING_US {
                let fences: Vec<_> = self.fences().collect();
                return vec![format!("members do not agree: {fences:?}")];
            }
            self.tick(false);
        }
        let mut wrong = self.history.check();
        wrong.extend(self.differing());
        let former = self.list.with(|list| list.former.clone());
        let serving = self.ids().into_iter().filter(|id| self.begun(*id).is_some());
        let serving = serving.filter(|id| former.contains(id));
        wrong.extend(serving.map(|id| format!("member {id} was given up, and serves")));
        wrong
    }

    /// Returns whether the voters are masters of the map, and at least three.
    fn is_seated(&self) -> bool {
        if !self.scene.changes {
            return true;
        }
        let is_settled = self.list.with(|state| {
            let is_right = |voters: &BTreeSet<u64>| {
                voters.len() >= 3.min(state.masters.len()) && voters.is_subset(&state.masters)
            };
            state.asked.is_empty() && state.settled.as_ref().is_some_and(is_right)
        });
        is_settled && self.operator.acts.is_empty()
    }

    /// Returns the fences of the masters of the map.
    fn fences(&self) -> impl Iterator<Item = (u64, Fence)> {
        let members = self.members();
        let is_member = move |(id, _): &(&u64, &Place)| members.contains(*id);
        self.places.iter().filter(is_member).filter_map(|(id, place)| {
            let engine = place.shown.member.engine.lock().clone()?;
            Some((*id, engine.member().fence()))
        })
    }

    /// By how many batches members are behind, if they follow the same master and are not far
    /// behind.
    fn agreed(&self) -> Option<u64> {
        let fences: Vec<Fence> = self.fences().map(|(_, fence)| fence).collect();
        let least = fences.iter().map(|fence| fence.batch).min().unwrap_or(0);
        let most = fences.iter().map(|fence| fence.batch).max().unwrap_or(0);
        let agree = fences.len() == self.members().len()
            && fences.iter().all(|fence| fence.epoch == fences[0].epoch)
            && most - least < 10;
        agree.then_some(most - least)
    }

    /// Members whose rows are not those of the first one.
    fn differing(&self) -> Vec<String> {
        let rows = |place: &Place| {
            let engine = place.shown.member.engine.lock().clone();
            let engine = engine.ok_or_else(|| Error::Unavailable("it has ended".into()))?;
            engine.snapshot()?.scan(b"", &[0xff; 40], usize::MAX)
        };
        let members = self.members();
        let places = self.places.iter().filter(|(id, _)| members.contains(*id));
        let mut all = places.map(|(id, place)| (id, rows(place)));
        let Some((_, Ok(first))) = all.next() else {
            return vec!["the first member shows no rows".to_owned()];
        };
        let differs = |(id, rows): (&u64, cairn_base::Result<Vec<_>>)| match rows {
            Ok(rows) if rows == first => None,
            Ok(_) => Some(format!("member {id} has other rows than the first one")),
            Err(error) => Some(format!("member {id} shows no rows: {error}")),
        };
        all.filter_map(differs).collect()
    }

    /// A process whose member has ended is started again, as its host would.
    fn restart_ended(&mut self) {
        for id in self.ids() {
            if self.places.get(&id).is_some_and(|place| place.shown.member.has_ended()) {
                self.stop(id, false);
                self.start_again(id);
            }
        }
    }

    /// No member may be asked for one range again and again, though lost messages would end that.
    fn check_ranges(&mut self) {
        for (id, place) in &self.places {
            let engine = place.shown.member.engine.lock().clone();
            let repeated = engine.map_or(0, |engine| engine.member().most_repeated_range());
            if repeated > RANGE_REPEATS {
                let text = format!("member {id} was asked for one range {repeated} times");
                self.list.with(|state| state.violations.push(text));
            }
        }
    }

    fn tick(&mut self, works: bool) {
        self.now_us += TICK_US;
        self.deliver();
        for place in self.places.values_mut() {
            place.host.advance(TICK_US);
        }
        if self.now_us % LOOK_US < TICK_US {
            self.places.values().for_each(|place| place.shown.member.assert_whole());
            self.restart_ended();
            self.check_ranges();
            self.beat();
            if self.scene.changes {
                self.operate();
            }
        }
        self.collect();
        if works {
            self.work();
        }
    }

    /// Masters hear from all machines that run.
    fn beat(&mut self) {
        let is_up = |place: &Place| place.host.is_running() && place.host.paused_us.is_none();
        let up = self.places.iter().filter(|(_, place)| is_up(place)).map(|(id, _)| *id);
        let up = up.collect();
        self.list.with(|state| state.up = up);
    }

    fn deliver(&mut self) {
        for mut item in self.wires.arrived(self.now_us) {
            if item.is_reply {
                let is_vote = self.awaited_vote.is_some() && is_vote(&item.bytes);
                let _ = item.waiting.send(Ok(item.bytes));
                if let Some(lasts_us) = self.awaited_vote.take_if(|_| is_vote) {
                    self.part(item.to, item.from, lasts_us);
                }
                if let Some((id, lasts_us)) = self.awaited.take_if(|(id, _)| *id == item.to) {
                    self.begin(Fault::Stop(id), lasts_us);
                }
                continue;
            }
            let is_awaited =
                |(id, _): &mut (u64, u64)| *id == item.from && has_entries(&item.bytes);
            if let Some((id, lasts_us)) = self.awaited_entry.take_if(is_awaited) {
                self.begin(Fault::Mute(id), lasts_us);
            }
            if let Some(told) = &mut self.told
                && let Ok(bytes) = told.keep(item.to, &item.bytes)
            {
                item.bytes = bytes;
            }
            let Some(place) = self.places.get_mut(&item.to) else { continue };
            let engine = place.shown.member.engine.lock().clone();
            let Some(engine) = engine else {
                let _ = item.waiting.send(Err(Error::Unavailable("nobody listens".into())));
                continue;
            };
            let wires = self.wires.clone();
            place.host.inside(move || {
                let Item { from, to, bytes, waiting, .. } = item;
                tokio::spawn(async move {
                    let bytes = engine.member().receive(from, bytes).await;
                    wires.put(Item { from: to, to: from, bytes, waiting, is_reply: true });
                });
            });
        }
    }
}

/// Returns whether this answer grants a vote.
fn is_vote(bytes: &[u8]) -> bool {
    matches!(message::parse_reply(bytes), Ok(Reply::Voted { granted: true, .. }))
}
