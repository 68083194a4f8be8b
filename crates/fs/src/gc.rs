//! Garbage: drained bodies and uploads, freed blocks, blocks that were never published.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Action, Caller, Resource, authorize};
use cairn_base::planted::{Bug, is_planted};
use cairn_base::waits;
use cairn_base::{BlockId, Error, GroupId, Owner, Result, SessionId};
use cairn_meta::Meta;

use crate::Fs;
use crate::garbage::{GarbageItem, Looks};
use crate::ops::for_call::ForgetCalls;
use crate::ops::gc::{DrainProgress, DrainStep, ForgetFreed, FreeOrphans, ListDrains, ListFreed};
use crate::ops::holds::{EndHolds, ListHolds};
use crate::ops::lock::ReleaseAll;
use crate::ops::put_object::AbandonBody;
use crate::ops::resumable::ExpireResumable;
use crate::ops::retain::LetGoAll;
use crate::ops::sessions::{EndSession, ListSessions};
use crate::rows::{Session, SessionState};

/// Number of rows and blocks handled at once.
const PAGE: usize = 500;
/// Percentage of free space on a disk below which a warning is logged about a backup's hold.
const HOLD_FREE_PERCENT: u64 = 15;

/// The counts of a pass of the garbage collector; for a dry run, the counts of a real pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GcReport {
    /// Number of bodies and uploads whose blocks were marked as freed.
    pub drained: u64,
    /// Number of blocks of former sessions that were never published, and were marked as freed.
    pub orphans: u64,
    /// Number of blocks deleted.
    pub blocks_deleted: u64,
    /// Number of freed blocks that a reader may still need.
    pub blocks_waiting: u64,
    /// Number of blocks of sessions that the metadata does not know. They are never deleted: an
    /// older copy of the metadata was restored beside newer blocks.
    pub blocks_unknown: u64,
}

/// A look at the blocks of a session that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The look at once: most of the session's blocks are there.
    First,
    /// A later look, at blocks that a member which was cut off has passed on to its group since.
    Again,
    /// The look when no more blocks can arrive.
    Last,
}

impl Fs {
    /// Does one pass of the garbage collector. Only root may call this. A dry run changes nothing
    /// and counts what is garbage now; draining may find more.
    pub async fn collect_garbage(&self, caller: &Caller, dry_run: bool) -> Result<GcReport> {
        self.collect(caller, dry_run, true, true).await
    }

    /// Does a pass like [`Fs::collect_garbage`], without a look at all blocks for unknown ones;
    /// and, unless `forgets`, without a look at all calls for those that were done long ago.
    pub async fn collect_known_garbage(&self, caller: &Caller, forgets: bool) -> Result<GcReport> {
        self.collect(caller, false, false, forgets).await
    }

    async fn collect(
        &self,
        caller: &Caller,
        dry_run: bool,
        all: bool,
        forgets: bool,
    ) -> Result<GcReport> {
        let context = caller.context(self.inner.clock.now());
        authorize(caller, Action::CollectGarbage, Resource::Store, &context)?;
        if let (Meta::Remote(_), false) = (&self.inner.meta, dry_run) {
            // A gateway does not know what other gateways read.
            let text = "garbage collection by a gateway: the master does it by itself";
            return Err(Error::NotImplemented(text.into()));
        }
        let mut report = GcReport::default();
        self.drain_all(caller, dry_run, &mut report).await?;
        self.reap_sessions(caller, dry_run, &mut report).await?;
        if all {
            self.count_unknown(caller, &mut report).await?;
        }
        if forgets && !dry_run {
            self.forget_calls(caller).await?;
            self.expire_uploads(caller).await?;
        }
        if !dry_run {
            report.blocks_deleted += self.drop_abandoned().await?;
            self.inner.readers.advance(self.inner.meta.settled_batch());
            self.free_blocks(caller, &mut report).await?;
        }
        let waiting = ListFreed { before: u64::MAX, limit: PAGE };
        report.blocks_waiting = self.read(caller, waiting).await?.len() as u64;
        if all {
            self.warn_of_holds(caller, &report).await?;
        }
        Ok(report)
    }

