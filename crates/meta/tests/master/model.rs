//! Operations whose replies tell where they took effect, and their replay one after another.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Timestamp};
use cairn_meta::{Context, Needs, Source, Stop, Verb, VerbNeeds, View};

use crate::verbs::{key, number, row};

/// The row that every change increments: the number of changes so far.
pub const SERIAL: &str = "serial";
const ACCOUNTS: u64 = 40;

pub type Rows = BTreeMap<Bytes, Bytes>;

#[derive(Clone, Debug)]
pub enum Step {
    /// Moves some from one account to another; a conflict if there is not as much.
    Transfer { from: u64, to: u64, amount: u64 },
    /// Adds to an account.
    Add { account: u64, amount: u64 },
    /// Opens an account that must not exist.
    Open { account: u64, amount: u64 },
    /// Deletes the first accounts of a range and gives what was in them to `heir`.
    Close { from: u64, to: u64, limit: usize, heir: u64 },
    /// Reads accounts and a range.
    Look { accounts: [u64; 3], from: u64, to: u64, limit: usize },
    /// Looks, then adds to an account what was seen: needs rows it learns of only then.
    Follow { first: u64 },
}

/// The view of a step: the serial number before or after it, and the rows concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub serial: u64,
    pub changed: bool,
    pub values: Vec<(Bytes, u64)>,
}

#[derive(Clone, Debug)]
pub struct Reply {
    pub seen: Seen,
    pub batch: u64,
    pub now: Timestamp,
}

/// Accounts have names of different lengths, so that ranges cut between them.
fn account(number: u64) -> Bytes {
    key(&format!("a{:02}{}", number % ACCOUNTS, "x".repeat((number % 3) as usize)))
}

fn bound(number: u64) -> Bytes {
    key(&format!("a{:02}", number % ACCOUNTS))
}

impl Step {
    pub fn random(rng: &SeededRng) -> Step {
        let any = || rng.below(ACCOUNTS);
        let limit = 1 + rng.below(12) as usize;
        match rng.below(16) {
            0..4 => Step::Transfer { from: any(), to: any(), amount: rng.below(50) },
            4..7 => Step::Add { account: any(), amount: rng.below(100) },
            7..9 => Step::Open { account: any(), amount: rng.below(100) },
            9..11 => Step::Close { from: any(), to: any(), limit, heir: any() },
            11..14 => Step::look(rng),
            _ => Step::Follow { first: any() },
        }
    }

    pub fn look(rng: &SeededRng) -> Step {
        let any = || rng.below(ACCOUNTS);
        // Half of them ask for no range: these may be answered from memory.
        let to = if rng.below(2) == 0 { 0 } else { any() };
        let limit = 1 + rng.below(12) as usize;
        Step::Look { accounts: [any(), any(), any()], from: any(), to, limit }
    }
}

fn balance(view: &mut View<'_>, account: &Bytes) -> Result<u64, Stop> {
    Ok(view.get(account)?.as_ref().map_or(0, number))
}

/// An account with nothing in it has no row.
fn set(view: &mut View<'_>, account: &Bytes, amount: u64) {
    match amount {
        0 => view.delete(account.clone()),
        _ => view.put(account.clone(), row(amount)),
    }
}

