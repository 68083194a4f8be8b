//! Inodes, entries, tallies and attributes.

use std::collections::HashSet;

use bytes::Bytes;
use cairn_base::{BodyId, Ino, Result, SHARD_BITS, SessionId};

use super::facts::{BodyFacts, InodeFacts};
use super::report::{About, Report};
use super::tables::{Checker, number, only_number};
use crate::keys;
use crate::order::hash_of;
use crate::rows::{Content, Entry, EntryOrder, Inode, Kind, Locks, OrderStage, Row, Tally};

pub fn read(checker: &mut Checker<'_>) -> Result<()> {
    checker.each_row(b'i', |key| only_number(key).map(Ino), read_inode)?;
    checker.each_row(b't', |key| only_number(key).map(Ino), read_tally)?;
    checker.each_row(b'd', parse_entry, |checker, (parent, name), entry: Entry| {
        read_entry(checker, parent, name, entry);
    })?;
    checker.each_row(
        b'H',
        keys::ordered_parts,
        |checker, (parent, hash, name), entry: Entry| {
            read_ordered(checker, parent, hash, &name, &entry);
        },
    )?;
    checker.each(b'l', lock_key, |row| Ok(row.clone()), read_locks)?;
    let retained = |key: &Bytes| keys::retained_parts(key);
    checker.each(
        b'o',
        retained,
        |_| Ok(()),
        |checker, (session, ino), ()| {
            read_retained(checker, session, ino);
        },
    )?;
    checker.each(
        b'x',
        parse_attribute,
        |_| Ok(()),
        |checker, (ino, kind), ()| {
            read_attribute(checker, ino, kind);
        },
    )
}

fn read_inode(checker: &mut Checker<'_>, ino: Ino, inode: Inode) {
    let portion = checker.portion;
    let facts = &mut checker.facts;
    facts.highest_ino = facts.highest_ino.max(ino.0);
    let tags = inode.object.as_ref().map_or(0, |object| object.tag_count);
    let known = InodeFacts {
        kind: inode.kind,
        implicit: inode.implicit,
        bucket: inode.bucket,
        parent: inode.parent,
        nlink: inode.nlink,
        names: 0,
        xattrs: inode.xattr_count,
        tags,
        xattrs_found: 0,
        tags_found: 0,
    };
    if portion.has_inode(ino) {
        facts.inodes.insert(ino, known);
    }
    if inode.is_directory() {
        facts.tree.insert(ino, (inode.parent, inode.bucket));
        if portion.has_inode(ino) {
            facts.directories.entry(ino).or_default();
        }
        checker.report.directories += 1;
        return;
    }
    checker.report.files += 1;
    let bucket = facts.buckets.entry(inode.bucket).or_default();
    bucket.objects += 1;
    bucket.bytes = bucket.bytes.saturating_add(inode.size);
    if let Some(object) = &inode.object
        && let Some(upload) = object.part_table
        && portion.has_upload(upload)
    {
        let table = facts.uploads.entry(upload).or_default();
        if let Some((other, _)) = table.table_of.replace((ino, object.part_count)) {
            let what = format!("shares the part table {upload} with inode {other}");
            checker.report.add(About::Inode(ino), what);
        }
    }
    read_content(checker, ino, &inode);
}

fn read_content(checker: &mut Checker<'_>, ino: Ino, inode: &Inode) {
    // An ETag is kept only while the bytes are those of one PUT, which leaves no hole.
    let is_whole = inode.object.as_ref().is_some_and(|object| !object.etag.is_empty());
    let bytes = match &inode.content {
        Content::Body(body) if !checker.portion.has_body(*body) => return,
        Content::Body(body) => {
            let facts = checker.facts.bodies.entry(*body).or_default();
            refer(facts, ino, inode.size);
            if is_whole {
                facts.whole = facts.whole.max(inode.size);
            }
            return;
        }
        Content::Inline(bytes) => bytes.len() as u64,
        Content::Empty => 0,
    };
    let is_odd = bytes > inode.size || is_whole && bytes < inode.size;
    if is_odd && checker.portion.has_inode(ino) {
        let what = format!("size is {}, yet {bytes} bytes are inline", inode.size);
        checker.report.add(About::Inode(ino), what);
    }
}

fn refer(facts: &mut BodyFacts, ino: Ino, size: u64) {
    facts.direct += 1;
    facts.file = Some(ino);
    facts.longest = facts.longest.max(size);
}

