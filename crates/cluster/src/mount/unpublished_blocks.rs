//! Blocks that mounts have written and no operation has published yet. They are on disk, in no
//! bucket's usage, and stay until the session ends: so there is a limit to those of a user.

use std::collections::HashMap;

use cairn_base::{BlockId, Error, Result, SessionId, UserId};
use parking_lot::Mutex;

use crate::limits::{UNPUBLISHED_BYTES, UNPUBLISHED_LEAST};

/// Unpublished blocks of all sessions of a server.
#[derive(Default)]
pub struct UnpublishedBlocks(Mutex<All>);

#[derive(Default)]
struct All {
    sessions: HashMap<SessionId, One>,
    users: HashMap<UserId, u64>,
}

struct One {
    user: UserId,
    blocks: HashMap<BlockId, u64>,
}

impl UnpublishedBlocks {
    /// Notes that a block is about to be written.
    ///
    /// # Errors
    /// `Full` if the user has too many unpublished blocks.
    pub fn take(&self, user: UserId, session: SessionId, block: BlockId, len: u64) -> Result<()> {
        let len = len.max(UNPUBLISHED_LEAST);
        let All { sessions, users } = &mut *self.0.lock();
        let bytes = users.entry(user).or_default();
        if bytes.saturating_add(len) > UNPUBLISHED_BYTES {
            let text = format!(
                "this user has {bytes} bytes written by mounts that are in no file: unmount, and \
                 mount again, to be rid of them",
            );
            return Err(Error::Full(text));
        }
        *bytes += len;
        let one = sessions.entry(session).or_insert_with(|| One { user, blocks: HashMap::new() });
        if let Some(before) = one.blocks.insert(block, len) {
            *bytes -= before;
        }
        Ok(())
    }

    pub fn has_any(&self, session: SessionId) -> bool {
        self.0.lock().sessions.contains_key(&session)
    }

    /// Notes that an operation has published these blocks.
    pub fn published(&self, session: SessionId, blocks: &[BlockId]) {
        let All { sessions, users } = &mut *self.0.lock();
        let Some(one) = sessions.get_mut(&session) else { return };
        let freed = blocks.iter().filter_map(|block| one.blocks.remove(block)).sum();
        let (user, is_empty) = (one.user, one.blocks.is_empty());
        if is_empty {
            sessions.remove(&session);
        }
        give_back(users, user, freed);
    }

    /// Forgets a session that is not here any more: its remains are deleted when it has ended.
    pub fn forget(&self, session: SessionId) {
        let All { sessions, users } = &mut *self.0.lock();
        if let Some(One { user, blocks }) = sessions.remove(&session) {
            give_back(users, user, blocks.values().sum());
        }
    }
}

fn give_back(users: &mut HashMap<UserId, u64>, user: UserId, freed: u64) {
    if let Some(bytes) = users.get_mut(&user) {
        *bytes = bytes.saturating_sub(freed);
        if *bytes == 0 {
            users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_published_is_limited_by_user() {
        let unpublished = UnpublishedBlocks::default();
        let (one, other) = (UserId(2), UserId(3));
        let (first, second) = (SessionId(7), SessionId(8));
        let block = |session, counter| BlockId { session, counter };
        let half = UNPUBLISHED_BYTES / 2;
        unpublished.take(one, first, block(first, 1), half).unwrap();
        // A block that is written again counts once.
        unpublished.take(one, first, block(first, 1), half).unwrap();
        unpublished.take(one, second, block(second, 1), half).unwrap();
        let full = unpublished.take(one, second, block(second, 2), 1);
        assert!(matches!(full, Err(Error::Full(_))), "{full:?}");
        unpublished.take(other, SessionId(9), block(SessionId(9), 1), half).unwrap();
        unpublished.published(first, &[block(first, 1), block(first, 2)]);
        assert!(!unpublished.has_any(first));
        unpublished.take(one, second, block(second, 2), 1).unwrap();
        unpublished.forget(second);
        unpublished.take(one, first, block(first, 3), UNPUBLISHED_BYTES).unwrap();
        assert!(unpublished.take(one, first, block(first, 4), 0).is_err(), "each counts some");
    }
}
