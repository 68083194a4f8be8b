//! The parts of replies and rows that a mount is shown and may keep. A mount is trusted with
//! nothing: bytes, and all that is made of them, go only to users who may read in the bucket. Of a
//! bucket that a user may not inspect, no more is shown than its readers need.
//!
//! ```text
//!   verb ── apply ──► reply ── Mounted::show ──► reply as shown ─► mount
//!                     rows ─── Shown::rows ────► rows as shown, leased
//! ```
//!
//! It is not the decision whether an operation may run: that is each verb's own. Here the right to
//! read is decided once more, for each inode and each row, whatever the verb has decided.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use bytes::Bytes;
use cairn_auth::{Action, Resource};
use cairn_base::codec::Fields;
use cairn_base::{BodyId, BucketId, Error, Ino, UserId};

use crate::rows::{Bucket, Content, FORMAT, Inode, Row};
use crate::{Context, Stop, View, keys};

/// Rows on their way to a session.
pub type Rows = Vec<(Bytes, Option<Bytes>)>;

/// The part of a bucket that a caller may see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sight {
    Nothing,
    /// Its contents, and the settings that a reader needs.
    Contents,
    All,
}

/// Filters what one caller may see, in the view of one operation.
pub struct ShownToMount<'a, 'v> {
    view: &'a mut View<'v>,
    context: &'a Context,
    sights: HashMap<BucketId, Sight>,
    /// Buckets of directories; `None` for a directory that does not exist.
    directories: HashMap<Ino, Option<BucketId>>,
    /// Bodies whose extents the caller may read.
    bodies: Vec<BodyId>,
}

impl<'a, 'v> ShownToMount<'a, 'v> {
    pub fn new(view: &'a mut View<'v>, context: &'a Context) -> ShownToMount<'a, 'v> {
        let (sights, directories) = (HashMap::new(), HashMap::new());
        ShownToMount { view, context, sights, directories, bodies: Vec::new() }
    }

    fn sight(&mut self, bucket: BucketId) -> Result<Sight, Stop> {
        // The root is in no bucket; its entries are decided one by one.
        if bucket == BucketId(0) || self.context.caller.is_root() {
            return Ok(Sight::All);
        }
        if let Some(sight) = self.sights.get(&bucket) {
            return Ok(*sight);
        }
        let row = self.view.get(&keys::bucket(bucket))?;
        let sight = match row.as_ref().map(Bucket::decode).transpose()? {
            Some(bucket) => {
                let may =
                    |action| self.context.allows(action, Resource::Object(bucket.access(), None));
                match (may(Action::GetBucketSettings), may(Action::GetObject)) {
                    (true, _) => Sight::All,
                    (false, true) => Sight::Contents,
                    (false, false) => Sight::Nothing,
                }
            }
            None => Sight::Nothing,
        };
        self.sights.insert(bucket, sight);
        Ok(sight)
    }

    /// Removes the content from an inode, and values derived from it, unless the caller may read
    /// it. The id of a body stays, as blocks are written for it: it gives access to nothing.
    pub fn inode(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        if self.sight(inode.bucket)? >= Sight::Contents {
            return Ok(());
        }
        if let Content::Inline(_) = inode.content {
            inode.content = Content::Empty;
        }
        inode.object = None;
        inode.unknown.clear();
        Ok(())
    }

    /// Removes from a bucket's settings everything that readers do not need, unless the caller may
    /// inspect the bucket.
    pub fn bucket(&mut self, id: BucketId, bucket: &mut Bucket) -> Result<(), Stop> {
        if self.sight(id)? < Sight::All {
            *bucket = for_readers(bucket, self.context.caller.user());
        }
        Ok(())
    }

    /// Notes that the caller may read this body.
    pub fn reads(&mut self, body: BodyId) {
        self.bodies.push(body);
    }

    /// Keeps only the rows that the caller may see. `are_own`: extents were checked already, and
    /// are in blocks of the caller's own session.
    pub fn rows(&mut self, rows: &mut Rows, are_own: bool) -> Result<(), Stop> {
        if self.context.caller.is_root() {
            return Ok(());
        }
        for (key, row) in std::mem::take(rows) {
            if let Some(row) = self.row(&key, row, are_own)? {
                rows.push((key, row));
            }
        }
        Ok(())
    }

