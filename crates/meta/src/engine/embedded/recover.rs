//! Recovers the committed rows from the disk: reads the log after the table's mark.

use std::collections::BTreeMap;

use cairn_base::{Error, Result};

use super::super::Fence;
use super::super::ring::{LogPosition, Ring};
use super::super::row_store::{Behind, Load, Mark, Memtable};
use super::record::{Header, Kind, parse_rows};

/// Replays the records after `mark` up to the first that is missing or fails its checksum. That
/// record was being written when the machine or the process stopped, and was not acknowledged.
///
/// # Errors
/// `Corrupt` if there is a later record: a record is written only once all records before it are
/// durable, so the missing one was lost after it was acknowledged.
pub fn recover(log: &Ring, mark: &Mark) -> Result<Behind> {
    let mut places: BTreeMap<u64, Vec<LogPosition>> = BTreeMap::new();
    for place in log.headers()?.into_iter().filter(|place| place.header.sequence > mark.sequence) {
        Header::read(place.header)?;
        places.entry(place.header.sequence).or_default().push(place);
    }
    let mut state = Behind { rows: Memtable::default(), load: Load::default(), mark: mark.clone() };
    while let Some(candidates) = places.remove(&(state.mark.sequence + 1)) {
        let (previous, mut found) = (state.mark.previous, false);
        for place in candidates.iter().filter(|place| place.header.previous == previous) {
            // A torn record of an earlier life may lie elsewhere under the same number.
            found = found || replay(log, place, &mut state)?;
        }
        if !found {
            break;
        }
    }
    match places.last_key_value() {
        Some((&last, _)) => Err(Error::corrupt(
            format!("log record {}", state.mark.sequence + 1),
            format!("none that checks out, yet record {last} is there"),
            "it: acknowledged changes are lost; restore from a dump",
        )),
        None => Ok(state),
    }
}

/// Applies one record. Returns `false` if its body is damaged.
fn replay(log: &Ring, place: &LogPosition, state: &mut Behind) -> Result<bool> {
    let Some(body) = log.body(place)? else { return Ok(false) };
    let header = Header::read(place.header)?;
    let Fence { epoch, batch } = state.mark.fence;
    let expected = match header.kind {
        Kind::Batch => Fence { epoch, batch: batch.wrapping_add(1) },
        Kind::TakeOver => Fence { epoch: epoch.wrapping_add(1), batch },
        Kind::Advance => {
            Fence { epoch: epoch.wrapping_add(1), batch: batch.max(header.fence.batch) }
        }
    };
    if header.fence != expected {
        let what = format!("fence of log record {}", header.raw.sequence);
        let (got, expected) = (format!("{:?}", header.fence), format!("{expected:?}"));
        return Err(Error::corrupt(what, got, expected));
    }
    let changes = parse_rows(&header.raw, &body)?;
    let rows = changes.len();
    state.load.add(rows, state.rows.insert(header.fence.batch, changes));
    state.mark.sequence = header.raw.sequence;
    state.mark.previous = header.raw.crc;
    state.mark.fence = header.fence;
    Ok(true)
}
