//! Opens files.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result};
use cairn_fs::Object;
use cairn_fs::ops::create::Create;
use cairn_fs::ops::getattr::{Access, Getattr};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::posix::{READ, SEARCH, WRITE};
use cairn_fs::rows::{Inode, Kind};

use crate::answer::Answer;
use crate::entry::Entry;
use crate::handle::Descriptor;
use crate::intent::Intent;
use crate::kernel_view::Moment;
use crate::names::Mode;
use crate::posix::Posix;
use crate::who::Who;

/// A file that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFile {
    pub file: Descriptor,
    /// True if a local program has locks on it: each close of a descriptor must be reported, since
    /// it releases all locks of its process.
    pub is_locked: bool,
}

impl Posix {
    pub fn open(self: &Arc<Posix>, who: Who, ino: Ino, intent: Intent) -> Answer<Result<OpenFile>> {
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let caller = who.caller(&posix.user);
            let mut found = posix.open_as(&caller, ino, intent).await;
            if matches!(found, Err(Error::Denied(_))) && who.has_more_groups() {
                found = posix.open_as(&posix.caller(&who), ino, intent).await;
            }
            if matches!(found, Err(Error::Denied(_))) && posix.resumes(&who, ino, intent).await {
                found = posix.open_as(&who.as_root().caller(&posix.user), ino, intent).await;
            }
            let (object, inode) = found?;
            if intent.writes
                && let Some(node) = posix.files.node(ino)
                && inode.as_ref().is_some_and(|inode| node.local(&(0..0)).is_over_others(inode))
            {
                // Bytes taken before others wrote are dropped before more are taken.
                node.flush(|bytes| posix.dirt.less(bytes)).await?;
            }
            let base = inode.map(|inode| inode.data_change);
            Ok(posix.opened(ino, caller, intent, object, base))
        })
    }

    /// Returns whether a caller that may not open a file by its mode may go on using it.
    async fn resumes(&self, who: &Who, ino: Ino, intent: Intent) -> bool {
        if !intent.resumes {
            return false;
        }
        let caller = who.caller(&self.user);
        let executes = Access { ino, wanted: SEARCH };
        match self.fs.read(&caller, Getattr { ino }).await {
            Ok((inode, _)) if inode.uid == who.uid => true,
            Ok(_) if !intent.writes => self.fs.read(&caller, executes).await.is_ok(),
            _ => false,
        }
    }

    /// Opens a file. `object` is its state for readers, even if it is removed elsewhere soon.
    fn opened(
        &self,
        ino: Ino,
        caller: Caller,
        intent: Intent,
        object: Option<Object>,
        base: Option<u64>,
    ) -> OpenFile {
        let handle = self.files.open(ino, caller, intent, base);
        if let Some(object) = &object {
            handle.node.remember(object);
        }
        OpenFile { file: Descriptor(handle.number), is_locked: self.files.is_locked(ino) }
    }

    /// Returns the contents of a file to read, as they are now: the caller can read them even if
    /// the file is removed elsewhere before the first read. Also returns the inode, if it was asked
    /// for.
    async fn open_as(
        &self,
        caller: &Caller,
        ino: Ino,
        intent: Intent,
    ) -> Result<(Option<Object>, Option<Inode>)> {
        let wanted = intent.wanted();
        // A caller that only reads is checked when the inode is opened.
        let is_checked = wanted != READ;
        let mut found = None;
        if is_checked {
            let access = Access { ino, wanted };
            let (inode, _) = self.fs.read(caller, access).await?;
            if inode.kind != Kind::File {
                return Err(Error::Invalid(format!("inode {ino} has no bytes")));
            }
            found = Some(inode);
        }
        match wanted {
            WRITE => Ok((None, found)),
            _ => Ok((Some(self.fs.open_inode(caller, ino, is_checked).await?), found)),
        }
    }

    /// Opens a file, and makes it if it does not exist; with `exclusive` it must not exist.
    pub fn create(
        self: &Arc<Posix>,
        who: Who,
        parent: Ino,
        name: &str,
        Mode { bits, umask }: Mode,
        intent: Intent,
        exclusive: bool,
    ) -> Answer<Result<(Entry, OpenFile)>> {
        let name = name.as_bytes().to_vec();
        let lookup = Lookup { parent, name: name.clone() };
        let verb = Create { parent, name, mode: bits & 0o7777, umask, exclusive };
        let moment = self.known.moment();
        let caller = self.caller(&who);
        if let Some((ino, inode, true)) = self.fs.run_now(&caller, &verb) {
            let made = (ino, inode, None);
            return Answer::Now(Ok(self.created(&who, lookup, moment, made, caller, intent)));
        }
        let posix = Arc::clone(self);
        Answer::soon(async move {
            let (ino, inode, made) = posix.fs.run(&caller, verb).await?;
            let object = if made { None } else { posix.open_as(&caller, ino, intent).await?.0 };
            let made = (ino, inode, object);
            Ok(posix.created(&who, lookup, moment, made, caller, intent))
        })
    }

    fn created(
        &self,
        who: &Who,
        name: Lookup,
        moment: Moment,
        made: (Ino, Inode, Option<Object>),
        caller: Caller,
        intent: Intent,
    ) -> (Entry, OpenFile) {
        let (ino, inode, object) = made;
        let (made, keeps) = self.as_leased(who, name, (ino, inode));
        let entry = self.entry(made.0, &made.1, moment, keeps);
        (entry, self.opened(ino, caller, intent, object, None))
    }
}
