//! Writes files.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cairn_auth::{Caller, Posix as Identity};
use cairn_base::{Error, Result};

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::posix::Posix;

/// Uid and gid that own nothing.
const NOBODY: u32 = 65_534;

/// Options of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Writing {
    /// True if the bytes go to the end of the file, wherever that is by now.
    pub appends: bool,
    /// True if the bytes must be durable when the write returns, as always if the file was opened
    /// so.
    pub syncs: bool,
    /// True if the writer is not root, whoever opened the file: the file is no longer setuid.
    pub kills_setuid: bool,
}

/// Returns the caller on whose behalf bytes are written: the opener of the file, but not root if
/// the writer is another user.
fn writer(opener: &Caller, kills: bool) -> Cow<'_, Caller> {
    match opener.posix() {
        Some(posix) if kills && posix.uid == 0 => {
            let nobody = Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
            Cow::Owned(opener.clone().with_posix(nobody))
        }
        _ => Cow::Borrowed(opener),
    }
}

impl Posix {
    /// Takes bytes, which are written back later.
    pub fn write(
        self: &Arc<Posix>,
        file: Descriptor,
        offset: u64,
        data: &[u8],
        writing: Writing,
    ) -> Answer<Result<()>> {
        let handle = match self.usable(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        self.bytes_written.fetch_add(data.len() as u64, Ordering::Relaxed);
        let Writing { appends, syncs, kills_setuid } = writing;
        let syncs = handle.syncs || syncs;
        if !appends && !syncs && !self.dirt.is_full(handle.account(&self.dirt)) {
            self.take(&handle, &writer(&handle.caller, kills_setuid), offset, data);
            return Answer::Now(Ok(()));
        }
        let (posix, data) = (Arc::clone(self), Bytes::copy_from_slice(data));
        Answer::later(async move {
            let writer = writer(&handle.caller, kills_setuid);
            if appends {
                posix.append(&handle, &writer, offset, data.clone()).await?;
            } else {
                posix.has_room(&handle).await?;
            }
            let drops = handle.node.drops();
            if !appends {
                posix.take(&handle, &writer, offset, &data);
            }
            if syncs {
                posix.sync_file(&handle).await?;
            }
            if handle.node.drops() == drops || !syncs {
                Ok(())
            } else {
                Err(Error::Conflict("others wrote to the file at the same time".into()))
            }
        })
    }

    /// Keeps bytes to be written back.
    fn take(self: &Arc<Posix>, handle: &Handle, writer: &Caller, offset: u64, data: &[u8]) {
        let mut eager = false;
        self.dirt.take(data.len() as u64, || {
            let account = handle.account(&self.dirt);
            let more;
            (more, eager) = handle.node.write(writer, account, handle.base, offset, data);
            more
        });
        if eager {
            let (posix, node) = (Arc::clone(self), Arc::clone(&handle.node));
            self.runtime.spawn(async move {
                node.flush_whole(|bytes| posix.dirt.less(bytes)).await;
            });
        }
    }

    /// Appends through the store, which orders appends of all sessions and doors.
    async fn append(
        &self,
        handle: &Handle,
        writer: &Caller,
        offset: u64,
        data: Bytes,
    ) -> Result<()> {
        let node = &handle.node;
        if node.is_dirty() {
            node.flush(|bytes| self.dirt.less(bytes)).await?;
        }
        let appended = self.fs.append_inode(writer, node.ino, data).await?;
        if appended.offset != offset || !handle.appends {
            // The writer assumed another end of the file, or keeps pages of it.
            self.known.change(node.ino, false);
            self.keeper.forget_attributes(node.ino);
        }
        Ok(())
    }
}
