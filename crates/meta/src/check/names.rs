//! Finds the objects that a damaged inode or piece of a body belongs to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use cairn_base::{BodyId, BucketId, Ino, Result};

use super::report::{About, Finding};
use super::tables::{Table, number, only_number};
use super::{Chunk, each_chunk};
use crate::engine::Snapshot;
use crate::keys;
use crate::rows::{Content, Entry, Extent, Inode, Kind, Part, Place, Row};

/// Most bodies between an object and its blocks.
const DEPTH: usize = 8;

/// A run of bytes of a body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Piece {
    pub body: BodyId,
    pub start: u64,
    pub end: u64,
}

/// Limit of the items that are collected in each step of naming. Further ones are left out.
#[derive(Debug)]
pub struct Bound {
    most: usize,
    left: usize,
    is_cut: bool,
}

impl Bound {
    pub fn new(most: usize) -> Bound {
        Bound { most, left: most, is_cut: false }
    }

    pub fn none() -> Bound {
        Bound::new(usize::MAX)
    }

    /// Returns whether something was left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Begins the next step.
    pub(super) fn renew(&mut self) {
        self.left = self.most;
    }

    /// Takes one item of the limit. Returns whether there was one left.
    pub(super) fn take(&mut self) -> bool {
        self.is_cut |= self.left == 0;
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Returns the names `bucket/key` of inodes: all names of a file, and the name of a directory with
/// a slash at the end. An inode without a name is left out; each other inode keeps at least one
/// name.
///
/// # Errors
/// Those of the snapshot.
pub fn name_inodes(
    snapshot: &dyn Snapshot,
    inodes: &BTreeSet<Ino>,
    bound: &mut Bound,
) -> Result<BTreeMap<Ino, Vec<String>>> {
    bound.renew();
    let mut found = find_entries(snapshot, &|entry| inodes.contains(&entry.ino), bound)?;
    let above = directories_above(snapshot, inodes, &found)?;
    let is_above = |entry: &Entry| entry.kind == Kind::Directory && above.contains(&entry.ino);
    found.extend(find_entries(snapshot, &is_above, bound)?);
    let mut named = BTreeMap::new();
    for ino in inodes {
        let places = found.get(ino).into_iter().flatten();
        let names: Vec<String> = places.filter_map(|place| path(&found, place)).collect();
        if !names.is_empty() {
            named.insert(*ino, names);
        }
    }
    Ok(named)
}

/// Returns each finding's subject, by its name if it has one for users, and its text.
///
/// # Errors
/// Those of the snapshot.
pub fn name_findings(
    snapshot: &dyn Snapshot,
    findings: Vec<Finding>,
    bound: &mut Bound,
) -> Result<Vec<(String, String)>> {
    let inode = |finding: &Finding| match finding.about {
        About::Inode(ino) => Some(ino),
        _ => None,
    };
    let inodes: BTreeSet<Ino> = findings.iter().filter_map(inode).collect();
    let names =
        if inodes.is_empty() { BTreeMap::new() } else { name_inodes(snapshot, &inodes, bound)? };
    let named = findings.into_iter().map(|finding| {
        let names = inode(&finding).and_then(|ino| names.get(&ino));
        let about = names.map_or_else(|| finding.about.to_string(), |names| names.join(", "));
        (about, finding.what)
    });
    Ok(named.collect())
}

/// Entries of inodes: directory and name; the name of a directory has its slash.
type Entries = HashMap<Ino, Vec<(Ino, String)>>;

fn find_entries(
    snapshot: &dyn Snapshot,
    wanted: &dyn Fn(&Entry) -> bool,
    bound: &mut Bound,
) -> Result<Entries> {
    let mut found = Entries::new();
    for row in Table::of(snapshot, b'd') {
        let (key, row) = row?;
        if let (Some(parent), Ok(entry)) = (number(&key), Entry::decode(&row))
            && wanted(&entry)
        {
            let places = found.entry(entry.ino).or_default();
            if places.is_empty() || bound.take() {
                let name = String::from_utf8_lossy(&keys::entry_name(&key)).into_owned();
                places.push((Ino(parent), name));
            }
        }
    }
    Ok(found)
}

/// Returns all directories on the ways from the root to the inodes found.
fn directories_above(
    snapshot: &dyn Snapshot,
    inodes: &BTreeSet<Ino>,
    found: &Entries,
) -> Result<HashSet<Ino>> {
    let mut above = HashSet::new();
    let mut todo: Vec<Ino> = found.values().flatten().map(|(parent, _)| *parent).collect();
    while let Some(ino) = todo.pop() {
        if ino == Ino::ROOT || inodes.contains(&ino) || !above.insert(ino) {
            continue;
        }
        let row = snapshot.get(&[keys::inode(ino)])?.pop().flatten();
        if let Some(Ok(inode)) = row.as_ref().map(Inode::decode) {
            todo.push(inode.parent);
        }
    }
    Ok(above)
}

fn path(found: &Entries, (parent, name): &(Ino, String)) -> Option<String> {
    let mut path = name.clone();
    let mut above = *parent;
    for _ in 0..10_000 {
        if above == Ino::ROOT {
            return Some(path);
        }
        let (next, name) = found.get(&above)?.first()?;
        path.insert_str(0, name);
        above = *next;
    }
    None
}

/// The files and uploads that are affected when pieces of bodies are damaged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hit {
    pub inodes: BTreeSet<Ino>,
    /// Uploads in progress, by bucket, key and part.
    pub parts: Vec<(BucketId, String, u32)>,
}

/// Returns, for each piece, the files and uploads that hold it, directly or through other bodies.
/// Each piece keeps at least one of those found.
///
/// # Errors
/// Those of the snapshot.
pub fn name_pieces(
    snapshot: &dyn Snapshot,
    pieces: &[Piece],
    bound: &mut Bound,
) -> Result<Vec<Hit>> {
    let mut holders = Holders::default();
    for (at, piece) in pieces.iter().enumerate() {
        holders.add(*piece, at, &mut Bound::none());
    }
    bound.renew();
    for _ in 0..DEPTH {
        if !holders.go_up(snapshot, bound)? {
            break;
        }
    }
    bound.renew();
    let mut hits = vec![Hit::default(); pieces.len()];
    for row in Table::of(snapshot, b'i') {
        let (key, row) = row?;
        let (Some(ino), Ok(inode)) = (only_number(&key), Inode::decode(&row)) else { continue };
        if let Content::Body(body) = inode.content {
            for at in holders.of(body, inode.size) {
                if hits[at] == Hit::default() || bound.take() {
                    hits[at].inodes.insert(Ino(ino));
                }
            }
        }
    }
    find_parts(snapshot, &holders, &mut hits, bound)?;
    Ok(hits)
}

/// Pieces by body, each with the index of the damaged piece that it holds.
#[derive(Default)]
struct Holders(HashMap<BodyId, BTreeSet<(u64, u64, usize)>>);

impl Holders {
    /// Adds a piece. Returns `false` if it was known, or exceeds the limit.
    fn add(&mut self, piece: Piece, at: usize, bound: &mut Bound) -> bool {
        let (new, known) = ((piece.start, piece.end, at), self.0.get(&piece.body));
        let may = !known.is_some_and(|known| known.contains(&new)) && bound.take();
        may && self.0.entry(piece.body).or_default().insert(new)
    }

