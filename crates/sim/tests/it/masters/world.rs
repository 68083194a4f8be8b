//! Three masters on one thread, from a seed: first everything goes wrong and must stay right, then
//! nothing goes wrong and all must become well.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cairn_base::Error;
use cairn_base::planted::{Bug, plant};
use cairn_base::rng::SeededRng;
use cairn_meta::engine::{Engine, Fence};
use cairn_sim::SimDisk;
use parking_lot::Mutex;

use super::clients::{Answer, Client, clients};
use super::faults::Fault;
use super::history::History;
use super::process::{self, MEMBERS, ProcessShown, Start};
use super::scripts::{Planned, Step, draw_script, founder_dies};
use super::wires::{Item, Wires};
use crate::cluster::host::Host;

/// A turn of the world, microseconds.
const TICK_US: u64 = 2_000;
/// How long things go wrong, and how long all may take to become well.
const FAULTS_US: u64 = 30_000_000;
const RECOVERY_US: u64 = 60_000_000;
/// How long members may take to agree when nobody asks for anything.
const AGREEING_US: u64 = 20_000_000;
const RESTING_US: u64 = 500_000;
/// Between two looks at processes that have ended by themselves.
const LOOK_US: u64 = 500_000;
/// Clocks differ by less than a tenth, the margin of leases.
const RATES_PPM: [u64; 2] = [20_000, 45_000];

/// The result of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub digest: u64,
    pub violations: Vec<String>,
    pub ops: usize,
    pub answered: usize,
    pub faults: usize,
    pub recovery_ms: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { digest, ops, answered, faults, recovery_ms, .. } = self;
        write!(f, "{answered} of {ops} operations answered, {faults} faults, ")?;
        write!(f, "well after {recovery_ms} ms, digest {digest:016x}")
    }
}

pub struct Place {
    pub host: Host,
    pub disk: SimDisk,
    pub shown: ProcessShown,
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
    /// Questions that were asked.
    pub turns: u64,
    /// How many masters have begun.
    masters: Arc<AtomicU64>,
    planned: VecDeque<Planned>,
    pub ending: Vec<(u64, Fault)>,
    /// A member that is to be stopped for so long at its next answer.
    pub awaited: Option<(u64, u64)>,
    pub faults: usize,
}

/// Runs one seed, with a bug or without.
pub fn run(seed: u64, bug: Option<Bug>) -> Report {
    plant(bug);
    let mut world = World::new(seed);
    world.misbehave(seed);
    let mut violations = world.history.check();
    let mut recovery_ms = 0;
    if violations.is_empty() {
        let healed_us = world.now_us;
        violations = world.recover();
        recovery_ms = (world.now_us - healed_us) / 1000;
    }
    let report = Report {
        digest: world.wires.digest(),
        violations,
        ops: world.history.len(),
        answered: world.history.answered,
        faults: world.faults,
        recovery_ms,
    };
    world.end();
    plant(None);
    report
}

impl World {
    fn new(seed: u64) -> World {
        let rng = Arc::new(SeededRng::new(seed));
        let most = RATES_PPM[rng.below(2) as usize];
        let place = |id: u64| {
            let rate = rng.below(2 * most + 1) as i64 - most as i64;
            let disk = SimDisk::new(seed << 4 | id);
            (id, Place { host: Host::new(rate), disk, shown: ProcessShown::default() })
        };
        let places = MEMBERS.into_iter().map(place).collect();
        let mut world = World {
            now_us: 0,
            wires: Wires::new(Arc::clone(&rng)),
            rng,
            places,
            clients: clients(),
            answers: Arc::default(),
            arriving: Vec::new(),
            history: History::default(),
            turns: 0,
            masters: Arc::default(),
            planned: VecDeque::new(),
            ending: Vec::new(),
            awaited: None,
            faults: 0,
        };
        MEMBERS.into_iter().for_each(|id| world.start(id));
        world
    }

    /// The first one makes the log, unless there is one.
    fn start(&mut self, id: u64) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let start = Start {
            id,
            disk: place.disk.clone(),
            wires: self.wires.clone(),
            rng: Arc::clone(&self.rng),
            founds: id == 1,
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
        if self.places.get(&id).is_some_and(|place| !place.host.is_running()) {
            self.start(id);
        }
    }