impl VerbNeeds for Step {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Step {
    type Reply = Reply;
    const NAME: &'static str = "step";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Reply, Stop> {
        let before = balance(view, &key(SERIAL))?;
        let refuse = || Stop::Fail(Error::Conflict(before.to_string()));
        let mut values = Vec::new();
        match *self {
            Step::Transfer { from, to, amount } => {
                let (from, to) = (account(from), account(to));
                view.get_all(&[from.clone(), to.clone()])?;
                let held = balance(view, &from)?;
                // Changed before it is refused: must leave nothing behind.
                set(view, &from, held.saturating_sub(amount));
                if held < amount {
                    return Err(refuse());
                }
                let sum = balance(view, &to)? + amount;
                set(view, &to, sum);
                values = vec![(from, held), (to, sum)];
            }
            Step::Add { account: number, amount } => {
                let account = account(number);
                let sum = balance(view, &account)? + amount;
                set(view, &account, sum);
                values.push((account, sum));
            }
            Step::Open { account: number, amount } => {
                let account = account(number);
                if view.get(&account)?.is_some() {
                    return Err(refuse());
                }
                set(view, &account, amount);
            }
            Step::Close { from, to, limit, heir } => {
                let rows = view.scan(&bound(from), &bound(to), limit)?;
                values = rows.iter().map(|(key, row)| (key.clone(), number(row))).collect();
                values.iter().for_each(|(key, _)| view.delete(key.clone()));
                let heir = account(heir);
                let sum = balance(view, &heir)? + values.iter().map(|(_, sum)| sum).sum::<u64>();
                set(view, &heir, sum);
                // The scan must see what this operation itself did.
                let left = view.scan(&bound(from), &bound(to), limit)?;
                values.extend(left.iter().map(|(key, row)| (key.clone(), number(row))));
            }
            Step::Look { accounts, from, to, limit } => {
                let keys = accounts.map(account);
                let rows = view.get_all(&keys)?;
                let seen = |row: &Option<Bytes>| row.as_ref().map_or(0, number);
                values = keys.into_iter().zip(rows.iter().map(seen)).collect();
                let rows = view.scan(&bound(from), &bound(to), limit)?;
                values.extend(rows.iter().map(|(key, row)| (key.clone(), number(row))));
                let seen = Seen { serial: before, changed: false, values };
                return Ok(Reply { seen, batch: context.batch, now: context.now });
            }
            Step::Follow { first } => {
                let mut next = first;
                for _ in 0..4 {
                    let account = account(next);
                    let amount = balance(view, &account)?;
                    next = next.wrapping_mul(7).wrapping_add(amount);
                    values.push((account, amount));
                }
                let last = account(next);
                let sum = balance(view, &last)? + 1;
                set(view, &last, sum);
            }
        }
        view.put(key(SERIAL), row(before + 1));
        let seen = Seen { serial: before + 1, changed: true, values };
        Ok(Reply { seen, batch: context.batch, now: context.now })
    }
}

struct Plain<'a>(&'a Rows);

impl Source for Plain<'_> {
    fn get(&self, key: &Bytes) -> Option<Option<Bytes>> {
        Some(self.0.get(key).cloned())
    }

    fn scan(&self, start: &Bytes, end: &Bytes, limit: usize) -> Option<Vec<(Bytes, Bytes)>> {
        let range = self.0.range(start.clone()..end.clone()).take(limit);
        Some(range.map(|(key, row)| (key.clone(), row.clone())).collect())
    }
}

/// The outcome of a step: its reply, or the serial number at which it was refused.
pub type Record = (Step, Result<Reply, u64>);

/// Executes the steps again in the order of their serial numbers and compares. Returns the rows
/// at the end.
pub fn replay(mut records: Vec<Record>) -> Rows {
    // At one serial number the change that made it comes first.
    records.sort_by_key(|(_, result)| match result {
        Ok(reply) => (reply.seen.serial, !reply.seen.changed),
        Err(serial) => (*serial, true),
    });
    let mut rows = Rows::new();
    let mut serial = 0;
    let mut last = (0, Timestamp(i64::MIN));
    for (step, result) in &records {
        let expected = apply(&mut rows, step);
        match (result, expected) {
            (Ok(reply), Ok(expected)) => {
                assert_eq!(reply.seen, expected, "{step:?}");
                if reply.seen.changed {
                    assert_eq!(reply.seen.serial, serial + 1, "lost or repeated: {step:?}");
                    serial = reply.seen.serial;
                    assert!(reply.batch >= last.0, "batches out of order: {step:?}");
                    assert!(reply.now >= last.1, "time goes back: {step:?}");
                    last = (reply.batch, reply.now);
                }
            }
            (Err(at), Err(expected)) => assert_eq!(*at, expected, "{step:?}"),
            (got, expected) => panic!("{step:?}: got {got:?}, expected {expected:?}"),
        }
    }
    rows
}

fn apply(rows: &mut Rows, step: &Step) -> Result<Seen, u64> {
    let source = Plain(rows);
    let mut view = View::new(&source);
    let context = Context { caller: Caller::system(), now: Timestamp(0), batch: 0 };
    match step.apply(&mut view, &context) {
        Ok(reply) => {
            for (key, row) in view.into_changes().expect("few changes") {
                match row {
                    Some(row) => rows.insert(key, row),
                    None => rows.remove(&key),
                };
            }
            Ok(reply.seen)
        }
        Err(Stop::Fail(error)) => Err(refused_at(&error).expect("refused by the model")),
        Err(Stop::Miss) => panic!("the model has all rows"),
    }
}

/// The serial number at which a step was refused, if it was.
pub fn refused_at(error: &Error) -> Option<u64> {
    match error {
        Error::Conflict(serial) => serial.parse().ok(),
        _ => None,
    }
}
