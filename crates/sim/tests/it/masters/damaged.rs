//! Rows that rot on the disk of a member: no other one is filled with what is left of them, and
//! the member does not say that it would lead.
//!
//! No disk of the world of `world.rs` rots, since nothing there gives a member a new number. So
//! this is done on the disks themselves.

use std::sync::Arc;

use cairn_base::planted::{Bug, plant};
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Result};
use cairn_meta::engine::Pace;
use cairn_sim::SimDisk;

use super::snapshots::{entries, open, rows};

/// The table of rows.
const FILE: &str = "rows.redb";

/// A row of one of two members rots, its scrub looks, and it fills the other one.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    plant(bug);
    let result = fill(seed).unwrap_or_else(|error| Err(error.to_string()));
    plant(None);
    result
}

fn fill(seed: u64) -> Result<Result<(), String>> {
    let rng = Arc::new(SeededRng::new(seed));
    let disk = SimDisk::new(seed << 1);
    let log = entries(&rng, 20 + rng.below(40));
    let source = open(&disk, &rng)?;
    source.append(log.clone())?;
    source.apply(log)?;
    source.checkpoint()?;
    let whole = rows(source.snapshot())?;
    let target = open(&SimDisk::new(seed << 1 | 1), &rng)?;
    // The value of the longest row is nowhere else in the table.
    let longest = whole.iter().max_by_key(|(_, value)| value.len());
    rot(&disk, longest.map_or(&[][..], |(_, value)| value))?;
    // From here on its rows are read as they are on the disk.
    let source = {
        source.abandon();
        open(&disk.kill(), &rng)?
    };
    let checked = source.check_rows(&Pace::default());
    if !matches!(checked, Err(Error::Corrupt { .. })) {
        return Ok(Err(format!("the scrub finds {checked:?}")));
    }
    if source.is_fit() {
        return Ok(Err("it would lead".into()));
    }
    let Some(mut outgoing) = source.take_snapshot() else { return Ok(Err("no snapshot".into())) };
    let mut incoming = target.receive_snapshot()?;
    loop {
        match outgoing.page() {
            Ok(Some(page)) => incoming.add(page)?,
            Ok(None) => break,
            Err(Error::Corrupt { .. }) => return Ok(Ok(())),
            Err(error) => return Err(error),
        }
    }
    incoming.sync()?;
    target.install_snapshot(&outgoing.taken, incoming)?;
    Ok(if rows(target.snapshot())? == whole {
        Err("what is damaged was read".into())
    } else {
        Err("another member was filled with the rows that are left".into())
    })
}

/// Changes a bit wherever `part` is in the table.
fn rot(disk: &SimDisk, part: &[u8]) -> Result<()> {
    let bytes = disk.contents(FILE)?;
    let places = bytes.windows(part.len()).enumerate().filter(|(_, window)| *window == part);
    for (at, _) in places {
        disk.flip_bit(FILE, (at + part.len() - 1) as u64, 0)?;
    }
    Ok(())
}
