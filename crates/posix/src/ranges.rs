//! Ranges of files: holes, and copies by reference.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::{Error, Result, SessionId};
use cairn_fs::FilePosition;
use cairn_fs::ops::clone::CloneFile;

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::posix::Posix;
use crate::who::Who;

/// The treatment of a range. No room is reserved: a file is extended to the requested length with a
/// hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Extends the file at least to the end of the range.
    Extend,
    /// Changes nothing, except that the file is no longer setuid.
    KeepSize,
    /// Makes a hole; the size stays.
    Punch,
    /// Writes zeros; the file is extended to the end of the range if it is shorter, unless the size
    /// stays.
    Zero { keeps_size: bool },
}

impl Posix {
    /// Treats a range. After each treatment the file is no longer setuid, unless the caller is
    /// root.
    ///
    /// # Errors
    /// `Denied` for a file that was not opened for writing.
    pub fn allocate(
        self: &Arc<Posix>,
        file: Descriptor,
        who: Who,
        offset: u64,
        length: u64,
        allocation: Allocation,
    ) -> Answer<Result<()>> {
        let handle = match self.writable(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            let (node, caller) = (&handle.node, who.caller(&posix.user));
            let end = offset.checked_add(length);
            let end = end.ok_or_else(|| {
                Error::TooLarge("the range ends beyond the size that a file may have".into())
            })?;
            node.flush(|bytes| posix.dirt.less(bytes)).await?;
            let (fs, ino) = (&posix.fs, node.ino);
            match allocation {
                Allocation::Extend => fs.extend(&caller, ino, end).await?,
                Allocation::KeepSize => fs.extend(&caller, ino, 0).await?,
                Allocation::Punch | Allocation::Zero { keeps_size: true } => {
                    fs.punch(&caller, ino, offset, length).await?
                }
                Allocation::Zero { keeps_size: false } => {
                    fs.punch(&caller, ino, offset, length).await?;
                    fs.extend(&caller, ino, end).await?
                }
            };
            Ok(())
        })
    }

    fn writable(&self, file: Descriptor) -> Result<Arc<Handle>> {
        let handle = self.usable(file)?;
        if handle.writes { Ok(handle) } else { Err(Error::Denied("not opened for writing".into())) }
    }

    /// Copies `length` bytes of a file by reference. Returns the number of bytes copied.
    ///
    /// # Errors
    /// `TooLarge`, `Conflict`, `CrossBucket` and `NotImplemented` if the bytes must be moved;
    /// `Denied` if the target was not opened for writing.
    pub fn copy_range(
        self: &Arc<Posix>,
        source: Descriptor,
        source_offset: u64,
        target: Descriptor,
        offset: u64,
        who: Who,
        length: u64,
    ) -> Answer<Result<u64>> {
        let (source, target) = match (self.usable(source), self.writable(target)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(error), _) | (_, Err(error)) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            let caller = who.caller(&posix.user);
            posix.copied(&caller, &source, source_offset, &target, offset, length).await
        })
    }

    async fn copied(
        &self,
        caller: &Caller,
        source: &Handle,
        source_offset: u64,
        target: &Handle,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        for handle in [source, target] {
            handle.node.flush(|bytes| self.dirt.less(bytes)).await?;
        }
        let session = target.node.session()?;
        let (from, to) = (source.node.ino, target.node.ino);
        let copied = match (source_offset, offset) {
            (0, 0) => self.clone_file(source, target, caller, session, length).await?,
            _ => None,
        };
        let copied = match copied {
            Some(size) => size,
            None => {
                let from = FilePosition { ino: from, offset: source_offset };
                let to = FilePosition { ino: to, offset };
                self.fs.copy_range(caller, session, from, to, length).await?
            }
        };
        for handle in [source, target] {
            handle.node.forget_body().await;
        }
        Ok(copied)
    }

    /// Copies a whole file of at most `length` bytes into an empty file: they share a body then.
    /// Returns the number of bytes; `None` if these are no such files, or the source has too many
    /// pieces for one operation.
    async fn clone_file(
        &self,
        source: &Handle,
        target: &Handle,
        caller: &Caller,
        session: SessionId,
        length: u64,
    ) -> Result<Option<u64>> {
        let (from, to) = (source.node.ino, target.node.ino);
        let size = self.fs.open_inode(&source.caller, from, true).await?.size();
        let is_empty = self.fs.open_inode(&target.caller, to, true).await?.size() == 0;
        if !is_empty || size == 0 || size > length {
            return Ok(None);
        }
        let clone = CloneFile { source: from, ino: to, session, size };
        match self.fs.run(caller, clone).await {
            Ok(_) => Ok(Some(size)),
            Err(Error::Conflict(_) | Error::NotImplemented(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
