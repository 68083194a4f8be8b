//! Sets the length of a file, and makes holes.

use bytes::Bytes;
use cairn_base::{BodyId, Error, Ino, SessionId, limits};
use serde::{Deserialize, Serialize};

use super::body::{FILE_BYTES, open_file, own_body, store_changed, store_touched};
use super::edit::clear_down;
use super::namespace::{is_shared, release_body};
use crate::rows::{Content, Inode};
use crate::{Context, Stop, Verb, View, keys};

/// Cuts a file to `size` bytes, or extends it by a hole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truncate {
    pub ino: Ino,
    pub session: SessionId,
    /// Set if the caller holds the file open for writing: its mode was checked then.
    pub opened: bool,
    /// Unused body of the session, in case the file's is shared.
    pub spare: BodyId,
    pub size: u64,
}

/// The result of a truncation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TruncateReply {
    /// Inode with the size reached.
    pub inode: Inode,
    /// Set if it was too much for one operation: call again.
    pub more: bool,
}

impl Verb for Truncate {
    type Reply = TruncateReply;
    const NAME: &'static str = "truncate";
    const LEASES_CHANGES: bool = true;

    fn changes(&self) -> Vec<Bytes> {
        vec![keys::inode(self.ino)]
    }

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<TruncateReply, Stop> {
        if self.size > FILE_BYTES {
            let what = format!("file of {} bytes; at most {FILE_BYTES}", self.size);
            return Err(Error::TooLarge(what).into());
        }
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        if self.size == inode.size {
            // The bytes stay, and so do their digests.
            store_touched(view, context, self.ino, &mut inode, false)?;
            return Ok(TruncateReply { inode, more: false });
        }
        let mut size = self.size;
        if size < inode.size {
            let end = inode.size;
            size = make_hole(view, context, &mut inode, self.spare, size, end)?;
        }
        store_changed(view, context, self.ino, &mut inode, size)?;
        Ok(TruncateReply { more: size > self.size, inode })
    }
}

/// Makes a hole of a range of a file; its size stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PunchHole {
    pub ino: Ino,
    pub session: SessionId,
    /// Set if the caller holds the file open for writing: its mode was checked then.
    pub opened: bool,
    /// Unused body of the session, in case the file's is shared.
    pub spare: BodyId,
    pub offset: u64,
    pub len: u64,
}

/// The result of punching a hole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PunchReply {
    pub inode: Inode,
    /// Bytes from `offset` on that were too much for one operation: call again with this length.
    pub remaining: u64,
}

impl Verb for PunchHole {
    type Reply = PunchReply;
    const NAME: &'static str = "punch_hole";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<PunchReply, Stop> {
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        let end = self.offset.saturating_add(self.len).min(inode.size);
        if self.len == 0 {
            return Err(Error::Invalid("a hole must have at least one byte".into()).into());
        }
        if self.offset >= end {
            store_touched(view, context, self.ino, &mut inode, false)?;
            return Ok(PunchReply { inode, remaining: 0 });
        }
        let done = make_hole(view, context, &mut inode, self.spare, self.offset, end)?;
        let size = inode.size;
        store_changed(view, context, self.ino, &mut inode, size)?;
        Ok(PunchReply { inode, remaining: done - self.offset })
    }
}

/// Extends a file to at least `end` by a hole; never cuts it. A file that reaches that far keeps
/// its bytes, but loses what every change of bytes takes away.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Extend {
    pub ino: Ino,
    pub session: SessionId,
    /// Set if the caller holds the file open for writing: its mode was checked then.
    pub opened: bool,
    pub end: u64,
}

impl Verb for Extend {
    type Reply = Inode;
    const NAME: &'static str = "extend";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Inode, Stop> {
        if self.end > FILE_BYTES {
            let what = format!("file of {} bytes; at most {FILE_BYTES}", self.end);
            return Err(Error::TooLarge(what).into());
        }
        let mut inode = open_file(view, context, self.ino, self.session, self.opened)?;
        if self.end > inode.size {
            store_changed(view, context, self.ino, &mut inode, self.end)?
        } else {
            store_touched(view, context, self.ino, &mut inode, false)?
        }
        Ok(inode)
    }
}

/// Makes a hole of `start..end`, from the end down; returns the offset from which on it is done.
fn make_hole(
    view: &mut View<'_>,
    context: &Context,
    inode: &mut Inode,
    spare: BodyId,
    start: u64,
    end: u64,
) -> Result<u64, Stop> {
    match &inode.content {
        Content::Empty => {}
        Content::Inline(bytes) => inode.content = hole_inline(bytes, start, end),
        Content::Body(body) if start == 0 && end >= inode.size => {
            release_body(view, *body)?;
            inode.content = Content::Empty;
        }
        Content::Body(body) if is_shared(view, *body)? => {
            own_body(view, inode, spare, start, end)?;
        }
        Content::Body(body) => return clear_down(view, context, *body, start, end),
    }
    Ok(start)
}

fn hole_inline(bytes: &bytes::Bytes, start: u64, end: u64) -> Content {
    let clamp = |offset: u64| offset.min(bytes.len() as u64).min(limits::OP_BYTES as u64) as usize;
    let (start, end) = (clamp(start), clamp(end));
    let mut rest = bytes.to_vec();
    if end == rest.len() {
        rest.truncate(start)
    } else {
        rest[start..end].fill(0)
    }
    if rest.is_empty() { Content::Empty } else { Content::Inline(rest.into()) }
}
