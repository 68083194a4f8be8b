//! Operations of sessions: executed exactly once, answered with bytes, with leases on what they
//! read.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Action, Caller};
use cairn_base::{Error, Ino, Result, SessionId, Timestamp};
use tokio::sync::oneshot;

use super::Master;
use super::hasty::Haste;
use super::leases::{Event, Grant};
use super::op::{Answered, Job, Op, Ran, Wish, no_read, outcome, send};
use crate::erased::{AnyReply, AnyVerb};
use crate::mounts::Use;
use crate::ops::mkdir::Mkdir;
use crate::ops::namespace::decide_in;
use crate::ops::sessions::{find_reply, keep_reply};
use crate::rows::{Extent, Extents, Inode, Place, Row, Usage};
use crate::session::{Delegate, Delegated, Progress};
use crate::shown::{Rows, Shown};
use crate::wire::ReceivedVerb;
use crate::{Context, Stop, View, WireVerb, keys};

/// The longest row of extents that is sent back with each change of it.
const KEPT_EXTENTS_BYTES: usize = 4 << 10;

/// By how much the clock of a session that runs operations by itself may be behind, or its
/// operations late, nanoseconds. It is never ahead.
const POSTED_BEFORE_NS: i64 = 60_000_000_000;
/// Entries of a directory that is delegated, at most.
const DELEGATED_ENTRIES: usize = 4096;

/// An operation that may be sent more than once.
pub struct Once<'a> {
    pub master: &'a Master,
    pub caller: Caller,
    pub session: SessionId,
    pub slot: u16,
    pub sequence: u64,
    /// Rows that the session holds no lease on until it has run.
    pub released: Vec<Bytes>,
    /// Whether rows that it changed are leased with the reply.
    pub lease: bool,
    /// Whether it is answered when it has run, if it may be: the session runs it again if it is
    /// lost, and gives the number of the inode that it made.
    pub hasty: bool,
    pub ino: Option<Ino>,
    /// When the session ran it by itself, if it did.
    pub posted: Option<Timestamp>,
    /// It is sent again to a new master, which has told nobody else anything yet.
    pub is_replay: bool,
    /// The session is a mount's.
    pub to_mount: bool,
}

/// What became of an operation.
pub struct Executed {
    pub reply: Result<Bytes>,
    /// What it changed, where that is leased.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// The inode that it made.
    pub ino: Option<Ino>,
    /// 0, or its number among those that were answered before they are durable.
    pub serial: u64,
}

impl Executed {
    fn failed(error: Error) -> Executed {
        Executed { reply: Err(error), rows: Vec::new(), ino: None, serial: 0 }
    }
}

/// A read for another machine.
pub struct Reading<'a> {
    pub master: &'a Master,
    pub caller: Caller,
    /// Who gets leases on the rows that are read; nobody.
    pub lease: Option<SessionId>,
    /// Whether that session has operations of its own run again if they are lost.
    pub hasty: bool,
    /// The mount that asks, by its session.
    pub mount: Option<SessionId>,
}

/// A reply, and the rows it was made of where they are leased.
pub type Leased = (Result<Bytes>, Vec<(Bytes, Option<Bytes>)>);

impl Reading<'_> {
    pub async fn run(self, verb: Arc<dyn ReceivedVerb>) -> Leased {
        if let Some(session) = self.mount
            && let Err(error) = verb.check_mount(session, Use::Read)
        {
            return (Err(error), Vec::new());
        }
        let to_mount = self.mount.is_some();
        let Reading { master, caller, lease, hasty, mount } = self;
        // What a mount is shown is decided on the executor, whether it keeps it or not.
        let Some(session) = lease.or(mount) else {
            let reply = master.read_any(&caller, Arc::clone(&verb) as _).await;
            return (reply.and_then(|reply| verb.encode_reply(&reply)), Vec::new());
        };
        let op = |sender| LeasedRead {
            verb,
            context: Context { caller, now: Timestamp(0), batch: 0 },
            session,
            hasty,
            to_mount,
            is_leased: lease.is_some(),
            reply: None,
            rows: Vec::new(),
            sender,
        };
        master.submit(op).await.unwrap_or_else(|error| (Err(error), Vec::new()))
    }
}

