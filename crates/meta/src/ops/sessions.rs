//! The store's identity and its sessions.

use bytes::Bytes;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Error, Ino, SessionId};
use serde::{Deserialize, Serialize};

use super::namespace::{load, load_counter, store};
use crate::rows::{Inode, Kind, ReservedInos, Row, Session, SessionState, Slot, StoreIdentity};
use crate::{Context, Stop, Verb, View, keys};

/// Makes an empty engine a store: writes the root directory and the cluster's id. Leaves an
/// existing store unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Format {
    /// Random id for a new store.
    pub cluster: u64,
}

impl Verb for Format {
    /// Id of the store, and whether it was made just now.
    type Reply = (u64, bool);
    const NAME: &'static str = "format";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(u64, bool), Stop> {
        let key = keys::cluster();
        if let Some(row) = view.get(&key)? {
            return Ok((StoreIdentity::decode_cluster(&row)?, false));
        }
        store(view, key, &StoreIdentity::new(self.cluster));
        let root = Inode {
            kind: Kind::Directory,
            parent: Ino::ROOT,
            mode: 0o755,
            nlink: 1,
            mtime: context.now,
            ctime: context.now,
            btime: context.now,
            atime: context.now,
            ..Inode::default()
        };
        store(view, keys::inode(Ino::ROOT), &root);
        Ok((self.cluster, true))
    }
}

/// Opens a session, or finds it open. Its id must be random.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenSession {
    pub session: SessionId,
}

impl Verb for OpenSession {
    type Reply = ();
    const NAME: &'static str = "open_session";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let key = keys::session(self.session);
        match load::<Session>(view, &key)?.map(|session| session.state) {
            Some(SessionState::Live) => {}
            Some(SessionState::Ended | SessionState::Reaped) => return Err(ended(self.session)),
            None => store(view, key, &Session { started: context.now, ..Session::default() }),
        }
        Ok(())
    }
}

/// Opens a session like [`OpenSession`], for a process that reaches the master over a network. Only
/// `owner` can continue the session; for anybody else it is an ended session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenRemoteSession {
    pub session: SessionId,
    /// Node or mount that owns the session. Not 0.
    pub owner: u64,
}

impl Verb for OpenRemoteSession {
    type Reply = ();
    const NAME: &'static str = "open_remote_session";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let key = keys::session(self.session);
        match load::<Session>(view, &key)? {
            Some(Session { state: SessionState::Live, owner, .. }) if owner == self.owner => {}
            Some(_) => return Err(ended(self.session)),
            None => {
                let (started, owner) = (context.now, self.owner);
                store(view, key, &Session { started, owner, ..Session::default() });
            }
        }
        Ok(())
    }
}

/// Notes that a session reads leased rows only while the master of this epoch, which is in the same
/// process, holds its own lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BindSession {
    pub session: SessionId,
    pub epoch: u64,
}

impl Verb for BindSession {
    type Reply = ();
    const NAME: &'static str = "bind_session";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::session(self.session);
        match load::<Session>(view, &key)? {
            Some(session) if session.state == SessionState::Live => {
                store(view, key, &Session { bound: self.epoch, ..session });
                Ok(())
            }
            _ => Err(ended(self.session)),
        }
    }
}

/// Most ranges of reserved numbers that a session may still use.
const RANGES: usize = 4;
/// Most numbers that are reserved at a time.
pub const RESERVED_MOST: u32 = 1 << 16;

/// Reserves inode numbers for a session, which may then make inodes before it asks. The numbers are
/// used up even if no inode ever gets them; those of the oldest of several ranges are given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReserveInodes {
    pub session: SessionId,
    pub count: u32,
}

