//! Faults, and what each does to the world.

use cairn_base::rng::SeededRng;

use cairn_base::Disk;
use cairn_sim::SimDisk;

use super::wires::Way;
use super::world::World;

/// Something that goes wrong for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// From the first nothing reaches the second.
    Cut(u64, u64),
    /// Delays everything from the first to the second.
    Late(u64, u64),
    /// Drops everything from the first to the second, except answers.
    Unheard(u64, u64),
    /// Drops everything that it sends, except answers.
    Silent(u64),
    /// Drops everything that is sent to it.
    Deaf(u64),
    /// Drops everything that it sends.
    Mute(u64),
    /// Mutes it like `Mute`, from the moment when the next entries that it sends have reached a
    /// member.
    MuteAtEntry(u64),
    /// Drops the entries that it sends, and nothing else.
    EntriesLost(u64),
    Alone(u64),
    /// Cuts the power.
    Crash(u64),
    /// Kills the process.
    Kill(u64),
    /// As `Kill`, and a bit of the last record of its log flips meanwhile.
    RotAtEnd(u64),
    CrashAll,
    /// Stops the process, and lets it go on later.
    Stop(u64),
    /// Stops it like `Stop`, from the moment when the next answer of another member has arrived,
    /// before the process sees it.
    StopAtAnswer(u64),
    /// Isolates the next member that gets a vote; the voter dies and is back soon.
    PartAtVote,
    /// Suspends the machine: its process is stopped, and messages to it are lost. Its clocks run
    /// on, and its timers stop.
    Suspend(u64),
    Slow(u64),
    Full(u64),
    /// Its wall clock is set, by up to a thousand seconds. Only a lease that is counted by that
    /// clock outlasts this.
    Jump(u64),
    /// Lets no client change anything through its master, which has nothing under way then.
    Spared(u64),
    /// Connects it only to removed members, which hear it; it hears no others.
    AmongRemoved(u64),
    /// Loses its disk. It is replaced after that.
    Wiped(u64),
    /// Ends all processes; one member recovers and goes on alone. The others come back.
    MajorityLost,
}

/// A fault that will end.
pub struct Begun {
    until_us: u64,
    pub fault: Fault,
    ways: Vec<Way>,
}

/// A fault that happens to any member, and how long it lasts, microseconds. `kinds`: seeds differ
/// by what happens most.
pub fn draw(rng: &SeededRng, members: &[u64], kinds: u64) -> (Fault, u64) {
    let count = members.len() as u64;
    let first = rng.below(count);
    let second = (first + 1 + rng.below(count.saturating_sub(1).max(1))) % count;
    let (one, other) = (members[first as usize], members[second as usize]);
    let short = 100_000 + rng.below(1_500_000);
    let long = 300_000 + rng.below(6_000_000);
    let lasts = if rng.below(2) == 0 { short } else { long };
    let mut kind = rng.below(13);
    if kinds >> kind & 1 == 0 {
        kind = rng.below(13);
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
        10 => Fault::Late(one, other),
        11 => Fault::Suspend(one),
        _ => Fault::Jump(one),
    };
    (fault, lasts)
}

