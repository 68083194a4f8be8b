//! Replaces many extents by fewer extents with the same bytes.

use cairn_auth::Action;
use cairn_base::{BodyId, Error, Ino, SessionId, limits};
use serde::{Deserialize, Serialize};

use super::body::check_block;
use super::edit::{extents_between, insert, reach, store_edited};
use super::namespace::{is_shared, load_extents, require_session};
use super::posix::open_inode;
use crate::rows::{Content, Extent, Extents};
use crate::{Context, Stop, Verb, View};

/// Replaces `replaces` by `with` in one chunk of a body. Both hold the same bytes, and `with` may
/// also hold the zeros of holes between them. Readers of the file see no change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Coalesce {
    pub ino: Ino,
    pub session: SessionId,
    pub body: BodyId,
    pub chunk: u32,
    /// Extents as returned by [`ReadChunk`].
    pub replaces: Vec<Extent>,
    /// Blocks of the session, written for this body and chunk.
    pub with: Vec<Extent>,
}

impl Verb for Coalesce {
    /// `true` if the extents were replaced. `false` if any of `replaces` has changed or is gone, if
    /// something was written into a hole meanwhile, or if the body is shared or no longer the
    /// file's.
    type Reply = bool;
    const NAME: &'static str = "coalesce";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        let inode = open_inode(view, context, self.ino, Action::PutObject)?;
        require_session(view, self.session)?;
        self.check()?;
        if inode.content != Content::Body(self.body) || is_shared(view, self.body)? {
            return Ok(false);
        }
        let row = load_extents(view, self.body, self.chunk)?;
        if !self.replaces.iter().all(|extent| row.extents.contains(extent)) {
            return Ok(false);
        }
        for extent in &self.with {
            let present = extents_between(view, self.body, extent.offset, extent.end())?;
            let replaced =
                |piece: &Extent| self.replaces.iter().any(|whole| contains(whole, piece));
            if extent.end() > inode.size || !present.iter().all(replaced) {
                return Ok(false);
            }
        }
        let mut after = Extents::default();
        let kept = row.extents.iter().filter(|extent| !self.replaces.contains(extent));
        after.extents = kept.cloned().collect();
        for extent in &self.with {
            insert(&mut after.extents, extent.clone());
        }
        store_edited(view, context, self.body, self.chunk, &row.extents, &after)?;
        Ok(true)
    }
}

impl Coalesce {
    /// Checks the extents.
    ///
    /// # Errors
    /// `Invalid` unless `with` is in order and holds every byte of `replaces`.
    fn check(&self) -> Result<(), Error> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for extent in &self.with {
            check_block(extent, self.session)?;
            match runs.last_mut() {
                Some(run) if run.1 == extent.offset => run.1 = extent.end(),
                Some(run) if run.1 > extent.offset => {
                    return Err(Error::Invalid(format!(
                        "an extent at {} is named twice",
                        extent.offset
                    )));
                }
                _ => runs.push((extent.offset, extent.end())),
            }
        }
        let (start, end) = (u64::from(self.chunk) * limits::CHUNK_BYTES, reach(self.chunk));
        if let Some(run) = runs.iter().find(|run| run.0 < start || run.1 > end) {
            return Err(Error::Invalid(format!("the extent at {} is not in the chunk", run.0)));
        }
        let held = |extent: &Extent| {
            runs.iter().any(|run| run.0 <= extent.offset && extent.end() <= run.1)
        };
        match self.replaces.iter().find(|extent| !held(extent)) {
            None => Ok(()),
            Some(lost) => {
                Err(Error::Invalid(format!("the extent at {} would be lost", lost.offset)))
            }
        }
    }
}

fn contains(whole: &Extent, piece: &Extent) -> bool {
    whole.slice(piece.offset, piece.end()).as_ref() == Some(piece)
}

/// Reads the extents of one chunk of a file's body unchanged, to be coalesced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadChunk {
    pub ino: Ino,
    pub chunk: u32,
}

impl Verb for ReadChunk {
    /// The body and its extents, `None` for a file without a body.
    type Reply = Option<(BodyId, Vec<Extent>)>;
    const NAME: &'static str = "read_chunk";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let inode = open_inode(view, context, self.ino, Action::GetObject)?;
        let Content::Body(body) = inode.content else { return Ok(None) };
        Ok(Some((body, load_extents(view, body, self.chunk)?.extents)))
    }
}
