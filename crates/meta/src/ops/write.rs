//! Writes a range of a file.

use std::collections::BTreeSet;

use bytes::Bytes;
use cairn_base::{BodyId, Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::body::{open_file, put_data, store_changed};
use super::namespace::chunk_of;
use crate::rows::{Extent, Inode};
use crate::{Context, Stop, Verb, View, keys};

pub use super::body::Data;

/// Overwrites bytes of a file from `offset` on; extends the file if they end beyond its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    pub ino: Ino,
    pub session: SessionId,
    /// Set if the caller holds the file open for writing: its mode was checked then.
    pub opened: bool,
    /// Unused body of the session, for a file that has no body of its own.
    pub spare: BodyId,
    pub offset: u64,
    /// Bytes. Blocks are owned by the chunk of the file in which they begin.
    pub data: Data,
}

impl Verb for Write {
    type Reply = Inode;
    const NAME: &'static str = "write";
    const LEASES_CHANGES: bool = true;
    const POSTS: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        let mut changes = vec![keys::inode(self.ino)];
        if let Data::Blocks { body, extents } = &self.data {
            let chunk = |extent: &Extent| chunk_of(self.offset.saturating_add(extent.offset));
            let chunks: BTreeSet<u32> = extents.iter().map(chunk).collect();
            changes.extend(chunks.into_iter().map(|chunk| keys::extents(*body, chunk)));
        }
        changes
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// `Conflict` if blocks were written for a body that is not the file's (any more). `TooLarge`
    /// if the chunk must be coalesced first, or the body is shared and very long.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        self.data.check(self.session)?;
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        if self.data.is_empty() {
            return Ok(inode);
        }
        put_data(view, context, &mut inode, self.spare, self.offset, &self.data, None)?;
        let size = inode.size.max(self.offset + self.data.len());
        store_changed(view, context, self.ino, &mut inode, size)?;
        Ok(inode)
    }
}
