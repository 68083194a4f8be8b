//! Listing of directories: as many names as the kernel has room for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Ino, Result};
use cairn_posix::{Answer, Descriptor, Kind, Posix, Who};
use fuser::{
    FileHandle, FileType, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyOpen,
};

use crate::attributes::{attributes, kind};
use crate::desk::{Desk, GENERATION, open};
use crate::errno;
use crate::kernel_request::KernelRequest;
use crate::paths::Paths;

/// Position of the first name: `.` and `..` come before it.
const DOTS: u64 = 2;

impl Desk {
    pub fn open_directory(&self, ino: Ino, reply: ReplyOpen) {
        let directory = self.posix.open_directory(ino);
        // The kernel keeps names as long as what they name: it drops them when the mtime differs,
        // and later asks for names and attributes in one.
        let mut flags = FopenFlags::FOPEN_CACHE_DIR;
        if self.posix.is_listed(ino) {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        reply.opened(FileHandle(directory.0), flags);
    }

    pub fn list(&self, who: Who, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let timer = self.time("readdir");
        let posix = Arc::clone(&self.posix);
        let listed = Answer::later(async move {
            let listed = list(&posix, &who, open(handle), offset, &mut reply).await;
            (reply, listed)
        });
        self.answer(timer, listed, |(reply, listed)| match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }

    pub fn list_with_attributes(
        &self,
        who: Who,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let timer = self.time("readdir");
        let posix = Arc::clone(&self.posix);
        let (paths, parent) = (Arc::clone(&self.paths), KernelRequest::taken().ino);
        let listed = Answer::later(async move {
            let file = open(handle);
            let listed = list_plus(&posix, &who, file, offset, &paths, parent, &mut reply).await;
            (reply, listed)
        });
        self.answer(timer, listed, |(reply, listed)| match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno::of_inode(&error)),
        });
    }
}

async fn list(
    posix: &Arc<Posix>,
    who: &Who,
    directory: Descriptor,
    offset: u64,
    reply: &mut ReplyDirectory,
) -> Result<()> {
    let mut at = offset;
    if at < DOTS {
        let (own, parent) = posix.dots(who.clone(), directory).await?;
        for (position, ino, name) in [(0, own.ino, "."), (1, parent, "..")] {
            let ino = INodeNo(ino.0);
            if at == position && !reply.add(ino, at + 1, FileType::Directory, name) {
                at += 1;
            }
        }
    }
    while let Some(page) = posix.list(who.clone(), directory, at, false).await? {
        for name in page.names() {
            let (ino, bytes) = (INodeNo(name.ino().0), OsStr::from_bytes(name.bytes()));
            if reply.add(ino, name.next, kind(name.kind()), bytes) {
                return Ok(());
            }
            at = name.next;
        }
    }
    Ok(())
}

async fn list_plus(
    posix: &Arc<Posix>,
    who: &Who,
    directory: Descriptor,
    offset: u64,
    paths: &Arc<Paths>,
    parent: Ino,
    reply: &mut ReplyDirectoryPlus,
) -> Result<()> {
    let mut at = offset;
    if at < DOTS {
        let (own, parent) = posix.dots(who.clone(), directory).await?;
        // For these two the kernel uses only the numbers.
        for (position, ino, name) in [(0, own.ino, "."), (1, parent, "..")] {
            let (shown, ino) =
                (attributes(&cairn_posix::Attributes { ino, ..own }), INodeNo(ino.0));
            if at == position && !reply.add(ino, at + 1, name, &Duration::ZERO, &shown, GENERATION)
            {
                at += 1;
            }
        }
    }
    while let Some(page) = posix.list(who.clone(), directory, at, true).await? {
        for name in page.names() {
            // The kernel counts this as a lookup.
            let entry = posix.list_entry(&page, name)?;
            let (ino, bytes) = (INodeNo(name.ino().0), OsStr::from_bytes(name.bytes()));
            let shown = attributes(&entry.attributes);
            if reply.add(ino, name.next, bytes, &entry.keeps, &shown, GENERATION) {
                posix.forget(name.ino(), 1);
                return Ok(());
            }
            let is_directory = entry.attributes.kind == Kind::Directory;
            paths.name(parent, name.bytes()).stands_for(name.ino(), is_directory);
            at = name.next;
        }
    }
    Ok(())
}
