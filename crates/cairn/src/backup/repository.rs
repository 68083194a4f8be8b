//! A backup at its target: the head, packs of blocks and rows, and the states that need them.
//!
//! ```text
//!   head            what it is, and how its key is made of a passphrase
//!   packs/ID        frames: blocks, and lists of rows
//!   index/ID        which are in that pack: written when the pack is there
//!   states/ID       one state of a store: written last
//! ```

use std::collections::{HashMap, HashSet};

use cairn_base::{BlockId, Secret};
use serde::{Deserialize, Serialize};

use super::frames::{self, At, BODY_BYTES, HEADER_BYTES, Reader, Sort, Writer};
use super::seal::{Argon2id, Keys, hex, random};
use super::target::Target;
use crate::failure::{Failure, Result};

const HEAD: &str = "head";
const FORMAT: &str = "cairn backup";
const VERSION: u32 = 1;
const PACKS: &str = "packs/";
const INDEX: &str = "index/";
pub const STATES: &str = "states/";
/// Bytes of an entry of an index, and entries of a frame of one.
const ENTRY_BYTES: usize = 49;
const FRAME_ENTRIES: usize = 10_000;

/// The content of a frame of a pack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Item {
    Block(BlockId),
    /// Rows, by the name of their bytes.
    Rows([u8; 32]),
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<Argon2id>,
}

/// Where an item is.
#[derive(Clone, Copy, Debug)]
struct Located {
    /// Its place in the list of packs.
    pack: u32,
    at: At,
}

pub struct Repository {
    target: Box<dyn Target>,
    pub keys: Keys,
    packs: Vec<String>,
    items: HashMap<Item, Located>,
}

