//! Dumps of the rows of a state.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;
use cairn_base::{ClusterMap, Error, GroupId};
use cairn_meta::dump::Writer;
use cairn_meta::keys;
use cairn_meta::rows::{BlockToFree, Extents, Place, Row};

use super::repository::{Item, Repository};
use super::rows::of_list;
use super::state::BackupState;
use crate::failure::{Failure, Result};

const BUFFER: usize = 256 << 10;

/// Writes the rows of a state as a dump, unchanged or for one machine.
pub fn write_dump(
    repository: &Repository,
    state: &BackupState,
    path: &Path,
    for_one_machine: bool,
) -> Result<()> {
    let fail = |error: std::io::Error| Failure::file(path, &error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.map_err(fail)?;
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    let mut dump = Writer::begin(&mut out, state.about.cluster, state.about.batch)?;
    let lists = state.lists.iter().map(|name| Item::Rows(*name));
    repository.each_in_order(lists, &mut |_, list| {
        let rows = of_list(list).ok_or_else(|| Failure::new("a list of rows makes no sense"))?;
        for (key, value) in rows {
            let row = if for_one_machine { local(&key, value)? } else { Some(value) };
            if let Some(value) = row {
                dump.row(&key, &value)?;
            }
        }
        Ok(())
    })?;
    dump.finish()?;
    out.flush().map_err(fail)?;
    drop(out);
    file.sync_all().map_err(fail)
}

/// Refuses to change a cluster map. It is for loading a dump for one machine, which has none.
pub fn no_map(_: &ClusterMap) -> cairn_base::Result<ClusterMap> {
    Err(Error::Invalid("a dump for one machine has a cluster map".into()))
}

/// Converts a row for a store on one machine, where there is one group of blocks and no other node;
/// `None` if it has no place there. Holds are for backups that ended long ago.
fn local(key: &[u8], value: Bytes) -> Result<Option<Bytes>> {
    let is_of_cluster = *key == *keys::map() || key.starts_with(b"cjoin/");
    if is_of_cluster || keys::hold_id(key).is_some() {
        return Ok(None);
    }
    if keys::is_of_extents(key) {
        let mut extents = Extents::decode(&value)?;
        let mut changed = false;
        for extent in &mut extents.extents {
            if let Place::Block { group, .. } = &mut extent.place {
                changed |= *group != GroupId::LOCAL;
                *group = GroupId::LOCAL;
            }
        }
        return Ok(Some(if changed { extents.encode() } else { value }));
    }
    if keys::freed_parts(key).is_some() && key.first() == Some(&b'f') {
        let freed = BlockToFree::decode(&value)?;
        return Ok(Some(BlockToFree { group: GroupId::LOCAL, ..freed }.encode()));
    }
    Ok(Some(value))
}
