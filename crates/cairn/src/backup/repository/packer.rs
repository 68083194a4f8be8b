//! Fills packs.

use std::collections::HashSet;

use super::super::frames::{At, BODY_BYTES, HEADER_BYTES, Sort, Writer};
use super::super::seal::{hex, random};
use super::{INDEX, Item, PACKS, Repository, index_of};
use crate::failure::{Failure, Result};

/// Fills packs, and stores each when it is full.
pub struct Packer {
    most_bytes: usize,
    name: String,
    pack: Option<Writer>,
    entries: Vec<(Item, At)>,
    /// Items in `entries`.
    known: HashSet<Item>,
    /// Bytes of the objects that were stored.
    pub bytes: u64,
}

impl Packer {
    pub fn new(most_bytes: usize) -> Packer {
        Packer {
            most_bytes,
            name: String::new(),
            pack: None,
            entries: Vec::new(),
            known: HashSet::new(),
            bytes: 0,
        }
    }

    /// Adds an item, unless it is there.
    pub fn add(&mut self, repository: &mut Repository, item: Item, bytes: Vec<u8>) -> Result<()> {
        if repository.has(&item, bytes.len()) || self.known.contains(&item) {
            return Ok(());
        }
        if bytes.len() > BODY_BYTES {
            return Err(Failure::new(format!("{item:?}: {} bytes are too many", bytes.len())));
        }
        let pack = match &mut self.pack {
            Some(pack) => pack,
            None => {
                self.name = hex(&random::<16>()?);
                let name = format!("{PACKS}{}", self.name);
                self.pack.insert(Writer::begin(&repository.keys, Sort::Pack, &name)?)
            }
        };
        let at = pack.frame(bytes)?;
        let is_full = pack.len() >= self.most_bytes.max(HEADER_BYTES);
        self.entries.push((item, at));
        self.known.insert(item);
        if is_full { self.flush(repository) } else { Ok(()) }
    }

    /// Stores the pack and its index, unless the pack is empty.
    pub fn flush(&mut self, repository: &mut Repository) -> Result<()> {
        let Some(pack) = self.pack.take() else { return Ok(()) };
        let entries = std::mem::take(&mut self.entries);
        self.known.clear();
        let (pack_name, index_name) =
            (format!("{PACKS}{}", self.name), format!("{INDEX}{}", self.name));
        let index = index_of(&repository.keys, &index_name, &entries)?;
        let pack = pack.finish()?;
        self.bytes += (pack.len() + index.len()) as u64;
        repository.check_lock()?;
        repository.target.put(&pack_name, &pack.into())?;
        repository.target.put(&index_name, &index.into())?;
        repository.add(pack_name, entries);
        Ok(())
    }
}
