//! The master's side of sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, RelayedCaller};
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Clock, Error, Ino, Result, SessionId, Timestamp, UserId};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::{
    Acknowledge, Attach, Attached, Change, Delegate, Delegated, Detach, Execute, Executed, Flush,
    GiveBack, Method, Posted, Progress, Read, ReadReply, Recall, Renew, Renewed, Replayed, Reply,
    Run, RunPosted,
};
use crate::master::{self, Event, Once, Reading};
use crate::ops::credentials::{FindAccessKey, FindToken};
use crate::ops::sessions::{EndSession, ListSessions, OpenRemoteSession};
use crate::rows::{Session, SessionState};
use crate::wire::{self, ReceivedVerb};
use crate::{Master, Watched, WireVerb, keys};

/// Rows longer than this are not leased, bytes.
const LEASED_ROW_BYTES: usize = 256 << 10;
/// Sessions of mounts that one user has at a time. Each leaves a row.
pub const SESSIONS_OF_A_USER: usize = 512;
/// Between two looks for sessions that have lapsed, while the end of one is waited for.
const LOOK: Duration = Duration::from_millis(250);
/// How long a mount may go on reading a state of before: as long nothing that was deleted since is
/// given back to the disk.
const LAG: Duration = Duration::from_secs(120);

/// In the number of an owner: it is a mount, and the rest the number of its user.
const MOUNT: u64 = 1 << 63;

/// By which a gateway finds out who comes: a mount whose session is waited for, perhaps.
const VERIFIES: [u16; 2] = [FindAccessKey::NUMBER, FindToken::NUMBER];

/// The sessions of a master.
pub struct Sessions {
    master: Master,
    clock: Arc<dyn Clock>,
    lease: Duration,
    state: Mutex<State>,
    /// Whether sessions are answered: not before every session that an earlier master may have
    /// given leases to is attached here and has sent again what it kept, or has lapsed.
    open: Watched<bool>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<SessionId, Live>,
    /// When those that an earlier master knew lapse: these times, too, are those in which this
    /// master has worked. Nobody lapses because of its disk.
    inherited: BTreeMap<SessionId, Inherited>,
    /// Those that are about to be attached, and when they lapse if that comes to nothing.
    opening: BTreeMap<SessionId, Inherited>,
    /// Those that have lapsed and are not ended yet.
    ending: BTreeSet<SessionId>,
    /// Those that are attached and send again what they keep, and when they lapse if they go on
    /// with that.
    replaying: BTreeMap<SessionId, Duration>,
}

impl State {
    /// How many sessions an owner has besides this one.
    fn others_of(&self, owner: u64, session: SessionId) -> usize {
        let live = self.live.iter().map(|(id, one)| (*id, one.peer.owner));
        let waiting = self.inherited.iter().chain(&self.opening).map(|(id, one)| (*id, one.owner));
        let others = live.chain(waiting).filter(|(id, of)| *of == owner && *id != session);
        others.map(|(id, _)| id).collect::<BTreeSet<_>>().len()
    }
}

/// A session that lived when this master began, or one that is about to be attached.
struct Inherited {
    owner: u64,
    lapses: Duration,
}

struct Live {
    /// Who attached it, and over which connection: nobody else may speak for it.
    peer: Peer,
    /// When its last renewal was answered, by the monotonic clock; and by the time of the master.
    renewed: Duration,
    counted: Duration,
    reads_from: u64,
    /// What it is to read no state before, and since when by the time of the master.
    due: (u64, Duration),
    /// It keeps operations until they are durable.
    hasty: bool,
}

impl Live {
    /// Whether it is a mount that goes on reading what was before. A node may: a client that it
    /// serves is slow.
    fn lags(&self, now: Duration) -> bool {
        self.peer.user.is_some() && now.saturating_sub(self.due.1) > LAG
    }
}

/// How an operation is run and answered.
#[derive(Default)]
struct Manner {
    /// What it changed is leased with the reply.
    lease: bool,
    /// The session keeps it until it is durable.
    hasty: bool,
    /// It is sent again before anybody else is answered.
    is_replay: bool,
    ino: Option<Ino>,
}

