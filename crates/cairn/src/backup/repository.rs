//! A backup at its target: the head, packs of blocks and rows, and the states that need them.
//!
//! ```text
//!   head            what it is, and how its key is made of a passphrase
//!   packs/ID        frames: blocks, and lists of rows
//!   index/ID        which are in that pack: written when the pack is there
//!   states/ID       one state of a store: written last
//!   locks/ID        of backups that run, and of what removes packs
//! ```

mod damage;
mod packer;
mod read;
mod remove;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, Secret};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::frames::{self, At, Sort, Writer};
use super::place_lock::{PlaceLock, Purpose};
use super::seal::{Argon2id, Keys};
use super::target::Target;
use crate::client::pool;
use crate::failure::{Failure, Result};

pub use packer::Packer;
pub use read::take_owner;
pub use remove::PackUse;

const HEAD: &str = "head";
const FORMAT: &str = "cairn backup";
const VERSION: u32 = 1;
const PACKS: &str = "packs/";
const INDEX: &str = "index/";
pub const STATES: &str = "states/";
/// Bytes of an entry of an index, and number of entries in a frame of an index.
const ENTRY_BYTES: usize = 49;
const FRAME_ENTRIES: usize = 10_000;
/// Indexes that are read at the same time.
const LOADS: usize = 8;
/// Length of the owner, which precedes the bytes of a block in its frame.
pub const OWNER_BYTES: usize = 20;

/// Content of a frame of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Item {
    Block(BlockId),
    /// Rows, by the hash of their bytes.
    Rows([u8; 32]),
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<Argon2id>,
}

/// Place of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ItemPlace {
    /// Index of its pack in the list of packs.
    pack: u32,
    at: At,
}

pub struct Repository {
    target: Arc<dyn Target>,
    pub keys: Keys,
    /// The object `head`, as of the time when this was opened.
    head: Vec<u8>,
    lock: Option<PlaceLock>,
    packs: Vec<String>,
    items: HashMap<Item, ItemPlace>,
}

/// Use of a repository.
pub enum Access<'a> {
    Read,
    /// For a change by this owner, whose lock ends after this number of seconds unless it is
    /// renewed.
    Change(Purpose, &'a str, u32),
}

