//! One state of a store in a backup.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::repository::{Repository, STATES};
use super::seal::{hex, random};
use super::time::compact_time;
use crate::failure::{Failure, Result};

const VERSION: u32 = 1;
const NAME_BYTES: usize = 32;
/// Names of lists in a frame, at most.
const FRAME_NAMES: usize = 32_768;

/// Head of a state. It has no `Debug`: it may hold keys.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct About {
    pub version: u32,
    /// Number of the store: the row `c cluster`.
    pub cluster: u64,
    pub batch: u64,
    pub rows: u64,
    pub blocks: u64,
    pub block_bytes: u64,
    /// Seconds since 1970.
    pub begun: u64,
    pub ended: u64,
    /// Unchanged files of keys: only if the backup is encrypted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

pub struct BackupState {
    pub name: String,
    pub about: About,
    /// Lists of rows, in the order of keys.
    pub lists: Vec<[u8; NAME_BYTES]>,
}

/// Makes a name for a new state. Later states of a store have later names, even within one second.
pub fn new_name(secs: u64, batch: u64) -> Result<String> {
    Ok(format!("{STATES}{}-{batch:016x}-{}", compact_time(secs), hex(&random::<4>()?)))
}

impl BackupState {
    pub fn put(&self, repository: &Repository) -> Result<()> {
        let about = About { version: VERSION, ..self.about.clone() };
        let about = serde_json::to_vec(&about).map_err(|error| Failure::new(error.to_string()))?;
        let names = self.lists.chunks(FRAME_NAMES).map(|names| names.concat());
        repository.put_state(&self.name, std::iter::once(about).chain(names).collect())
    }

    pub fn get(repository: &Repository, name: &str) -> Result<BackupState> {
        let bad = || Failure::new(format!("{name}: makes no sense: it is damaged"));
        let mut frames = repository.state(name)?.into_iter();
        let about: Option<About> =
            frames.next().and_then(|about| serde_json::from_slice(&about).ok());
        let about = about.ok_or_else(bad)?;
        if about.version != VERSION {
            let version = about.version;
            let text = format!("{name}: of version {version}: use the cairn that wrote it");
            return Err(Failure::new(text));
        }
        let mut lists = Vec::new();
        for frame in frames {
            let (names, rest) = frame.as_chunks::<NAME_BYTES>();
            if !rest.is_empty() {
                return Err(bad());
            }
            lists.extend_from_slice(names);
        }
        Ok(BackupState { name: name.to_owned(), about, lists })
    }

    /// Finds the state of this id, or the last one.
    pub fn find(repository: &Repository, id: Option<&str>) -> Result<BackupState> {
        let states = repository.states()?;
        let found = match id {
            None => states.last(),
            Some(id) => states.iter().find(|name| name.strip_prefix(STATES) == Some(id)),
        };
        let none = || {
            Failure::not_found(match id {
                None => "there is no complete backup yet: run cairn backup create".to_owned(),
                Some(id) => format!("no state {id}: cairn backup list shows them"),
            })
        };
        BackupState::get(repository, found.ok_or_else(none)?)
    }

    pub fn id(&self) -> &str {
        self.name.strip_prefix(STATES).unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_order() {
        assert_eq!(compact_time(1_795_737_600), "20261127T000000Z");
        assert!(new_name(7, 10).unwrap().starts_with("states/19700101T000007Z-000000000000000a-"));
    }
}
