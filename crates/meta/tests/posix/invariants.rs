//! Invariants of the rows after every operation.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, BucketId, Ino, Owner, limits};
use cairn_meta::keys;
use cairn_meta::ops::gc::{DrainProgress, DrainStep};
use cairn_meta::rows::{
    Content, Entry, EntryOrder, Extents, Inode, Kind, OrderStage, Place, Row, Tally, Usage,
    decode_number,
};

use crate::ordered_listings::check_ordered;
use crate::random::World;

/// The number after the first byte of a key.
fn number(key: &Bytes) -> u64 {
    u64::from_be_bytes(key[1..9].try_into().unwrap())
}

/// The rows of a body's chunks by body and chunk.
pub fn chunks(rows: &BTreeMap<Bytes, Bytes>) -> Vec<(Owner, Extents)> {
    let extents = rows.iter().filter(|(key, _)| key[0] == b'e');
    let owner = |key: &Bytes| Owner {
        body: BodyId::from_bytes(key[1..17].try_into().unwrap()),
        chunk: keys::extents_chunk(key).unwrap(),
    };
    extents.map(|(key, row)| (owner(key), Extents::decode(row).unwrap())).collect()
}

impl World {
    pub fn check_invariants(&self) {
        self.check_entries();
        self.check_usage();
        self.check_blocks();
        self.check_references();
    }

    fn inodes(&self) -> BTreeMap<Ino, Inode> {
        let rows = self.store.rows.iter().filter(|(key, _)| key[0] == b'i');
        rows.map(|(key, row)| (Ino(number(key)), Inode::decode(row).unwrap())).collect()
    }

    /// Tallies equal entries, links equal names, attributes equal their count.
    fn check_entries(&self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut tallies: BTreeMap<Ino, (u64, u64)> = BTreeMap::new();
        let mut xattrs: BTreeMap<Ino, u32> = BTreeMap::new();
        let inodes = self.inodes();
        for (key, row) in &self.store.rows {
            match key[0] {
                b'd' => {
                    let (parent, entry) = (Ino(number(key)), Entry::decode(row).unwrap());
                    let directory = entry.kind == Kind::Directory;
                    assert_eq!(key.last() == Some(&b'/'), directory);
                    assert_eq!(inodes[&entry.ino].kind, entry.kind);
                    *names.entry(entry.ino).or_default() += 1;
                    let tally = tallies.entry(parent).or_default();
                    tally.0 += 1;
                    tally.1 += u64::from(directory);
                    assert!(!directory || inodes[&entry.ino].parent == parent);
                }
                b'x' => *xattrs.entry(Ino(number(key))).or_default() += 1,
                _ => {}
            }
        }
        for (ino, inode) in &inodes {
            let tally = self.store.rows.get(&keys::tally(*ino));
            let tally = tally.map(|row| Tally::decode(row).unwrap()).unwrap_or_default();
            let is_complete = |order: &EntryOrder| order.stage == OrderStage::Complete;
            if tally.order.as_ref().is_some_and(is_complete) {
                check_ordered(&self.store, *ino);
            }
            let counted = tallies.remove(ino).unwrap_or_default();
            assert_eq!((tally.entries, tally.directories), counted, "tally of {ino}");
            assert!(!inode.implicit || tally.entries > 0, "{ino} is implicit and empty");
            if *ino != Ino::ROOT {
                assert_eq!(names.get(ino), Some(&inode.nlink), "names of {ino}");
            }
            assert_eq!(xattrs.remove(ino).unwrap_or(0), inode.xattr_count);
        }
        assert!(tallies.is_empty() && xattrs.is_empty(), "rows of inodes that are gone");
    }

    fn check_usage(&self) {
        let mut sums: BTreeMap<BucketId, (u64, u64)> = BTreeMap::new();
        for inode in self.inodes().values().filter(|inode| !inode.is_directory()) {
            let sum = sums.entry(inode.bucket).or_default();
            sum.0 += 1;
            sum.1 += inode.size;
        }
        for (key, row) in self.store.rows.iter().filter(|(key, _)| key[0] == b'n') {
            let usage = Usage::decode(row).unwrap();
            let sum = sums.remove(&BucketId(number(key))).unwrap_or_default();
            assert_eq!((usage.objects, usage.bytes), sum);
        }
        assert!(sums.is_empty());
    }

    /// A published block is named by the row of the chunk it was written for, or freed.
    fn check_blocks(&self) {
        let mut named: BTreeSet<BlockId> = BTreeSet::new();
        for (owner, row) in chunks(&self.store.rows) {
            let start = u64::from(owner.chunk) * limits::CHUNK_BYTES;
            let reach = start + limits::CHUNK_BYTES + limits::BLOCK_BYTES as u64;
            for extent in &row.extents {
                assert!(start <= extent.offset && extent.end() <= reach);
                if let Place::Block { block, .. } = extent.place {
                    assert_eq!(self.blocks[&block].owner, owner, "owner of {block}");
                    named.insert(block);
                }
            }
        }
        for key in self.store.rows.keys().filter(|key| key[0] == b'f') {
            let (_, block) = keys::freed_parts(key).unwrap();
            assert!(named.insert(block), "{block} is freed and named, or freed twice");
        }
        let published: BTreeSet<BlockId> = self.blocks.keys().copied().collect();
        assert_eq!(named, published, "blocks named or freed, and published");
    }

    /// References are counted; bodies without any are up for draining.
    fn check_references(&self) {
        let mut counts: BTreeMap<BodyId, u64> = BTreeMap::new();
        for inode in self.inodes().values() {
            if let Content::Body(body) = inode.content {
                *counts.entry(body).or_default() += 1;
            }
        }
        let chunks = chunks(&self.store.rows);
        for extent in chunks.iter().flat_map(|(_, row)| &row.extents) {
            if let Place::Body { body, .. } = extent.place {
                *counts.entry(body).or_default() += 1;
            }
        }
        for (owner, _) in &chunks {
            counts.entry(owner.body).or_default();
        }
        let mut rows = self.store.rows.keys().filter(|key| key[0] == b'r').count();
        for (body, count) in counts {
            let row = self.store.rows.get(&keys::references(body));
            rows -= usize::from(row.is_some());
            let counted = row.map_or(1, |row| decode_number(row).unwrap());
            let drains = self.store.rows.contains_key(&keys::drain_body(body));
            assert_eq!(drains, count == 0, "{body} with {count} references");
            assert!(drains || counted == count, "{body} has {count}, counted {counted}");
        }
        assert_eq!(rows, 0, "counts of bodies that are gone");
    }

    /// Removes all there is, drains, and sees that nothing is left but freed blocks.
    pub fn drain(&mut self) {
        loop {
            let key = self.store.rows.keys().find(|key| key[0] == b'z').cloned();
            let Some(key) = key else { break };
            let step = self.store.run(DrainStep { key, after: 0 }).unwrap();
            assert_ne!(step, DrainProgress::NotYet);
            self.check_references();
        }
        self.check_invariants();
        let bodies: BTreeSet<BodyId> =
            chunks(&self.store.rows).iter().map(|(owner, _)| owner.body).collect();
        let files = self.inodes().into_values().map(|inode| inode.content);
        let held = files.filter(|content| matches!(content, Content::Body(_))).count();
        assert!(held > 0 || bodies.is_empty());
    }
}
