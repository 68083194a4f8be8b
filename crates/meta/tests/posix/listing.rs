//! Reading directories.

use bytes::Bytes;
use cairn_auth::{Action, ActionSet};
use cairn_base::{BucketId, Error, Ino};
use cairn_meta::ops::namespace::{
    add_inode, load_inode, new_inode, open_bucket_of, walk, walk_or_make,
};
use cairn_meta::ops::readdir::{ListedEntry, Readdir};
use cairn_meta::ops::rmdir::Rmdir;
use cairn_meta::ops::unlink::Unlink;
use cairn_meta::rows::{BucketKind, Kind};
use cairn_meta::{Context, Needs, Stop, Verb, VerbNeeds, View};

use crate::harness::Store;

/// Puts an empty object as S3 does, with directories on its way.
pub struct PutObject {
    pub bucket: BucketId,
    /// Directories, then the name.
    pub path: Vec<Vec<u8>>,
}

impl VerbNeeds for PutObject {
    const NEEDS: Needs = Needs::All(ActionSet::of(&[Action::PutObject]));
}

impl Verb for PutObject {
    /// The numbers along the path.
    type Reply = Vec<Ino>;
    const NAME: &'static str = "put";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Vec<Ino>, Stop> {
        let top = load_inode(view, self.bucket.ino())?;
        let opened = open_bucket_of(view, context, &top, Action::PutObject)?;
        let path: Vec<&str> =
            self.path.iter().map(|name| std::str::from_utf8(name).unwrap()).collect();
        let (name, directories) = path.split_last().unwrap();
        let parent = walk_or_make(view, context, &opened, directories)?;
        let inode = new_inode(Kind::File, self.bucket, context);
        let ino = add_inode(view, context, parent, name.as_bytes(), &inode)?;
        let steps = walk(view, self.bucket, directories)?.unwrap();
        Ok(steps.iter().map(|step| step.ino).chain([ino]).collect())
    }
}

/// Reads a whole directory page by page.
pub fn read_all(store: &mut Store, ino: Ino, limit: usize) -> Result<Vec<ListedEntry>, Error> {
    let mut entries = Vec::new();
    let mut after: Option<Bytes> = None;
    loop {
        let page = store.run(Readdir { ino, after, limit, attributes: true })?;
        entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

#[test]
fn a_listing_goes_on_by_name_whatever_changes() {
    let mut store = Store::new(1);
    let top = store.bucket("bucket", BucketKind::Posix);
    for number in 0..50 {
        store.file(top, &format!("f{number:02}"));
        store.directory(top, &format!("d{number:02}"));
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.run(Readdir { ino: top, after, limit: 7, attributes: true }).unwrap();
        // Goes on after an entry in the middle of the page, which goes meanwhile.
        let Some(last) = page.entries.get(4.min(page.entries.len().wrapping_sub(1))) else { break };
        after = Some(last.cursor());
        seen.extend(page.entries.iter().take(5).map(|entry| entry.name.clone()));
        let (parent, name) = (top, last.name.to_vec());
        match last.kind {
            Kind::Directory => store.run(Rmdir { parent, name }).unwrap(),
            _ => store.run(Unlink { parent, name }).unwrap(),
        };
    }
    assert_eq!(seen.len(), 100);
    assert!(seen.is_sorted());
}

#[test]
fn names_that_posix_cannot_show_are_counted() {
    let mut store = Store::new(2);
    let top = store.bucket("bucket", BucketKind::S3);
    let bucket = BucketId(top.0);
    let long = vec![b'l'; 300];
    for name in [&b""[..], b".", b"..", b"shown", b"both", &long] {
        store.run(PutObject { bucket, path: vec![name.to_vec()] }).unwrap();
    }
    // Far from its object in key order.
    for path in [[&b"both"[..], b"x"], [b"", b"x"], [b"..", b"x"], [b"both!", b"x"]] {
        let path = path.iter().map(|name| name.to_vec()).collect();
        store.run(PutObject { bucket, path }).unwrap();
    }
    for limit in [1, 2, 100] {
        let entries = read_all(&mut store, top, limit).unwrap();
        let mut names: Vec<(&[u8], Kind)> =
            entries.iter().map(|entry| (&entry.name[..], entry.kind)).collect();
        names.sort_by_key(|(name, _)| *name);
        let directory = Kind::Directory;
        assert_eq!(
            names,
            [(&b"both"[..], directory), (b"both!", directory), (b"shown", Kind::File)]
        );
    }
    let page = store.run(Readdir { ino: top, after: None, limit: 100, attributes: false });
    assert_eq!(page.unwrap().skipped, 7);
    let file = store.run(Readdir { ino: top, after: None, limit: 0, attributes: false });
    assert_eq!(file.unwrap_err().kind(), "invalid");
}
