//! Sessions that are attached through this process, as far as it knows: their blocks are read and
//! written here.

use std::collections::HashMap;
use std::time::Duration;

use cairn_base::{SessionId, UserId};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Sessions of mounts. A session whose connection is lost counts until its lease is over, as it
/// does for the master: the mount is about to attach it again.
#[derive(Default)]
pub struct AttachedSessions {
    sessions: Mutex<HashMap<SessionId, One>>,
}

struct One {
    user: UserId,
    connection: u64,
    lease: Duration,
    /// End of its life, if it is not renewed.
    until: Instant,
}

impl AttachedSessions {
    /// Notes that the session was attached by a message sent at `sent`.
    pub fn begin(
        &self,
        session: SessionId,
        user: UserId,
        connection: u64,
        sent: Instant,
        lease: Duration,
    ) {
        let one = One { user, connection, lease, until: sent + lease };
        self.sessions.lock().insert(session, one);
    }

    /// Notes that the session was renewed by a message sent at `sent`.
    pub fn renew(&self, session: SessionId, connection: u64, sent: Instant) {
        let mut sessions = self.sessions.lock();
        if let Some(one) = sessions.get_mut(&session).filter(|one| one.connection == connection) {
            one.until = one.until.max(sent + one.lease);
        }
    }

    /// Returns true if the session is attached by this user.
    pub fn is_of(&self, session: SessionId, user: UserId) -> bool {
        let sessions = self.sessions.lock();
        sessions.get(&session).is_some_and(|one| one.user == user && Instant::now() < one.until)
    }

    /// Ends a session if it is attached over this connection. Returns true if it was.
    pub fn end(&self, session: SessionId, connection: u64) -> bool {
        let mut sessions = self.sessions.lock();
        let was = sessions.get(&session).is_some_and(|one| one.connection == connection);
        if was {
            sessions.remove(&session);
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_is_of_its_user_until_its_lease_is_over() {
        let (attached, lease) = (AttachedSessions::default(), Duration::from_secs(10));
        let (session, user, other) = (SessionId(7), UserId(2), UserId(3));
        attached.begin(session, user, 1, Instant::now(), lease);
        assert!(attached.is_of(session, user));
        assert!(!attached.is_of(session, other) && !attached.is_of(SessionId(8), user));
        tokio::time::advance(lease / 2).await;
        attached.renew(session, 1, Instant::now());
        // Late, over another connection.
        attached.renew(session, 2, Instant::now() + lease);
        tokio::time::advance(lease - Duration::from_millis(1)).await;
        assert!(attached.is_of(session, user));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!attached.is_of(session, user));
        attached.begin(session, user, 2, Instant::now(), lease);
        assert!(!attached.end(session, 1) && attached.is_of(session, user));
        assert!(attached.end(session, 2) && !attached.is_of(session, user));
    }
}
