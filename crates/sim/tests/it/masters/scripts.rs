//! Faults in an order that hurts: what befalls the master that serves, and then its heirs.
//!
//! A seed is a row of scripts, drawn by weight. They know which member serves, as an operator
//! would, and nothing else of the product. Times are around those that masters wait for: an
//! election begins after 1 to 2 s of silence, a lease lasts 2 s, a new master waits for 2.2 s.

use cairn_base::rng::SeededRng;

use super::faults::{Fault, draw};
use super::operator::Change;

const MS: u64 = 1_000;

/// The member that a step is about.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Of(Fault),
    /// A fault of the member that serves when the step begins.
    OfServing(fn(u64) -> Fault),
    /// A fault of a member that does not serve then.
    OfFollower(fn(u64) -> Fault),
    /// The operator changes something.
    Change(Change),
}

/// The begin of a step, the step, and its duration; times in microseconds.
pub type Planned = (u64, Step, u64);

/// The members at the begin of a script: one serves, or may.
pub struct Cast<'a> {
    rng: &'a SeededRng,
    members: &'a [u64],
    serving: u64,
    others: [u64; 2],
    plan: Vec<Planned>,
}

pub type Script = fn(&mut Cast<'_>);

/// The scripts, each as often as its number says.
const SCRIPTS: [(u64, Script); 10] = [
    (3, cut_off),
    (2, heard_by_one),
    (3, stopped_and_cut_off),
    (2, stopped_again),
    (3, heir_that_is_behind),
    (2, far_behind),
    (2, short_lives),
    (3, contested),
    (1, power_cuts),
    (2, masters_die),
];
/// Faults at random, as often.
const RANDOM: u64 = 7;

/// The plan of a script.
pub fn play(
    rng: &SeededRng,
    members: &[u64],
    serving: Option<u64>,
    script: Script,
) -> Vec<Planned> {
    let mut cast = Cast::draw(rng, members, serving);
    script(&mut cast);
    cast.plan
}

/// Draws the next script. `kinds`: see [`draw`].
pub fn draw_script(
    rng: &SeededRng,
    members: &[u64],
    serving: Option<u64>,
    kinds: u64,
) -> Vec<Planned> {
    let mut cast = Cast::draw(rng, members, serving);
    let mut left = rng.below(RANDOM + SCRIPTS.iter().map(|(weight, _)| weight).sum::<u64>());
    for (weight, script) in SCRIPTS {
        if left < weight {
            script(&mut cast);
            return cast.plan;
        }
        left -= weight;
    }
    let mut at_us = 0;
    for _ in 0..2 + rng.below(4) {
        let (fault, lasts_us) = draw(rng, members, kinds);
        cast.plan.push((at_us, Step::Of(fault), lasts_us));
        at_us += 200_000 + rng.below(2_500_000);
    }
    cast.plan
}

/// The member that makes the log dies soon after.
pub fn founder_dies(rng: &SeededRng) -> Vec<Planned> {
    let fault = if rng.below(2) == 0 { Fault::Crash(1) } else { Fault::Kill(1) };
    vec![(10 * MS + rng.below(400 * MS), Step::Of(fault), 3_000 * MS + rng.below(5_000 * MS))]
}

impl<'a> Cast<'a> {
    fn draw(rng: &'a SeededRng, members: &'a [u64], serving: Option<u64>) -> Cast<'a> {
        let any = members[rng.below(members.len() as u64) as usize];
        let serving = serving.unwrap_or(any);
        let mut others: Vec<u64> = members.iter().copied().filter(|id| *id != serving).collect();
        let mut next = || match others.len() as u64 {
            0 => serving,
            count => others.remove(rng.below(count) as usize),
        };
        let others = [next(), next()];
        Cast { rng, members, serving, others, plan: Vec::new() }
    }

    /// A time between two, milliseconds; the result is in microseconds.
    fn between(&self, least_ms: u64, most_ms: u64) -> u64 {
        least_ms * MS + self.rng.below((most_ms - least_ms) * MS)
    }

    fn chance(&self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    fn of(&mut self, at_us: u64, fault: Fault, lasts_us: u64) {
        self.plan.push((at_us, Step::Of(fault), lasts_us));
    }

    fn of_serving(&mut self, at_us: u64, fault: fn(u64) -> Fault, lasts_us: u64) {
        self.plan.push((at_us, Step::OfServing(fault), lasts_us));
    }
}

/// The master that serves is cut off, one way or both, for longer than a lease and an election.
fn cut_off(cast: &mut Cast<'_>) {
    let fault = match cast.rng.below(5) {
        0 => Fault::Mute(cast.serving),
        1 => Fault::Deaf(cast.serving),
        _ => Fault::Alone(cast.serving),
    };
    let lasts_us = cast.between(3_000, 8_000);
    cast.of(0, fault, lasts_us);
}

/// One follower does not hear the master for a while, before nobody does.
fn heard_by_one(cast: &mut Cast<'_>) {
    let (serving, deaf) = (cast.serving, cast.others[0]);
    let before_us = cast.between(600, 2_500);
    let lasts_us = cast.between(3_000, 6_000);
    let more_us = cast.between(0, 300);
    cast.of(0, Fault::Cut(serving, deaf), before_us + more_us);
    cast.of(before_us, Fault::Alone(serving), lasts_us);
}

/// The master is stopped, or its machine suspended, and is cut off before it goes on.
fn stopped_and_cut_off(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let stop_us =
        if cast.chance(50) { cast.between(1_300, 2_100) } else { cast.between(300, 6_000) };
    let fault = match cast.rng.below(6) {
        0 => Fault::Stop(serving),
        1 => Fault::Suspend(serving),
        _ => Fault::StopAtAnswer(serving),
    };
    cast.of(0, fault, stop_us);
    let cut_us = cast.between(60, 300);
    let after_us = cast.between(1_500, 5_000);
    cast.of(cut_us, Fault::Alone(serving), stop_us + after_us);
}

/// Whichever master serves is stopped about as long as others are patient, again and again.
fn stopped_again(cast: &mut Cast<'_>) {
    let mut at_us = 0;
    for _ in 0..3 + cast.rng.below(4) {
        let lasts_us = cast.between(800, 2_400);
        cast.of_serving(at_us, Fault::Stop, lasts_us);
        at_us += lasts_us + cast.between(200, 3_000);
    }
    if cast.chance(50) {
        for id in cast.others {
            cast.of(0, Fault::Slow(id), at_us);
        }
    }
}

/// A former master comes back, is slow to apply the entries that it missed, and is alone with
/// another member that may make it the leader.
fn heir_that_is_behind(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let away_us = cast.between(3_500, 6_000);
    cast.of(0, Fault::Alone(serving), away_us);
    let bent_us = cast.between(4_000, 9_000);
    let bent = if cast.chance(50) { Fault::Slow(serving) } else { Fault::Full(serving) };
    cast.of(away_us - 200 * MS, bent, bent_us);
    let again_us = away_us + cast.between(30, 1_500);
    let fault = if cast.chance(50) { Fault::Alone } else { Fault::Crash };
    let lasts_us = cast.between(3_000, 7_000);
    cast.of_serving(again_us, fault, lasts_us);
}

/// A member misses more than the log holds; others die while it gets a snapshot.
fn far_behind(cast: &mut Cast<'_>) {
    let behind = cast.others[0];
    let away_us = cast.between(5_000, 10_000);
    let fault = if cast.chance(50) { Fault::Alone(behind) } else { Fault::Crash(behind) };
    cast.of(0, fault, away_us);
    if cast.chance(50) {
        let lasts_us = cast.between(1_000, 5_000);
        cast.of(away_us - 200 * MS, Fault::Slow(behind), lasts_us);
    }
    let again_us = away_us + cast.between(0, 1_500);
    let fault = match cast.rng.below(3) {
        0 => Fault::Alone,
        1 => Fault::Kill,
        _ => Fault::StopAtAnswer,
    };
    let lasts_us = cast.between(100, 5_000);
    cast.of_serving(again_us, fault, lasts_us);
}

/// Whichever master serves dies, and is soon back.
fn short_lives(cast: &mut Cast<'_>) {
    let mut at_us = 0;
    for _ in 0..3 + cast.rng.below(4) {
        let fault = if cast.chance(50) { Fault::Kill } else { Fault::Crash };
        let lasts_us = cast.between(50, 800);
        cast.of_serving(at_us, fault, lasts_us);
        at_us += cast.between(300, 4_000);
    }
}

/// A former master and another member both want to lead, and hear each other late.
fn contested(cast: &mut Cast<'_>) {
    let mut at_us = 0;
    if cast.chance(60) {
        at_us = cast.between(2_200, 3_800);
        cast.of(0, Fault::Alone(cast.serving), at_us);
    }
    let lasts_us = cast.between(3_000, 7_000);
    for from in cast.members {
        for to in cast.members.iter().filter(|to| *to != from) {
            cast.of(at_us, Fault::Late(*from, *to), lasts_us);
        }
    }
    let dies_us = at_us + cast.between(0, 800);
    let dead_us = cast.between(2_000, 6_000);
    let fault = if cast.chance(50) { Fault::Crash } else { Fault::Alone };
    cast.of_serving(dies_us, fault, dead_us);
}

/// The power of all fails, more than once.
fn power_cuts(cast: &mut Cast<'_>) {
    let mut at_us = 0;
    for _ in 0..2 + cast.rng.below(2) {
        let lasts_us = cast.between(50, 1_000);
        cast.of(at_us, Fault::CrashAll, lasts_us);
        at_us += cast.between(1_500, 6_000);
    }
}

/// One, two or all masters die while clients write, by a power cut or not, and come back in any
/// order. Their logs have wrapped around meanwhile. If all died, the serving master comes back last
/// every second time: it leads at once, and the others answer its first message.
pub fn masters_die(cast: &mut Cast<'_>) {
    let at_us = cast.between(2_000, 5_000);
    let count = 3 - cast.rng.below(5).saturating_sub(2) as usize;
    let all = [cast.serving, cast.others[0], cast.others[1]];
    let first = cast.rng.below(3) as usize;
    let serving_is_last = count == 3 && cast.chance(50);
    for id in all.into_iter().cycle().skip(first).take(count) {
        let fault = if cast.chance(50) { Fault::Crash(id) } else { Fault::Kill(id) };
        let dies_us = at_us + cast.between(0, 100);
        let lasts_us = match (serving_is_last, id == cast.serving) {
            (true, true) => cast.between(700, 1_400),
            (true, false) => cast.between(200, 600),
            (false, _) => cast.between(200, 2_000),
        };
        cast.of(dies_us, fault, lasts_us);
    }
}

/// One follower is cut off, and the master and the other follower die, whose last record rots. The
/// master comes back last: the follower that was cut off lacks what both had, and may ask first.
pub fn follower_rots_and_master_dies(cast: &mut Cast<'_>) {
    let [rots, cut] = cast.others;
    let serving = cast.serving;
    let die_us = cast.between(200, 900);
    let back_us = cast.between(50, 700);
    let later_us = back_us + cast.between(300, 2_000);
    cast.of(0, Fault::Alone(cut), die_us + back_us);
    cast.of(die_us, Fault::Kill(serving), later_us);
    let dies_us = die_us + cast.between(0, 3);
    cast.of(dies_us, Fault::RotAtEnd(rots), back_us);
}

/// The last record of the master or of a follower rots while its process is away for a moment, and
/// maybe the other follower is cut off before that. No other copy rots before all have caught up.
pub fn one_rots(cast: &mut Cast<'_>) {
    let [follower, other] = cast.others;
    let rots = if cast.chance(50) { cast.serving } else { follower };
    let dies_us = cast.between(200, 900);
    let lasts_us = cast.between(50, 2_000);
    if cast.chance(50) {
        cast.of(0, Fault::Alone(other), dies_us + lasts_us);
    }
    cast.of(dies_us, Fault::RotAtEnd(rots), lasts_us);
    let healed_us = dies_us + lasts_us + 5_000 * MS;
    cast.of(healed_us, Fault::Spared(cast.serving), MS);
}

/// The master is heard no more while nothing is under way, and another may take over soon. Asked
/// whether they may, it still answers: so they do not wait for that.
pub fn unheard_quietly(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let rest_us = cast.between(100, 900);
    let lasts_us = cast.between(4_000, 5_000);
    cast.of(0, Fault::Spared(serving), rest_us + lasts_us);
    cast.of(rest_us, Fault::Silent(serving), lasts_us);
}

/// Runs [`heard_by_one`] while nothing is under way: the logs of both are the same.
pub fn heard_by_one_quietly(cast: &mut Cast<'_>) {
    let (serving, deaf) = (cast.serving, cast.others[0]);
    let rest_us = cast.between(100, 500);
    let before_us = rest_us + cast.between(1_200, 3_000);
    let lasts_us = cast.between(4_000, 5_000);
    cast.of(0, Fault::Spared(serving), before_us + lasts_us);
    cast.of(rest_us, Fault::Unheard(serving, deaf), before_us + lasts_us - rest_us);
    cast.of(before_us, Fault::Silent(serving), lasts_us);
}

/// The master is stopped when an answer has come, cut off meanwhile, and goes on when another has
/// taken over.
pub fn stopped_at_answer(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let rest_us = cast.between(100, 900);
    let stop_us = cast.between(2_500, 5_000);
    let lasts_us = stop_us + cast.between(3_000, 4_000);
    cast.of(0, Fault::Spared(serving), rest_us + lasts_us + 500 * MS);
    cast.of(rest_us, Fault::StopAtAnswer(serving), stop_us);
    let cut_us = rest_us + cast.between(250, 500);
    cast.of(cut_us, Fault::Alone(serving), lasts_us);
}

/// The wall clock of the master is set back, or forward, before the master is cut off.
pub fn set_back_and_cut_off(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    cast.of(0, Fault::Jump(serving), 0);
    let cut_us = cast.between(100, 1_500);
    let lasts_us = cast.between(5_500, 7_000);
    cast.of(cut_us, Fault::Alone(serving), lasts_us);
}

/// The machine of the master is suspended until another one serves. It is cut off for a while
/// longer, so it does not hear of the other one.
pub fn suspended_and_cut_off(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let suspended_us = cast.between(5_500, 7_000);
    let more_us = cast.between(1_000, 2_500);
    cast.of(0, Fault::Suspend(serving), suspended_us);
    cast.of(0, Fault::Alone(serving), suspended_us + more_us);
}

/// A majority is lost, one goes on alone, and the others come back while new ones join it.
pub fn given_up(cast: &mut Cast<'_>) {
    let returns_us = cast.between(500, 5_000);
    cast.of(0, Fault::MajorityLost, returns_us);
}

/// The master acknowledges an entry that one other member has, and is cut off before it tells
/// anybody. The member with the entry is elected, and none of its own entries arrive: so it cannot
/// know that the entry is committed, though the other member answers it.
pub fn heir_untold(cast: &mut Cast<'_>) {
    let lasts_us = cast.between(6_500, 8_500);
    cast.of(0, Fault::MuteAtEntry(cast.serving), lasts_us);
    for id in cast.others {
        cast.of(0, Fault::EntriesLost(id), lasts_us);
    }
}

/// Both others die. When they are back, the master is cut off, and they know of nothing that it may
/// have acknowledged meanwhile.
pub fn left_alone(cast: &mut Cast<'_>) {
    let dead_us = cast.between(800, 1_600);
    for id in cast.others {
        cast.of(0, Fault::Kill(id), dead_us);
    }
    let lasts_us = cast.between(7_000, 9_000);
    cast.of(dead_us - 100 * MS, Fault::Alone(cast.serving), lasts_us);
}

/// The master dies while nothing is under way. As soon as another one has a vote, that one is
/// alone, and its voter dies. The voter and the former master, which are soon back, then elect.
pub fn voter_dies(cast: &mut Cast<'_>) {
    let serving = cast.serving;
    let rest_us = cast.between(200, 600);
    let dead_us = cast.between(800, 2_000);
    let lasts_us = cast.between(6_000, 8_000);
    cast.of(0, Fault::Spared(serving), rest_us);
    cast.of(rest_us, Fault::PartAtVote, lasts_us);
    cast.of(rest_us, Fault::Kill(serving), dead_us);
}

/// Both others want to lead at the same time, again and again.
pub fn contested_again(cast: &mut Cast<'_>) {
    let mut at_us = 0;
    let lasts_us = 12_000 * MS;
    for from in cast.members {
        for to in cast.members.iter().filter(|to| *to != from) {
            cast.of(0, Fault::Late(*from, *to), lasts_us);
        }
    }
    for _ in 0..3 {
        let dead_us = cast.between(1_000, 2_500);
        let fault = if cast.chance(50) { Fault::Kill } else { Fault::Alone };
        cast.of_serving(at_us, fault, dead_us);
        at_us += dead_us + cast.between(2_000, 4_000);
    }
}

/// One of three is behind when another loses its disk. The third one, which has all, is cut off.
pub fn wiped_and_heir_behind(cast: &mut Cast<'_>) {
    let [behind, wiped] = cast.others;
    let serving = cast.serving;
    let away_us = cast.between(2_000, 4_000);
    let lasts_us = cast.between(6_000, 8_000);
    cast.of(0, Fault::Alone(behind), away_us);
    cast.of(away_us - 800 * MS, Fault::Wiped(wiped), lasts_us + 2_000 * MS);
    cast.of(away_us - 100 * MS, Fault::Alone(serving), lasts_us);
}

/// Two of three are replaced; those that left run on, and may be all that one of the three hears.
pub fn two_replaced(cast: &mut Cast<'_>) {
    for (at_us, lasts_us) in [(0, 0), (6_000 * MS, 0)] {
        cast.plan.push((at_us, Step::Change(Change::Replace), lasts_us));
    }
    cast.plan.push((12_000 * MS, Step::OfFollower(Fault::AmongRemoved), 8_000 * MS));
}
