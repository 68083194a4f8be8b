//! Three masters on one thread, from a seed: first everything goes wrong and must stay right, then
//! nothing goes wrong and all must become well.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::planted::{Bug, plant};
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Result};
use cairn_sim::SimDisk;
use parking_lot::Mutex;

use super::history::{History, Op};
use super::process::{self, MEMBERS, Shown, Start};
use super::verbs::{Load, Swap};
use super::wires::{Item, Wires};
use crate::cluster::host::Host;

/// A turn of the world, microseconds.
const TICK_US: u64 = 2_000;
const CLIENTS: usize = 5;
const REGISTERS: u64 = 3;
/// How long things go wrong, and how long all may take to become well.
const FAULTS_US: u64 = 30_000_000;
const RECOVERY_US: u64 = 60_000_000;
/// A client waits no longer for an answer.
const PATIENCE_US: u64 = 4_000_000;

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

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// From the first nothing reaches the second.
    Cut(u64, u64),
    /// Nothing reaches it.
    Deaf(u64),
    /// Nothing that it sends arrives.
    Mute(u64),
    Alone(u64),
    /// Power is cut.
    Crash(u64),
    /// The process is killed.
    Kill(u64),
    CrashAll,
    Stop(u64),
    Slow(u64),
    Full(u64),
    Jump(u64),
}

struct Place {
    host: Host,
    disk: SimDisk,
    shown: Shown,
}

/// A client and what it waits for.
struct Client {
    due_us: u64,
    waits: Option<(u64, u8, usize)>,
}

/// An answer on its way: when it comes, whose, of which operation, and what it says.
type Answers = Arc<Mutex<Vec<(usize, u64, Result<u32>)>>>;

