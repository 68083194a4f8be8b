//! Closes files.

use std::sync::Arc;

use cairn_base::{Ino, Result};

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::posix::Posix;

impl Posix {
    /// Closes a descriptor: the file's written bytes are written back, and the caller receives any
    /// error. Then the locks of the process on the file are released.
    pub fn flush(self: &Arc<Posix>, file: Descriptor, owner: u64) -> Answer<Result<()>> {
        let handle = match self.files.handle(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let is_locked = handle.node.locks.is_known(owner);
        // No reader can come for a file that has no name and is about to be closed.
        let is_clean = !handle.node.is_dirty() || handle.node.is_nameless();
        if is_clean && !is_locked {
            return Answer::Now(handle.hear(self.fs.meta().lost()));
        }
        let (posix, node) = (Arc::clone(self), Arc::clone(&handle.node));
        node.answer(async move {
            let flushed = if is_clean {
                Ok(())
            } else {
                handle.node.flush(|bytes| posix.dirt.less(bytes)).await
            };
            if is_locked {
                posix.release_locks(&handle, owner).await;
            }
            let lost = posix.fs.meta().lost();
            flushed.and_then(|()| handle.hear(lost))
        })
    }

    /// Releases a file after its last descriptor is gone. The next descriptor may be open by now,
    /// and the kernel may give its lock owner the number that this one had.
    pub fn release(self: &Arc<Posix>, file: Descriptor) -> Answer<()> {
        let Some(handle) = self.files.take(file) else { return Answer::Now(()) };
        let node = Arc::clone(&handle.node);
        let lockers = handle.leave_locks();
        if !node.is_dirty() && !node.is_retained() && lockers.is_empty() {
            self.files.close(node.ino);
            return Answer::Now(());
        }
        let posix = Arc::clone(self);
        node.answer(async move { posix.close(&handle, lockers).await })
    }

    async fn close(&self, handle: &Handle, lockers: Vec<u64>) {
        let node = &handle.node;
        let is_last = self.files.is_last(node.ino);
        if is_last && !node.is_nameless() {
            // Writes through a mapping arrive after the last flush.
            node.flush_later(|bytes| self.dirt.less(bytes)).await;
        }
        for owner in lockers {
            self.release_locks(handle, owner).await;
        }
        if self.files.close(node.ino) {
            let lost = node.discard();
            self.dirt.less(lost);
            if node.is_retained() {
                self.let_go(node.ino).await;
            }
            if lost > 0 && !node.is_nameless() {
                tracing::error!(ino = %node.ino, bytes = lost, "written, and LOST: see above why");
            }
        }
    }

    pub fn open_directory(&self, ino: Ino) -> Descriptor {
        self.files.open_directory(ino)
    }

    pub fn close_directory(&self, directory: Descriptor) {
        self.files.close_directory(directory);
    }
}