impl Master {
    /// Something happened to a session.
    pub fn tell(&self, event: Event) {
        self.owner.shared.inbox.push_event(event);
    }

    /// All changes up to this batch are durable and have settled: nobody reads older rows.
    pub fn settled_batch(&self) -> u64 {
        let shared = &self.owner.shared;
        let durable = shared.durable.batch();
        shared.unsettled.settled(durable)
    }

    /// How far operations are that were answered early: see [`Once::hasty`].
    pub fn progress(&self, session: SessionId) -> Progress {
        self.owner.shared.hasty.progress(session)
    }

    /// Waits until operations up to `serial` that were answered early are durable, or came to
    /// nothing after all.
    ///
    /// # Errors
    /// `Unavailable` when the master ends before.
    pub async fn sync(&self, serial: u64) -> Result<()> {
        let shared = &self.owner.shared;
        tokio::select! {
            biased;
            () = shared.hasty.wait(serial) => Ok(()),
            () = shared.wait_failed() => Err(shared.gone()),
        }
    }

    /// Runs `verb` as [`Master::run`] does, unless it ran before in this slot; the reply as bytes,
    /// and what it changed where that is leased.
    pub async fn run_once(&self, once: Once<'_>, verb: Arc<dyn ReceivedVerb>) -> Executed {
        let full = if verb.traits().runs_when_full { Ok(()) } else { self.check_space() };
        if let Err(error) = once.check(&*verb).and(full) {
            return Executed::failed(error);
        }
        let (sender, answer) = oneshot::channel();
        let ran = async {
            self.accept(Job::new(once.op(verb, sender))).await?;
            self.answered(answer).await
        };
        ran.await.unwrap_or_else(Executed::failed)
    }

    /// Takes an operation that its session has run by itself: it runs after those that were taken
    /// before. It waits for no others to be answered, as some of them may wait for it; nor is it
    /// refused for want of space: its session has said that it is done.
    ///
    /// # Errors
    /// `Unavailable` when the master has ended.
    pub fn take_posted(
        &self,
        once: Once<'_>,
        verb: Arc<dyn ReceivedVerb>,
    ) -> Result<oneshot::Receiver<Executed>> {
        if !verb.traits().posts {
            let text = format!("{}: not by a session by itself", verb.name());
            return Err(Error::Denied(text));
        }
        once.check(&*verb)?;
        let (sender, answer) = oneshot::channel();
        let job = Job { is_counted: false, ..Job::new(once.op(verb, sender)) };
        let shared = &self.owner.shared;
        shared.inbox.push(job).map_err(|_| shared.gone())?;
        Ok(answer)
    }

    /// What became of an operation that was taken.
    pub async fn posted(&self, answer: oneshot::Receiver<Executed>) -> Executed {
        self.answered(answer).await.unwrap_or_else(Executed::failed)
    }

    /// Delegates a directory to a session, if nobody else has looked into it since it was made.
    /// `to` is the user of a mount, who must have the right to read and write there.
    ///
    /// # Errors
    /// `Conflict` or `TooLarge` if it is not to be; `Unavailable` when the master has ended.
    pub async fn delegate(&self, delegate: Delegate, to: Option<Caller>) -> Result<Delegated> {
        let op = |sender| {
            let (entries, number) = (Vec::new(), 0);
            DelegateOp { delegate, to, entries, rows: None, number, sender }
        };
        self.submit(op).await?
    }

    /// Runs a read on the executor, since what it may see has not settled.
    pub(super) async fn read_executed(
        &self,
        caller: &Caller,
        verb: Arc<dyn AnyVerb>,
    ) -> Result<AnyReply> {
        let op = |sender| ExecutedRead {
            verb,
            context: Context { caller: caller.clone(), now: Timestamp(0), batch: 0 },
            reply: None,
            sender,
        };
        self.submit(op).await?
    }

    async fn submit<T, O: Op + 'static>(
        &self,
        op: impl FnOnce(oneshot::Sender<T>) -> O,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.accept(Job::new(Box::new(op(sender)))).await?;
        self.answered(answer).await
    }
}