struct World {
    now_us: u64,
    rng: Arc<SeededRng>,
    wires: Wires,
    places: BTreeMap<u64, Place>,
    clients: Vec<Client>,
    answers: Answers,
    arriving: Vec<(u64, usize, u64, Result<u32>)>,
    history: History,
    ops: u64,
    ending: Vec<(u64, Fault)>,
    faults: usize,
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
        let place = |id: u64| {
            // No two clocks run at the same rate; the margin of leases is for that.
            let rate = rng.below(40_000) as i64 - 20_000;
            let disk = SimDisk::new(seed << 4 | id);
            (id, Place { host: Host::new(rate), disk, shown: Shown::default() })
        };
        let places = MEMBERS.into_iter().map(place).collect();
        let clients =
            (0..CLIENTS).map(|n| Client { due_us: 200_000 * n as u64, waits: None }).collect();
        let mut world = World {
            now_us: 0,
            wires: Wires::new(Arc::clone(&rng)),
            rng,
            places,
            clients,
            answers: Answers::default(),
            arriving: Vec::new(),
            history: History::default(),
            ops: 0,
            ending: Vec::new(),
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
        };
        place.host.start(self.now_us, &self.rng, |given| process::start(start, given));
    }

    /// Ends a process; what is left of its disk.
    fn stop(&mut self, id: u64, power: bool) {
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

    fn end(&mut self) {
        MEMBERS.into_iter().for_each(|id| self.stop(id, false));
    }

    fn misbehave(&mut self, seed: u64) {
        let kinds = SeededRng::new(seed ^ 0xFA17).below(u64::MAX) | 1;
        let mut next_us = 1_000_000;
        while self.now_us < FAULTS_US {
            if self.now_us >= next_us {
                next_us += 200_000 + self.rng.below(2_500_000);
                let (fault, lasts_us) = self.draw(kinds);
                self.begin(fault, lasts_us);
            }
            self.end_faults(false);
            self.tick(true);
        }
    }

    /// `kinds`: seeds differ by what happens most.
    fn draw(&self, kinds: u64) -> (Fault, u64) {
        let rng = &self.rng;
        let one = 1 + rng.below(3);
        let other = 1 + (one + rng.below(2)) % 3;
        let short = 100_000 + rng.below(1_500_000);
        let long = 300_000 + rng.below(6_000_000);
        let lasts = if rng.below(2) == 0 { short } else { long };
        let mut kind = rng.below(11);
        if kinds >> kind & 1 == 0 {
            kind = rng.below(11);
        }
        let fault = match kind {
            0 => Fault::Alone(one),
            1 => Fault::Cut(one, other),
            2 => Fault::Deaf(one),
            3 => Fault::Mute(one),
            4 => Fault::Crash(one),
            5 => Fault::Kill(one),
            6 => Fault::CrashAll,
            7 => Fault::Stop(one),
            8 => Fault::Slow(one),
            9 => Fault::Full(one),
            _ => Fault::Jump(one),
        };
        (fault, lasts)
    }

    fn begin(&mut self, fault: Fault, lasts_us: u64) {
        self.faults += 1;
        tracing::info!(now_ms = self.now_us / 1000, ?fault, lasts_us, "begins");
        self.ending.push((self.now_us + lasts_us, fault));
        for (from, to) in cuts(fault) {
            self.wires.cut(from, to);
        }
        match fault {
            Fault::Crash(id) => self.stop(id, true),
            Fault::Kill(id) => self.stop(id, false),
            Fault::CrashAll => MEMBERS.into_iter().for_each(|id| self.stop(id, true)),
            _ => self.bend(fault, true),
        }
    }

    /// Begins, or ends, what happens to a process that goes on.
    fn bend(&mut self, fault: Fault, begins: bool) {
        let factor = 2 + self.rng.below(40);
        let jump = self.rng.below(2_000) as i64 - 1_000;
        let (Fault::Stop(id) | Fault::Slow(id) | Fault::Full(id) | Fault::Jump(id)) = fault else {
            return;
        };
        let Some(place) = self.places.get_mut(&id) else { return };
        match fault {
            Fault::Stop(_) if !begins => place.host.resume(),
            Fault::Stop(_) if place.host.is_running() && place.host.paused_us.is_none() => {
                place.host.paused_us = Some(0);
            }
            Fault::Slow(_) => place.host.set_slow(if begins { factor } else { 1 }),
            Fault::Full(_) => {
                let room = place.disk.used_bytes();
                place.disk.set_capacity(begins.then_some(room));
            }
            Fault::Jump(_) if begins => place.host.jump(jump),
            _ => {}
        }
    }

    fn end_faults(&mut self, all: bool) {
        let now_us = self.now_us;
        let ended: Vec<Fault> =
            self.ending.extract_if(.., |(at, _)| all || *at <= now_us).map(|(_, f)| f).collect();
        for fault in ended {
            for (from, to) in cuts(fault) {
                self.wires.heal(from, to);
            }
            match fault {
                Fault::Crash(id) | Fault::Kill(id) => self.start_again(id),
                Fault::CrashAll => MEMBERS.into_iter().for_each(|id| self.start_again(id)),
                _ => self.bend(fault, false),
            }
        }
    }

    fn start_again(&mut self, id: u64) {
        if self.places.get(&id).is_some_and(|place| !place.host.is_running()) {
            self.start(id);
        }
    }

    /// All are started anew if they have ended, and the clients are served.
    fn recover(&mut self) -> Vec<String> {
        self.end_faults(true);
        self.wires.heal_all();
        for id in MEMBERS {
            if let Some(place) = self.places.get(&id) {
                place.disk.set_capacity(None);
            }
            self.start_again(id);
        }
        let begun = (self.now_us, self.history.answered);
        while self.now_us - begun.0 < RECOVERY_US {
            self.restart_ended();
            self.tick(true);
            if self.history.answered > begun.1 + 20 && self.agree() {
                return self.history.check();
            }
        }
        let answered = self.history.answered - begun.1;
        let fences: Vec<_> = self.members().map(|(id, fence)| format!("{id}: {fence:?}")).collect();
        vec![format!("not well: {answered} answered since, {fences:?}")]
    }

    /// A process whose member has ended is started again, as its host would.
    fn restart_ended(&mut self) {
        for id in MEMBERS {
            let is_up = |place: &Place| place.shown.member.lock().is_some();
            let settled = self.now_us % 2_000_000 < TICK_US;
            if settled && !self.places.get(&id).is_some_and(is_up) {
                self.stop(id, false);
                self.start_again(id);
            }
        }
    }

    fn members(&self) -> impl Iterator<Item = (u64, cairn_meta::engine::Fence)> {
        self.places.iter().filter_map(|(id, place)| {
            let member = place.shown.member.lock().clone()?;
            Some((*id, member.fence()))
        })
    }

    /// Whether all members have applied much the same.
    fn agree(&self) -> bool {
        let fences: Vec<_> = self.members().map(|(_, fence)| fence).collect();
        let least = fences.iter().map(|fence| fence.batch).min().unwrap_or(0);
        let most = fences.iter().map(|fence| fence.batch).max().unwrap_or(0);
        fences.len() == MEMBERS.len()
            && fences.iter().all(|fence| fence.epoch == fences[0].epoch)
            && most - least < 10
    }

    fn tick(&mut self, works: bool) {
        self.now_us += TICK_US;
        self.deliver();
        for place in self.places.values_mut() {
            place.host.advance(TICK_US);
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
                continue;
            }
            let Some(place) = self.places.get_mut(&item.to) else { continue };
            let member = place.shown.member.lock().clone();
            let Some(member) = member else {
                let _ = item.waiting.send(Err(Error::Unavailable("nobody listens".into())));
                continue;
            };
            let wires = self.wires.clone();
            place.host.inside(move || {
                let Item { from, to, bytes, waiting, .. } = item;
                tokio::spawn(async move {
                    let bytes = member.receive(from, bytes).await;
                    wires.put(Item { from: to, to: from, bytes, waiting, is_reply: true });
                });
            });
        }
    }

    /// Takes what masters have answered; it comes some time later.
    fn collect(&mut self) {
        for (client, op, answer) in std::mem::take(&mut *self.answers.lock()) {
            let at_us = self.now_us + 500 + self.rng.below(8_000);
            self.arriving.push((at_us, client, op, answer));
        }
        let now_us = self.now_us;
        let arrived: Vec<_> = self.arriving.extract_if(.., |(at, ..)| *at <= now_us).collect();
        for (_, number, op, answer) in arrived {
            let client = &mut self.clients[number];
            let Some((_, register, call)) = client.waits.take_if(|(waited, ..)| *waited == op)
            else {
                continue;
            };
            let rest = if answer.is_ok() { 20_000 } else { 300_000 };
            client.due_us = self.now_us + rest + self.rng.below(2 * rest);
            if let Ok(found) = answer {
                self.history.end(register, call, found);
            }
        }
    }

    fn work(&mut self) {
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            if client.due_us > self.now_us {
                continue;
            }
            if client.waits.take().is_some() {
                client.due_us = self.now_us + self.rng.below(300_000);
                continue;
            }
            client.due_us = self.now_us + PATIENCE_US;
            self.ask(number);
        }
    }

    /// Has a client ask any master that says that it is one, if there is one.
    fn ask(&mut self, number: usize) {
        let serving: Vec<u64> = MEMBERS
            .into_iter()
            .filter(|id| self.places[id].shown.master.lock().is_some())
            .collect();
        let chosen = serving.get(self.rng.below(serving.len().max(1) as u64) as usize);
        let Some(id) = chosen.copied() else {
            self.clients[number].due_us = self.now_us + 50_000;
            return;
        };
        let register = self.rng.below(REGISTERS) as u8;
        let swaps = self.rng.below(100) < 40;
        let op = if swaps { Op::Swap(self.history.next_value()) } else { Op::Load };
        let call = self.history.begin(register, op);
        self.ops += 1;
        let turn = self.ops;
        self.clients[number].waits = Some((turn, register, call));
        let Some(place) = self.places.get_mut(&id) else { return };
        let Some(master) = place.shown.master.lock().clone() else { return };
        let answers = Arc::clone(&self.answers);
        place.host.inside(move || {
            tokio::spawn(async move {
                let caller = Caller::system();
                let answer = match op {
                    Op::Load => master.read(&caller, Load(register)).await,
                    Op::Swap(value) => master.run(&caller, Swap(register, value)).await,
                };
                answers.lock().push((number, turn, answer));
            });
        });
    }
}

/// The ways that a fault cuts.
fn cuts(fault: Fault) -> Vec<(u64, u64)> {
    let others = |id: u64| MEMBERS.into_iter().filter(move |other| *other != id);
    match fault {
        Fault::Cut(from, to) => vec![(from, to)],
        Fault::Deaf(id) => others(id).map(|other| (other, id)).collect(),
        Fault::Mute(id) => others(id).map(|other| (id, other)).collect(),
        Fault::Alone(id) => others(id).flat_map(|other| [(other, id), (id, other)]).collect(),
        _ => Vec::new(),
    }
}
