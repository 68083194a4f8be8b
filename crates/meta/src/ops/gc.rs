//! Garbage: bodies and uploads to drain, blocks to free, blocks that were never published.
//!
//! Nothing here deletes a block. Operations name blocks in `f` rows; the blocks are deleted when no
//! reader can still see a state older than the batch of that row.

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{BlockId, BodyId, Error, GroupId, Owner, UploadId};
use serde::{Deserialize, Serialize};

use super::namespace::{load, load_extents, release_body, store};
use crate::keys::{self, DrainTarget};
use crate::rows::{
    BlockToFree, Content, Drain, Draining, Extents, Part, Place, Row, Session, SessionState,
};
use crate::{Context, Stop, Verb, View};

/// Extent rows drained in one step. A row has up to 1,024 extents: 64 rows would be too many for
/// one operation, 3 always fit.
const STEP_CHUNKS: usize = 3;
/// Part rows drained in one step.
const STEP_PARTS: usize = 500;

/// Lists the bodies and uploads to be drained, after the key `after` of a former reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListDrains {
    pub after: Option<Bytes>,
    pub limit: usize,
}

impl Verb for ListDrains {
    type Reply = Vec<(Bytes, Drain)>;
    const NAME: &'static str = "list_drains";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (mut start, end) = keys::drains();
        if let Some(after) = &self.after {
            start = [after, &b"\0"[..]].concat().into();
        }
        let rows = view.scan(&start, &end, self.limit)?;
        rows.into_iter().map(|(key, row)| Ok((key, Draining::decode(&row)?.drain))).collect()
    }
}

/// Runs one bounded step of draining the body or upload of `key`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainStep {
    pub key: Bytes,
    /// Part of an upload after which to go on, as replied by the step before.
    pub after: u32,
}

/// The progress of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DrainProgress {
    /// Nothing is left.
    Done,
    /// There is more; for an upload, after this part.
    More(u32),
    /// Nothing yet: the session that prepares it lives.
    NotYet,
}

impl Verb for DrainStep {
    type Reply = DrainProgress;
    const NAME: &'static str = "drain_step";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<DrainProgress, Stop> {
        let Some(found) = load::<Draining>(view, &self.key)? else {
            return Ok(DrainProgress::Done);
        };
        let drain = found.drain;
        let target = keys::drain_target(&self.key)
            .ok_or_else(|| Error::corrupt("key of a drain", self.key.len(), "a drain key"))?;
        let drained = match (target, drain) {
            (DrainTarget::Body(body), Drain::Body) => drain_body(view, context, body, true)?,
            (DrainTarget::Body(body), Drain::Prepared { session }) => {
                let state = load::<Session>(view, &keys::session(session))?;
                if state.is_some_and(|session| session.state == SessionState::Live) {
                    return Ok(DrainProgress::NotYet);
                }
                drain_body(view, context, body, false)?
            }
            (DrainTarget::Upload(upload), drain) => drain_parts(view, upload, drain, self.after)?,
            (DrainTarget::Body(body), drain) => {
                let what = format!("drain of body {body}");
                return Err(Error::corrupt(what, format!("{drain:?}"), "a body's").into());
            }
        };
        if drained == DrainProgress::Done {
            view.delete(self.key.clone());
        }
        Ok(drained)
    }
}

/// Frees the blocks of a body. Releases its references to other bodies, if it `owns` them.
fn drain_body(
    view: &mut View<'_>,
    context: &Context,
    body: BodyId,
    owns: bool,
) -> Result<DrainProgress, Stop> {
    let (start, end) = keys::extents_from(body, 0);
    let rows = view.scan(&start, &end, STEP_CHUNKS)?;
    let more = rows.len() == STEP_CHUNKS;
    for (key, row) in rows {
        for extent in Extents::decode(&row)?.extents {
            match extent.place {
                Place::Block { group, block, .. } => free(view, context, group, block),
                Place::Body { body, .. } if owns => release_body(view, body)?,
                Place::Body { .. } | Place::Inline(_) => {}
            }
        }
        view.delete(key);
    }
    Ok(if more { DrainProgress::More(0) } else { DrainProgress::Done })
}

/// Notes a block for freeing.
pub fn free(view: &mut View<'_>, context: &Context, group: GroupId, block: BlockId) {
    store(view, keys::freed(context.batch, block), &BlockToFree::new(group));
}

