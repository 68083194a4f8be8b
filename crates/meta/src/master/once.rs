//! An operation of a session, which runs once, however often it is sent.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Ino, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::Master;
use super::op::{Haste, Op, Ran, RowLease, outcome, send};
use super::settle::Answered;
use crate::mounts::Use;
use crate::ops::mkdir::Mkdir;
use crate::ops::sessions::{find_reply, keep_reply};
use crate::rows::{Extent, Extents, Place, Row};
use crate::shown::ShownToMount;
use crate::wire::ReceivedVerb;
use crate::{Context, Stop, View, WireVerb, keys};

/// Largest row of extents that is sent back with each change of it, bytes.
const KEPT_EXTENTS_BYTES: usize = 4 << 10;

/// Most by which the clock of a session that runs operations on its own may be behind, or its
/// operations late, nanoseconds. The clock is never ahead.
const POSTED_BEFORE_NS: i64 = 60_000_000_000;
/// An operation that may be sent more than once.
pub struct Once<'a> {
    pub master: &'a Master,
    pub caller: Caller,
    pub session: SessionId,
    pub slot: u16,
    pub sequence: u64,
    /// Rows on which the session holds no lease until the operation has run.
    pub released: Vec<Bytes>,
    /// Leases the rows that it changed with the reply.
    pub lease: bool,
    /// Answers the operation when it has run, if that is allowed. The session then runs it again if
    /// it is lost, and sends the number of the inode that it made.
    pub hasty: bool,
    pub ino: Option<Ino>,
    /// Time at which the session ran it on its own, if it did.
    pub posted: Option<Timestamp>,
    /// Set if it is sent again to a new master, which has answered nobody else yet.
    pub is_replay: bool,
    /// Set if the session belongs to a mount.
    pub to_mount: bool,
}

/// The outcome of an operation.
pub struct OnceOutcome {
    pub reply: Result<Bytes>,
    /// Rows that the operation changed, if they are leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// Inode that the operation made.
    pub ino: Option<Ino>,
    /// Number among the operations that were answered before they are durable, or 0.
    pub serial: u64,
}

impl OnceOutcome {
    pub fn failed(error: Error) -> OnceOutcome {
        OnceOutcome { reply: Err(error), rows: Vec::new(), ino: None, serial: 0 }
    }
}

impl Once<'_> {
    pub fn check(&self, verb: &dyn ReceivedVerb) -> Result<()> {
        if self.to_mount { verb.check_mount(self.session, Use::Run) } else { Ok(()) }
    }

    pub fn op(
        self,
        verb: Arc<dyn ReceivedVerb>,
        sender: oneshot::Sender<OnceOutcome>,
    ) -> Box<OnceOp> {
        let Once { caller, session, slot, sequence, released, lease, hasty, ino, posted, .. } =
            self;
        let (to_mount, is_replay) = (self.to_mount, self.is_replay);
        let lease = lease && verb.traits().leases_changes;
        Box::new(OnceOp {
            verb,
            context: Context { caller, now: Timestamp(0), batch: 0 },
            session,
            slot,
            sequence,
            released,
            lease,
            hasty,
            to_mount,
            posted,
            is_replay,
            told: ino,
            made: None,
            reply: None,
            rows: Vec::new(),
            sender: Some(sender),
        })
    }
}

pub struct OnceOp {
    verb: Arc<dyn ReceivedVerb>,
    context: Context,
    session: SessionId,
    slot: u16,
    sequence: u64,
    released: Vec<Bytes>,
    lease: bool,
    hasty: bool,
    to_mount: bool,
    posted: Option<Timestamp>,
    is_replay: bool,
    /// Inode that the operation is known to have made: it makes no other.
    told: Option<Ino>,
    /// Inode that the last run made.
    made: Option<Ino>,
    reply: Option<Result<Bytes>>,
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// Channel for the answer; `None` once it was answered.
    sender: Option<oneshot::Sender<OnceOutcome>>,
}