    /// Forgets calls of clients that have made none recently.
    async fn forget_calls(&self, caller: &Caller) -> Result<()> {
        let mut after = None;
        loop {
            after = self.run(caller, ForgetCalls { after }).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Ends resumable uploads that have expired.
    async fn expire_uploads(&self, caller: &Caller) -> Result<()> {
        let mut after = None;
        loop {
            after = self.run(caller, ExpireResumable { after }).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn drain_all(&self, caller: &Caller, dry_run: bool, report: &mut GcReport) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.read(caller, ListDrains { after, limit: PAGE }).await?;
            for (key, _) in &page {
                if dry_run || self.drain(caller, key).await? {
                    report.drained += 1;
                }
            }
            if page.len() < PAGE {
                return Ok(());
            }
            after = page.last().map(|(key, _)| key.clone());
        }
    }

    /// Drains one body or upload. Returns whether that is finished.
    async fn drain(&self, caller: &Caller, key: &Bytes) -> Result<bool> {
        let mut after = 0;
        loop {
            match self.run(caller, DrainStep { key: key.clone(), after }).await? {
                DrainProgress::More(next) => after = next,
                DrainProgress::Done => return Ok(true),
                DrainProgress::NotYet => return Ok(false),
            }
        }
    }

    /// Looks through the blocks of sessions that have ended for blocks without a name in the
    /// metadata.
    async fn reap_sessions(
        &self,
        caller: &Caller,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<()> {
        for (session, turn) in self.sessions_to_reap(caller).await? {
            if dry_run {
                self.free_orphans(caller, session, dry_run, report).await?;
                continue;
            }
            // Taken before the blocks are listed: blocks that arrive later count as later.
            let now = self.inner.clock.monotonic();
            while self.run(caller, LetGoAll { session }).await? {}
            while self.run(caller, ReleaseAll { session }).await? {}
            self.free_orphans(caller, session, dry_run, report).await?;
            match turn {
                Turn::First | Turn::Again => {
                    let looks = &mut *self.inner.ended.lock();
                    let first = looks.get(&session).map_or(now, |look| look.first);
                    looks.insert(session, Looks { first, again: turn == Turn::Again });
                }
                Turn::Last if is_planted(Bug::LiveSessionReaped) => {}
                Turn::Last => {
                    self.run(caller, EndSession { session, reaped: true }).await?;
                    self.inner.ended.lock().remove(&session);
                }
            }
        }
        Ok(())
    }

    /// Returns whether there are sessions whose blocks must be looked through now.
    pub async fn has_sessions_to_reap(&self, caller: &Caller) -> Result<bool> {
        Ok(!self.sessions_to_reap(caller).await?.is_empty())
    }

    async fn sessions_to_reap(&self, caller: &Caller) -> Result<Vec<(SessionId, Turn)>> {
        let mut due = Vec::new();
        let mut after = None;
        loop {
            let page = self.read(caller, ListSessions { after, limit: PAGE }).await?;
            due.extend(page.iter().filter_map(|(id, row)| Some((*id, self.turn(*id, row)?))));
            if page.len() < PAGE {
                return Ok(due);
            }
            after = page.last().map(|(session, _)| *session);
        }
    }

    /// Returns the look at the blocks of a session that is due, if there is one. The times are
    /// those of this process: clocks of others need not agree with it, and it may restart.
    fn turn(&self, session: SessionId, row: &Session) -> Option<Turn> {
        match row.state {
            SessionState::Ended => {}
            SessionState::Live if is_planted(Bug::LiveSessionReaped) => return Some(Turn::Last),
            _ => return None,
        }
        // The session's process was a former one at this place, and has ended.
        if row.owner == 0 {
            return Some(Turn::Last);
        }
        let Some(looks) = self.inner.ended.lock().get(&session).copied() else {
            return Some(Turn::First);
        };
        let passed = self.inner.clock.monotonic().saturating_sub(looks.first);
        match passed {
            _ if passed >= self.inner.config.late => Some(Turn::Last),
            _ if passed >= waits::LATE_BLOCKS && !looks.again => Some(Turn::Again),
            _ => None,
        }
    }

    async fn free_orphans(
        &self,
        caller: &Caller,
        session: SessionId,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<()> {
        for group in self.inner.blocks.groups() {
            self.free_orphans_in(caller, group, session, dry_run, report).await?;
        }
        Ok(())
    }

    async fn free_orphans_in(
        &self,
        caller: &Caller,
        group: GroupId,
        session: SessionId,
        dry_run: bool,
        report: &mut GcReport,
    ) -> Result<()> {
        let mut after = BlockId { session, counter: 0 };
        loop {
            let page = self.inner.blocks.inventory(group, Some(after), PAGE).await?;
            let own = page.iter().take_while(|info| info.block.session == session);
            let candidates: Vec<(BlockId, Owner)> =
                own.map(|info| (info.block, info.owner)).collect();
            let Some((last, _)) = candidates.last() else { return Ok(()) };
            after = *last;
            let orphans = if dry_run {
                self.read(caller, FreeOrphans { group, candidates, dry_run }).await?
            } else {
                self.run(caller, FreeOrphans { group, candidates, dry_run }).await?
            };
            report.orphans += orphans.freed.len() as u64;
        }
    }

    /// Counts the blocks of sessions that the metadata does not know, session by session.
    async fn count_unknown(&self, caller: &Caller, report: &mut GcReport) -> Result<()> {
        for group in self.inner.blocks.groups() {
            self.count_unknown_in(caller, group, report).await?;
        }
        Ok(())
    }

    async fn count_unknown_in(
        &self,
        caller: &Caller,
        group: GroupId,
        report: &mut GcReport,
    ) -> Result<()> {
        let mut after = None;
        let mut known: Option<SessionId> = None;
        loop {
            let page = self.inner.blocks.inventory(group, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.block);
            for info in &page {
                let session = info.block.session;
                if known == Some(session) {
                    continue;
                }
                let (first, limit) = (SessionId(session.0.wrapping_sub(1)), 1);
                let from = (session.0 > 0).then_some(first);
                let found = self.read(caller, ListSessions { after: from, limit }).await?;
                match found.first() {
                    Some((id, _)) if *id == session => known = Some(session),
                    _ => report.blocks_unknown += 1,
                }
            }
            // On to the next session: the row of this session covers all of its blocks.
            if known == Some(last.block.session) {
                after = Some(BlockId { session: last.block.session, counter: u64::MAX });
            }
        }
    }

    /// Deletes blocks and bodies that this session wrote and will not publish: nothing ever named
    /// them. Returns the number of blocks. After an error the next call tries all of them again.
    pub async fn drop_abandoned(&self) -> Result<u64> {
        let abandoned = std::mem::take(&mut *self.inner.abandoned.lock());
        let dropped = self.drop_all(&abandoned).await;
        if dropped.is_err() {
            self.inner.abandoned.lock().extend(abandoned);
        }
        dropped
    }

    async fn drop_all(&self, abandoned: &[GarbageItem]) -> Result<u64> {
        let mut blocks = Vec::new();
        for one in abandoned {
            match *one {
                GarbageItem::Block(group, block) => blocks.push((group, block)),
                GarbageItem::Body(body) => {
                    self.run(&Caller::system(), AbandonBody { body }).await?
                }
            }
        }
        let count = blocks.len() as u64;
        self.delete_blocks(blocks.into_iter()).await?;
        Ok(count)
    }

    /// Deletes the freed blocks that no reader can need any more.
    async fn free_blocks(&self, caller: &Caller, report: &mut GcReport) -> Result<()> {
        let elsewhere = self.inner.reads_floor.get().map_or(u64::MAX, |floor| floor());
        self.inner.readers.let_go(self.inner.clock.monotonic());
        let before = if is_planted(Bug::GcWithoutGrace) {
            u64::MAX
        } else {
            self.inner.readers.settled().min(elsewhere).saturating_add(1)
        };
        // Read after that batch was settled: a hold that is made from here on holds later batches.
        let before = before.min(self.held_from(caller).await?);
        loop {
            let blocks = self.read(caller, ListFreed { before, limit: PAGE }).await?;
            if blocks.is_empty() {
                return Ok(());
            }
            let all = blocks.iter().map(|freed| (freed.group, freed.block));
            self.delete_blocks(all).await?;
            report.blocks_deleted += blocks.len() as u64;
            self.run(caller, ForgetFreed { blocks }).await?;
        }
    }

    /// Returns the batch from which on freed blocks are held; the highest number if none are. Holds
    /// that have expired are removed before they are ignored.
    async fn held_from(&self, caller: &Caller) -> Result<u64> {
        let now = self.inner.clock.now();
        let mut holds = self.read(caller, ListHolds).await?;
        if holds.iter().any(|hold| hold.ends <= now) {
            self.run(caller, EndHolds).await?;
            holds = self.read(caller, ListHolds).await?;
        }
        let first = holds.iter().map(|hold| hold.batch).min();
        Ok(first.map_or(u64::MAX, |batch| batch.saturating_add(1)))
    }

    /// Warns if a disk fills while a hold keeps freed blocks.
    async fn warn_of_holds(&self, caller: &Caller, report: &GcReport) -> Result<()> {
        if report.blocks_waiting == 0 {
            return Ok(());
        }
        let holds = self.read(caller, ListHolds).await?;
        let Some(oldest) = holds.iter().min_by_key(|hold| hold.batch) else { return Ok(()) };
        let usage = self.inner.blocks.room().await?;
        let all = usage.live_bytes + usage.dead_bytes + usage.free_bytes;
        if usage.free_bytes.saturating_mul(100) < all.saturating_mul(HOLD_FREE_PERCENT) {
            let (owner, blocks) = (&oldest.owner, report.blocks_waiting);
            tracing::warn!(
                owner,
                blocks,
                free_bytes = usage.free_bytes,
                "the disk fills while a backup holds deleted blocks: cairn backup holds"
            );
        }
        Ok(())
    }

    async fn delete_blocks(&self, all: impl Iterator<Item = (GroupId, BlockId)>) -> Result<()> {
        let mut by_group: BTreeMap<GroupId, Vec<BlockId>> = BTreeMap::new();
        for (group, block) in all {
            by_group.entry(group).or_default().push(block);
        }
        for (group, blocks) in by_group {
            for page in blocks.chunks(PAGE) {
                self.inner.blocks.delete(group, page).await?;
            }
        }
        Ok(())
    }
}