    /// Returns the damaged pieces that a file of `size` bytes with this body holds.
    fn of(&self, body: BodyId, size: u64) -> Vec<usize> {
        let pieces = self.0.get(&body).into_iter().flatten();
        pieces.filter(|(start, ..)| *start < size).map(|(.., at)| *at).collect()
    }

    /// Adds the bodies that refer to the known pieces. Returns `false` if there was nothing new.
    fn go_up(&mut self, snapshot: &dyn Snapshot, bound: &mut Bound) -> Result<bool> {
        let mut is_new = false;
        each_chunk(snapshot, &mut |Chunk { body, extents, .. }| {
            for extent in &extents.extents {
                for (piece, at) in self.through(body, extent) {
                    is_new |= self.add(piece, at, bound);
                }
            }
            Ok(())
        })?;
        Ok(is_new)
    }

    /// Returns the pieces of `body` that are known pieces of the body which `extent` refers to.
    fn through(&self, body: BodyId, extent: &Extent) -> Vec<(Piece, usize)> {
        let Place::Body { body: other, offset } = extent.place else { return Vec::new() };
        let known = self.0.get(&other).into_iter().flatten();
        let meets = known.filter_map(|&(start, end, at)| {
            let from = start.max(offset);
            let to = end.min(offset.saturating_add(extent.len));
            let shift = |at: u64| at - offset + extent.offset;
            (from < to).then(|| (Piece { body, start: shift(from), end: shift(to) }, at))
        });
        meets.collect()
    }
}

fn find_parts(
    snapshot: &dyn Snapshot,
    holders: &Holders,
    hits: &mut [Hit],
    bound: &mut Bound,
) -> Result<()> {
    let mut uploads = HashMap::new();
    for row in Table::of(snapshot, b'u') {
        let key = row?.0;
        if let (Some(bucket), Some((object, upload))) = (number(&key), keys::upload_parts(&key)) {
            let object = String::from_utf8_lossy(&object).into_owned();
            uploads.insert(upload.0, (BucketId(bucket), object));
        }
    }
    if uploads.is_empty() {
        return Ok(());
    }
    for row in Table::of(snapshot, b'p') {
        let (key, row) = row?;
        let (Some(upload), Ok(part)) = (number(&key), Part::decode(&row)) else { continue };
        let (Content::Body(body), Some(found)) = (part.content, uploads.get(&upload)) else {
            continue;
        };
        for at in holders.of(body, u64::MAX) {
            let number = keys::part_number(&key).unwrap_or(0);
            if hits[at] == Hit::default() || bound.take() {
                hits[at].parts.push((found.0, found.1.clone(), number));
            }
        }
    }
    Ok(())
}