impl OnceOp {
    fn run(&mut self, view: &mut View<'_>) -> Result<Bytes, Stop> {
        self.rows.clear();
        let (session, slot, sequence) = (self.session, self.slot, self.sequence);
        if let Some(reply) = find_reply(view, session, slot, sequence)? {
            return Ok(reply);
        }
        if let Some(ino) = self.told {
            view.give_ino(ino, session);
        }
        if self.lease {
            view.trace();
        }
        let mut reply = self.verb.apply_any(view, &self.context)?;
        // Filtered before the reply is kept for repetitions.
        if self.to_mount {
            self.verb.show_any(&mut ShownToMount::new(view, &self.context), &mut reply)?;
        }
        let reply = self.verb.encode_reply(&reply)?;
        self.made = view.taken_ino();
        if self.posted.is_some() && self.made != self.told {
            let what = format!("{}: another of that name was made before", self.verb.name());
            return Err(Error::Conflict(what).into());
        }
        if view.has_changes() {
            if self.lease {
                let leased = view.changes().iter();
                let leased = leased.filter(|(key, row)| may_keep(key, row.as_ref(), session));
                self.rows.extend(leased.map(|(key, row)| (key.clone(), row.clone())));
                // A lookup of a new name also asks whether there is a directory of that name.
                let mut absent = view.take_trace();
                absent.retain(|(key, row)| row.is_none() && keys::is_of_tree(key));
                absent.retain(|(key, _)| !view.changes().contains_key(key));
                self.rows.append(&mut absent);
                if self.to_mount {
                    ShownToMount::new(view, &self.context).rows(&mut self.rows, true)?;
                }
            }
            keep_reply(view, session, slot, sequence, reply.clone());
        }
        Ok(reply)
    }
}

/// Returns whether a session may keep a row that it changed: a row of the tree, or a short row of
/// extents that names only the session's own blocks.
fn may_keep(key: &Bytes, row: Option<&Bytes>, session: SessionId) -> bool {
    let is_own = |extent: &Extent| match &extent.place {
        Place::Block { block, .. } => block.session == session,
        Place::Inline(_) | Place::Body { .. } => false,
    };
    let are_own = |row: &Bytes| {
        row.len() <= KEPT_EXTENTS_BYTES
            && Extents::decode(row).is_ok_and(|row| row.extents.iter().all(is_own))
    };
    keys::is_of_tree(key) || (keys::is_of_extents(key) && row.is_some_and(are_own))
}

impl Op for OnceOp {
    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        let earliest = Timestamp(now.0.saturating_sub(POSTED_BEFORE_NS));
        self.context.now = self.posted.map_or(now, |posted| posted.clamp(earliest, now));
        self.context.batch = batch;
        let (ran, reply) = outcome(self.run(view));
        self.reply = reply;
        ran
    }

    fn released(&self) -> Option<(SessionId, &[Bytes])> {
        Some((self.session, &self.released))
    }

    fn haste(&self) -> Haste {
        if self.hasty { Haste::Keeper(self.session) } else { Haste::Never }
    }

    fn is_posted(&self) -> bool {
        self.posted.is_some()
    }

    fn is_confined(&self) -> bool {
        self.is_posted() && !self.is_replay
    }

    fn made(&self) -> Option<Ino> {
        self.made.filter(|_| !self.has_failed())
    }

    fn made_directory(&self) -> Option<Ino> {
        self.made().filter(|_| self.verb.traits().number == Mkdir::NUMBER)
    }

    fn early_answer(&mut self, serial: u64) -> Answered {
        self.told = self.made;
        let (sender, ino) = (self.sender.take(), self.made);
        let (rows, reply) = (std::mem::take(&mut self.rows), self.reply.as_ref());
        let reply = reply.and_then(|reply| reply.as_ref().ok().cloned());
        Box::new(move || {
            if let Some(sender) = sender {
                send(
                    sender,
                    reply.map(|reply| OnceOutcome { reply: Ok(reply), rows, ino, serial }),
                );
            }
        })
    }

    fn has_failed(&self) -> bool {
        matches!(self.reply, Some(Err(_)))
    }

    fn grant(&mut self) -> Option<RowLease> {
        // A caller that was answered already gets no more rows.
        self.sender.as_ref()?;
        let keys: Vec<Bytes> = self.rows.iter().map(|(key, _)| key.clone()).collect();
        (!keys.is_empty()).then_some(RowLease { session: self.session, keys })
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
        self.rows.clear();
    }

    fn answer(self: Box<Self>) {
        let OnceOp { reply, rows, made, sender, .. } = *self;
        if let Some(sender) = sender {
            send(sender, reply.map(|reply| OnceOutcome { reply, rows, ino: made, serial: 0 }));
        }
    }
}
