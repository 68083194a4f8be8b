//! Appends to a file.

use bytes::Bytes;
use cairn_base::{BodyId, Error, Ino, SessionId, limits};
use serde::{Deserialize, Serialize};

use super::body::{Data, open_file, put_data, store_changed};
use super::namespace::{chunk_of, load_extents};
use crate::rows::{Content, Inode, Place};
use crate::{Context, Stop, Verb, View, keys};

/// Appends bytes at the end that the file has when this operation runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Append {
    pub ino: Ino,
    pub session: SessionId,
    /// Set if the caller holds the file open for writing: its mode was checked then.
    pub opened: bool,
    /// Unused body of the session, for a file that has no body of its own.
    pub spare: BodyId,
    /// Chunk that the blocks were written for: that of the end known to the caller.
    pub chunk: u32,
    /// At most 4 MiB, so that the bytes may begin in one chunk and end in the next.
    pub data: Data,
}

/// The result of an append.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendReply {
    /// Offset of the appended bytes.
    pub offset: u64,
    pub inode: Inode,
    /// Inline bytes in the chunk of `offset`. From [`super::edit::COALESCE_BYTES`] on, the caller
    /// moves inline extents to a block by `Coalesce`, except the last, which may still grow.
    pub inline_bytes: u64,
}

impl Verb for Append {
    type Reply = AppendReply;
    const NAME: &'static str = "append";

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::inode(self.ino)]
    }

    /// Appends.
    ///
    /// # Errors
    /// `Conflict` if blocks were written for another body or chunk than those of the current end.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<AppendReply, Stop> {
        self.data.check(self.session)?;
        if self.data.len() > limits::BLOCK_BYTES as u64 {
            let what = format!("append of {} bytes: use smaller ones", self.data.len());
            return Err(Error::TooLarge(what).into());
        }
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        let offset = inode.size;
        let chunk = chunk_of(offset);
        if matches!(self.data, Data::Blocks { .. }) && self.chunk != chunk {
            let what = format!("blocks are for chunk {}, the end is in {chunk}", self.chunk);
            return Err(Error::Conflict(what).into());
        }
        if !self.data.is_empty() {
            let (spare, data) = (self.spare, &self.data);
            put_data(view, context, &mut inode, spare, offset, data, Some(chunk))?;
            store_changed(view, context, self.ino, &mut inode, offset + self.data.len())?;
        }
        let inline_bytes = inline_bytes(view, &inode, chunk)?;
        Ok(AppendReply { offset, inode, inline_bytes })
    }
}

fn inline_bytes(view: &mut View<'_>, inode: &Inode, chunk: u32) -> Result<u64, Stop> {
    let Content::Body(body) = &inode.content else { return Ok(0) };
    let row = load_extents(view, *body, chunk)?;
    let inline = row.extents.iter().filter(|extent| matches!(extent.place, Place::Inline(_)));
    Ok(inline.map(|extent| extent.len).sum())
}
