//! Loads a dump into an empty engine.

use std::io::Read;

use bytes::Bytes;
use cairn_base::{ClusterMap, Error, Result};

use super::read::Reader;
use super::{CLUSTER, Contents, Summary, contents};
use crate::engine::{Change, Engine, SoleWriter};
use crate::keys;
use crate::rows::{Row, Session, Tally, encode_number};

/// Commits all rows of a dump. The row that makes them a store comes last, once the trailer was
/// found right. If there is a cluster map, `anew` turns it into the map with which the metadata
/// begin: the nodes may have gone on since the dump ([`ClusterMap::anew`]). Calls `progress` with
/// the number of rows so far, at intervals. If it fails after the first rows, the engine holds
/// [`Contents::Part`].
///
/// # Errors
/// `NotEmpty` if there is anything in the engine, which is then left unchanged; those of
/// [`super::verify`], of `anew` and of the engine.
pub fn load(
    engine: &dyn Engine,
    input: &mut dyn Read,
    anew: &dyn Fn(&ClusterMap) -> Result<ClusterMap>,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary> {
    let convert = |key: &[u8], row: Bytes| loaded(key, row, anew);
    commit_rows(engine, input, &convert, Vec::new(), progress)
}

/// Converts a row of a dump, by its key, into the row that is kept.
pub type Conversion<'a> = dyn Fn(&[u8], Bytes) -> Result<Bytes> + 'a;

/// Commits all rows of a dump like [`load`], each as `convert` returns it, and `added` together
/// with the row that makes them a store.
///
/// # Errors
/// Those of [`load`], and of `convert`.
pub fn commit_rows(
    engine: &dyn Engine,
    input: &mut dyn Read,
    convert: &Conversion<'_>,
    added: Vec<Change>,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary> {
    require_nothing(engine)?;
    let mut reader = Reader::open(input)?;
    let mut writer = SoleWriter::take_over(engine, reader.header.batch)?;
    // A process that came in between would find the fence as it was before.
    require_nothing(engine)?;
    let cluster = keys::config(CLUSTER);
    let mut last: Option<Change> = None;
    while let Some(rows) = reader.section()? {
        let mut changes = Vec::with_capacity(rows.len());
        for (key, value) in rows {
            if keys::is_ordered_entry(&key) {
                // Made anew, when the directory is listed.
            } else if key == cluster {
                // Copied, so that the row does not keep its section in memory.
                let row = convert(&key, Bytes::copy_from_slice(&value))?;
                last = Some((cluster.clone(), Some(row)))
            } else {
                changes.push((key.clone(), Some(convert(&key, value)?)))
            }
        }
        writer.commit(changes)?;
        progress(reader.summary.rows);
    }
    writer.commit(added.into_iter().chain(last).collect())?;
    Ok(reader.summary)
}

/// Converts a row for loading: sessions are marked as coming from a dump. What belongs to users is
/// counted anew: the program that wrote the dump need not have counted it.
fn loaded(
    key: &[u8],
    row: Bytes,
    anew: &dyn Fn(&ClusterMap) -> Result<ClusterMap>,
) -> Result<Bytes> {
    match key.first() {
        _ if *key == *keys::map() => Ok(anew(&ClusterMap::decode(&row)?)?.encode()),
        Some(b's') => Ok(Session { loaded: true, ..Session::decode(&row)? }.encode()),
        _ => Ok(counted_anew(key, row)),
    }
}

/// Returns a row without what masters of another log know better: what belongs to users is counted
/// anew, and directories get new ordered entries.
pub fn counted_anew(key: &[u8], row: Bytes) -> Bytes {
    match key.first() {
        _ if *key == *keys::owned_epoch() => encode_number(0),
        Some(b't') => {
            let tally = Tally::decode(&row);
            tally.map_or(row, |tally| Tally { order: None, ..tally }.encode())
        }
        _ => row,
    }
}

fn require_nothing(engine: &dyn Engine) -> Result<()> {
    match contents(engine)? {
        Contents::Nothing => Ok(()),
        Contents::Store(cluster) => {
            let text = format!("there is a store already ({cluster:016x}): load into nothing else");
            Err(Error::NotEmpty(text))
        }
        Contents::Part => {
            let text = "there is a part of a store, of a load that did not end: remove it";
            Err(Error::NotEmpty(text.into()))
        }
    }
}
