//! Blocks and bodies that were disclosed to a session, and their buckets. A session may read no
//! other block, and ask for the extents of no other body. A block's id says nothing about the right
//! to read it, and can be guessed from another id. Disclosure is not that right either: it is
//! decided again, in the bucket, each time.
//!
//! The memory for this is bounded for all sessions together. What was forgotten is disclosed again
//! when the mount opens the file again, which it does when it is refused a block.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, BucketId, SessionId};
use cairn_meta::keys;
use cairn_meta::rows::{Content, Extent, Extents, Inode, Place, Row};
use parking_lot::Mutex;

/// Ids kept for all sessions together. Each takes 56 to 112 bytes, by how full its table is.
const IDS: usize = 1 << 20;
/// Ids of blocks kept for one session, and of bodies, in each of two halves: beyond that the older
/// half is forgotten.
const IDS_OF_SESSION: usize = IDS / 4;

/// Buckets in which an id was found, the last one first. Files of several buckets may share bytes;
/// beyond two, the older buckets are forgotten.
type Buckets = [Option<BucketId>; 2];

/// Disclosed blocks and bodies of all sessions of a server.
#[derive(Default)]
pub struct DisclosedBlocks {
    sessions: Mutex<DisclosedSessions>,
}

#[derive(Default)]
struct DisclosedSessions {
    sessions: HashMap<SessionId, Both>,
    /// All sessions, by the number of their ids.
    by_size: BTreeSet<(usize, SessionId)>,
    /// Number of the ids of all sessions.
    count: usize,
}

#[derive(Default)]
struct Both {
    blocks: DisclosedIds<BlockId>,
    bodies: DisclosedIds<BodyId>,
}

impl Both {
    fn len(&self) -> usize {
        self.blocks.len() + self.bodies.len()
    }
}

impl DisclosedSessions {
    /// Changes the ids of a session, and keeps the count and the order right.
    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut Both)) {
        let both = self.sessions.entry(session).or_default();
        let before = both.len();
        change(both);
        let after = both.len();
        self.count = self.count - before + after;
        if before != after {
            self.by_size.remove(&(before, session));
        }
        self.by_size.insert((after, session));
    }

    fn remove(&mut self, session: SessionId) {
        if let Some(both) = self.sessions.remove(&session) {
            self.by_size.remove(&(both.len(), session));
            self.count -= both.len();
        }
    }

    /// Adds ids to a session. If all sessions together have too many, the session with the most
    /// forgets some first.
    fn add(&mut self, session: SessionId, add: impl FnOnce(&mut Both)) {
        while self.count >= IDS
            && let Some((_, largest)) = self.by_size.last().copied()
        {
            self.change(largest, |both| {
                if both.blocks.len() > both.bodies.len() {
                    both.blocks.forget_some();
                } else {
                    both.bodies.forget_some();
                }
            });
        }
        self.change(session, add);
    }
}

struct DisclosedIds<T> {
    new: HashMap<T, Buckets>,
    old: HashMap<T, Buckets>,
}

