//! The ordered entries of directories, which follow their entries.

use bytes::Bytes;

use super::typed_rows::load;
use crate::order::hash_of;
use crate::rows::{Entry, EntryOrder, MasterEpochs, OrderStage, Row, Tally};
use crate::{Stop, View, keys};

/// Returns the value that makes ordered entries of earlier times void when it changes.
pub fn ordered_since(view: &mut View<'_>) -> Result<u64, Stop> {
    let epochs: Option<MasterEpochs> = load(view, &keys::owned_epoch())?;
    Ok(epochs.map_or(0, |epochs| epochs.ordered_since))
}

/// Returns whether each entry of a directory has its ordered entry.
pub fn is_ordered(view: &mut View<'_>, tally: &Tally) -> Result<bool, Stop> {
    match &tally.order {
        Some(EntryOrder { since, stage: OrderStage::Complete }) => {
            Ok(*since == ordered_since(view)?)
        }
        _ => Ok(false),
    }
}

/// Changes the ordered entry of an entry, if its directory has any: `None` removes it. `tally` is
/// that of the directory.
pub fn follow_entry(view: &mut View<'_>, tally: &Tally, key: &Bytes, entry: Option<&Entry>) {
    let Some(directory) = keys::directory_of(key).filter(|_| tally.order.is_some()) else { return };
    let name = keys::entry_name(key);
    let ordered = keys::ordered_entry(directory, hash_of(&name), &name);
    match entry {
        Some(entry) => view.put(ordered, entry.encode()),
        None => view.delete(ordered),
    }
}