fn drain_parts(
    view: &mut View<'_>,
    upload: UploadId,
    drain: Drain,
    after: u32,
) -> Result<DrainProgress, Stop> {
    let (start, end) = keys::parts_from(upload, after + 1);
    let rows = view.scan(&start, &end, STEP_PARTS)?;
    let mut last = after;
    let more = rows.len() == STEP_PARTS;
    for (key, row) in rows {
        last = keys::part_number(&key).unwrap_or(last);
        let mut part = Part::decode(&row)?;
        let kept = match drain {
            Drain::Completed { body } | Drain::PartTable { body: Some(body) } => {
                part.taken == Some(body)
            }
            _ => false,
        };
        if !kept {
            super::multipart::release_part(view, &part)?;
        }
        part.content = Content::Empty;
        part.further_references = 0;
        if kept && matches!(drain, Drain::Completed { .. }) {
            store(view, key, &part);
        } else {
            view.delete(key);
        }
    }
    Ok(if more { DrainProgress::More(last) } else { DrainProgress::Done })
}

/// Lists blocks freed by batches before `before`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListFreed {
    pub before: u64,
    pub limit: usize,
}

/// A block to free, and the batch that freed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FreedBlock {
    pub batch: u64,
    pub group: GroupId,
    pub block: BlockId,
}

impl Verb for ListFreed {
    type Reply = Vec<FreedBlock>;
    const NAME: &'static str = "list_freed";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (start, end) = keys::freed_before(self.before);
        let mut freed = Vec::new();
        for (key, row) in view.scan(&start, &end, self.limit)? {
            let (batch, block) = keys::freed_parts(&key)
                .ok_or_else(|| Error::corrupt("key of a freed block", key.len(), 25))?;
            freed.push(FreedBlock { batch, group: BlockToFree::decode(&row)?.group, block });
        }
        Ok(freed)
    }
}

/// Forgets freed blocks that the chunkserver has deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForgetFreed {
    pub blocks: Vec<FreedBlock>,
}

impl Verb for ForgetFreed {
    type Reply = ();
    const NAME: &'static str = "forget_freed";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        for freed in &self.blocks {
            view.delete(keys::freed(freed.batch, freed.block));
        }
        Ok(())
    }
}

/// Decides which blocks of an inventory were never published by a session that has ended, and notes
/// them for freeing. Blocks of a session that the metadata do not know are never touched, nor those
/// of a session that was loaded from a dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FreeOrphans {
    pub group: GroupId,
    pub candidates: Vec<(BlockId, Owner)>,
    /// Only counts.
    pub dry_run: bool,
}

/// The outcome for the candidates.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Orphans {
    pub freed: Vec<BlockId>,
    /// Blocks of sessions that the metadata do not know: an older copy of the metadata was
    /// restored.
    pub unknown: u64,
}

impl Verb for FreeOrphans {
    type Reply = Orphans;
    const NAME: &'static str = "free_orphans";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Orphans, Stop> {
        let rows: Vec<Bytes> = self
            .candidates
            .iter()
            .flat_map(|(block, owner)| {
                [keys::session(block.session), keys::extents(owner.body, owner.chunk)]
            })
            .collect();
        view.get_all(&rows)?;
        let mut orphans = Orphans::default();
        for (block, owner) in &self.candidates {
            let session = load::<Session>(view, &keys::session(block.session))?;
            let Some(session) = session.filter(|session| !session.loaded) else {
                orphans.unknown += 1;
                continue;
            };
            let is_live = session.state == SessionState::Live;
            if is_live && !is_planted(Bug::LiveSessionReaped)
                || is_named(view, self.group, *block, *owner)?
            {
                continue;
            }
            orphans.freed.push(*block);
            if !self.dry_run {
                free(view, context, self.group, *block);
            }
        }
        Ok(orphans)
    }
}

/// Returns whether the chunk that owns a block names it in this group. A block that could not be
/// written to all members of one group was written to another.
fn is_named(
    view: &mut View<'_>,
    in_group: GroupId,
    named: BlockId,
    owner: Owner,
) -> Result<bool, Stop> {
    let extents = load_extents(view, owner.body, owner.chunk)?.extents;
    let names = |place: &Place| {
        let Place::Block { group, block, .. } = place else { return false };
        (*group, *block) == (in_group, named)
    };
    Ok(extents.iter().any(|extent| names(&extent.place)))
}
