//! Inodes: their attributes, extended attributes, and the counters of a mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use cairn_base::{Error, Ino, limits};
use cairn_fs::MetaStats;
use cairn_posix::{Changes, Space, Who};
use fuser::{Errno, FileHandle, ReplyAttr, ReplyEmpty, ReplyStatfs, ReplyXattr};

use crate::attributes::attributes;
use crate::desk::{Desk, open};
use crate::{errno, flags};

/// Unit in which `statfs` counts, bytes.
const UNIT: u64 = 4096;
const NAME_BYTES: u32 = 255;

/// Counters of a mount, as an attribute of its root: `cairn stats` shows it.
const STATS: &str = "user.cairn.stats";

impl Desk {
    /// Replies with the attributes; with `stays`, the shown times must remain as they are.
    pub fn getattr(&self, who: Who, ino: Ino, stays: bool, reply: ReplyAttr) {
        let timer = self.time("getattr");
        let shown = self.posix.attributes(who, ino, stays);
        self.answer(timer, shown, move |shown| match shown {
            Ok((shown, keeps)) => reply.attr(&keeps, &attributes(&shown)),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn setattr(
        &self,
        who: Who,
        ino: Ino,
        changes: Changes,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let timer = self.time("setattr");
        let changed = self.posix.set_attributes(who, ino, changes, handle.map(open));
        self.answer(timer, changed, move |changed| match changed {
            Ok(shown) => reply.attr(&std::time::Duration::ZERO, &attributes(&shown)),
            Err(error) => reply.error(errno::of_owner(&error)),
        });
    }

    pub fn statfs(&self, who: Who, ino: Ino, reply: ReplyStatfs) {
        let timer = self.time("statfs");
        let space = self.posix.space(who, ino);
        self.answer(timer, space, move |space| match space {
            Ok(Space { bytes, free_bytes, files, free_files }) => {
                let (all, free, unit) = (bytes / UNIT, free_bytes / UNIT, UNIT as u32);
                reply.statfs(all, free, free, files, free_files, unit, NAME_BYTES, unit);
            }
            Err(error) => reply.error(errno::of(&error)),
        });
    }

    /// Returns a line for each operation and counter.
    fn show_stats(&self) -> String {
        let mut text = self.stats.show();
        let mut line = |name: &str, value: u64| {
            text.push_str(&format!("{name} {value}\n"));
        };
        let (done, fs) = (self.posix.stats(), self.posix.fs());
        line("bytes_read", done.bytes_read);
        line("bytes_written", done.bytes_written);
        line("bytes_written_back", done.bytes_written_back);
        line("files_open", done.files_open);
        line("bytes_dirty", done.bytes_dirty);
        line("inodes_known", done.inodes_known);
        line("removed_directories", done.removed_directories);
        let cache = fs.stats();
        line("cache_hits", cache.cache_hits);
        line("cache_misses", cache.cache_misses);
        line("cache_bytes", cache.cache_bytes);
        line("memo_bytes", fs.memo_bytes());
        if let Some(kept) = fs.blocks().counted().kept {
            line("disk_cache_hits", kept.hits);
            line("disk_cache_misses", kept.misses);
            line("disk_cache_bytes", kept.bytes);
        }
        if let MetaStats::Remote(session) = fs.meta().stats() {
            line("session_calls", session.calls);
            line("session_reads_leased", session.reads_leased);
            line("session_recalls", session.recalls);
            line("session_rows", session.rows);
            line("session_bytes", session.bytes);
            line("session_directories", session.directories);
            line("session_posted", session.posted);
            line("session_kept", session.kept);
        }
        text
    }

    pub fn get_xattr(&self, who: Who, ino: Ino, name: &OsStr, size: u32, reply: ReplyXattr) {
        let timer = self.time("getxattr");
        if ino == Ino::ROOT && name == STATS {
            return answer(self.show_stats().as_bytes(), size, reply);
        }
        let value = self.posix.get_xattr(who, ino, name.as_bytes());
        self.answer(timer, value, move |value| match value {
            Ok(value) => answer(&value, size, reply),
            Err(error) => reply.error(errno::of_xattr(&error)),
        });
    }

    pub fn list_xattrs(&self, who: Who, ino: Ino, size: u32, reply: ReplyXattr) {
        let timer = self.time("listxattr");
        let names = self.posix.list_xattrs(who, ino);
        self.answer(timer, names, move |names| match names {
            Ok(names) => {
                let list: Vec<u8> =
                    names.iter().flat_map(|name| [&name[..], b"\0"].concat()).collect();
                answer(&list, size, reply);
            }
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn set_xattr(
        &self,
        who: Who,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags::xattr(flags) {
            Ok(mode) => mode,
            Err(refused) => return reply.error(refused),
        };
        let timer = self.time("setxattr");
        let is_too_large = value.len() > limits::XATTR_BYTES;
        let set = self.posix.set_xattr(who, ino, name.as_bytes(), value, mode);
        self.answer(timer, set, move |set| match set {
            Ok(()) => reply.ok(),
            Err(Error::TooLarge(_)) if is_too_large => reply.error(Errno::E2BIG),
            Err(error) => reply.error(errno::of_xattr(&error)),
        });
    }

    pub fn remove_xattr(&self, who: Who, ino: Ino, name: &OsStr, reply: ReplyEmpty) {
        let timer = self.time("removexattr");
        let removed = self.posix.remove_xattr(who, ino, name.as_bytes());
        self.answer(timer, removed, move |removed| match removed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno::of_xattr(&error)),
        });
    }
}

/// Replies with the length if the caller's buffer is empty, and `ERANGE` if it is too small.
fn answer(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
