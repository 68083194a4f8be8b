//! What a session was told of: it may read no other block, and ask for the extents of no other
//! body. A block's id says nothing of who may read it, and can be guessed from that of another.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use cairn_base::{BlockId, BodyId, SessionId};
use cairn_meta::rows::{Content, Extent, Extents, Inode, Place, Row};
use parking_lot::Mutex;

/// Ids kept of a session twice over: then the older half is forgotten.
const IDS: usize = 1 << 19;

/// Of all sessions of a server.
#[derive(Default)]
pub struct Told {
    sessions: Mutex<HashMap<SessionId, Both>>,
}

#[derive(Default)]
struct Both {
    blocks: Known<BlockId>,
    bodies: Known<BodyId>,
}

struct Known<T> {
    new: HashSet<T>,
    old: HashSet<T>,
}

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known { new: HashSet::new(), old: HashSet::new() }
    }
}

impl<T: std::hash::Hash + Eq> Known<T> {
    fn insert(&mut self, id: T) {
        if self.new.len() >= IDS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(id);
    }

    fn contains(&self, id: &T) -> bool {
        self.new.contains(id) || self.old.contains(id)
    }
}

impl Told {
    /// The session may read its own blocks, and those that it was told of.
    pub fn may_read(&self, session: SessionId, block: BlockId) -> bool {
        let sessions = self.sessions.lock();
        block.session == session
            || sessions.get(&session).is_some_and(|both| both.blocks.contains(&block))
    }

    pub fn may_ask(&self, session: SessionId, body: BodyId) -> bool {
        let sessions = self.sessions.lock();
        sessions.get(&session).is_some_and(|both| both.bodies.contains(&body))
    }

    pub fn of_extents(&self, session: SessionId, extents: &[Extent]) {
        let mut sessions = self.sessions.lock();
        let both = sessions.entry(session).or_default();
        for extent in extents {
            if let Place::Block { block, .. } = extent.place {
                both.blocks.insert(block);
            }
        }
    }

    pub fn of_inode(&self, session: SessionId, inode: &Inode) {
        if let Content::Body(body) = inode.content {
            self.sessions.lock().entry(session).or_default().bodies.insert(body);
        }
    }

    /// Rows that the session gets to keep.
    pub fn of_rows(&self, session: SessionId, rows: &[(Bytes, Option<Bytes>)]) {
        for (key, row) in rows {
            let Some(row) = row else { continue };
            match key.first() {
                Some(b'i') => {
                    if let Ok(inode) = Inode::decode(row) {
                        self.of_inode(session, &inode);
                    }
                }
                Some(b'e') => {
                    if let Ok(row) = Extents::decode(row) {
                        self.of_extents(session, &row.extents);
                    }
                }
                _ => {}
            }
        }
    }

    pub fn forget(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::GroupId;

    #[test]
    fn a_session_knows_what_it_was_told() {
        let told = Told::default();
        let (own, other) = (SessionId(1), SessionId(2));
        let block = BlockId { session: SessionId(9), counter: 4 };
        let place = Place::Block { group: GroupId(1), block, offset: 0 };
        told.of_extents(own, &[Extent { offset: 0, len: 10, place }]);
        assert!(told.may_read(own, block) && !told.may_read(other, block));
        let next = BlockId { counter: 5, ..block };
        assert!(!told.may_read(own, next));
        assert!(told.may_read(own, BlockId { session: own, counter: 1 }));
        let body = BodyId { session: SessionId(9), counter: 1 };
        assert!(!told.may_ask(own, body));
        told.of_inode(own, &Inode { content: Content::Body(body), ..Inode::default() });
        assert!(told.may_ask(own, body) && !told.may_ask(other, body));
        told.forget(own);
        assert!(!told.may_read(own, block) && !told.may_ask(own, body));
    }

    #[test]
    fn what_was_told_long_ago_is_forgotten() {
        let told = Told::default();
        let session = SessionId(1);
        let block = |counter| BlockId { session: SessionId(9), counter };
        let extent = |counter| {
            let place = Place::Block { group: GroupId(1), block: block(counter), offset: 0 };
            Extent { offset: 0, len: 1, place }
        };
        for counter in 0..2 * IDS as u64 + 1 {
            told.of_extents(session, &[extent(counter)]);
        }
        assert!(!told.may_read(session, block(0)));
        assert!(told.may_read(session, block(2 * IDS as u64)));
        assert!(told.may_read(session, block(IDS as u64)));
    }
}
