//! What clients saw of registers, and whether one order of all operations explains it.

use std::collections::{BTreeMap, HashSet};

/// Steps of a search that comes to no end.
const STEPS: usize = 2_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Load,
    Swap(u32),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    op: Op,
    begun: u64,
    /// `u64::MAX`: its outcome is not known.
    ended: u64,
    /// The value that it found.
    found: u32,
}

#[derive(Default)]
pub struct History {
    time: u64,
    values: u32,
    calls: BTreeMap<u8, Vec<Call>>,
    pub answered: usize,
}

impl History {
    pub fn next_value(&mut self) -> u32 {
        self.values += 1;
        self.values
    }

    pub fn begin(&mut self, register: u8, op: Op) -> usize {
        self.time += 1;
        let calls = self.calls.entry(register).or_default();
        calls.push(Call { op, begun: self.time, ended: u64::MAX, found: 0 });
        calls.len() - 1
    }

    pub fn end(&mut self, register: u8, call: usize, found: u32) {
        self.time += 1;
        self.answered += 1;
        if let Some(call) = self.calls.get_mut(&register).and_then(|calls| calls.get_mut(call)) {
            (call.ended, call.found) = (self.time, found);
        }
    }

    pub fn len(&self) -> usize {
        self.calls.values().map(Vec::len).sum()
    }

    pub fn check(&self) -> Vec<String> {
        let wrong = |(register, calls): (&u8, &Vec<Call>)| {
            check(calls).err().map(|what| format!("register {register}: {what}"))
        };
        self.calls.iter().filter_map(wrong).collect()
    }
}

fn step(value: u32, call: &Call) -> Option<u32> {
    let known = call.ended != u64::MAX;
    if known && call.found != value {
        return None;
    }
    match call.op {
        Op::Load => Some(value),
        Op::Swap(new) => Some(new),
    }
}

/// Wing and Gong's search with Lowe's memory of tried states.
fn check(calls: &[Call]) -> Result<(), String> {
    let useful = |call: &&Call| call.op != Op::Load || call.ended != u64::MAX;
    let calls: Vec<&Call> = calls.iter().filter(useful).collect();
    let needed = calls.iter().filter(|call| call.ended != u64::MAX).count();
    let words = calls.len().div_ceil(64).max(1);
    let mut seen: HashSet<(Vec<u64>, u32)> = HashSet::new();
    let mut stack = vec![(vec![0u64; words], 0u32, 0usize)];
    let (mut steps, mut most) = (0, 0);
    while let Some((done, value, count)) = stack.pop() {
        if count == needed {
            return Ok(());
        }
        most = most.max(count);
        steps += 1;
        if steps > STEPS {
            return Ok(());
        }
        let open: Vec<usize> =
            (0..calls.len()).filter(|at| done[at / 64] >> (at % 64) & 1 == 0).collect();
        let first_end = open.iter().map(|at| calls[*at].ended).min().unwrap_or(u64::MAX);
        let mut next = Vec::new();
        for at in open {
            let call = calls[at];
            if call.begun > first_end {
                break;
            }
            let Some(after) = step(value, call) else { continue };
            let mut done = done.clone();
            done[at / 64] |= 1 << (at % 64);
            let known = call.ended != u64::MAX;
            if seen.insert((done.clone(), after)) {
                next.push((known, call.ended, (done, after, count + usize::from(known))));
            }
        }
        // The operation that ended first is tried first, unknown ones last.
        next.sort_by_key(|(known, ended, _)| (*known, std::cmp::Reverse(*ended)));
        stack.extend(next.into_iter().map(|(.., state)| state));
    }
    let shown: Vec<String> = calls
        .iter()
        .map(|call| format!("{}..{} {:?} {}", call.begun, call.ended as i64, call.op, call.found))
        .collect();
    Err(format!("no order explains it ({most} of {needed}):\n  {}", shown.join("\n  ")))
}