/// Who sends a message, as established by the connection it comes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Of its sessions: nobody else may speak for them.
    owner: u64,
    /// Set if it verifies no callers: all it asks is asked by this user.
    user: Option<UserId>,
    connection: u64,
}

impl Peer {
    /// A node, which has verified the callers that it names.
    pub const fn node(id: u64) -> Peer {
        Peer { owner: id, user: None, connection: 0 }
    }

    /// A mount, of which no more is believed than that it knows the credentials of a user.
    pub const fn mount(user: UserId) -> Peer {
        // Apart from the numbers of nodes, and never 0.
        Peer { owner: MOUNT | user.0, user: Some(user), connection: 0 }
    }

    /// Over this connection. What comes late over another one is of a session that is attached
    /// elsewhere by now: a recall that it acknowledges is not the one that was sent last.
    pub const fn over(self, connection: u64) -> Peer {
        Peer { connection, ..self }
    }

    fn caller(&self, claimed: RelayedCaller) -> Caller {
        let claimed = Caller::relayed(claimed);
        let Some(user) = self.user else { return claimed };
        let caller = Caller::verified(user);
        match claimed.posix() {
            // A uid and groups are claimed as with NFS.
            Some(posix) => caller.with_posix(posix.clone()),
            None => caller,
        }
    }
}

/// Whose session it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Node(u64),
    /// A mount of this user.
    Mount(UserId),
}

impl Owner {
    fn of(owner: u64) -> Owner {
        match owner & MOUNT {
            0 => Owner::Node(owner),
            _ => Owner::Mount(UserId(owner & !MOUNT)),
        }
    }
}

/// The answer to a message.
pub enum Answer {
    Bytes(Bytes),
    /// That of [`Attach`], and the recalls that are to follow.
    Attached(Bytes, UnboundedReceiver<Recall>),
}

impl Sessions {
    /// Takes the sessions over that are live in the metadata. Makes no change before they are
    /// attached or have lapsed.
    pub async fn start(
        master: Master,
        clock: Arc<dyn Clock>,
        lease: Duration,
    ) -> Result<Arc<Sessions>> {
        const PAGE: usize = 1000;
        let lapses = master.working_time() + lease;
        let mut inherited = BTreeMap::new();
        let from = |row: &Session| Inherited { owner: row.owner, lapses };
        let mut after = None;
        loop {
            let list = ListSessions { after, limit: PAGE };
            let page = master.read(&Caller::system(), list).await?;
            let live = page.iter().filter(|(_, row)| row.state == SessionState::Live);
            inherited.extend(live.map(|(session, row)| (*session, from(row))));
            if page.len() < PAGE {
                break;
            }
            after = page.last().map(|(session, _)| *session);
        }
        let forgotten = is_planted(Bug::InheritedLeasesForgotten);
        let open = Watched::new(inherited.is_empty() || forgotten);
        let state = Mutex::new(State { inherited, ..State::default() });
        Ok(Arc::new(Sessions { master, clock, lease, state, open }))
    }

