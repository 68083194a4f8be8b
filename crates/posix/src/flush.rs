//! Writes back dirty bytes.

use std::pin::pin;
use std::sync::Arc;

use cairn_base::waits;
use cairn_base::{Error, Result};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::handle::{Descriptor, Handle};
use crate::node::Node;
use crate::posix::Posix;

impl Posix {
    /// Makes the bytes written to a file, and all operations so far, durable.
    pub fn sync(self: &Arc<Posix>, file: Descriptor) -> Answer<Result<()>> {
        let handle = match self.usable(file) {
            Ok(handle) => handle,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move { posix.sync_file(&handle).await })
    }

    /// Makes all operations so far durable.
    pub fn sync_directory(self: &Arc<Posix>, directory: Descriptor) -> Answer<Result<()>> {
        let directory = match self.files.directory(directory) {
            Ok(directory) => directory,
            Err(error) => return Answer::Now(Err(error)),
        };
        let posix = Arc::clone(self);
        Answer::later(async move {
            posix.fs.meta().flush().await?;
            // Fails if operations were lost and that was not reported through this descriptor yet.
            directory.heard.hear(posix.fs.meta().lost())
        })
    }

    pub(crate) async fn sync_file(&self, handle: &Handle) -> Result<()> {
        handle.node.flush(|bytes| self.dirt.less(bytes)).await?;
        self.fs.meta().flush().await?;
        handle.hear(self.fs.meta().lost())
    }

    /// Waits until writers may go on. They may not while write-back fails.
    pub(crate) async fn has_room(&self, handle: &Handle) -> Result<()> {
        let (node, account) = (&handle.node, handle.account(&self.dirt));
        let began = Instant::now();
        while self.dirt.is_full(account) {
            let less = self.dirt.wait();
            node.flush(|bytes| self.dirt.less(bytes)).await?;
            if !self.dirt.is_full(account) {
                return Ok(());
            }
            // Other files hold the rest of the bytes.
            let _ = tokio::time::timeout(waits::DIRTY_ROOM_LOOK, less).await;
            if began.elapsed() > waits::DIRTY_ROOM {
                return Err(Error::Unavailable(
                    "the mount's dirty data was not written back in time: see its log".into(),
                ));
            }
        }
        Ok(())
    }

    /// Writes back bytes that have waited for a while, and forgets files that are not read any
    /// more. To be called every few seconds.
    pub fn sweep(self: &Arc<Posix>) {
        self.files.keep_readers(Node::sweep);
        for node in self.files.nodes() {
            node.sweep();
            if node.is_dirty() && !node.is_writing_back() {
                let posix = Arc::clone(self);
                self.runtime.spawn(async move {
                    node.flush_later(|bytes| posix.dirt.less(bytes)).await;
                });
            }
        }
    }

    /// Writes back the bytes of a file and waits for that, but not for long. The write-back goes on
    /// meanwhile and after.
    pub(crate) async fn write_back_soon(self: &Arc<Posix>, node: Arc<Node>) {
        let posix = Arc::clone(self);
        let flush = async move { node.flush_later(|bytes| posix.dirt.less(bytes)).await };
        let mut flush = Box::pin(flush);
        if futures_util::poll!(flush.as_mut()).is_pending() {
            let _ = tokio::time::timeout(waits::DIRTY_ROOM_LOOK, self.runtime.spawn(flush)).await;
        }
    }

    /// Writes back the bytes of all files; errors are logged. Gives up if nothing could be written
    /// back for [`waits::WRITTEN_BACK`].
    pub async fn flush_all(&self) {
        let mut flushed = pin!(async {
            for node in self.files.nodes() {
                node.flush_later(|bytes| self.dirt.less(bytes)).await;
            }
            if let Err(error) = self.fs.meta().flush().await {
                tracing::error!(%error, "the last changes may not be durable");
            }
        });
        let mut written = self.dirt.written_back();
        while tokio::time::timeout(waits::WRITTEN_BACK, &mut flushed).await.is_err() {
            let bytes = self.dirt.bytes();
            if self.dirt.written_back() == written {
                tracing::error!(bytes, "nothing could be written back for too long: it is LOST");
                return;
            }
            written = self.dirt.written_back();
        }
    }
}