    /// Returns a row as shown; `None` if it is not shown.
    fn row(
        &mut self,
        key: &Bytes,
        row: Option<Bytes>,
        are_own: bool,
    ) -> Result<Option<Option<Bytes>>, Stop> {
        let is_shown = match key.first() {
            Some(b'i') => match &row {
                Some(row) => self.sight(bucket_of(row)?)? >= Sight::Contents,
                // The next client that makes a file would have to wait until it is given back.
                None => false,
            },
            Some(b'd') => self.shows_entry(key, row.as_ref())?,
            // The root's tally concerns all buckets: a caller that makes a bucket would have to
            // wait for it.
            Some(b't') => match keys::directory_of(key) {
                Some(ino) => ino != Ino::ROOT && self.shows_inode(ino)?,
                None => false,
            },
            Some(b'x') => match number_in(key, 1) {
                Some(ino) => self.shows_inode(Ino(ino))?,
                None => false,
            },
            // All users may lock the root, which belongs to nobody.
            Some(b'l') => match keys::locks_of(key) {
                Some(ino) => ino != Ino::ROOT && self.shows_inode(ino)?,
                None => false,
            },
            Some(b'e') => {
                are_own || keys::extents_body(key).is_some_and(|b| self.bodies.contains(&b))
            }
            // The number of references to a body; the caller has seen an inode that names the body.
            Some(b'r') => true,
            Some(b'n') => match number_in(key, 1) {
                Some(bucket) => self.sight(BucketId(bucket))? == Sight::All,
                None => false,
            },
            Some(b'b') => return self.bucket_row(key, row),
            // A caller that makes the store read-only waits until it is given back.
            Some(b'c') => *key == keys::read_only(),
            _ => false,
        };
        Ok(is_shown.then_some(row))
    }

    fn bucket_row(
        &mut self,
        key: &Bytes,
        row: Option<Bytes>,
    ) -> Result<Option<Option<Bytes>>, Stop> {
        let (Some(id), Some(row)) = (number_in(key, 1), row) else { return Ok(None) };
        Ok(match self.sight(BucketId(id))? {
            Sight::Nothing => None,
            Sight::Contents => {
                let bucket = Bucket::decode(&row)?;
                Some(Some(for_readers(&bucket, self.context.caller.user()).encode()))
            }
            Sight::All => Some(Some(row)),
        })
    }

    /// Returns whether an entry may be shown; an entry of the root is a bucket. Everybody may learn
    /// that a bucket does not exist, but nobody keeps that: a caller that makes the bucket would
    /// have to wait.
    fn shows_entry(&mut self, key: &Bytes, row: Option<&Bytes>) -> Result<bool, Stop> {
        let Some(parent) = number_in(key, 1) else { return Ok(false) };
        if Ino(parent) != Ino::ROOT {
            return self.shows_inode(Ino(parent));
        }
        let Some(row) = row else { return Ok(false) };
        let entry = crate::rows::Entry::decode(row)?;
        Ok(self.sight(BucketId(entry.ino.0))? >= Sight::Contents)
    }

    /// Returns whether the caller may see the rows of an inode. A removed inode has none.
    fn shows_inode(&mut self, ino: Ino) -> Result<bool, Stop> {
        let known = self.directories.get(&ino).copied();
        let bucket = match known {
            Some(bucket) => bucket,
            None => {
                let row = self.view.get(&keys::inode(ino))?;
                let bucket = row.as_ref().map(bucket_of).transpose()?;
                self.directories.insert(ino, bucket);
                bucket
            }
        };
        match bucket {
            Some(bucket) => Ok(self.sight(bucket)? >= Sight::Contents),
            None => Ok(false),
        }
    }
}

/// Returns the settings of a bucket that a user with only the right to read needs: those that
/// decide on the reader's own rights.
fn for_readers(bucket: &Bucket, reader: UserId) -> Bucket {
    let own = bucket.grants.iter().filter(|(user, _)| *user == reader);
    Bucket {
        name: bucket.name.clone(),
        kind: bucket.kind,
        visibility: bucket.visibility,
        cache_control: bucket.cache_control.clone(),
        grants: own.copied().collect(),
        redundancy: bucket.redundancy,
        redirect: bucket.redirect,
        read_only: bucket.read_only,
        ..Bucket::default()
    }
}

/// Reads the bucket from a row of an inode, and ignores the rest.
fn bucket_of(row: &Bytes) -> Result<BucketId, Error> {
    let mut fields = Fields::open(row, FORMAT)?;
    while let Some(field) = fields.next_field()? {
        if field.tag == Inode::BUCKET_TAG {
            return Ok(BucketId(field.number()?));
        }
    }
    Ok(BucketId(0))
}

fn number_in(key: &[u8], at: usize) -> Option<u64> {
    key.get(at..)?.first_chunk().map(|number| u64::from_be_bytes(*number))
}