    /// Answers one message of a peer.
    pub async fn handle(&self, peer: &Peer, method: Method, message: &[u8]) -> Result<Answer> {
        let bytes = match method {
            Method::Attach | Method::AttachToReplay => {
                let hasty = method == Method::AttachToReplay;
                let attached = self.attach(peer, &wire::decode(message)?, hasty).await;
                return match attached {
                    Ok((attached, recalls)) => {
                        Ok(Answer::Attached(self.reply(Ok(Some(attached)))?, recalls))
                    }
                    Err(error) => self.reply::<Attached>(Err(error)).map(Answer::Bytes),
                };
            }
            Method::Renew => self.reply(self.renew(peer, &wire::decode(message)?)),
            Method::Read => self.reply(self.read(peer, wire::decode(message)?).await),
            Method::Run => {
                let change = Change { run: wire::decode(message)?, released: Vec::new() };
                let ran = self.run(peer, change, Manner::default()).await;
                self.reply(ran.map(|ran| ran.map(|ran| ran.reply)))
            }
            Method::Change => {
                let manner = Manner { lease: true, ..Manner::default() };
                let ran = self.run(peer, wire::decode(message)?, manner).await;
                let read = |ran: Executed| ReadReply { reply: Ok(ran.reply), rows: ran.rows };
                self.reply(ran.map(|ran| ran.map(read)))
            }
            Method::Execute => self.reply(self.execute(peer, wire::decode(message)?).await),
            Method::Delegate => self.reply(self.delegate(peer, wire::decode(message)?).await),
            Method::RunPosted => self.reply(self.run_posted(peer, wire::decode(message)?).await),
            Method::GiveBack => self.reply(self.give_back(peer, wire::decode(message)?)),
            Method::Flush => self.reply(self.flush(peer, &wire::decode(message)?).await),
            Method::Replayed => self.reply(self.replayed(peer, &wire::decode(message)?)),
            Method::Detach => self.reply(self.detach(peer, &wire::decode(message)?).await),
            Method::Acknowledge => self.reply(self.acknowledge(peer, &wire::decode(message)?)),
        };
        bytes.map(Answer::Bytes)
    }

    /// `None` stands for a session that is not attached.
    fn reply<T: Serialize>(&self, result: Result<Option<T>>) -> Result<Bytes> {
        wire::encode(&match result {
            Ok(Some(done)) => Reply::Done(done),
            Ok(None) => Reply::NotAttached,
            Err(error @ Error::Unavailable(_)) if self.master.check_serving().is_err() => {
                Reply::NotServing(error.to_string())
            }
            Err(error) => Reply::Failed(error),
        })
    }

    async fn attach(
        &self,
        peer: &Peer,
        attach: &Attach,
        hasty: bool,
    ) -> Result<(Attached, UnboundedReceiver<Recall>)> {
        let session = attach.session;
        self.check_owner(peer, session)?;
        self.begin_opening(peer, session)?;
        let opened = OpenRemoteSession { session, owner: peer.owner };
        self.master.run(&Caller::system(), opened).await?;
        let (sender, recalls) = unbounded_channel();
        {
            let mut state = self.state.lock();
            if state.opening.remove(&session).is_none() && !state.live.contains_key(&session) {
                return Err(lapsed(session));
            }
            let (renewed, counted) = (self.clock.monotonic(), self.master.working_time());
            let reads_from = self.master.durable_batch();
            // One that comes again is due what it was due.
            let due = state.live.get(&session).map_or((reads_from, counted), |live| live.due);
            let live = Live { peer: *peer, renewed, counted, reads_from, due, hasty };
            state.live.insert(session, live);
            let was_inherited = state.inherited.remove(&session).is_some();
            // Before this is open, all others wait until it has sent everything again. One that is
            // new has nothing to send, and one that comes again has no more time than it had.
            if hasty && (was_inherited || self.open.get()) {
                state.replaying.insert(session, counted + self.lease);
            }
            self.master.tell(Event::Attached { session, recalls: sender });
            self.open_if_due(&state);
        }
        let lease_ms = self.lease.as_millis() as u64;
        let attached = Attached { lease_ms, batch: self.master.durable_batch() };
        Ok((attached, recalls))
    }

    /// From here on the session does not lapse before it can be attached.
    fn begin_opening(&self, peer: &Peer, session: SessionId) -> Result<()> {
        let mut state = self.state.lock();
        if state.ending.contains(&session) || self.master.keeps_late(session, self.lease) {
            return Err(lapsed(session));
        }
        if peer.user.is_some() && state.others_of(peer.owner, session) >= SESSIONS_OF_A_USER {
            let text = format!(
                "this user has {SESSIONS_OF_A_USER} mounts, which is the most: unmount one; one \
                 that is gone counts until its lease is over",
            );
            return Err(Error::Unavailable(text));
        }
        let lapses = self.master.working_time() + self.lease;
        state.opening.insert(session, Inherited { owner: peer.owner, lapses });
        Ok(())
    }

