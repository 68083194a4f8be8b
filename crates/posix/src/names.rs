//! Names: looks them up and makes them.
//!
//! Names that are looked up are bytes. New names are text: S3 and HTTP, which show them as well,
//! have no others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Ino, Result};
use cairn_fs::WireVerb;
use cairn_fs::ops::create::Mknod;
use cairn_fs::ops::for_call::{Callable, ForCall, Once};
use cairn_fs::ops::link::Link;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::ops::readlink::Readlink;
use cairn_fs::ops::symlink::Symlink;
use cairn_fs::rows::{Inode, Kind};

use crate::answer::Answer;
use crate::entry::Entry;
use crate::kernel_view::Moment;
use crate::posix::Posix;
use crate::who::{Step, Who};

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupReply {
    Entry(Entry),
    /// There is no such name, and its absence may be kept for this long.
    Nothing(Duration),
}

/// The mode of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// Permission bits.
    pub bits: u32,
    /// Permission bits to remove, if the directory has no default list.
    pub umask: u32,
}

impl Posix {
    pub fn lookup(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &[u8],
    ) -> Answer<Result<LookupReply>> {
        let moment = self.known.moment();
        let verb = Lookup { parent, name: name.to_vec() };
        match self.fs.read_kept_now(&who.caller(&self.user), &verb) {
            Some(Err(Error::Denied(_))) => {}
            Some(Ok(found)) if self.is_written_here(found.0) => {}
            Some(found) => {
                return Answer::Now(self.looked_up(parent, found, self.keeps(moment), moment));
            }
            // In this order, as facts under a lease at the first check were true when this call
            // began.
            None if !self.fs.lease_left().is_zero() && self.whole.lacks(parent, name) => {
                return Answer::Now(Ok(self.nothing(parent, Duration::ZERO)));
            }
            None => {}
        }
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let found = posix.look_up(&who, verb).await;
            Ok(match posix.looked_up(parent, found.0, found.1, moment)? {
                LookupReply::Entry(entry) => {
                    LookupReply::Entry(posix.as_written(&who, entry).await)
                }
                nothing @ LookupReply::Nothing(_) => nothing,
            })
        })
    }

    fn looked_up(
        &self,
        parent: Ino,
        found: Result<Arc<(Ino, Inode)>>,
        keeps: Duration,
        moment: Moment,
    ) -> Result<LookupReply> {
        match found {
            Ok(found) => {
                if found.1.is_directory() {
                    self.look_whether_empty(found.0);
                }
                Ok(LookupReply::Entry(self.entry(found.0, &found.1, moment, keeps)))
            }
            Err(Error::NotFound(_)) => Ok(self.nothing(parent, keeps)),
            Err(error) => Err(error),
        }
    }

    fn nothing(&self, parent: Ino, keeps: Duration) -> LookupReply {
        LookupReply::Nothing(self.keeps_absence(parent, keeps))
    }

    /// Asks the store. Also returns how long the answer may be kept.
    async fn look_up(&self, who: &Who, verb: Lookup) -> (Result<Arc<(Ino, Inode)>>, Duration) {
        let caller = who.caller(&self.user);
        let mut found = self.fs.read_kept(&caller, verb.clone()).await;
        if matches!(found, Err(Error::Denied(_))) && who.has_more_groups() {
            found = self.fs.read_kept(&self.caller(who), verb).await;
            return (found, Duration::ZERO);
        }
        // Only rows that are leased now may be kept; the rows of the answer may not have been
        // leased.
        let moment: Moment = self.known.moment();
        match self.fs.read_kept_now(&caller, &verb) {
            Some(leased) if !matches!(leased, Err(Error::Denied(_))) => {
                (leased, self.keeps(moment))
            }
            _ => (found, Duration::ZERO),
        }
    }

    pub fn make_directory(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &str,
        Mode { bits, umask }: Mode,
    ) -> Answer<Result<Entry>> {
        let name = name.as_bytes().to_vec();
        let lookup = Lookup { parent, name: name.clone() };
        self.make(who, lookup, Mkdir { parent, name, mode: bits & 0o7777, umask })
    }

    /// Makes a file, FIFO or socket.
    pub fn make_node(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &str,
        kind: Kind,
        Mode { bits, umask }: Mode,
    ) -> Answer<Result<Entry>> {
        let name = name.as_bytes().to_vec();
        let lookup = Lookup { parent, name: name.clone() };
        self.make(who, lookup, Mknod { parent, name, kind, mode: bits & 0o7777, umask })
    }

    pub fn make_symlink(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &str,
        target: &[u8],
    ) -> Answer<Result<Entry>> {
        let name = name.as_bytes().to_vec();
        let lookup = Lookup { parent, name: name.clone() };
        self.make(who, lookup, Symlink { parent, name, target: Bytes::copy_from_slice(target) })
    }

    fn make<V>(self: &Arc<Posix>, who: Who, name: Lookup, verb: V) -> Answer<Result<Entry>>
    where
        V: Callable + WireVerb<Reply = (Ino, Inode)> + Clone,
        ForCall<V>: WireVerb<Reply = Once<(Ino, Inode)>>,
    {
        let moment = self.known.moment();
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let made = posix.run(&who, Step::Names, verb).await?;
            let made = posix.made(&who, made).await?;
            if made.1.is_directory() {
                posix.look_whether_empty(made.0);
            }
            let (made, keeps) = posix.as_leased(&who, name, made);
            Ok(posix.entry(made.0, &made.1, moment, keeps))
        })
    }

    /// Gives a file another name.
    pub fn make_link(
        self: &Arc<Posix>,
        who: Who,
        ino: Ino,
        parent: Ino,
        name: &str,
    ) -> Answer<Result<Entry>> {
        let verb = Link { ino, parent, name: name.as_bytes().to_vec() };
        let moment = self.known.moment();
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let linked = match posix.run(&who, Step::Names, verb).await? {
                Once::Done(inode) => Once::Done((ino, inode)),
                Once::Before(_) => Once::Before(ino),
            };
            let (ino, inode) = posix.made(&who, linked).await?;
            let entry = posix.entry(ino, &inode, moment, Duration::ZERO);
            Ok(posix.as_written(&who, entry).await)
        })
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(self: &Arc<Posix>, who: Who, ino: Ino) -> Answer<Result<Bytes>> {
        let posix = Arc::clone(self);
        Answer::soon(async move { posix.fs.read(&who.caller(&posix.user), Readlink { ino }).await })
    }
}
