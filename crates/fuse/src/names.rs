//! Names: look-up, creation, removal and renaming.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use cairn_base::{Ino, Result};
use cairn_posix::{Entry, Kind, LookupReply, Mode, Who};
use fuser::{RenameFlags, ReplyData, ReplyEmpty, ReplyEntry};

use crate::attributes::{attributes, nothing};
use crate::desk::{Desk, GENERATION, text};
use crate::paths::Name;
use crate::{errno, flags};

/// A name in a directory.
#[derive(Clone, Copy)]
pub struct NamePlace<'a> {
    pub parent: Ino,
    pub name: &'a OsStr,
}

fn reply_entry(reply: ReplyEntry, name: Name, made: Result<Entry>) {
    match made {
        Ok(entry) => {
            see(name, &entry);
            let attributes = attributes(&entry.attributes);
            reply.entry_with_ttls(&entry.keeps, &entry.keeps_name, &attributes, GENERATION);
        }
        Err(error) => reply.error(errno::of_name(&error)),
    }
}

/// Notes the inode that a name stands for.
fn see(name: Name, entry: &Entry) {
    name.stands_for(entry.attributes.ino, entry.attributes.kind == Kind::Directory);
}

fn reply_done(reply: ReplyEmpty, done: Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno::of_name(&error)),
    }
}

impl Desk {
    pub fn lookup(&self, who: Who, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        let timer = self.time("lookup");
        let found = self.posix.lookup(who, parent, name.as_bytes());
        let seen = self.paths.name(parent, name.as_bytes());
        self.answer_of(Some(name), timer, found, move |found| match found {
            Ok(LookupReply::Entry(entry)) => reply_entry(reply, seen, Ok(entry)),
            Ok(LookupReply::Nothing(keeps)) => {
                reply.entry_with_ttls(&Duration::ZERO, &keeps, &nothing(), GENERATION);
            }
            Err(error) => reply.error(errno::of_name(&error)),
        });
    }

    pub fn make_directory(
        &self,
        who: Who,
        parent: Ino,
        name: &OsStr,
        mode: Mode,
        reply: ReplyEntry,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("mkdir");
        let made = self.posix.make_directory(who, parent, name, mode);
        let seen = self.paths.name(parent, name.as_bytes());
        let name = Some(OsStr::new(name));
        self.answer_of(name, timer, made, move |made| reply_entry(reply, seen, made));
    }

    pub fn make_node(
        &self,
        who: Who,
        parent: Ino,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, kind) = match text(name).and_then(|name| Ok((name, flags::kind(mode)?))) {
            Ok(wanted) => wanted,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("mknod");
        let mode = Mode { bits: mode, umask };
        let made = self.posix.make_node(who, parent, name, kind, mode);
        let seen = self.paths.name(parent, name.as_bytes());
        let name = Some(OsStr::new(name));
        self.answer_of(name, timer, made, move |made| reply_entry(reply, seen, made));
    }

    pub fn make_symlink(
        &self,
        who: Who,
        parent: Ino,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let name = match text(name) {
            Ok(name) => name,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("symlink");
        let target = target.as_os_str().as_bytes();
        let made = self.posix.make_symlink(who, parent, name, target);
        let seen = self.paths.name(parent, name.as_bytes());
        let name = Some(OsStr::new(name));
        self.answer_of(name, timer, made, move |made| reply_entry(reply, seen, made));
    }

    pub fn make_link(&self, who: Who, ino: Ino, parent: Ino, name: &OsStr, reply: ReplyEntry) {
        let name = match text(name) {
            Ok(name) => name,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("link");
        let made = self.posix.make_link(who, ino, parent, name);
        let seen = self.paths.name(parent, name.as_bytes());
        self.answer(timer, made, move |made| reply_entry(reply, seen, made));
    }

    pub fn read_link(&self, who: Who, ino: Ino, reply: ReplyData) {
        let timer = self.time("readlink");
        let target = self.posix.read_link(who, ino);
        self.answer(timer, target, move |target| match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn remove_directory(&self, who: Who, parent: Ino, name: &OsStr, reply: ReplyEmpty) {
        let timer = self.time("rmdir");
        let removed = self.posix.remove_directory(who, parent, name.as_bytes());
        self.answer_of(Some(name), timer, removed, move |removed| reply_done(reply, removed));
    }

    pub fn remove_file(&self, who: Who, parent: Ino, name: &OsStr, reply: ReplyEmpty) {
        let timer = self.time("unlink");
        let removed = self.posix.remove_file(who, parent, name.as_bytes());
        self.answer_of(Some(name), timer, removed, move |removed| reply_done(reply, removed));
    }

    pub fn rename(
        &self,
        who: Who,
        source: NamePlace<'_>,
        target: NamePlace<'_>,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let wanted = text(target.name).and_then(|name| Ok((name, flags::rename(flags)?)));
        let (target_name, mode) = match wanted {
            Ok(wanted) => wanted,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("rename");
        let (parent, name) = (source.parent, source.name.as_bytes());
        let renamed = self.posix.rename(who, parent, name, target.parent, target_name, mode);
        self.answer_of(Some(source.name), timer, renamed, move |renamed| {
            reply_done(reply, renamed)
        });
    }
}