fn read_tally(checker: &mut Checker<'_>, ino: Ino, tally: Tally) {
    if !checker.portion.has_inode(ino) {
        return;
    }
    let Some(directory) = checker.facts.directories.get_mut(&ino) else {
        checker.report.add(About::Inode(ino), "has a tally, but is no directory");
        return;
    };
    directory.tally_entries = tally.entries;
    directory.tally_directories = tally.directories;
    let is_complete = |order: &EntryOrder| {
        order.stage == OrderStage::Complete && Some(order.since) == checker.ordered_since
    };
    directory.ordered =
        tally.order.as_ref().filter(|order| is_complete(order)).map(|_| Default::default());
}

/// Returns a number for an entry; the sum of those of several entries tells them from others.
fn number_of(name: &[u8], entry: &Entry) -> u64 {
    let number = entry.ino.0.rotate_left(8) ^ entry.kind.number();
    (hash_of(name) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Reads an ordered entry. Those of a directory that is not ordered, or not any more, are left
/// behind, and nobody reads them.
fn read_ordered(checker: &mut Checker<'_>, parent: Ino, hash: u64, name: &[u8], entry: &Entry) {
    let Some(directory) = checker.facts.directories.get_mut(&parent) else { return };
    let Some(sums) = &mut directory.ordered else { return };
    sums.ordered = sums.ordered.wrapping_add(number_of(name, entry));
    if hash != hash_of(name) {
        let what = format!("ordered entry {:?} is in a wrong place", String::from_utf8_lossy(name));
        checker.report.add(About::Inode(parent), what);
    }
}

/// Parses the key of an entry: the directory, and the name with the slash of a directory's entry.
fn parse_entry(key: &Bytes) -> Option<(Ino, Bytes)> {
    Some((Ino(number(key)?), keys::entry_name(key)))
}

fn read_entry(checker: &mut Checker<'_>, parent: Ino, name: Bytes, entry: Entry) {
    let is_directory = entry.kind == Kind::Directory;
    let what = |text: &str| format!("entry {:?} {text}", String::from_utf8_lossy(&name));
    let portion = checker.portion;
    let Checker { facts, report, .. } = checker;
    if portion.has_inode(parent) {
        match facts.directories.get_mut(&parent) {
            Some(directory) => {
                directory.entries += 1;
                if let Some(sums) = &mut directory.ordered {
                    sums.entries = sums.entries.wrapping_add(number_of(&name, &entry));
                }
                directory.directories += u64::from(is_directory);
            }
            None => report.add(About::Inode(parent), what("is in it, but it is no directory")),
        }
        if name.ends_with(b"/") != is_directory {
            report.add(About::Inode(parent), what("has a key of another kind"));
        }
    }
    if parent == Ino::ROOT && portion.is_first() && facts.tree.contains_key(&entry.ino) {
        super::buckets::read_entry(facts, report, &name, &entry);
    }
    if !portion.has_inode(entry.ino) {
        return;
    }
    let bucket = facts.tree.get(&parent).map(|(_, bucket)| *bucket);
    let Some(inode) = facts.inodes.get_mut(&entry.ino) else {
        let text = format!("leads to inode {}, which does not exist", entry.ino);
        return report.add(About::Inode(parent), what(&text));
    };
    inode.names += 1;
    if inode.kind != entry.kind {
        let text = format!("says {:?}, inode {} is {:?}", entry.kind, entry.ino, inode.kind);
        report.add(About::Inode(parent), what(&text));
    }
    if parent != Ino::ROOT && bucket.is_some_and(|bucket| bucket != inode.bucket) {
        let text = format!("leads to inode {} of another bucket", entry.ino);
        report.add(About::Inode(parent), what(&text));
    }
    if let Some(directory) = facts.directories.get_mut(&entry.ino) {
        directory.found_in = Some(parent);
    }
}

/// Returns the key if it belongs to the locks of a file or of a session.
fn lock_key(key: &Bytes) -> Option<Bytes> {
    let known = keys::locks_of(key).is_some() || keys::locked_parts(key).is_some();
    known.then(|| key.clone())
}

/// Reads the locks of a file, which may be gone while it is locked.
fn read_locks(checker: &mut Checker<'_>, key: Bytes, row: Bytes) {
    if keys::locks_of(&key).is_some()
        && let Err(error) = Locks::decode(&row)
    {
        checker.add_once(About::Row(key), error.to_string());
    }
}

fn read_retained(checker: &mut Checker<'_>, session: SessionId, ino: Ino) {
    if !checker.portion.has_inode(ino) {
        return;
    }
    let Checker { facts, report, .. } = checker;
    match facts.inodes.get_mut(&ino) {
        Some(inode) => inode.names += 1,
        None => report.add(About::Inode(ino), format!("retained by {session}, does not exist")),
    }
}

/// Parses the key of an attribute: the inode, and the byte for the kind of the attribute.
fn parse_attribute(key: &Bytes) -> Option<(Ino, u8)> {
    Some((Ino(number(key)?), *key.get(9)?))
}

fn read_attribute(checker: &mut Checker<'_>, ino: Ino, kind: u8) {
    if !checker.portion.has_inode(ino) {
        return;
    }
    let Some(inode) = checker.facts.inodes.get_mut(&ino) else {
        checker.report.add(About::Inode(ino), "has attributes, but does not exist");
        return;
    };
    match kind {
        b'u' => inode.xattrs_found += 1,
        b't' => inode.tags_found += 1,
        other => {
            let what = format!("has an attribute of the unknown kind {other}");
            checker.report.add(About::Inode(ino), what);
        }
    }
}

/// Returns a file that has `body`, or the body itself.
pub fn owner(facts: &BodyFacts, body: BodyId) -> About {
    facts.file.map_or(About::Body(body), About::Inode)
}

pub fn check(checker: &mut Checker<'_>) {
    if !checker.facts.tree.contains_key(&Ino::ROOT) {
        checker.add_once(About::Store, "has no root directory");
    }
    let Checker { facts, report, .. } = checker;
    for (ino, inode) in &facts.inodes {
        check_inode(report, *ino, inode);
    }
    for (ino, directory) in &facts.directories {
        let Some(inode) = facts.inodes.get(ino) else { continue };
        let tally = (directory.tally_entries, directory.tally_directories);
        let found = (directory.entries, directory.directories);
        if tally != found {
            let what = format!("its tally is {tally:?} entries and directories, found {found:?}");
            report.add(About::Inode(*ino), what);
        }
        if directory.ordered.as_ref().is_some_and(|sums| sums.entries != sums.ordered) {
            let what = "its ordered entries, by which clients of NFS list it, are not its entries";
            report.add(About::Inode(*ino), what);
        }
        if inode.implicit && directory.entries == 0 {
            report.add(About::Inode(*ino), "is an implicit directory without entries");
        }
        if *ino != Ino::ROOT && directory.found_in.is_some_and(|found| found != inode.parent) {
            let found = directory.found_in.unwrap_or_default();
            let what = format!("its parent is inode {}, its entry is in {found}", inode.parent);
            report.add(About::Inode(*ino), what);
        }
    }
    if checker.portion.is_first() {
        check_reachable(checker);
    }
}

fn check_inode(report: &mut Report, ino: Ino, inode: &InodeFacts) {
    let about = About::Inode(ino);
    if ino.0 >> (u64::BITS - SHARD_BITS) != 0 {
        report.add(about.clone(), "its number is kept for another shard of the metadata");
    }
    // The root has no entry. A session that has a file open counts as a name.
    let names = if ino == Ino::ROOT { 1 } else { inode.names };
    if names != inode.nlink {
        let what = format!("counts {} names, found {}", inode.nlink, inode.names);
        report.add(about.clone(), what);
    }
    if inode.xattrs != inode.xattrs_found {
        let what = format!("counts {} attributes, found {}", inode.xattrs, inode.xattrs_found);
        report.add(about.clone(), what);
    }
    if inode.tags != inode.tags_found {
        let what = format!("counts {} tags, found {}", inode.tags, inode.tags_found);
        report.add(about, what);
    }
}

/// Checks that every directory leads up to the root: none is cut off in a circle.
fn check_reachable(checker: &mut Checker<'_>) {
    let facts = &checker.facts;
    let mut reached: HashSet<Ino> = HashSet::from([Ino::ROOT]);
    let mut lost: HashSet<Ino> = HashSet::new();
    for ino in facts.tree.keys() {
        let mut path = Vec::new();
        let mut above = *ino;
        let found = loop {
            if reached.contains(&above) {
                break true;
            }
            if lost.contains(&above) || path.contains(&above) {
                break false;
            }
            path.push(above);
            match facts.tree.get(&above) {
                Some((parent, _)) => above = *parent,
                None => break false,
            }
        };
        if found {
            reached.extend(path);
        } else {
            lost.extend(path);
        }
    }
    for ino in lost {
        checker.report.add(About::Inode(ino), "is a directory that no path leads to");
    }
}
