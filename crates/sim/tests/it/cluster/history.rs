//! The history that clients saw, and whether one order of all operations explains it (Wing and
//! Gong's search with Lowe's memory of tried states).

use std::collections::{BTreeMap, HashSet};

use super::client::{Op, Outcome};
use super::digest::Digest;

/// Steps of a search that comes to no end.
const STEPS: usize = 3_000_000;

#[derive(Default)]
pub struct History {
    time: u64,
    ids: u32,
    directories: u64,
    closed: bool,
    calls: BTreeMap<String, Vec<Call>>,
    /// Something that must never happen.
    pub violations: Vec<String>,
    /// Sessions may have been lost: freed blocks may be gone before who reads them knows.
    pub disturbed: bool,
    /// A change that is done and not durable may be lost: with its session, or by a commit that
    /// failed.
    pub forgetful: bool,
    /// Bits were flipped on purpose.
    pub flipped: bool,
    pub digest: Digest,
}

#[derive(Clone, Debug)]
struct Call {
    op: Op,
    begun: u64,
    ended: u64,
    outcome: Outcome,
}

/// The contents of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct KeyState {
    exists: bool,
    /// There is a file from the first on, not an object that is there when it has bytes.
    is_file: bool,
    records: Vec<u32>,
    size: u64,
}

impl History {
    pub fn next_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    pub fn next_directory(&mut self) -> u64 {
        self.directories += 1;
        self.directories
    }

    /// Returns the number of directories, which are numbered from 1.
    pub fn directories(&self) -> u64 {
        self.directories
    }

    /// Returns the keys that were used.
    pub fn keys(&self) -> Vec<String> {
        self.calls.keys().cloned().collect()
    }

    pub fn close(&mut self) {
        self.closed = true;
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn len(&self) -> usize {
        self.calls.values().map(Vec::len).sum()
    }

    /// Operations with an answer.
    pub fn answered(&self) -> usize {
        let answered = |call: &&Call| call.outcome.is_known();
        self.calls.values().flatten().filter(answered).count()
    }

    pub fn begin(&mut self, key: &str, op: Op) -> usize {
        self.time += 1;
        let outcome = Outcome::Unknown("not yet".into());
        let call = Call { op, begun: self.time, ended: u64::MAX, outcome };
        let calls = self.calls.entry(key.to_owned()).or_default();
        calls.push(call);
        calls.len() - 1
    }

    pub fn end(&mut self, key: &str, call: usize, door: usize, outcome: Outcome) {
        self.time += 1;
        let shown = format!("{key} {call} {outcome:?}");
        self.digest.add_bytes(shown.as_bytes());
        tracing::debug!(door, shown, "answered");
        let excused = self.disturbed;
        match &outcome {
            Outcome::Wrong(what) => self.violations.push(format!("{key}: {what}")),
            Outcome::Lost(what) if !excused => {
                self.violations.push(format!("{key}: opened and not read: {what}"));
            }
            _ => {}
        }
        let Some(calls) = self.calls.get_mut(key) else { return };
        if !matches!(outcome, Outcome::Unknown(_) | Outcome::Lost(_)) {
            calls[call].ended = self.time;
        }
        calls[call].outcome = outcome;
    }

    /// Checks all keys.
    pub fn check(&self) -> Vec<String> {
        let mut found = self.violations.clone();
        for (key, calls) in &self.calls {
            if let Err(what) = check(calls, self.forgetful) {
                found.push(format!("{key}: {what}"));
            }
        }
        found
    }
}

/// The state after `call`, if it may have ended as it did.
fn step(state: &KeyState, call: &Call, forgetful: bool) -> Option<KeyState> {
    // Made and not durable.
    let forgets = forgetful && state.is_file && state.records.is_empty();
    let fresh = |record: super::client::Record| KeyState {
        exists: true,
        is_file: state.is_file,
        records: vec![record.id],
        size: record.length.into(),
    };
    let unknown = call.ended == u64::MAX;
    match (call.op, &call.outcome) {
        (Op::Get, Outcome::Got(seen)) => {
            // An object that is appended to is empty at first.
            let matches = match seen {
                None => !state.exists || state.records.is_empty() && !state.is_file || forgets,
                Some(ids) if ids.is_empty() => state.records.is_empty(),
                Some(ids) => state.exists && *ids == state.records,
            };
            matches.then(|| state.clone())
        }
        (Op::Get, _) => Some(state.clone()),
        (Op::Put(record), _) => Some(fresh(record)),
        (Op::Create(_) | Op::Make, Outcome::Refused) => state.exists.then(|| state.clone()),
        (Op::Create(record), _) if !state.exists => Some(fresh(record)),
        (Op::Create(_), _) => unknown.then(|| state.clone()),
        (Op::Make, _) if !state.exists || forgets => {
            Some(KeyState { exists: true, is_file: true, ..KeyState::default() })
        }
        (Op::Make, _) => unknown.then(|| state.clone()),
        (Op::Fill(record), _) => state.exists.then(|| fresh(record)),
        (Op::Append(record), outcome) => {
            if let Outcome::Appended(offset) = outcome
                && *offset != state.size
            {
                return None;
            }
            let mut next = state.clone();
            next.exists = true;
            next.records.push(record.id);
            next.size += u64::from(record.length);
            Some(next)
        }
        (Op::Delete, Outcome::Deleted(true)) if !state.exists && !state.records.is_empty() => None,
        (Op::Delete, _) => Some(KeyState::default()),
    }
}

/// Checks that one order explains all calls.
fn check(calls: &[Call], forgetful: bool) -> Result<(), String> {
    // A read with an unknown result says nothing.
    let useful = |call: &&Call| call.op != Op::Get || call.ended != u64::MAX;
    let calls: Vec<&Call> = calls.iter().filter(useful).collect();
    let words = calls.len().div_ceil(64).max(1);
    let needed = calls.iter().filter(|call| call.ended != u64::MAX).count();
    let mut seen: HashSet<(Vec<u64>, KeyState)> = HashSet::new();
    let mut stack = vec![(vec![0u64; words], KeyState::default(), 0usize)];
    let mut steps = 0;
    let mut most = 0;
    while let Some((done, state, count)) = stack.pop() {
        if count == needed {
            return Ok(());
        }
        most = most.max(count);
        steps += 1;
        if steps > STEPS {
            return Ok(());
        }
        let is_done = |at: usize| done[at / 64] >> (at % 64) & 1 == 1;
        let open = |at: &usize| !is_done(*at);
        let first_end = (0..calls.len()).filter(open).map(|at| calls[at].ended).min();
        let mut next = Vec::new();
        for at in (0..calls.len()).filter(open) {
            let call = calls[at];
            if call.begun > first_end.unwrap_or(u64::MAX) {
                break;
            }
            let Some(after) = step(&state, call, forgetful) else { continue };
            let mut done = done.clone();
            done[at / 64] |= 1 << (at % 64);
            let known = call.ended != u64::MAX;
            if seen.insert((done.clone(), after.clone())) {
                next.push((known, call.ended, (done, after, count + usize::from(known))));
            }
        }
        // The operation that ended first is tried first, unknown ones last.
        next.sort_by_key(|(known, ended, _)| (*known, std::cmp::Reverse(*ended)));
        stack.extend(next.into_iter().map(|(.., state)| state));
    }
    let shown: Vec<String> = calls
        .iter()
        .map(|call| {
            format!("{}..{} {:?} {:?}", call.begun, call.ended as i64, call.op, call.outcome)
        })
        .collect();
    Err(format!("no order explains it ({most} of {needed}):\n  {}", shown.join("\n  ")))
}
