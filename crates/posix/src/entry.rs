//! The attributes that callers see of an inode, and the time for which they may be kept.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Ino, Result};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::rows::Inode;

use crate::attributes::Attributes;
use crate::kernel_view::Moment;
use crate::posix::Posix;
use crate::who::Who;

/// The inode that was found or made under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub attributes: Attributes,
    /// Times for which the attributes and the name may be kept.
    pub keeps: Duration,
    pub keeps_name: Duration,
}

impl Posix {
    /// Returns whether an inode is a file that is open here and was written to: then its attributes
    /// must be asked for separately. Bytes that are written back between a look at the store and a
    /// look at the local bytes would be in neither.
    pub(crate) fn is_written_here(&self, ino: Ino) -> bool {
        self.files.node(ino).is_some_and(|node| node.was_written())
    }

    /// Returns an entry with its present attributes, if the file is written to here.
    pub(crate) async fn as_written(self: &Arc<Posix>, who: &Who, entry: Entry) -> Entry {
        let ino = entry.attributes.ino;
        if !self.is_written_here(ino) {
            return entry;
        }
        match self.attributes(who.clone(), ino, false).await {
            Ok((attributes, _)) => Entry { attributes, ..entry },
            Err(_) => entry,
        }
    }

    /// Returns the attributes of an inode as the keeper receives them. They were asked for at
    /// `moment`.
    pub(crate) fn show(&self, ino: Ino, moment: Moment, inode: &Inode) -> Attributes {
        let mtime = self.known.show(ino, moment, inode);
        Attributes { mtime, ..Attributes::of(ino, inode) }
    }

    /// Returns the attributes with local writes, and whether there were any: then the attributes
    /// may not be kept, since bytes that were written back meanwhile are in neither.
    fn show_with_local(&self, ino: Ino, moment: Moment, inode: &Inode) -> (Attributes, bool) {
        match self.files.node(ino) {
            Some(node) => {
                let inode = node.local(&(0..0)).over(inode.clone());
                (self.show(ino, moment, &inode), node.was_written())
            }
            None => (self.show(ino, moment, inode), false),
        }
    }

    /// Returns the entry of an inode that was found by a name: the keeper knows the inode once
    /// more.
    pub(crate) fn entry(&self, ino: Ino, inode: &Inode, moment: Moment, keeps: Duration) -> Entry {
        if self.keeper.counts() {
            self.known.enter(ino);
        }
        let (attributes, has_local) = self.show_with_local(ino, moment, inode);
        let keeps = if has_local { Duration::ZERO } else { keeps };
        Entry { attributes, keeps, keeps_name: self.keeps_name(keeps) }
    }

    /// Returns the time for which the absence of a name may be kept.
    pub(crate) fn keeps_absence(&self, parent: Ino, keeps: Duration) -> Duration {
        if self.makers.is_one(parent) { Duration::ZERO } else { self.keeps_name(keeps) }
    }

    /// Returns the inode that was just made under a name, as it is leased now, and the time for
    /// which it may be kept.
    pub(crate) fn as_leased(
        &self,
        who: &Who,
        name: Lookup,
        made: (Ino, Inode),
    ) -> (Arc<(Ino, Inode)>, Duration) {
        let moment = self.known.moment();
        match self.fs.read_kept_now(&who.caller(&self.user), &name) {
            Some(Ok(found)) if found.0 == made.0 => (found, self.keeps(moment)),
            _ => (Arc::new(made), Duration::ZERO),
        }
    }

    /// If a directory is empty, its contents are known from here on.
    pub(crate) fn look_whether_empty(&self, ino: Ino) {
        let moment = self.known.moment();
        if let Some(Ok(found)) = self.fs.read_kept_now(&self.user, &Getattr { ino })
            && found.1.entries == 0
        {
            self.whole.begin(ino, || self.known.moment() == moment);
        }
    }

    /// Returns attributes, from leased rows if possible.
    pub(crate) async fn attributes_of(&self, who: &Who, ino: Ino) -> (Result<Inode>, Duration) {
        let verb = Getattr { ino };
        let caller = who.caller(&self.user);
        let found = self.fs.read_kept(&caller, verb.clone()).await;
        let found = found.map(|found| found.0.clone());
        let moment = self.known.moment();
        match self.fs.read_kept_now(&caller, &verb) {
            Some(Ok(found)) => (Ok(found.0.clone()), self.keeps(moment)),
            _ => (found, Duration::ZERO),
        }
    }
}