impl Fault {
    /// The ways that it cuts, where there are these members.
    fn cuts(self, members: &[u64]) -> Vec<Way> {
        match self {
            Fault::Cut(from, to) => vec![(from, to)],
            Fault::Deaf(id) => vec![(0, id)],
            Fault::Mute(id) => vec![(id, 0)],
            Fault::Alone(id) | Fault::Suspend(id) => vec![(0, id), (id, 0)],
            Fault::AmongRemoved(id) => {
                let others = members.iter().filter(|other| **other != id);
                others.flat_map(|other| [(*other, id), (id, *other)]).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl World {
    pub fn begin(&mut self, fault: Fault, lasts_us: u64) {
        self.faults += 1;
        tracing::info!(now_ms = self.now_us / 1000, ?fault, lasts_us, "begins");
        if let Fault::StopAtAnswer(id) = fault {
            self.awaited = Some((id, lasts_us));
            return;
        }
        if let Fault::MuteAtEntry(id) = fault {
            self.awaited_entry = Some((id, lasts_us));
            return;
        }
        if fault == Fault::PartAtVote {
            self.awaited_vote = Some(lasts_us);
            return;
        }
        let ways = fault.cuts(&self.members());
        ways.iter().for_each(|way| self.wires.cut(*way));
        self.ending.push(Begun { until_us: self.now_us + lasts_us, fault, ways });
        match fault {
            Fault::Late(from, to) => self.wires.delay((from, to)),
            Fault::Unheard(from, to) => self.wires.silence((from, to)),
            Fault::Silent(id) => self.wires.silence((id, 0)),
            Fault::EntriesLost(id) => self.wires.lose_entries(id),
            Fault::Crash(id) => self.stop(id, true),
            Fault::Kill(id) => self.stop(id, false),
            Fault::RotAtEnd(id) => {
                self.stop(id, false);
                if let Some(place) = self.places.get(&id) {
                    rot_last_record(&place.disk);
                }
            }
            Fault::CrashAll => self.ids().into_iter().for_each(|id| self.stop(id, true)),
            Fault::Wiped(id) => {
                self.wipe(id);
                self.replace(id, lasts_us);
            }
            Fault::MajorityLost => self.go_on_alone(lasts_us),
            _ => self.bend(fault, true),
        }
    }

    /// Isolates the member that was just elected, or nearly; one of its voters dies and is back
    /// soon.
    pub fn part(&mut self, elected: u64, voter: u64, lasts_us: u64) {
        let is_cut = self.rng.below(2) == 0;
        let away_us = 20_000 + self.rng.below(300_000);
        self.begin(if is_cut { Fault::Crash(voter) } else { Fault::Kill(voter) }, away_us);
        self.begin(Fault::Alone(elected), lasts_us);
    }

    /// Begins, or ends, what happens to a process that goes on.
    fn bend(&mut self, fault: Fault, begins: bool) {
        let factor = 2 + self.rng.below(40);
        let jump = self.rng.below(2_000) as i64 - 1_000;
        let (Fault::Stop(id)
        | Fault::Suspend(id)
        | Fault::Slow(id)
        | Fault::Full(id)
        | Fault::Jump(id)) = fault
        else {
            return;
        };
        let Some(place) = self.places.get_mut(&id) else { return };
        match fault {
            Fault::Stop(_) if !begins => place.host.resume(),
            Fault::Suspend(_) if !begins => place.host.wake(self.clocks_stop),
            Fault::Stop(_) | Fault::Suspend(_)
                if place.host.is_running() && place.host.paused_us.is_none() =>
            {
                place.host.paused_us = Some(0);
            }
            Fault::Slow(_) => place.host.set_slow(if begins { factor } else { 1 }),
            Fault::Full(_) => {
                let room = place.disk.used_bytes();
                place.disk.set_capacity(begins.then_some(room));
            }
            Fault::Jump(_) if begins && self.scene.jumps => place.host.jump(jump),
            _ => {}
        }
    }

    pub fn end_faults(&mut self, all: bool) {
        let now_us = self.now_us;
        let is_over = |begun: &mut Begun| all || begun.until_us <= now_us;
        let ended: Vec<Begun> = self.ending.extract_if(.., is_over).collect();
        for Begun { fault, ways, .. } in ended {
            ways.into_iter().for_each(|way| self.wires.heal(way));
            match fault {
                Fault::Late(from, to) => self.wires.hurry((from, to)),
                Fault::Unheard(from, to) => self.wires.hear((from, to)),
                Fault::Silent(id) => self.wires.hear((id, 0)),
                Fault::EntriesLost(id) => self.wires.keep_entries(id),
                Fault::Crash(id) | Fault::Kill(id) | Fault::RotAtEnd(id) => self.start_again(id),
                Fault::CrashAll => self.ids().into_iter().for_each(|id| self.start_again(id)),
                Fault::MajorityLost => self.former_return(),
                _ => self.bend(fault, false),
            }
        }
    }
}

/// Flips a bit in the body of the record with the highest number. See docs/format-engine.md.
fn rot_last_record(disk: &SimDisk) {
    const ALIGN: usize = 4096;
    const HEADER: usize = 64;
    let names = disk.list().unwrap_or_default().into_iter();
    let logs: Vec<String> = names.filter(|name| name.starts_with("log-")).collect();
    let mut last: Option<(u64, &str, usize)> = None;
    for name in &logs {
        let bytes = disk.contents(name).unwrap_or_default();
        for (page, start) in bytes.chunks(ALIGN).enumerate() {
            let Some(sequence) = start.strip_prefix(b"CRNL").and_then(|rest| rest.get(12..20))
            else {
                continue;
            };
            let sequence = u64::from_le_bytes(sequence.try_into().unwrap_or_default());
            last = last.max(Some((sequence, name, page * ALIGN)));
        }
    }
    if let Some((_, name, at)) = last {
        disk.flip_bit(name, (at + HEADER) as u64, 0).expect("the record is there");
    }
}
