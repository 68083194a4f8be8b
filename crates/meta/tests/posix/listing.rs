//! Reading directories.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{BucketId, Error, Ino};
use cairn_meta::ops::namespace::{
    add_inode, load_inode, new_inode, open_bucket_of, walk, walk_or_make,
};
use cairn_meta::ops::readdir::{Listed, Readdir};
use cairn_meta::rows::Kind;
use cairn_meta::{Context, Stop, Verb, View};

use crate::harness::Store;

/// Puts an empty object as S3 does, with directories on its way.
pub struct PutObject {
    pub bucket: BucketId,
    /// Directories, then the name.
    pub path: Vec<Vec<u8>>,
}

impl Verb for PutObject {
    /// The numbers along the path.
    type Reply = Vec<Ino>;
    const NAME: &'static str = "put";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Vec<Ino>, Stop> {
        let top = load_inode(view, self.bucket.ino())?;
        let opened = open_bucket_of(view, context, &top, Action::Write)?;
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
pub fn read_all(store: &mut Store, ino: Ino, limit: usize) -> Result<Vec<Listed>, Error> {
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