impl Once<'_> {
    fn check(&self, verb: &dyn ReceivedVerb) -> Result<()> {
        match self.to_mount {
            true => verb.check_mount(self.session, Use::Run),
            false => Ok(()),
        }
    }

    fn op(self, verb: Arc<dyn ReceivedVerb>, sender: oneshot::Sender<Executed>) -> Box<OnceOp> {
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

struct OnceOp {
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
    /// The inode that somebody knows it made: it makes no other.
    told: Option<Ino>,
    /// That its last run made.
    made: Option<Ino>,
    reply: Option<Result<Bytes>>,
    rows: Vec<(Bytes, Option<Bytes>)>,
    /// `None` once it was answered.
    sender: Option<oneshot::Sender<Executed>>,
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
        // Before it is kept for when it is sent again.
        if self.to_mount {
            self.verb.show_any(&mut Shown::new(view, &self.context), &mut reply)?;
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
                // A lookup of what was made asks whether there is a directory of that name, too.
                let mut absent = view.take_trace();
                absent.retain(|(key, row)| row.is_none() && keys::is_of_tree(key));
                absent.retain(|(key, _)| !view.changes().contains_key(key));
                self.rows.append(&mut absent);
                if self.to_mount {
                    Shown::new(view, &self.context).rows(&mut self.rows, true)?;
                }
            }
            keep_reply(view, session, slot, sequence, reply.clone());
        }
        Ok(reply)
    }
}

/// Whether a session may keep a row that it changed: one of the tree, or a short one of extents
/// that tells of nothing but the session's own blocks.
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
                send(sender, reply.map(|reply| Executed { reply: Ok(reply), rows, ino, serial }));
            }
        })
    }

    fn has_failed(&self) -> bool {
        matches!(self.reply, Some(Err(_)))
    }

    fn grant(&mut self) -> Option<Grant> {
        // Who was answered already gets no rows any more.
        self.sender.as_ref()?;
        let keys: Vec<Bytes> = self.rows.iter().map(|(key, _)| key.clone()).collect();
        (!keys.is_empty()).then_some(Grant { session: self.session, keys })
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
        self.rows.clear();
    }

    fn answer(self: Box<Self>) {
        let OnceOp { reply, rows, made, sender, .. } = *self;
        if let Some(sender) = sender {
            send(sender, reply.map(|reply| Executed { reply, rows, ino: made, serial: 0 }));
        }
    }
}

struct LeasedRead {
    verb: Arc<dyn ReceivedVerb>,
    context: Context,
    session: SessionId,
    hasty: bool,
    to_mount: bool,
    is_leased: bool,
    reply: Option<Result<Bytes>>,
    rows: Vec<(Bytes, Option<Bytes>)>,
    sender: oneshot::Sender<Leased>,
}

impl LeasedRead {
    fn run(&mut self, view: &mut View<'_>) -> Result<Bytes, Stop> {
        let read = self.verb.apply_any(view, &self.context);
        self.rows = view.take_trace();
        if !self.is_leased {
            self.rows.clear();
        }
        if !self.to_mount {
            return Ok(self.verb.encode_reply(&read?)?);
        }
        let mut shown = Shown::new(view, &self.context);
        match read {
            Ok(mut reply) => {
                self.verb.show_any(&mut shown, &mut reply)?;
                shown.rows(&mut self.rows, false)?;
                Ok(self.verb.encode_reply(&reply)?)
            }
            Err(missing @ Stop::Fail(Error::NotFound(_))) => {
                shown.rows(&mut self.rows, false)?;
                Err(missing)
            }
            // Who is denied something gets no rows of it.
            Err(stop) => {
                self.rows.clear();
                Err(stop)
            }
        }
    }
}

impl Op for LeasedRead {
    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        (self.context.now, self.context.batch) = (now, batch);
        view.trace();
        if self.verb.traits().leases_ranges {
            view.trace_ranges();
        }
        let (ran, reply) = outcome(self.run(view));
        if view.has_changes() {
            self.reply = Some(Err(no_read(self.verb.name())));
            return Ran::Failed;
        }
        self.reply = reply;
        ran
    }

    fn haste(&self) -> Haste {
        if self.hasty { Haste::Reader(Some(self.session)) } else { Haste::Never }
    }

    fn grant(&mut self) -> Option<Grant> {
        let keys = self.rows.iter().map(|(key, _)| key.clone()).collect();
        self.is_leased.then_some(Grant { session: self.session, keys })
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let rows = self.rows;
        send(self.sender, self.reply.map(|reply| (reply, rows)));
    }
}

