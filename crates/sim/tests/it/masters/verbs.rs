//! Operations on registers.

use bytes::Bytes;
use cairn_base::Error;
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View};

fn key(register: u8) -> Bytes {
    Bytes::from(format!("r{register}"))
}

fn load(view: &mut View<'_>, register: u8) -> Result<u32, Stop> {
    let Some(row) = view.get(&key(register))? else { return Ok(0) };
    let bytes = row.get(..4).and_then(|bytes| bytes.try_into().ok());
    let bytes = bytes.ok_or_else(|| Error::Invalid("a register that is none".into()))?;
    Ok(u32::from_be_bytes(bytes))
}

/// Puts a value into a register; the reply is the one before.
pub struct Swap(pub u8, pub u32);

impl VerbNeeds for Swap {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Swap {
    type Reply = u32;
    const NAME: &'static str = "swap";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<u32, Stop> {
        let before = load(view, self.0)?;
        // Rows have some weight, so that the log comes round.
        let mut row = vec![0; 400];
        row[..4].copy_from_slice(&self.1.to_be_bytes());
        view.put(key(self.0), row.into());
        Ok(before)
    }
}

/// The value of a register.
pub struct Load(pub u8);

impl VerbNeeds for Load {
    const NEEDS: Needs = Needs::Nothing("a test");
}

impl Verb for Load {
    type Reply = u32;
    const NAME: &'static str = "load";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<u32, Stop> {
        load(view, self.0)
    }
}
