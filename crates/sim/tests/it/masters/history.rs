//! The operations of clients on registers, and the check that one order of all operations explains
//! them.
//!
//! Every swap writes a value of its own and finds the value before it. So each value has one
//! writer, and swaps that follow one another form a run that no other operation interrupts. Only a
//! swap whose outcome is unknown can begin a run. The check then looks for an order of the runs
//! that agrees with the times of all operations.

use std::collections::{BTreeMap, BTreeSet};

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

impl Call {
    fn is_known(&self) -> bool {
        self.ended != u64::MAX
    }
}

/// Operations without any other between them.
struct Run {
    /// Value that it begins with.
    first: u32,
    /// End of the operation that ended first, and begin of the operation that began last.
    ended: u64,
    begun: u64,
}

impl Run {
    /// Returns whether some operation of it had ended when an operation of `other` began.
    fn is_before(&self, other: &Run) -> bool {
        self.ended < other.begun
    }
}

/// Operations by the value that they found.
#[derive(Default)]
struct Found<'a> {
    loads: BTreeMap<u32, Vec<&'a Call>>,
    swaps: BTreeMap<u32, (u32, &'a Call)>,
}

fn check(calls: &[Call]) -> Result<(), String> {
    let mut found = Found::default();
    for call in calls.iter().filter(|call| call.is_known()) {
        match call.op {
            Op::Load => found.loads.entry(call.found).or_default().push(call),
            Op::Swap(value) => {
                if let Some((_, other)) = found.swaps.insert(call.found, (value, call)) {
                    return Err(format!("two swaps found one value: {call:?} and {other:?}"));
                }
            }
        }
    }
    let seen: BTreeSet<u32> = found.loads.keys().chain(found.swaps.keys()).copied().collect();
    let mut runs = vec![found.run(0, None)?];
    for call in calls.iter().filter(|call| !call.is_known()) {
        match call.op {
            // A value that nobody found may never have been written.
            Op::Swap(value) if seen.contains(&value) => runs.push(found.run(value, Some(call))?),
            _ => {}
        }
    }
    if let Some((value, calls)) = found.loads.first_key_value() {
        return Err(format!("nobody can have written {value}: {:?}", calls.first()));
    }
    if let Some((value, (_, call))) = found.swaps.first_key_value() {
        return Err(format!("nobody can have written {value}: {call:?}"));
    }
    for (number, run) in runs.iter().enumerate() {
        if let Some(other) = runs[..number]
            .iter()
            .find(|other| run.is_before(other) && (other.first == 0 || other.is_before(run)))
        {
            let (first, other) = (run.first, other.first);
            return Err(format!("the values from {first} on and those from {other} on are mixed"));
        }
    }
    Ok(())
}

impl Found<'_> {
    /// Takes the operations that follow one another from the value `first` on.
    fn run(&mut self, first: u32, writer: Option<&Call>) -> Result<Run, String> {
        let mut run = Run { first, ended: u64::MAX, begun: writer.map_or(0, |call| call.begun) };
        let mut value = first;
        loop {
            let loads = self.loads.remove(&value).unwrap_or_default();
            let mut last_begun = run.begun;
            for load in loads {
                run.take(load)?;
                last_begun = last_begun.max(load.begun);
            }
            run.begun = last_begun;
            let Some((next, swap)) = self.swaps.remove(&value) else { return Ok(run) };
            run.take(swap)?;
            run.begun = run.begun.max(swap.begun);
            value = next;
        }
    }
}

impl Run {
    /// Takes an operation after those before it.
    fn take(&mut self, call: &Call) -> Result<(), String> {
        if call.ended < self.begun {
            let begun = self.begun;
            return Err(format!(
                "{call:?} had ended when one began (at {begun}) that is before it"
            ));
        }
        self.ended = self.ended.min(call.ended);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::SeededRng;

    use super::*;

    /// Returns whether there is an order; tries all of them.
    fn search(calls: &[Call], done: u32, value: u32) -> bool {
        let is_open = |at: &usize| done >> at & 1 == 0;
        let open: Vec<usize> = (0..calls.len()).filter(is_open).collect();
        if open.iter().all(|at| !calls[*at].is_known()) {
            return true;
        }
        let first_end = open.iter().map(|at| calls[*at].ended).min().unwrap_or(u64::MAX);
        open.into_iter().any(|at| {
            let call = &calls[at];
            let after = if let Op::Swap(new) = call.op { new } else { value };
            call.begun < first_end
                && (!call.is_known() || call.found == value)
                && search(calls, done | 1 << at, after)
        })
    }

    /// A history of few operations, some of which may have found a wrong value.
    fn draw(rng: &SeededRng) -> Vec<Call> {
        let count = 2 + rng.below(6);
        let times = 3 * count;
        let mut taken = BTreeSet::new();
        let mut draw_time = |from: u64| {
            let mut time = (from + 1 + rng.below(times)) * 100;
            while !taken.insert(time) {
                time += 1;
            }
            time
        };
        let mut calls = Vec::new();
        for number in 0..count {
            let op = if rng.below(2) == 0 { Op::Load } else { Op::Swap(number as u32 + 1) };
            let begun = draw_time(0);
            let ended = if rng.below(4) == 0 { u64::MAX } else { draw_time(begun / 100) };
            calls.push(Call { op, begun, ended, found: 0 });
        }
        calls.sort_by_key(|call| call.begun);
        // Values are found in some order that may be right.
        let mut value = 0;
        let mut order: Vec<usize> = (0..calls.len()).collect();
        order.sort_by_key(|at| calls[*at].begun.midpoint(calls[*at].ended.min(9_999)));
        for at in order {
            if rng.below(6) == 0 {
                value = rng.below(count + 1) as u32;
            }
            calls[at].found = value;
            match calls[at].op {
                Op::Swap(new) if calls[at].is_known() || rng.below(2) == 0 => value = new,
                _ => {}
            }
        }
        calls
    }

    #[test]
    fn a_history_is_accepted_if_there_is_an_order() {
        let rng = SeededRng::new(7);
        let mut count = [0; 2];
        for _ in 0..20_000 {
            let calls = draw(&rng);
            let expected = search(&calls, 0, 0);
            assert_eq!(check(&calls).is_ok(), expected, "{calls:#?}");
            count[usize::from(expected)] += 1;
        }
        assert!(count.iter().all(|count| *count > 3_000), "{count:?}");
    }
}
