//! Answers requests of sessions: reads, operations (each runs once), and directories.

use std::sync::Arc;

use bytes::Bytes;
use cairn_audit::{Actor, AuditRecord, LineLog, Noting};
use cairn_auth::{Caller, Principal};
use cairn_base::{Error, Ino, Result, Timestamp, inflight};

use super::peer::Sender;
use super::sessions::Sessions;
use crate::master::{self, Event, Once, Reading};
use crate::ops::credentials::{FindAccessKey, FindToken};
use crate::session::{
    Acknowledge, Change, Delegate, DelegateReply, Execute, ExecuteReply, Flush, GiveBack,
    PostedOperation, Progress, ReadReply, ReadRequest, Run, RunPosted,
};
use crate::wire::{self, ReceivedVerb};
use crate::{WireVerb, keys};

/// Rows longer than this are not leased, bytes.
const LEASED_ROW_BYTES: usize = 256 << 10;
/// Verbs by which a gateway verifies a caller. The caller may be a mount whose session is being
/// waited for, so these do not wait.
const VERIFIES: [u16; 2] = [FindAccessKey::NUMBER, FindToken::NUMBER];

/// Options for running and answering an operation.
#[derive(Default)]
pub struct Manner {
    /// Leases the rows that it changed with the reply.
    pub lease: bool,
    /// Set if the session keeps the operation until it is durable.
    pub hasty: bool,
    /// Set if the operation is sent again before anybody else is answered.
    pub is_replay: bool,
    pub ino: Option<Ino>,
}

/// Adds the caller to the request in flight.
fn known(caller: &Caller) {
    if let Principal::User(user) = caller.principal() {
        inflight::by(user);
    }
}

impl Sessions {
    pub(super) fn acknowledge(&self, peer: &Sender, message: &Acknowledge) -> Result<Option<()>> {
        let Acknowledge { session, number } = *message;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        self.master.tell(Event::Acknowledged { session, number });
        Ok(Some(()))
    }

    pub(super) async fn read(&self, peer: &Sender, read: ReadRequest) -> Result<Option<ReadReply>> {
        if !self.is_attached(peer, read.session) {
            return Ok(None);
        }
        // A session that has not attached here may not have released the rows that the former
        // master committed last. It would go on answering from a state older than the one read
        // here.
        if !VERIFIES.contains(&read.verb) {
            self.opened().await;
        }
        let caller = peer.caller(read.caller);
        known(&caller);
        // Current rows must not be mixed with the old rows that the session holds.
        let lease = (read.lease && !self.is_holding(read.session)).then_some(read.session);
        let hasty = self.is_hasty(read.session);
        let mount = peer.user.map(|_| read.session);
        let reading = Reading { master: &self.master, caller, lease, hasty, mount };
        let verb = self.note_unread(peer, wire::receive(read.verb, &read.fields))?;
        inflight::is(verb.name());
        let noting = self.noting(peer, &reading.caller, &*verb, String::new());
        let (reply, mut rows) = reading.run(verb).await;
        if let Some(noting) = noting {
            noting.end(&reply);
        }
        if let Err(error @ Error::Unavailable(_)) = reply {
            self.master.check_serving()?;
            return Ok(Some(ReadReply { reply: Err(error), rows: Vec::new() }));
        }
        rows.retain(is_leased);
        Ok(Some(ReadReply { reply, rows }))
    }

    pub(super) async fn execute(
        &self,
        peer: &Sender,
        execute: Execute,
    ) -> Result<Option<ExecuteReply>> {
        let Execute { change, ino } = execute;
        let session = change.run.session;
        let is_replay = self.is_replaying(session);
        // Nobody receives recalls yet.
        let lease = !is_replay && !change.released.is_empty();
        let ran = self.run(peer, change, Manner { lease, is_replay, hasty: true, ino }).await?;
        Ok(ran.map(|ran| ExecuteReply { progress: self.master.progress(session), ..ran }))
    }

