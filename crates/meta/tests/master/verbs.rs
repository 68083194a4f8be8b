//! Small operations on rows that hold numbers.

use bytes::Bytes;
use cairn_base::Error;
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View};

pub fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

pub fn number(row: &Bytes) -> u64 {
    u64::from_be_bytes(row[..].try_into().expect("8 bytes"))
}

pub fn row(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn load(view: &mut View<'_>, key: &Bytes) -> Result<u64, Stop> {
    Ok(view.get(key)?.as_ref().map_or(0, number))
}

/// Adds to a row and returns the sum and the batch.
pub struct Add(pub &'static str, pub u64);

impl VerbNeeds for Add {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Add {
    type Reply = (u64, u64);
    const NAME: &'static str = "add";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(u64, u64), Stop> {
        let key = key(self.0);
        let sum = load(view, &key)? + self.1;
        view.put(key, row(sum));
        Ok((sum, context.batch))
    }
}

/// Makes a row that must not exist.
pub struct Make(pub &'static str, pub u64);

impl VerbNeeds for Make {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Make {
    type Reply = u64;
    const NAME: &'static str = "make";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u64, Stop> {
        let key = key(self.0);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(self.0.into()).into());
        }
        view.put(key, row(self.1));
        Ok(context.batch)
    }
}

/// Reads the numbers in some rows, 0 for a missing row, and the batch.
pub struct Get(pub Vec<&'static str>);

impl VerbNeeds for Get {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Get {
    type Reply = (Vec<u64>, u64);
    const NAME: &'static str = "get";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let keys: Vec<Bytes> = self.0.iter().map(|name| key(name)).collect();
        let rows = view.get_all(&keys)?;
        Ok((rows.iter().map(|row| row.as_ref().map_or(0, number)).collect(), context.batch))
    }
}

/// Deletes a row whether it exists or not.
pub struct Delete(pub &'static str);

impl VerbNeeds for Delete {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Delete {
    type Reply = ();
    const NAME: &'static str = "delete";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        view.delete(key(self.0));
        Ok(())
    }
}