impl<T> Default for DisclosedIds<T> {
    fn default() -> DisclosedIds<T> {
        DisclosedIds { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<T: Hash + Eq> DisclosedIds<T> {
    /// Returns the number of ids. An id in both halves counts twice.
    fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }

    fn insert(&mut self, id: T, bucket: BucketId) {
        if self.new.len() >= IDS_OF_SESSION {
            self.old = std::mem::take(&mut self.new);
        }
        let before = self.buckets(&id);
        let other = before.into_iter().flatten().find(|other| *other != bucket);
        self.new.insert(id, [Some(bucket), other]);
    }

    fn buckets(&self, id: &T) -> Buckets {
        self.new.get(id).or_else(|| self.old.get(id)).copied().unwrap_or_default()
    }

    /// Forgets the older half; if there is none, any half.
    fn forget_some(&mut self) {
        if !std::mem::take(&mut self.old).is_empty() {
            return;
        }
        // The first one goes: a half with one id gets empty.
        let mut stays = true;
        self.new.retain(|_, _| {
            stays = !stays;
            stays
        });
        self.new.shrink_to_fit();
    }

    fn forget(&mut self, bucket: BucketId) {
        for ids in [&mut self.new, &mut self.old] {
            ids.retain(|_, buckets| {
                for of in buckets.iter_mut() {
                    of.take_if(|of| *of == bucket);
                }
                buckets.iter().any(Option::is_some)
            });
        }
    }
}

impl DisclosedBlocks {
    /// Returns the buckets in which a block was disclosed to the session.
    pub fn of_block(&self, session: SessionId, block: BlockId) -> impl Iterator<Item = BucketId> {
        let known = self.sessions.lock();
        let buckets = known.sessions.get(&session).map(|both| both.blocks.buckets(&block));
        buckets.unwrap_or_default().into_iter().flatten()
    }

    /// Returns true if a body in this bucket was disclosed to the session.
    pub fn has_body(&self, session: SessionId, bucket: BucketId, body: BodyId) -> bool {
        self.of_body(session, body).contains(&Some(bucket))
    }

    /// Notes extents. The session's own blocks need no disclosure.
    pub fn of_extents(&self, session: SessionId, bucket: BucketId, extents: &[Extent]) {
        let mut known = self.sessions.lock();
        for extent in extents {
            if let Place::Block { block, .. } = extent.place
                && block.session != session
            {
                known.add(session, |both| both.blocks.insert(block, bucket));
            }
        }
    }

    pub fn of_inode(&self, session: SessionId, inode: &Inode) {
        if let Content::Body(body) = inode.content {
            let mut known = self.sessions.lock();
            known.add(session, |both| both.bodies.insert(body, inode.bucket));
        }
    }

    /// Notes rows that the session gets to keep, from a reply.
    pub fn of_rows(&self, session: SessionId, rows: &[(Bytes, Option<Bytes>)]) {
        for (_, row) in rows.iter().filter(|(key, _)| key.first() == Some(&b'i')) {
            if let Some(Ok(inode)) = row.as_ref().map(Inode::decode) {
                self.of_inode(session, &inode);
            }
        }
        for (key, row) in rows.iter().filter(|(key, _)| keys::is_of_extents(key)) {
            let Some(body) = keys::extents_body(key) else { continue };
            let Some(Ok(row)) = row.as_ref().map(Extents::decode) else { continue };
            for bucket in self.of_body(session, body).into_iter().flatten() {
                self.of_extents(session, bucket, &row.extents);
            }
        }
    }

    /// Notes extents of a body whose bucket is known.
    pub fn of_chunk(&self, session: SessionId, body: BodyId, extents: Vec<Extent>) {
        for bucket in self.of_body(session, body).into_iter().flatten() {
            self.of_extents(session, bucket, &extents);
        }
    }

    fn of_body(&self, session: SessionId, body: BodyId) -> Buckets {
        let known = self.sessions.lock();
        known.sessions.get(&session).map(|both| both.bodies.buckets(&body)).unwrap_or_default()
    }

    /// Forgets what was disclosed in a bucket in which the session may read no longer.
    pub fn forget_bucket(&self, session: SessionId, bucket: BucketId) {
        let mut known = self.sessions.lock();
        if known.sessions.contains_key(&session) {
            known.change(session, |both| {
                both.blocks.forget(bucket);
                both.bodies.forget(bucket);
            });
        }
    }

    pub fn forget(&self, session: SessionId) {
        self.sessions.lock().remove(session);
    }

    /// Returns the number of ids of all sessions.
    pub fn count(&self) -> u64 {
        self.sessions.lock().count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::GroupId;

    const A: BucketId = BucketId(2);
    const B: BucketId = BucketId(3);
    const C: BucketId = BucketId(4);

    fn extent(block: BlockId) -> Extent {
        Extent { offset: 0, len: 10, place: Place::Block { group: GroupId(1), block, offset: 0 } }
    }

    fn buckets(told: &DisclosedBlocks, session: SessionId, block: BlockId) -> Vec<BucketId> {
        told.of_block(session, block).collect()
    }

    #[test]
    fn a_session_knows_what_it_was_told() {
        let told = DisclosedBlocks::default();
        let (own, other) = (SessionId(1), SessionId(2));
        let block = BlockId { session: SessionId(9), counter: 4 };
        told.of_extents(own, A, &[extent(block)]);
        assert_eq!(buckets(&told, own, block), [A]);
        assert_eq!(buckets(&told, other, block), []);
        assert_eq!(buckets(&told, own, BlockId { counter: 5, ..block }), []);
        let body = BodyId { session: SessionId(9), counter: 1 };
        assert!(!told.has_body(own, A, body));
        let inode = Inode { bucket: A, content: Content::Body(body), ..Inode::default() };
        told.of_inode(own, &inode);
        assert!(told.has_body(own, A, body));
        assert!(!told.has_body(other, A, body) && !told.has_body(own, B, body));
        told.forget(own);
        assert!(buckets(&told, own, block).is_empty() && !told.has_body(own, A, body));
    }

    #[test]
    fn rows_of_extents_are_in_the_bucket_of_the_inode() {
        let (told, session) = (DisclosedBlocks::default(), SessionId(1));
        let block = |counter| BlockId { session: SessionId(9), counter };
        let body = |counter| BodyId { session: SessionId(9), counter };
        let row = |of| {
            let extents = Extents { extents: vec![extent(block(of))] };
            (keys::extents(body(of), 0), Some(extents.encode()))
        };
        let inode = Inode { bucket: A, content: Content::Body(body(1)), ..Inode::default() };
        // In whatever order they come.
        let inode = (keys::inode(cairn_base::Ino(5)), Some(inode.encode()));
        told.of_rows(session, &[row(1), row(2), inode]);
        assert_eq!(buckets(&told, session, block(1)), [A]);
        assert_eq!(buckets(&told, session, block(2)), [], "of no inode that it was shown");
    }

    #[test]
    fn a_bucket_is_forgotten_and_what_is_in_another_too_stays() {
        let (told, session) = (DisclosedBlocks::default(), SessionId(1));
        let block = |counter| BlockId { session: SessionId(9), counter };
        told.of_extents(session, A, &[extent(block(1)), extent(block(2))]);
        told.of_extents(session, B, &[extent(block(2)), extent(block(3))]);
        assert_eq!(buckets(&told, session, block(2)), [B, A]);
        told.forget_bucket(session, A);
        assert_eq!(buckets(&told, session, block(1)), []);
        assert_eq!(buckets(&told, session, block(2)), [B]);
        assert_eq!(buckets(&told, session, block(3)), [B]);
        told.of_extents(session, A, &[extent(block(2))]);
        told.of_extents(session, C, &[extent(block(2))]);
        assert_eq!(buckets(&told, session, block(2)), [C, A]);
    }

    #[test]
    fn what_was_told_long_ago_is_forgotten() {
        let told = DisclosedBlocks::default();
        let session = SessionId(1);
        let block = |counter| BlockId { session: SessionId(9), counter };
        let most = IDS_OF_SESSION as u64;
        for counter in 0..2 * most + 1 {
            told.of_extents(session, A, &[extent(block(counter))]);
        }
        assert_eq!(buckets(&told, session, block(0)), []);
        assert_eq!(buckets(&told, session, block(2 * most)), [A]);
        assert_eq!(buckets(&told, session, block(most)), [A]);
    }

    #[test]
    fn own_blocks_take_no_memory() {
        let (told, session) = (DisclosedBlocks::default(), SessionId(1));
        told.of_extents(session, A, &[extent(BlockId { session, counter: 4 })]);
        assert_eq!(told.count(), 0);
    }

    #[test]
    fn all_sessions_together_have_a_limit_and_the_largest_forgets_first() {
        let told = DisclosedBlocks::default();
        let block = |counter| BlockId { session: SessionId(99), counter };
        let small = SessionId(1);
        told.of_extents(small, A, &[extent(block(0))]);
        let large = 2..12;
        let each = IDS as u64 / 8;
        for session in large.clone().map(SessionId) {
            let all: Vec<Extent> = (0..each).map(|counter| extent(block(counter))).collect();
            told.of_extents(session, A, &all);
            assert!(told.count() <= IDS as u64);
            let last = buckets(&told, session, block(each - 1));
            assert_eq!(last, [A], "what was disclosed last is known");
        }
        assert_eq!(buckets(&told, small, block(0)), [A]);
        let known = told.sessions.lock();
        let sizes = known.sessions.iter().map(|(session, both)| (both.len(), *session));
        assert_eq!(known.by_size, sizes.collect::<BTreeSet<_>>(), "the order follows");
        drop(known);
        large.map(SessionId).for_each(|session| told.forget(session));
        assert_eq!(told.count(), 1);
        told.forget_bucket(small, A);
        told.forget_bucket(SessionId(50), A);
        assert_eq!(told.count(), 0);
        told.forget(small);
        assert!(told.sessions.lock().by_size.is_empty());
    }
}