    pub(super) async fn run(
        &self,
        peer: &Sender,
        change: Change,
        manner: Manner,
    ) -> Result<Option<ExecuteReply>> {
        if !self.is_attached(peer, change.run.session) {
            return Ok(None);
        }
        if !manner.is_replay {
            self.opened().await;
        }
        let is_replay = manner.is_replay;
        let (verb, once) = self.once(peer, change, manner, None)?;
        let noting = self.noting(peer, &once.caller, &*verb, number(&once));
        // An operation that is sent again may have run before, and then it has a record.
        let ran = match self.check_records(peer, &*verb) {
            Err(error) if !is_replay => Err(error),
            _ => executed(self.master.run_once(once, verb).await),
        };
        if let Some(noting) = noting {
            noting.end(&ran);
        }
        ran.map(Some)
    }

    /// Returns the record of a mount's request. It is written when it is ended or dropped, if the
    /// request is a change or was refused.
    fn noting(
        &self,
        peer: &Sender,
        caller: &Caller,
        verb: &dyn ReceivedVerb,
        request: String,
    ) -> Option<Noting> {
        let log = self.audit_of(peer)?;
        let is_change = !request.is_empty();
        let subject = verb.subject();
        // Changes of the mount's own state are not recorded unless refused.
        let is_seen = subject.is_some();
        let record = AuditRecord {
            door: "mount",
            operation: verb.name().into(),
            actor: Actor::of(caller),
            resource: subject.filter(|subject| !subject.is_empty()),
            request: is_change.then_some(request),
            ..AuditRecord::default()
        };
        Some(Noting::new(log.clone(), record, is_change && is_seen))
    }

    /// Checks that a change of a mount can be recorded, if that is required. Operations by which a
    /// mount gives something up pass.
    fn check_records(&self, peer: &Sender, verb: &dyn ReceivedVerb) -> Result<()> {
        match self.audit_of(peer) {
            Some(log) if verb.subject().is_some() => log.check_room(),
            _ => Ok(()),
        }
    }

    fn audit_of(&self, peer: &Sender) -> Option<&LineLog> {
        self.audit.get().filter(|_| peer.user.is_some())
    }

    /// Records that a mount sent a request that cannot be read: it may have been anything.
    pub(super) fn note_unread<T>(&self, peer: &Sender, read: Result<T>) -> Result<T> {
        if read.is_err()
            && let (Some(log), Some(user)) = (self.audit_of(peer), peer.user())
        {
            let (door, operation, actor) = ("mount", "unreadable".into(), Actor::of(&user));
            let record = AuditRecord { door, operation, actor, ..AuditRecord::default() };
            Noting::new(log.clone(), record, true).end(&read);
        }
        read
    }

    /// Records that a mount was refused a directory. A delegation that is granted changes nothing.
    fn note_delegated<T>(&self, peer: &Sender, directory: Ino, delegated: &Result<T>) {
        if let (Some(log), Some(user)) = (self.audit_of(peer), peer.user()) {
            let record = AuditRecord {
                door: "mount",
                operation: "delegate".into(),
                actor: Actor::of(&user),
                resource: Some(format!("(inode {directory})")),
                ..AuditRecord::default()
            };
            Noting::new(log.clone(), record, false).end(delegated);
        }
    }

    /// Decodes the verb of an operation, and its conditions.
    fn once(
        &self,
        peer: &Sender,
        change: Change,
        manner: Manner,
        posted: Option<Timestamp>,
    ) -> Result<(Arc<dyn ReceivedVerb>, Once<'_>)> {
        let Change { run, released } = change;
        let Run { session, slot, sequence, caller, verb, fields } = run;
        if slot >= keys::SLOTS {
            return Err(Error::Invalid(format!("slot {slot}; must be less than {}", keys::SLOTS)));
        }
        let caller = peer.caller(caller);
        known(&caller);
        let Manner { lease, hasty, ino, is_replay } = manner;
        // Before this is open nobody else holds anything.
        let is_replay = is_replay && !self.opened_now();
        let (master, to_mount) = (&self.master, peer.user.is_some());
        let once = Once {
            master,
            caller,
            session,
            slot,
            sequence,
            released,
            lease,
            hasty,
            ino,
            posted,
            is_replay,
            to_mount,
        };
        let verb = self.note_unread(peer, wire::receive(verb, &fields))?;
        inflight::is(verb.name());
        Ok((verb, once))
    }