    fn end(&mut self) {
        MEMBERS.into_iter().for_each(|id| self.stop(id, false));
    }

    fn misbehave(&mut self, seed: u64) {
        let kinds = SeededRng::new(seed ^ 0xFA17).below(u64::MAX) | 1;
        let mut next_us = 1_000_000 + self.rng.below(2_000_000);
        if self.rng.below(6) == 0 {
            next_us = self.plan(founder_dies(&self.rng));
        }
        while self.now_us < FAULTS_US {
            if self.now_us >= next_us {
                next_us = self.plan(draw_script(&self.rng, self.newest(), kinds));
            }
            while self.planned.front().is_some_and(|(at_us, ..)| *at_us <= self.now_us) {
                let Some((_, step, lasts_us)) = self.planned.pop_front() else { break };
                match step {
                    Step::Of(fault) => self.begin(fault, lasts_us),
                    Step::OfServing(fault) => {
                        if let Some(id) = self.newest() {
                            self.begin(fault(id), lasts_us);
                        }
                    }
                }
            }
            self.end_faults(false);
            self.tick(true);
        }
        self.planned.clear();
        self.awaited = None;
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
    fn newest(&self) -> Option<u64> {
        let begun =
            |id: &u64| self.places[id].shown.master.lock().as_ref().map(|(begun, _)| *begun);
        MEMBERS.into_iter().filter(|id| begun(id).is_some()).max_by_key(begun)
    }

    /// All are started anew if they have ended, and the clients are served. Then the clients rest,
    /// and all members must have the same rows.
    fn recover(&mut self) -> Vec<String> {
        self.end_faults(true);
        MEMBERS.into_iter().for_each(|id| self.start_again(id));
        let begun = (self.now_us, self.history.answered);
        while self.history.answered <= begun.1 + 40 || self.agreed().is_none() {
            if self.now_us - begun.0 > RECOVERY_US {
                let answered = self.history.answered - begun.1;
                let fences: Vec<_> = self.fences().collect();
                return vec![format!("not well: {answered} answered since, {fences:?}")];
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
        wrong
    }

    fn fences(&self) -> impl Iterator<Item = (u64, Fence)> {
        self.places.iter().filter_map(|(id, place)| {
            let engine = place.shown.engine.lock().clone()?;
            Some((*id, engine.member().fence()))
        })
    }

    /// By how many batches members are behind, if they follow the same master and are not far
    /// behind.
    fn agreed(&self) -> Option<u64> {
        let fences: Vec<Fence> = self.fences().map(|(_, fence)| fence).collect();
        let least = fences.iter().map(|fence| fence.batch).min().unwrap_or(0);
        let most = fences.iter().map(|fence| fence.batch).max().unwrap_or(0);
        let agree = fences.len() == MEMBERS.len()
            && fences.iter().all(|fence| fence.epoch == fences[0].epoch)
            && most - least < 10;
        agree.then_some(most - least)
    }

    /// Members whose rows are not those of the first one.
    fn differing(&self) -> Vec<String> {
        let rows = |place: &Place| {
            let engine = place.shown.engine.lock().clone();
            let engine = engine.ok_or_else(|| Error::Unavailable("it has ended".into()))?;
            engine.snapshot()?.scan(b"", &[0xff; 40], usize::MAX)
        };
        let mut all = self.places.iter().map(|(id, place)| (id, rows(place)));
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
        for id in MEMBERS {
            if self.places.get(&id).is_some_and(|place| place.shown.has_ended()) {
                self.stop(id, false);
                self.start_again(id);
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
            self.restart_ended();
        }
        self.collect();
        if works {
            self.work();
        }
    }

    fn deliver(&mut self) {
        for item in self.wires.arrived(self.now_us) {
            if item.is_reply {
                let _ = item.waiting.send(Ok(item.bytes));
                if let Some((id, lasts_us)) = self.awaited.take_if(|(id, _)| *id == item.to) {
                    self.begin(Fault::Stop(id), lasts_us);
                }
                continue;
            }
            let Some(place) = self.places.get_mut(&item.to) else { continue };
            let engine = place.shown.engine.lock().clone();
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
