//! Holds: blocks that are freed during a hold are deleted only after it has ended.
//!
//! A backup takes a hold, then one state of the metadata, then the blocks that this state names.
//! The collector looks at rows only: a hold lasts exactly as long as its row exists. So an owner
//! that can still renew a hold knows that it has lasted all the time.

use cairn_base::{Error, Timestamp};
use serde::{Deserialize, Serialize};

use super::namespace::{load, store};
use crate::rows::{Hold, Row};
use crate::{Context, Stop, Verb, View, keys};

/// Number of simultaneous holds.
pub const HOLDS: usize = 16;
/// Longest time until a hold ends after it was made or last renewed, seconds.
pub const HOLD_SECONDS: u32 = 24 * 3600;
/// Bytes of the name of an owner.
pub const OWNER_BYTES: usize = 256;

/// A hold, as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldNow {
    pub id: u64,
    pub owner: String,
    pub batch: u64,
    pub begun: Timestamp,
    pub ends: Timestamp,
}

/// Makes a hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddHold {
    /// Random id.
    pub id: u64,
    pub owner: String,
    pub seconds: u32,
}

impl Verb for AddHold {
    type Reply = HeldNow;
    const NAME: &'static str = "add_hold";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<HeldNow, Stop> {
        let length = 1..=OWNER_BYTES;
        if !length.contains(&self.owner.len()) || self.owner.chars().any(char::is_control) {
            let text = format!("owner of a hold: use 1 to {OWNER_BYTES} bytes of text");
            return Err(Error::Invalid(text).into());
        }
        end_those_over(view, context.now)?;
        if all(view)?.len() >= HOLDS {
            let text = format!("there are {HOLDS} holds: let one end (cairn backup holds)");
            return Err(Error::Conflict(text).into());
        }
        let key = keys::hold(self.id);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(format!("hold {:016x}", self.id)).into());
        }
        let hold = Hold {
            owner: self.owner.clone(),
            batch: context.batch,
            begun: context.now,
            ends: end(context.now, self.seconds)?,
            unknown: Vec::new(),
        };
        store(view, key, &hold);
        Ok(shown(self.id, hold))
    }
}

/// Moves the end of a hold. `NotFound` if it has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewHold {
    pub id: u64,
    pub seconds: u32,
}

impl Verb for RenewHold {
    type Reply = HeldNow;
    const NAME: &'static str = "renew_hold";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<HeldNow, Stop> {
        let key = keys::hold(self.id);
        let found = load::<Hold>(view, &key)?.filter(|hold| hold.ends > context.now);
        let gone = || Error::NotFound(format!("hold {:016x}: it has ended", self.id));
        let mut hold = found.ok_or_else(gone)?;
        hold.ends = end(context.now, self.seconds)?;
        store(view, key, &hold);
        Ok(shown(self.id, hold))
    }
}

/// Ends a hold, if there is one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveHold {
    pub id: u64,
}

impl Verb for RemoveHold {
    type Reply = ();
    const NAME: &'static str = "remove_hold";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::hold(self.id);
        if view.get(&key)?.is_some() {
            view.delete(key);
        }
        Ok(())
    }
}

/// Lists the holds that have a row, including those whose end has passed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListHolds;

impl Verb for ListHolds {
    type Reply = Vec<HeldNow>;
    const NAME: &'static str = "list_holds";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        all(view)
    }
}

/// Removes the holds whose end has passed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndHolds;

impl Verb for EndHolds {
    type Reply = ();
    const NAME: &'static str = "end_holds";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        end_those_over(view, context.now)
    }
}

fn end(now: Timestamp, seconds: u32) -> Result<Timestamp, Error> {
    if !(1..=HOLD_SECONDS).contains(&seconds) {
        let text = format!("a hold of {seconds} s: use 1 to {HOLD_SECONDS}");
        return Err(Error::Invalid(text));
    }
    Ok(Timestamp(now.0.saturating_add(i64::from(seconds) * 1_000_000_000)))
}

fn end_those_over(view: &mut View<'_>, now: Timestamp) -> Result<(), Stop> {
    for hold in all(view)?.into_iter().filter(|hold| hold.ends <= now) {
        view.delete(keys::hold(hold.id));
    }
    Ok(())
}

fn all(view: &mut View<'_>) -> Result<Vec<HeldNow>, Stop> {
    let (start, end) = keys::holds();
    let mut holds = Vec::new();
    // There are never more, unless another version made them.
    for (key, row) in view.scan(&start, &end, 4 * HOLDS)? {
        let id = keys::hold_id(&key);
        let id = id.ok_or_else(|| Error::corrupt("key of a hold", key.len(), "hold/<id>"))?;
        holds.push(shown(id, Hold::decode(&row)?));
    }
    Ok(holds)
}

fn shown(id: u64, hold: Hold) -> HeldNow {
    let Hold { owner, batch, begun, ends, .. } = hold;
    HeldNow { id, owner, batch, begun, ends }
}