struct DelegateOp {
    delegate: Delegate,
    /// Of a mount: its user.
    to: Option<Caller>,
    entries: Vec<Bytes>,
    /// `None` until it has run.
    rows: Option<Result<Rows>>,
    number: u64,
    sender: oneshot::Sender<Result<Delegated>>,
}

impl DelegateOp {
    fn check_rights(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let Some(caller) = self.to.clone() else { return Ok(()) };
        let context = Context { caller, now: Timestamp(0), batch: 0 };
        let bucket = self.delegate.bucket;
        decide_in(view, &context, bucket, Action::Inspect)?;
        decide_in(view, &context, bucket, Action::Write)
    }

    fn run(&mut self, view: &mut View<'_>) -> Result<Rows, Stop> {
        self.check_rights(view)?;
        let Delegate { directory, bucket, .. } = self.delegate;
        let (usage, inode) = (keys::usage(bucket), keys::inode(directory));
        let rows = [inode, keys::tally(directory), keys::bucket(bucket), usage];
        let found = view.get_all(&rows)?;
        let is_so = match &found[0] {
            Some(row) => {
                let inode = Inode::decode(row)?;
                inode.is_directory() && inode.bucket == bucket
            }
            None => false,
        };
        let quotas = found[3].as_ref().map(Usage::decode).transpose()?.unwrap_or_default();
        if !is_so || quotas.quota_objects > 0 || quotas.quota_bytes > 0 {
            return Err(Error::Conflict(format!("inode {directory} is not delegated")).into());
        }
        let (start, end) = keys::entries_from(directory, b"");
        let entries = view.scan(&start, &end, DELEGATED_ENTRIES + 1)?;
        if entries.len() > DELEGATED_ENTRIES {
            return Err(Error::TooLarge(format!("entries of inode {directory}")).into());
        }
        self.entries = entries.into_iter().map(|(key, _)| key).collect();
        Ok(rows.into_iter().zip(found).take(3).collect())
    }
}

impl Op for DelegateOp {
    fn apply(&mut self, view: &mut View<'_>, _: Timestamp, _: u64) -> Ran {
        let (ran, rows) = outcome(self.run(view));
        self.rows = rows;
        ran
    }

    fn haste(&self) -> Haste {
        Haste::Reader(Some(self.delegate.session))
    }

    fn grant(&mut self) -> Option<Grant> {
        let rows = self.rows.as_ref()?.as_ref().ok()?;
        let keys = rows.iter().map(|(key, _)| key.clone()).collect();
        Some(Grant { session: self.delegate.session, keys })
    }

    fn wish(&self) -> Option<Wish> {
        let Delegate { session, directory, bucket } = self.delegate;
        Some(Wish { directory, bucket, session })
    }

    fn granted(&mut self, number: u64) {
        self.number = number;
    }

    fn has_failed(&self) -> bool {
        matches!(self.rows, Some(Err(_)))
    }

    fn fail(&mut self, error: Error) {
        self.rows = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let DelegateOp { entries, rows, number, sender, .. } = *self;
        let delegated = |rows| Delegated { number, entries, rows };
        send(sender, rows.map(|rows| rows.map(delegated)));
    }
}

struct ExecutedRead {
    verb: Arc<dyn AnyVerb>,
    context: Context,
    reply: Option<Result<AnyReply>>,
    sender: oneshot::Sender<Result<AnyReply>>,
}

impl Op for ExecutedRead {
    fn haste(&self) -> Haste {
        Haste::Reader(None)
    }

    fn reads_settled(&self) -> bool {
        true
    }

    fn apply(&mut self, view: &mut View<'_>, now: Timestamp, batch: u64) -> Ran {
        (self.context.now, self.context.batch) = (now, batch);
        let (ran, reply) = outcome(self.verb.apply_any(view, &self.context));
        if view.has_changes() {
            self.reply = Some(Err(no_read(self.verb.name())));
            return Ran::Failed;
        }
        self.reply = reply;
        ran
    }

    fn fail(&mut self, error: Error) {
        self.reply = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        send(self.sender, self.reply);
    }
}