/// Returns true if a name is that of an object below `prefix`.
fn is_id(name: &str, prefix: &str) -> bool {
    let id = name.strip_prefix(prefix).unwrap_or_default();
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn unlike(is_encrypted: bool) -> Failure {
    Failure::usage(if is_encrypted {
        "the backup is encrypted: name the file of its passphrase by --passphrase-file"
    } else {
        "the backup is not encrypted: leave out --passphrase-file, or choose another place"
    })
}

impl Repository {
    /// Opens the repository; creates it when adding to an empty place.
    pub fn open(
        target: Arc<dyn Target>,
        passphrase: Option<&Secret<String>>,
        access: Access<'_>,
    ) -> Result<Repository> {
        let may_create = matches!(access, Access::Change(Purpose::Add, ..));
        let (head, keys) = match (target.get(HEAD)?, passphrase) {
            (Some(head), passphrase) => {
                let keys = Repository::keys_of(&head, passphrase)?;
                (head, keys)
            }
            (None, _) if !may_create => {
                return Err(Failure::new("there is no backup: its object head is missing"));
            }
            (None, passphrase) => Repository::begin(&*target, passphrase)?,
        };
        // Taken before anything is listed: from here on nothing is removed.
        let lock = match access {
            Access::Read => None,
            Access::Change(purpose, owner, seconds) => {
                Some(PlaceLock::take(&target, purpose, owner, seconds)?)
            }
        };
        let (packs, items) = (Vec::new(), HashMap::new());
        let mut repository = Repository { target, keys, head, lock, packs, items };
        repository.load_indexes()?;
        Ok(repository)
    }

    /// Makes a new head, and its keys.
    fn begin(target: &dyn Target, passphrase: Option<&Secret<String>>) -> Result<(Vec<u8>, Keys)> {
        // A new head would make existing objects unreadable.
        for prefix in [PACKS, INDEX, STATES] {
            if target.list(prefix)?.is_empty() {
                continue;
            }
            // The head may have been made meanwhile, with the listed objects.
            if let Some(head) = target.get(HEAD)? {
                let keys = Repository::keys_of(&head, passphrase)?;
                return Ok((head, keys));
            }
            return Err(Failure::new(format!(
                "there is a backup without its object head, which has {prefix}: put head back, or \
                 choose another place"
            )));
        }
        let (keys, argon2id) = match passphrase {
            None => (Keys::none(), None),
            Some(passphrase) => {
                let (keys, argon2id) = Keys::new(passphrase)?;
                (keys, Some(argon2id))
            }
        };
        let head = Head { format: FORMAT.to_owned(), version: VERSION, argon2id };
        let head = serde_json::to_vec(&head).map_err(|e| Failure::new(e.to_string()))?;
        if target.put_new(HEAD, &Bytes::from(head.clone()))? {
            return Ok((head, keys));
        }
        // Another backup began at the same moment.
        let head = target.get(HEAD)?.ok_or_else(|| Failure::new("head: gone meanwhile"))?;
        let keys = Repository::keys_of(&head, passphrase)?;
        Ok((head, keys))
    }

    fn keys_of(head: &[u8], passphrase: Option<&Secret<String>>) -> Result<Keys> {
        let head: Option<Head> = serde_json::from_slice(head).ok();
        let head = head.filter(|head| head.format == FORMAT);
        let head = head.ok_or_else(|| Failure::new("head: not that of a backup, or damaged"))?;
        if head.version != VERSION {
            let version = head.version;
            let text = format!("a backup of version {version}: use the cairn that wrote it");
            return Err(Failure::new(text));
        }
        match (head.argon2id, passphrase) {
            (None, None) => Ok(Keys::none()),
            (Some(how), Some(passphrase)) => Keys::find(passphrase, &how),
            (how, _) => Err(unlike(how.is_some())),
        }
    }

    fn load_indexes(&mut self) -> Result<()> {
        let mut names = self.target.list(INDEX)?;
        names.retain(|name| is_id(name, INDEX));
        let loaded = Mutex::new(BTreeMap::new());
        let feed =
            |send: &mut dyn FnMut(String) -> Result<()>| names.into_iter().try_for_each(send);
        pool::run(LOADS, feed, |name: String| {
            let entries = self.load_index(&name)?;
            loaded.lock().insert(name, entries);
            Ok(())
        })?;
        for (name, entries) in loaded.into_inner() {
            self.add(format!("{PACKS}{}", &name[INDEX.len()..]), entries);
        }
        Ok(())
    }

    fn load_index(&self, name: &str) -> Result<Vec<(Item, At)>> {
        let bytes = self.target.get(name)?;
        let bytes = bytes.ok_or_else(|| Failure::new(format!("{name}: gone meanwhile")))?;
        let bad = || Failure::new(format!("{name}: damaged: an entry makes no sense"));
        let mut entries = Vec::new();
        for frame in frames::frames(&self.keys, Sort::Index, name, &bytes)? {
            let (all, rest) = frame.as_chunks::<ENTRY_BYTES>();
            if !rest.is_empty() {
                return Err(bad());
            }
            entries.extend(all.iter().map(decode));
        }
        let entries: Option<Vec<(Item, At)>> = entries.into_iter().collect();
        entries.ok_or_else(bad)
    }

    fn add(&mut self, pack: String, entries: Vec<(Item, At)>) {
        let number = self.packs.len() as u32;
        self.packs.push(pack);
        for (item, at) in entries {
            // For a block, the pack with most of it counts: earlier states may have named fewer
            // bytes.
            let known = self.items.get(&item).map_or(0, |known| known.at.length);
            if at.length > known {
                self.items.insert(item, ItemPlace { pack: number, at });
            }
        }
    }

    /// Returns true if there is an item with a body of at least `bytes` bytes.
    fn has(&self, item: &Item, bytes: usize) -> bool {
        let is_encrypted = self.keys.is_encrypting();
        self.items.get(item).is_some_and(|known| known.at.body_len(is_encrypted) >= bytes)
    }

    /// Returns true if the first `length` bytes of a block are there.
    pub fn has_block(&self, block: BlockId, length: u32) -> bool {
        self.has(&Item::Block(block), OWNER_BYTES + length as usize)
    }

    /// Checks that the lock of the place still holds.
    ///
    /// # Errors
    /// The lock of the place is over, as far as this process knows.
    pub fn check_lock(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), PlaceLock::check)
    }

    /// Returns the states, the oldest first.
    pub fn states(&self) -> Result<Vec<String>> {
        let mut names = self.target.list(STATES)?;
        names.retain(|name| is_id(name, STATES));
        names.sort();
        Ok(names)
    }

    /// Returns the frames of a state.
    pub fn state(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        let bytes = self.target.get(name)?;
        let bytes = bytes.ok_or_else(|| Failure::not_found(format!("{name}: no such state")))?;
        frames::frames(&self.keys, Sort::State, name, &bytes)
    }

    /// Stores a state, which makes it complete.
    pub fn put_state(&self, name: &str, frames: Vec<Vec<u8>>) -> Result<()> {
        let mut writer = Writer::begin(&self.keys, Sort::State, name)?;
        for frame in frames {
            writer.frame(frame)?;
        }
        self.target.put(name, &writer.finish()?.into())?;
        // A process that removes packs ends this lock first, then lists the states: if the lock is
        // still there, it has seen this state.
        let confirmed = self.lock.as_ref().map_or(Ok(()), PlaceLock::confirm);
        if confirmed.is_err() {
            self.target.remove(name)?;
        }
        confirmed
    }

    /// Checks that all that this process knows of is still there: a repair may have run meanwhile.
    pub fn confirm(&self) -> Result<()> {
        if let Some(lock) = &self.lock {
            lock.confirm()?;
        }
        if self.target.get(HEAD)?.as_ref() != Some(&self.head) {
            let text = "head was changed by another backup that began here: run it again";
            return Err(Failure::new(text));
        }
        let listed = |prefix| Ok::<_, Failure>(self.target.list(prefix)?.into_iter().collect());
        let (packs, indexes): (HashSet<String>, HashSet<String>) = (listed(PACKS)?, listed(INDEX)?);
        let is_there = |pack: &String| {
            let id = pack.strip_prefix(PACKS).unwrap_or(pack);
            packs.contains(pack) && indexes.contains(&format!("{INDEX}{id}"))
        };
        match self.packs.iter().find(|pack| !is_there(pack)) {
            None => Ok(()),
            Some(pack) => Err(Failure::new(format!(
                "{pack} is gone or was repaired meanwhile: run the backup again"
            ))),
        }
    }

    pub fn packs(&self) -> u64 {
        self.packs.len() as u64
    }
}