impl Verb for ReserveInodes {
    /// First number, and the number after the last.
    type Reply = (Ino, Ino);
    const NAME: &'static str = "reserve_inodes";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        if self.count > RESERVED_MOST {
            let what = format!("{} inodes at a time; at most {RESERVED_MOST}", self.count);
            return Err(Error::TooLarge(what).into());
        }
        let (key, next_key) = (keys::reserved(self.session), keys::config("next_ino"));
        let session = load::<Session>(view, &keys::session(self.session))?;
        if session.is_none_or(|session| session.state != SessionState::Live) {
            return Err(ended(self.session));
        }
        let mut reserved = load::<ReservedInos>(view, &key)?.unwrap_or_default();
        let mut counter = load_counter(view, &next_key, 2)?;
        let next = counter.value;
        let range = (Ino(next), Ino(next + u64::from(self.count)));
        counter.value = range.1.0;
        store(view, next_key, &counter);
        reserved.ranges.push(range);
        let surplus = reserved.ranges.len().saturating_sub(RANGES);
        reserved.ranges.drain(..surplus);
        store(view, key, &reserved);
        Ok(range)
    }
}

/// Makes the answer to any request of a session that has ended.
pub fn ended(session: SessionId) -> Stop {
    Error::Unavailable(format!("outcome unknown: session {session} has ended")).into()
}

/// Finds the reply of an operation that was executed already; checks that its session is live.
pub fn find_reply(
    view: &mut View<'_>,
    session: SessionId,
    slot: u16,
    sequence: u64,
) -> Result<Option<Bytes>, Stop> {
    let (session_key, slot_key) = (keys::session(session), keys::slot(session, slot));
    view.get_all(&[session_key.clone(), slot_key.clone()])?;
    let state = load::<Session>(view, &session_key)?.map(|session| session.state);
    if state != Some(SessionState::Live) && !is_planted(Bug::EndedSessionPublishes) {
        return Err(ended(session));
    }
    match load::<Slot>(view, &slot_key)? {
        _ if is_planted(Bug::RepliesForgotten) => Ok(None),
        Some(last) if last.sequence == sequence => Ok(Some(last.reply)),
        Some(last) if last.sequence > sequence => {
            let what = format!("operation {sequence} of a slot that is at {}", last.sequence);
            Err(Error::Conflict(what).into())
        }
        _ => Ok(None),
    }
}

/// Keeps the reply of an operation for the case that it is sent again.
pub fn keep_reply(view: &mut View<'_>, session: SessionId, slot: u16, sequence: u64, reply: Bytes) {
    let row = Slot { sequence, reply, ..Slot::default() };
    store(view, keys::slot(session, slot), &row);
}

/// Ends a session: from here on none of its operations publishes anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndSession {
    pub session: SessionId,
    /// Set if its orphans are gone: nothing of it is left to be reaped.
    pub reaped: bool,
}

impl Verb for EndSession {
    type Reply = ();
    const NAME: &'static str = "end_session";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::session(self.session);
        let Some(mut session) = load::<Session>(view, &key)? else {
            return Err(Error::NotFound(format!("session {}", self.session)).into());
        };
        let (start, end) = keys::slots(self.session);
        for (key, _) in view.scan(&start, &end, usize::from(keys::SLOTS))? {
            view.delete(key);
        }
        view.delete(keys::reserved(self.session));
        session.state = match (session.state, self.reaped) {
            (SessionState::Live, true) => {
                let what = format!("session {} is live", self.session);
                return Err(Error::Conflict(what).into());
            }
            (_, true) | (SessionState::Reaped, false) => SessionState::Reaped,
            (_, false) => SessionState::Ended,
        };
        store(view, key, &session);
        Ok(())
    }
}

/// Lists all sessions after `after`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSessions {
    pub after: Option<SessionId>,
    pub limit: usize,
}

impl Verb for ListSessions {
    type Reply = Vec<(SessionId, Session)>;
    const NAME: &'static str = "list_sessions";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (mut start, end) = keys::sessions();
        if let Some(after) = self.after {
            start = [&keys::session(after)[..], b"\0"].concat().into();
        }
        let mut sessions = Vec::new();
        for (key, row) in view.scan(&start, &end, self.limit)? {
            let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
            let id = id.ok_or_else(|| Error::corrupt("key of a session", key.len(), 9))?;
            sessions.push((SessionId(id), Session::decode(&row)?));
        }
        Ok(sessions)
    }
}