/// The names of an object, below `prefix`.
fn is_id(name: &str, prefix: &str) -> bool {
    let id = name.strip_prefix(prefix).unwrap_or_default();
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn unlike(is_encrypted: bool) -> Failure {
    Failure::usage(match is_encrypted {
        true => "the backup is encrypted: name the file of its passphrase by --passphrase-file",
        false => {
            "the backup is not encrypted: leave out --passphrase-file, or choose another place"
        }
    })
}

impl Repository {
    /// Opens what is there, or, if it `may_create`, begins.
    pub fn open(
        target: Box<dyn Target>,
        passphrase: Option<&Secret<String>>,
        may_create: bool,
    ) -> Result<Repository> {
        let keys = match (target.get(HEAD)?, passphrase) {
            (Some(head), passphrase) => Repository::keys_of(&head, passphrase)?,
            (None, _) if !may_create => {
                return Err(Failure::new("there is no backup: its object head is missing"));
            }
            (None, passphrase) => {
                // A new head would make what is there unreadable.
                for prefix in [PACKS, INDEX, STATES] {
                    if !target.list(prefix)?.is_empty() {
                        return Err(Failure::new(format!(
                            "there is a backup without its object head, which has {prefix}: put \
                             head back, or choose another place"
                        )));
                    }
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
                target.put(HEAD, head)?;
                keys
            }
        };
        let (packs, items) = (Vec::new(), HashMap::new());
        let mut repository = Repository { target, keys, packs, items };
        repository.load_indexes()?;
        Ok(repository)
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
        names.sort();
        for name in names {
            let bytes = self.target.get(&name)?;
            let bytes = bytes.ok_or_else(|| Failure::new(format!("{name}: gone meanwhile")))?;
            let pack = format!("{PACKS}{}", &name[INDEX.len()..]);
            let bad = || Failure::new(format!("{name}: damaged: an entry makes no sense"));
            let mut entries = Vec::new();
            for frame in frames::frames(&self.keys, Sort::Index, &name, &bytes)? {
                let (all, rest) = frame.as_chunks::<ENTRY_BYTES>();
                if !rest.is_empty() {
                    return Err(bad());
                }
                entries.extend(all.iter().map(decode));
            }
            let entries: Option<Vec<(Item, At)>> = entries.into_iter().collect();
            self.add(pack, entries.ok_or_else(bad)?);
        }
        Ok(())
    }

    fn add(&mut self, pack: String, entries: Vec<(Item, At)>) {
        let number = self.packs.len() as u32;
        self.packs.push(pack);
        self.items
            .extend(entries.into_iter().map(|(item, at)| (item, Located { pack: number, at })));
    }

    pub fn has(&self, item: &Item) -> bool {
        self.items.contains_key(item)
    }

    /// The states, the oldest first.
    pub fn states(&self) -> Result<Vec<String>> {
        let mut names = self.target.list(STATES)?;
        names.retain(|name| is_id(name, STATES));
        names.sort();
        Ok(names)
    }

    /// The frames of a state.
    pub fn state(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        let bytes = self.target.get(name)?;
        let bytes = bytes.ok_or_else(|| Failure::not_found(format!("{name}: no such state")))?;
        frames::frames(&self.keys, Sort::State, name, &bytes)
    }

    pub fn put_state(&self, name: &str, frames: Vec<Vec<u8>>) -> Result<()> {
        let mut writer = Writer::begin(&self.keys, Sort::State, name)?;
        for frame in frames {
            writer.frame(frame)?;
        }
        self.target.put(name, writer.finish()?)
    }

    /// Calls `visit` with each of these items and its bytes, pack by pack: each pack is read once.
    ///
    /// # Errors
    /// The first item that is missing or damaged, and the pack that it was in; those of `visit`.
    pub fn each(
        &self,
        items: impl Iterator<Item = Item>,
        visit: &mut dyn FnMut(Item, Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut wanted: Vec<(u32, u32, Item, At)> = Vec::new();
        for item in items {
            let found = self.items.get(&item);
            let found =
                found.ok_or_else(|| Failure::new(format!("{item:?}: not in the backup")))?;
            wanted.push((found.pack, found.at.number, item, found.at));
        }
        wanted.sort_unstable_by_key(|(pack, number, ..)| (*pack, *number));
        for of_pack in wanted.chunk_by(|one, other| one.0 == other.0) {
            let name = &self.packs[of_pack[0].0 as usize];
            let bytes = self.target.get(name)?;
            let bytes = bytes.ok_or_else(|| Failure::new(format!("{name}: missing")))?;
            let reader = Reader::open(&self.keys, Sort::Pack, name, &bytes)?;
            for (_, _, item, at) in of_pack {
                visit(*item, reader.frame(name, &bytes, *at)?)?;
            }
        }
        Ok(())
    }

    /// Which packs are missing, or have an item that is damaged.
    pub fn damaged_packs(&self, progress: &mut dyn FnMut()) -> Result<Vec<(String, String)>> {
        let of_packs = self.items_of_packs();
        let mut damaged = Vec::new();
        for (name, items) in self.packs.iter().zip(&of_packs) {
            let read = match self.target.get(name)? {
                None => Err(Failure::new(format!("{name}: missing"))),
                Some(bytes) => {
                    Reader::open(&self.keys, Sort::Pack, name, &bytes).and_then(|read| {
                        items.iter().try_for_each(|(_, at)| read.frame(name, &bytes, *at).map(drop))
                    })
                }
            };
            damaged.extend(read.err().map(|failure| (name.clone(), failure.to_string())));
            progress();
        }
        Ok(damaged)
    }

    fn items_of_packs(&self) -> Vec<Vec<(Item, At)>> {
        let mut of_packs = vec![Vec::new(); self.packs.len()];
        for (item, located) in &self.items {
            if let Some(items) = of_packs.get_mut(located.pack as usize) {
                items.push((*item, located.at));
            }
        }
        of_packs
    }

    /// Forgets the missing and damaged items of a pack, so that the next backup writes them again.
    /// All other items stay: an older state may need blocks that the store no longer has.
    pub fn forget_damaged(&self, pack: &str) -> Result<()> {
        let at = self.packs.iter().position(|name| name == pack);
        let items = at.and_then(|at| self.items_of_packs().into_iter().nth(at));
        let mut good = items.unwrap_or_default();
        match self.target.get(pack)? {
            None => good.clear(),
            // A pack that this program cannot open is left as it is: another version may read it.
            Some(bytes) => {
                let reader = Reader::open(&self.keys, Sort::Pack, pack, &bytes)?;
                good.retain(|(_, at)| reader.frame(pack, &bytes, *at).is_ok());
            }
        }
        let index = format!("{INDEX}{}", pack.strip_prefix(PACKS).unwrap_or(pack));
        match good.is_empty() {
            true => self.target.remove(&index),
            false => self.target.put(&index, index_of(&self.keys, &index, &good)?),
        }
    }

    /// Whether all that this process knows of is still there: a repair may have run meanwhile.
    pub fn confirm(&self) -> Result<()> {
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

/// An index with these entries.
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

/// Fills packs, and puts each to the target as it is full.
pub struct Packer {
    most_bytes: usize,
    name: String,
    pack: Option<Writer>,
    entries: Vec<(Item, At)>,
    /// The items of these.
    known: HashSet<Item>,
    /// Bytes of the objects that were put.
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
        if repository.has(&item) || self.known.contains(&item) {
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
        match is_full {
            true => self.flush(repository),
            false => Ok(()),
        }
    }

    /// Puts the pack and its index, if there is something in it.
    pub fn flush(&mut self, repository: &mut Repository) -> Result<()> {
        let Some(pack) = self.pack.take() else { return Ok(()) };
        let entries = std::mem::take(&mut self.entries);
        self.known.clear();
        let (pack_name, index_name) =
            (format!("{PACKS}{}", self.name), format!("{INDEX}{}", self.name));
        let index = index_of(&repository.keys, &index_name, &entries)?;
        let pack = pack.finish()?;
        self.bytes += (pack.len() + index.len()) as u64;
        repository.target.put(&pack_name, pack)?;
        repository.target.put(&index_name, index)?;
        repository.add(pack_name, entries);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        let at = At { offset: 7, length: 1 << 20, number: 3 };
        for item in [Item::Block(BlockId::from_bytes([9; 16])), Item::Rows([7; 32])] {
            assert_eq!(decode(&encode(&item, at)), Some((item, at)));
        }
        assert_eq!(decode(&[0; ENTRY_BYTES]), None);
    }
}