/// Makes an index with these entries.
fn index_of(keys: &Keys, name: &str, entries: &[(Item, At)]) -> Result<Vec<u8>> {
    let mut index = Writer::begin(keys, Sort::Index, name)?;
    for page in entries.chunks(FRAME_ENTRIES) {
        index.frame(page.iter().flat_map(|(item, at)| encode(item, *at)).collect())?;
    }
    index.finish()
}

fn encode(item: &Item, at: At) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    match item {
        Item::Block(block) => {
            entry[0] = 1;
            entry[1..17].copy_from_slice(&block.to_bytes());
        }
        Item::Rows(name) => {
            entry[0] = 2;
            entry[1..33].copy_from_slice(name);
        }
    }
    entry[33..37].copy_from_slice(&at.offset.to_le_bytes());
    entry[37..41].copy_from_slice(&at.length.to_le_bytes());
    entry[41..45].copy_from_slice(&at.number.to_le_bytes());
    entry
}

fn decode(entry: &[u8; ENTRY_BYTES]) -> Option<(Item, At)> {
    let number = |at: usize| entry[at..at + 4].try_into().ok().map(u32::from_le_bytes);
    let item = match entry[0] {
        1 => Item::Block(BlockId::from_bytes(entry[1..17].try_into().ok()?)),
        2 => Item::Rows(entry[1..33].try_into().ok()?),
        _ => return None,
    };
    Some((item, At { offset: number(33)?, length: number(37)?, number: number(41)? }))
}

#[cfg(test)]
mod tests {
    use super::super::target::in_directory;
    use super::*;

    #[test]
    fn entries_read_back() {
        let at = At { offset: 7, length: 1 << 20, number: 3 };
        for item in [Item::Block(BlockId::from_bytes([9; 16])), Item::Rows([7; 32])] {
            assert_eq!(decode(&encode(&item, at)), Some((item, at)));
        }
        assert_eq!(decode(&[0; ENTRY_BYTES]), None);
    }

    /// An earlier state may have named fewer bytes of a block than a later one.
    #[test]
    fn a_block_is_there_as_far_as_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let target = in_directory(directory.path()).unwrap();
        let open = || {
            let access = Access::Change(Purpose::Add, "me", 60);
            Repository::open(Arc::clone(&target), None, access).unwrap()
        };
        let block = BlockId::from_bytes([7; 16]);
        let bytes = |length: usize| vec![length as u8; OWNER_BYTES + length];
        for length in [30, 10, 200] {
            let mut repository = open();
            let mut packer = Packer::new(1 << 20);
            packer.add(&mut repository, Item::Block(block), bytes(length)).unwrap();
            packer.flush(&mut repository).unwrap();
        }
        let repository = open();
        assert_eq!(repository.packs(), 2, "the shorter one was there");
        assert!(repository.has_block(block, 200) && !repository.has_block(block, 201));
        assert_eq!(repository.block(block).unwrap(), bytes(200));
    }
}
