//! Extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{Ino, limits};
use cairn_fs::MetaStats;
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::xattr::{GetXattr, List, ListXattrs, RemoveXattr, SetXattr, XattrMode};
use cairn_fs::rows::Inode;
use fuser::{Errno, ReplyEmpty, ReplyXattr};

use crate::errno;
use crate::nodes::Mount;
use crate::who::Who;

const CREATE: i32 = 1;
const REPLACE: i32 = 2;

/// What a mount has done, as an attribute of its root: `cairn stats` shows it.
const STATS: &str = "user.cairn.stats";

/// Refused by name: of these there are access control lists only.
fn is_unknown(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"system.") && List::named(name.as_bytes()).is_none()
}

impl Mount {
    /// A line for each operation and counter.
    fn show_stats(&self) -> String {
        let mut text = self.stats.show();
        let mut line = |name: &str, value: u64| {
            text.push_str(&format!("{name} {value}\n"));
        };
        let (open, dirty) = self.counts();
        line("files_open", open);
        line("bytes_dirty", dirty);
        line("inodes_known", self.known.count());
        let cache = self.fs.stats();
        line("cache_hits", cache.cache_hits);
        line("cache_misses", cache.cache_misses);
        if let Some(kept) = self.fs.blocks().kept() {
            line("disk_cache_hits", kept.hits);
            line("disk_cache_misses", kept.misses);
            line("disk_cache_bytes", kept.bytes);
        }
        if let MetaStats::Remote(session) = self.fs.meta().stats() {
            line("session_calls", session.calls);
            line("session_reads_leased", session.reads_leased);
            line("session_recalls", session.recalls);
            line("session_rows", session.rows);
        }
        text
    }

    /// An inode, if it is known without asking.
    fn known_now(&self, who: Who, ino: Ino) -> Option<Inode> {
        let found = self.fs.read_now(&who.caller(&self.user), &Getattr { ino });
        found.and_then(|found| found.ok()).map(|(inode, _)| inode)
    }

    pub fn get_xattr(
        self: &Arc<Mount>,
        who: Who,
        ino: Ino,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let timer = self.time("getxattr");
        if ino == Ino::ROOT && name == STATS {
            return answer(self.show_stats().as_bytes(), size, reply);
        }
        if is_unknown(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match (self.known_now(who, ino), List::named(name.as_bytes())) {
            // The kernel asks for these at every file that somebody else owns.
            (Some(inode), Some(list)) => {
                return match list.of(&inode) {
                    Some(value) => answer(&value, size, reply),
                    None => reply.error(Errno::NO_XATTR),
                };
            }
            (Some(inode), None) if inode.xattr_count == 0 => {
                return reply.error(Errno::NO_XATTR);
            }
            _ => {}
        }
        let (mount, name) = (Arc::clone(self), name.as_bytes().to_vec());
        self.work(timer, async move {
            match mount.fs.read(&mount.caller(who), GetXattr { ino, name }).await {
                Ok(value) => answer(&value, size, reply),
                Err(error) => reply.error(errno::of_xattr(&error)),
            }
        });
    }

    pub fn list_xattrs(self: &Arc<Mount>, who: Who, ino: Ino, size: u32, reply: ReplyXattr) {
        let timer = self.time("listxattr");
        let none = |inode: &Inode| {
            inode.xattr_count == 0 && inode.acl.is_none() && inode.default_acl.is_none()
        };
        if self.known_now(who, ino).as_ref().is_some_and(none) {
            return answer(&[], size, reply);
        }
        let mount = Arc::clone(self);
        self.work(timer, async move {
            match mount.fs.read(&mount.caller(who), ListXattrs { ino }).await {
                Ok(names) => {
                    let list: Vec<u8> =
                        names.iter().flat_map(|name| [&name[..], b"\0"].concat()).collect();
                    answer(&list, size, reply);
                }
                Err(error) => reply.error(errno::of_inode(&error)),
            }
        });
    }

    pub fn set_xattr(
        self: &Arc<Mount>,
        who: Who,
        ino: Ino,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Set,
            CREATE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if is_unknown(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if value.len() > limits::XATTR_BYTES {
            return reply.error(Errno::E2BIG);
        }
        let name = name.as_bytes().to_vec();
        let verb = SetXattr { ino, name, value: Bytes::copy_from_slice(value), mode };
        let (mount, timer) = (Arc::clone(self), self.time("setxattr"));
        self.work(timer, async move {
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_xattr(&error)),
            }
        });
    }

    pub fn remove_xattr(self: &Arc<Mount>, who: Who, ino: Ino, name: &OsStr, reply: ReplyEmpty) {
        if is_unknown(name) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let verb = RemoveXattr { ino, name: name.as_bytes().to_vec() };
        let (mount, timer) = (Arc::clone(self), self.time("removexattr"));
        self.work(timer, async move {
            match mount.fs.run(&mount.caller(who), verb).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno::of_xattr(&error)),
            }
        });
    }
}

/// The length to who asks with room for nothing, `ERANGE` to who has too little.
fn answer(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
