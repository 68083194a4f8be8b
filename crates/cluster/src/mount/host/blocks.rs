//! Blocks of a mount: writing and reading them, and their places.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{BlockId, Error, Party, Redundancy, Result, SessionId, Share, limits};
use cairn_blocks::Wish;
use cairn_meta::wire;
use tokio::sync::OwnedSemaphorePermit;

use super::super::messages::{Get, Locate, Put, Space};
use super::super::rights::AccessGrant;
use super::{HeldBytes, MountService};
use crate::control::split;
use crate::limits::{MOUNT_PUT_LEAST_BYTES, MOUNT_PUT_PAUSE, MOUNT_PUT_TURN};

impl MountService {
    /// Writes a block, if the blocks of the user that are on their way leave room for it. The block
    /// is not kept while it waits: a slow disk would fill the memory.
    ///
    /// # Errors
    /// `Unavailable` if there was no room: nothing was written, and the mount sends the block again
    /// when it is its turn.
    pub(super) async fn put_in_room(&self, payload: Bytes) -> Result<Bytes> {
        let (user, bytes) = (Party::User(self.user), payload.len() as u64);
        // Short blocks take more memory than their bytes.
        let bytes = bytes.max(MOUNT_PUT_LEAST_BYTES);
        let (room, turns) = (&self.host.unwritten, &self.line.turns);
        match turns.enter(room, user, bytes) {
            // A block may still be written when its mount no longer waits for that.
            Some(room) => {
                self.put(&Bytes::from_owner(HeldBytes { bytes: payload, _room: room })).await
            }
            None => {
                drop(payload);
                turns.wait(room, user, bytes, MOUNT_PUT_PAUSE, MOUNT_PUT_TURN).await;
                let text = "too many blocks of this user wait to be written: try again";
                Err(Error::Unavailable(text.into()))
            }
        }
    }

    async fn put(&self, payload: &Bytes) -> Result<Bytes> {
        let (put, data) = split::<Put>(payload)?;
        self.check_session(put.session)?;
        if put.block.session != put.session {
            return Err(Error::Denied(format!("block {} belongs to another session", put.block)));
        }
        if data.is_empty() || data.len() > limits::BLOCK_BYTES {
            let (len, most) = (data.len(), limits::BLOCK_BYTES);
            return Err(Error::Invalid(format!("a block of {len} bytes; must be 1 to {most}")));
        }
        let granted = self.host.rights.may_write_somewhere(&self.line.caller).await?;
        let len = data.len() as u64;
        self.host.unpublished.take(self.user, put.session, put.block, len)?;
        let redundancy = Redundancy::from_number(put.replicas);
        let wish = Wish { redundancy, group: put.group, ..Wish::default() };
        let written = self.host.blocks.write(granted, wish, put.block, put.owner, data).await;
        if written.is_err() {
            // The mount writes the bytes again as another block: this one no longer counts.
            self.host.unpublished.published(put.session, &[put.block]);
        }
        wire::encode(&written?)
    }

    pub(super) async fn get(&self, payload: &[u8]) -> Result<Bytes> {
        let Get { session, group, block, start, end } = wire::decode(payload)?;
        let granted = self.check_read_of(session, block).await?;
        let length =
            end.checked_sub(start).filter(|length| *length as usize <= limits::BLOCK_BYTES);
        let length = length.ok_or_else(|| {
            let most = limits::BLOCK_BYTES;
            Error::Invalid(format!(
                "bytes {start} to {end} of a block; must be 1 to {most} of them"
            ))
        })?;
        let room = self.room(length).await?;
        let bytes = self.host.blocks.read(granted, group, block, start..end).await?;
        Ok(Bytes::from_owner(HeldBytes { bytes, _room: room }))
    }

    /// Waits for room for `bytes` bytes, which are held until they are sent.
    async fn room(&self, bytes: u32) -> Result<(OwnedSemaphorePermit, Share)> {
        let kib = bytes.div_ceil(1 << 10);
        let closed = |_| Error::Unavailable("the server is stopping".into());
        // Room of the connection comes first: a connection that reads nothing takes no more than
        // its own.
        let own = Arc::clone(&self.line.unsent).acquire_many_owned(kib).await.map_err(closed)?;
        Ok((own, self.host.unsent.take(Party::User(self.user), bytes.into()).await))
    }

    pub(super) fn near(&self) -> Result<Bytes> {
        wire::encode(&self.host.directory.as_ref().filter(|_| self.is_near))
    }

    pub(super) async fn locate(&self, payload: &[u8]) -> Result<Bytes> {
        let Locate { session, group, block } = wire::decode(payload)?;
        let granted = self.check_read_of(session, block).await?;
        wire::encode(&self.host.blocks.place(granted, group, block).filter(|_| self.is_near))
    }

    /// Checks that the session may read a block: its own block, or one in a bucket that its user
    /// may read, if it was disclosed to the session there.
    async fn check_read_of(&self, session: SessionId, block: BlockId) -> Result<AccessGrant> {
        self.check_session(session)?;
        if let Some(granted) = AccessGrant::own(session, block) {
            return Ok(granted);
        }
        let (rights, caller) = (&self.host.rights, &self.line.caller);
        for bucket in self.host.told.of_block(session, block) {
            match rights.may(caller, Action::GetObject, bucket).await {
                Ok(granted) => return Ok(granted),
                Err(Error::Denied(_)) => self.host.told.forget_bucket(session, bucket),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Denied(format!(
            "block {block} is in no file that this mount has read: open the file again"
        )))
    }

    pub(super) async fn space(&self) -> Result<Bytes> {
        let usage = self.host.blocks.room().await?;
        wire::encode(&Space { live_bytes: usage.live_bytes, free_bytes: usage.free_bytes })
    }
}