    fn check_owner(&self, peer: &Peer, session: SessionId) -> Result<()> {
        let state = self.state.lock();
        let live = state.live.get(&session).map(|live| live.peer);
        let inherited = state.inherited.get(&session).map(|one| one.owner);
        match live.map(|peer| peer.owner).or(inherited) {
            Some(owner) if owner != peer.owner => {
                return Err(Error::Denied(format!("session {session} is another node's")));
            }
            _ => {}
        }
        match live {
            // It is late: the session has been attached elsewhere since this was sent.
            Some(live) if live.connection > peer.connection => {
                Err(Error::Unavailable(format!("session {session} has a later connection")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a session is attached here, by this peer.
    fn is_attached(&self, peer: &Peer, session: SessionId) -> bool {
        self.state.lock().live.get(&session).is_some_and(|live| live.peer == *peer)
    }

    fn renew(&self, peer: &Peer, renew: &Renew) -> Result<Option<Renewed>> {
        // A session that does not let go reads what it keeps until its lease is over, and is to end
        // only then: it may have heard of no recall.
        let is_late = self.master.is_late(renew.session, self.lease);
        if is_late || !self.is_attached(peer, renew.session) {
            return Ok(None);
        }
        // A session that is renewed goes on reading what it keeps: another master could not know.
        self.master.check_serving()?;
        let settled = self.master.settled_batch();
        if let Some(live) = self.state.lock().live.get_mut(&renew.session) {
            live.renewed = self.clock.monotonic();
            live.counted = self.master.working_time();
            live.reads_from = live.reads_from.max(renew.reads_from);
            if live.reads_from >= live.due.0 {
                live.due = (settled, live.counted);
            }
        }
        Ok(Some(Renewed { settled }))
    }

    async fn detach(&self, peer: &Peer, detach: &Detach) -> Result<Option<()>> {
        let session = detach.session;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        {
            let mut state = self.state.lock();
            state.live.remove(&session);
            state.replaying.remove(&session);
            self.open_if_due(&state);
        }
        self.master.tell(Event::Ended { session });
        self.master.run(&Caller::system(), EndSession { session, reaped: false }).await?;
        Ok(Some(()))
    }

    fn acknowledge(&self, peer: &Peer, message: &Acknowledge) -> Result<Option<()>> {
        let Acknowledge { session, number } = *message;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        self.master.tell(Event::Acknowledged { session, number });
        Ok(Some(()))
    }

    async fn read(&self, peer: &Peer, read: Read) -> Result<Option<ReadReply>> {
        if !self.is_attached(peer, read.session) {
            return Ok(None);
        }
        // What the former master committed last may not be let go of yet by a session that has not
        // come here: it would go on answering from before what is read here.
        if !VERIFIES.contains(&read.verb) {
            self.opened().await;
        }
        let caller = peer.caller(read.caller);
        let lease = read.lease.then_some(read.session);
        let hasty = self.state.lock().live.get(&read.session).is_some_and(|live| live.hasty);
        let mount = peer.user.map(|_| read.session);
        let reading = Reading { master: &self.master, caller, lease, hasty, mount };
        let verb = wire::receive(read.verb, &read.fields)?;
        let (reply, mut rows) = reading.run(verb).await;
        if let Err(error @ Error::Unavailable(_)) = reply {
            self.master.check_serving()?;
            return Ok(Some(ReadReply { reply: Err(error), rows: Vec::new() }));
        }
        rows.retain(is_leased);
        Ok(Some(ReadReply { reply, rows }))
    }

    async fn execute(&self, peer: &Peer, execute: Execute) -> Result<Option<Executed>> {
        let Execute { change, ino } = execute;
        let session = change.run.session;
        let is_replay = self.state.lock().replaying.contains_key(&session);
        // Nobody takes recalls yet.
        let lease = !is_replay && !change.released.is_empty();
        let ran = self.run(peer, change, Manner { lease, is_replay, hasty: true, ino }).await?;
        Ok(ran.map(|ran| Executed { progress: self.master.progress(session), ..ran }))
    }

    async fn run(&self, peer: &Peer, change: Change, manner: Manner) -> Result<Option<Executed>> {
        if !self.is_attached(peer, change.run.session) {
            return Ok(None);
        }
        if !manner.is_replay {
            self.opened().await;
        }
        let (verb, once) = self.once(peer, change, manner, None)?;
        executed(self.master.run_once(once, verb).await).map(Some)
    }

    /// The verb of an operation, and what else there is to it.
    fn once(
        &self,
        peer: &Peer,
        change: Change,
        manner: Manner,
        posted: Option<Timestamp>,
    ) -> Result<(Arc<dyn ReceivedVerb>, Once<'_>)> {
        let Change { run, released } = change;
        let Run { session, slot, sequence, caller, verb, fields } = run;
        if slot >= keys::SLOTS {
            return Err(Error::Invalid(format!("slot {slot}")));
        }
        let caller = peer.caller(caller);
        let Manner { lease, hasty, ino, is_replay } = manner;
        // Before this is open nobody else holds anything.
        let is_replay = is_replay && !self.open.get();
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
        Ok((wire::receive(verb, &fields)?, once))
    }

    async fn delegate(&self, peer: &Peer, delegate: Delegate) -> Result<Option<Delegated>> {
        if !self.is_attached(peer, delegate.session) {
            return Ok(None);
        }
        self.opened().await;
        self.master.check_space()?;
        self.master.delegate(delegate, peer.user.map(Caller::verified)).await.map(Some)
    }

    /// Those that come after one that fails run all the same.
    async fn run_posted(
        &self,
        peer: &Peer,
        posted: RunPosted,
    ) -> Result<Option<Vec<Result<Executed>>>> {
        let RunPosted { session, operations } = posted;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        if operations.len() > usize::from(keys::SLOTS) {
            let what = format!("{} operations at a time", operations.len());
            return Err(Error::TooLarge(what));
        }
        // Nothing waits until this is open: before that, only what is sent again was ever posted.
        let is_replay = self.state.lock().replaying.contains_key(&session);
        let take = |posted: Posted| {
            let Posted { execute: Execute { change, ino }, time } = posted;
            if change.run.session != session {
                return Err(Error::Invalid("an operation of another session".into()));
            }
            let lease = !is_replay && !change.released.is_empty();
            let manner = Manner { lease, is_replay, hasty: true, ino };
            let (verb, once) = self.once(peer, change, manner, Some(time))?;
            self.master.take_posted(once, verb)
        };
        let taken: Vec<_> = operations.into_iter().map(take).collect();
        let mut all = Vec::with_capacity(taken.len());
        for one in taken {
            let ran = match one {
                Ok(answer) => executed(self.master.posted(answer).await),
                Err(error) => Err(error),
            };
            if let Err(Error::Unavailable(_)) = ran {
                // It may run yet, elsewhere.
                self.master.check_serving()?;
            }
            all.push(ran);
        }
        if self.master.check_space().is_err() {
            // From here on it hears of it before it says that something is done.
            self.master.tell(Event::Unwelcome { session });
        }
        let progress = self.master.progress(session);
        for ran in all.iter_mut().flatten() {
            ran.progress = progress;
        }
        Ok(Some(all))
    }

    fn give_back(&self, peer: &Peer, message: GiveBack) -> Result<Option<()>> {
        let GiveBack { session, directories } = message;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        self.master.tell(Event::GivenBack { session, directories });
        Ok(Some(()))
    }

    async fn flush(&self, peer: &Peer, flush: &Flush) -> Result<Option<Progress>> {
        if !self.is_attached(peer, flush.session) {
            return Ok(None);
        }
        self.master.sync(flush.serial).await?;
        Ok(Some(self.master.progress(flush.session)))
    }

    fn replayed(&self, peer: &Peer, message: &Replayed) -> Result<Option<()>> {
        if !self.is_attached(peer, message.session) {
            return Ok(None);
        }
        self.master.tell(Event::Replayed { session: message.session });
        let mut state = self.state.lock();
        state.replaying.remove(&message.session);
        self.open_if_due(&state);
        Ok(Some(()))
    }

    /// Waits until sessions are answered, and changes made.
    pub async fn opened(&self) {
        self.open.wait_for(|open| open.then_some(())).await;
    }

    /// Whether sessions are answered, and changes made.
    pub fn opened_now(&self) -> bool {
        self.open.get()
    }

    fn open_if_due(&self, state: &State) {
        if state.inherited.is_empty() && state.replaying.is_empty() {
            self.open.set(true);
        }
    }

    /// Ends the sessions that have lapsed. To be called several times a second.
    ///
    /// # Errors
    /// Those of the master; the next call tries again.
    pub async fn tick(&self) -> Result<()> {
        self.note_lapsed();
        let ending = self.state.lock().ending.clone();
        for session in ending {
            match self.end(session).await {
                // It was about to be opened, and never was.
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            self.state.lock().ending.remove(&session);
        }
        Ok(())
    }

    /// Meanwhile other sessions lapse: the end of one may wait until another lets go of a row.
    async fn end(&self, session: SessionId) -> Result<()> {
        let (caller, end) = (Caller::system(), EndSession { session, reaped: false });
        let mut ended = pin!(self.master.run(&caller, end));
        loop {
            match timeout(LOOK, ended.as_mut()).await {
                Ok(ended) => return ended,
                Err(_) => self.note_lapsed(),
            }
        }
    }

    fn note_lapsed(&self) {
        let now = self.master.working_time();
        let mut state = self.state.lock();
        let State { live, inherited, opening, ending, replaying } = &mut *state;
        let mut lapsed = Vec::new();
        opening.retain(|session, one| {
            lapsed.extend((now >= one.lapses).then_some(*session));
            now < one.lapses
        });
        live.retain(|session, one| {
            // However often it is attached again meanwhile.
            let is_late =
                one.lags(now) || replaying.get(session).is_some_and(|lapses| now >= *lapses);
            let renewed = now.saturating_sub(one.counted) < self.lease;
            let alive = !is_late && (renewed || opening.contains_key(session));
            lapsed.extend((!alive).then_some(*session));
            alive
        });
        // One of which an attempt to attach came to nothing may be attached all the same.
        lapsed.retain(|session| !live.contains_key(session));
        inherited.retain(|session, one| {
            let alive = now < one.lapses || opening.contains_key(session);
            lapsed.extend((!alive).then_some(*session));
            alive
        });
        for session in lapsed {
            tracing::warn!(%session, "session ended: it has not renewed, not let go of what was \
                recalled, not sent all again, or read what was before, for too long");
            inherited.remove(&session);
            opening.remove(&session);
            replaying.remove(&session);
            ending.insert(session);
            self.master.tell(Event::Ended { session });
        }
        self.open_if_due(&state);
    }

    /// No session reads a state older than this batch.
    pub fn reads_from(&self) -> u64 {
        let state = self.state.lock();
        match state.inherited.is_empty() {
            true => state.live.values().map(|one| one.reads_from).min().unwrap_or(u64::MAX),
            false => 0,
        }
    }

    /// The sessions that are attached, and how long ago each renewed.
    pub fn list(&self) -> Vec<(SessionId, Owner, Duration)> {
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let one = |(session, live): (&SessionId, &Live)| {
            (*session, Owner::of(live.peer.owner), now.saturating_sub(live.renewed))
        };
        state.live.iter().map(one).collect()
    }
}

/// What is sent of an operation that has run.
fn executed(ran: master::Executed) -> Result<Executed> {
    let master::Executed { reply, mut rows, ino, serial } = ran;
    rows.retain(is_leased);
    Ok(Executed { reply: reply?, rows, ino, serial, progress: Progress::default() })
}

fn is_leased((_, row): &(Bytes, Option<Bytes>)) -> bool {
    row.as_ref().is_none_or(|row| row.len() <= LEASED_ROW_BYTES)
}

fn lapsed(session: SessionId) -> Error {
    Error::Unavailable(format!("outcome unknown: session {session} has lapsed"))
}