    pub(super) async fn delegate(
        &self,
        peer: &Sender,
        delegate: Delegate,
    ) -> Result<Option<DelegateReply>> {
        if !self.is_attached(peer, delegate.session) {
            return Ok(None);
        }
        self.opened().await;
        self.master.check_space()?;
        // Otherwise, a mount could report something as done before there is room for its record.
        if self.audit_of(peer).is_some_and(LineLog::is_required) {
            return Err(Error::Conflict("nothing is delegated where records are required".into()));
        }
        let directory = delegate.directory;
        let delegated = self.master.delegate(delegate, peer.user()).await;
        self.note_delegated(peer, directory, &delegated);
        delegated.map(Some)
    }

    /// Runs posted operations in order. Operations after a failed one run all the same.
    pub(super) async fn run_posted(
        &self,
        peer: &Sender,
        posted: RunPosted,
    ) -> Result<Option<Vec<Result<ExecuteReply>>>> {
        let RunPosted { session, operations } = posted;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        if operations.len() > usize::from(keys::SLOTS) {
            let what = format!("{} operations at a time", operations.len());
            return Err(Error::TooLarge(what));
        }
        // Nothing waits until this is open: before that, only operations that are sent again can
        // have been posted.
        let is_replay = self.is_replaying(session);
        let take = |posted: PostedOperation| {
            let PostedOperation { execute: Execute { change, ino }, time } = posted;
            if change.run.session != session {
                return Err(Error::Invalid(
                    "the message has an operation of another session".into(),
                ));
            }
            let lease = !is_replay && !change.released.is_empty();
            let manner = Manner { lease, is_replay, hasty: true, ino };
            let (verb, once) = self.once(peer, change, manner, Some(time))?;
            let noting = self.noting(peer, &once.caller, &*verb, number(&once));
            Ok((self.master.take_posted(once, verb), noting))
        };
        let taken: Vec<_> = operations.into_iter().map(take).collect();
        let mut all = Vec::with_capacity(taken.len());
        for one in taken {
            let ran = match one {
                Ok((Ok(answer), noting)) => (executed(self.master.posted(answer).await), noting),
                Ok((Err(error), noting)) => (Err(error), noting),
                Err(error) => (Err(error), None),
            };
            let (ran, noting) = ran;
            if let Some(noting) = noting {
                noting.end(&ran);
            }
            if let Err(Error::Unavailable(_)) = ran {
                // The operation may still run at another master.
                self.master.check_serving()?;
            }
            all.push(ran);
        }
        if self.master.check_space().is_err() {
            // From here on the session asks the master before it reports anything as done.
            self.master.tell(Event::Unwelcome { session });
        }
        let progress = self.master.progress(session);
        for ran in all.iter_mut().flatten() {
            ran.progress = progress;
        }
        Ok(Some(all))
    }

    pub(super) fn give_back(&self, peer: &Sender, message: GiveBack) -> Result<Option<()>> {
        let GiveBack { session, directories } = message;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        self.master.tell(Event::GivenBack { session, directories });
        Ok(Some(()))
    }

    pub(super) async fn flush(&self, peer: &Sender, flush: &Flush) -> Result<Option<Progress>> {
        if !self.is_attached(peer, flush.session) {
            return Ok(None);
        }
        self.master.sync(flush.serial).await?;
        Ok(Some(self.master.progress(flush.session)))
    }
}

/// Returns a name of an operation that is the same however often it is sent.
fn number(once: &Once<'_>) -> String {
    format!("{}.{}.{}", once.session, once.slot, once.sequence)
}

/// Converts the result of an operation to its message.
fn executed(ran: master::OnceOutcome) -> Result<ExecuteReply> {
    let master::OnceOutcome { reply, mut rows, ino, serial } = ran;
    rows.retain(is_leased);
    Ok(ExecuteReply { reply: reply?, rows, ino, serial, progress: Progress::default() })
}

fn is_leased((_, row): &(Bytes, Option<Bytes>)) -> bool {
    row.as_ref().is_none_or(|row| row.len() <= LEASED_ROW_BYTES)
}
