//! The sessions of a master: attaching, renewing and ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_audit::LineLog;
use cairn_auth::Caller;
use cairn_base::inflight::WaitTarget;
use cairn_base::planted::{Bug, is_planted};
use cairn_base::{Allowance, Clock, Error, Party, Result, SessionId, Stages};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::dumps::Dumps;
use super::peer::{Owner, Sender};
use crate::Watched;
use crate::master::{Event, Master};
use crate::ops::sessions::{BindSession, EndSession, ListSessions, OpenRemoteSession};
use crate::rows::{Session, SessionState};
use crate::session::{
    Attach, AttachReply, Bind, Bound, Detach, Recall, Renew, RenewReply, ReplayEnd, SessionMethod,
    Succeed,
};

/// Most sessions of mounts that one user has at a time. Each leaves a row.
pub const SESSIONS_OF_A_USER: usize = 512;
/// Messages of mounts that are exported per second; a quarter of them may be of one user.
const CLAIMED: u32 = 1000;
/// Most sessions that are named in the description of what a request waits for.
const SHOWN: usize = 3;
/// Interval between two looks for lapsed sessions, while the end of a session is waited for.
const LOOK: Duration = Duration::from_millis(250);
/// Longest time for which a mount may go on reading an old state: for that long, the space of
/// deleted blocks is not given back to the disk.
const LAG: Duration = Duration::from_secs(120);

/// Callback that takes an operation of a session that is over: its name, and its time by stages.
/// The trace is that of the request, with the span of the node that asked. Must not wait.
pub type Export = Arc<dyn Fn(&'static str, Stages) + Send + Sync>;

/// The sessions of a master.
pub struct Sessions {
    pub(super) master: Master,
    pub(super) clock: Arc<dyn Clock>,
    lease: Duration,
    state: Mutex<SessionsState>,
    /// Set when sessions are answered: every session that an earlier master may have given leases
    /// to has attached here, sent its kept operations again and given up the rows that it held, or
    /// has lapsed.
    open: Arc<Watched<bool>>,
    /// Receives operations of sampled requests. `claimed` limits those of mounts, which mark
    /// themselves as sampled.
    pub(super) export: OnceLock<Export>,
    claimed: Allowance,
    /// Receives records of the requests of mounts, if they are audited.
    pub(super) audit: OnceLock<LineLog>,
    pub(super) dumps: Mutex<Dumps>,
}

#[derive(Default)]
struct SessionsState {
    live: BTreeMap<SessionId, Live>,
    /// Sessions known to an earlier master, with the times when they lapse. These are working times
    /// of this master as well, so no session lapses because of its disk.
    inherited: BTreeMap<SessionId, InheritedSession>,
    /// Sessions that are about to be attached, with the times when they lapse if that fails.
    opening: BTreeMap<SessionId, InheritedSession>,
    /// Sessions that have lapsed and are not ended yet.
    ending: BTreeSet<SessionId>,
    /// Attached sessions that are sending their kept operations again, with the times when they
    /// lapse unless they finish.
    replaying: BTreeMap<SessionId, Duration>,
    /// Set when sessions were asked to give up the rows leased by former masters. This master opens
    /// when they have.
    recalling: bool,
}

impl SessionsState {
    /// Returns whether a session that has not attached yet may hold rows leased by former masters.
    fn awaits_any(&self) -> bool {
        self.inherited.values().any(|one| one.may_hold)
    }

    /// Returns the number of other sessions of an owner.
    fn others_of(&self, owner: u64, session: SessionId) -> usize {
        let live = self.live.iter().map(|(id, one)| (*id, one.peer.owner));
        let waiting = self.inherited.iter().chain(&self.opening).map(|(id, one)| (*id, one.owner));
        let others = live.chain(waiting).filter(|(id, of)| *of == owner && *id != session);
        others.map(|(id, _)| id).collect::<BTreeSet<_>>().len()
    }
}

/// A session that lived when this master began, or a session that is about to be attached.
struct InheritedSession {
    owner: u64,
    /// Set if it may hold rows that former masters have leased to it.
    may_hold: bool,
    lapses: Duration,
}

struct Live {
    /// Peer and connection that attached the session: no other may use it.
    peer: Sender,
    /// Time when the last renewal was answered, by the monotonic clock, and by the master's working
    /// time.
    renewed: Duration,
    counted: Duration,
    reads_from: u64,
    /// Oldest batch that it may read, and since when, by the master's working time.
    due: (u64, Duration),
    /// Set if the session keeps operations until they are durable.
    hasty: bool,
    /// Set if the session goes on reading rows leased by former masters until this master is open.
    holds: bool,
    /// Sends recalls; closed when the connection has ended.
    told: UnboundedSender<Recall>,
}

impl Live {
    /// Returns whether this is a mount that goes on reading an old state. A node may: it may serve
    /// a slow client.
    fn lags(&self, now: Duration) -> bool {
        self.peer.user.is_some() && now.saturating_sub(self.due.1) > LAG
    }
}

impl Sessions {
    /// Takes over the sessions that are live in the metadata. Makes no change before they have
    /// attached or lapsed.
    pub async fn start(
        master: Master,
        clock: Arc<dyn Clock>,
        lease: Duration,
    ) -> Result<Arc<Sessions>> {
        const PAGE: usize = 1000;
        let lapses = master.working_time() + lease;
        let mut inherited = BTreeMap::new();
        let epoch = master.epoch();
        let from = |row: &Session| InheritedSession {
            owner: row.owner,
            may_hold: !is_bound_to_former(row, epoch),
            lapses,
        };
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
        let state = SessionsState { inherited, ..SessionsState::default() };
        let open = Arc::new(Watched::new(!state.awaits_any() || forgotten));
        let state = Mutex::new(state);
        let (export, audit) = (OnceLock::new(), OnceLock::new());
        let claimed = Allowance::new(Duration::from_secs(1), CLAIMED);
        let dumps = Mutex::default();
        let sessions =
            Sessions { master, clock, lease, state, open, export, claimed, audit, dumps };
        Ok(Arc::new(sessions))
    }

    /// Sets the receiver of operations of sampled requests. Later calls have no effect.
    pub fn export_to(&self, export: Export) {
        let _ = self.export.set(export);
    }

    /// Returns whether a message is exported whose sender marks it as part of a sampled request.
    pub(super) fn is_exported(&self, peer: &Sender) -> bool {
        // A node passes on the marks of its clients, and has limited them.
        peer.user.is_none_or(|user| self.claimed.take(Party::User(user), self.clock.monotonic()))
    }

    /// Sets the log for requests of mounts. Called once, before there are mounts.
    pub fn audit_to(&self, log: LineLog) {
        let _ = self.audit.set(log);
    }

    pub(super) async fn attach(
        &self,
        peer: &Sender,
        method: SessionMethod,
        attach: &Attach,
    ) -> Result<(AttachReply, UnboundedReceiver<Recall>)> {
        let session = attach.session;
        let hasty = method == SessionMethod::AttachToReplay;
        let holds = method == SessionMethod::AttachHolding;
        self.check_owner(peer, session)?;
        if holds {
            self.check_may_hold(peer, session, &self.state.lock())?;
        }
        self.begin_opening(peer, session)?;
        let opened = OpenRemoteSession { session, owner: peer.owner };
        self.master.run(&Caller::system(), opened).await?;
        let (sender, recalls) = unbounded_channel();
        {
            let mut state = self.state.lock();
            if holds {
                self.check_may_hold(peer, session, &state)?;
            }
            if state.opening.remove(&session).is_none() && !state.live.contains_key(&session) {
                return Err(lapsed(session));
            }
            let (renewed, counted) = (self.clock.monotonic(), self.master.working_time());
            let durable = self.master.durable_batch();
            let was_inherited = state.inherited.remove(&session).is_some();
            let former = state.live.get(&session).map(|live| (live.reads_from, live.due));
            // A session that attaches again goes on reading for its own clients what it read
            // before, and its due batch stays. What it read of a former master is unknown.
            let first = if holds || was_inherited { 0 } else { durable };
            let (reads_from, due) = former.unwrap_or((first, (durable, counted)));
            let reads_from = if holds { 0 } else { reads_from };
            let told = sender.clone();
            let live = Live { peer: *peer, renewed, counted, reads_from, due, hasty, holds, told };
            state.live.insert(session, live);
            // Before this is open, all others wait until the session has sent everything again. A
            // new session has nothing to send, and a session that attaches again gets no additional
            // time.
            if hasty && (was_inherited || self.open.get()) {
                state.replaying.insert(session, counted + self.lease);
            }
            self.master.tell(Event::Attached { session, recalls: sender });
            self.open_if_due(&mut state);
        }
        let lease_ms = self.lease.as_millis() as u64;
        let batch = if holds { 0 } else { self.master.durable_batch() };
        Ok((AttachReply { lease_ms, batch }, recalls))
    }

    /// Checks that a session may go on reading rows leased by former masters. For all others it
    /// then counts as not attached yet: nobody is answered before it has given the rows up.
    ///
    /// # Errors
    /// `Conflict` if others were answered already or are about to be, or if it has given the rows
    /// up before. `Unavailable` if another master may decide otherwise.
    fn check_may_hold(
        &self,
        peer: &Sender,
        session: SessionId,
        state: &SessionsState,
    ) -> Result<()> {
        self.master.check_serving()?;
        let held = state.live.get(&session).is_some_and(|live| live.holds);
        let inherited = state.inherited.get(&session).is_some_and(|one| one.may_hold);
        let is_due = !state.recalling && (held || inherited);
        if peer.user.is_none() && is_due && !self.opened_now() {
            Ok(())
        } else {
            Err(Error::Conflict(format!(
                "session {session} has no leases of a former master any more"
            )))
        }
    }

    /// Returns whether the session goes on reading rows leased by former masters.
    pub(super) fn is_holding(&self, session: SessionId) -> bool {
        // Called for each read. Once this is open, it does not take the lock of all sessions.
        !self.opened_now() && self.state.lock().live.get(&session).is_some_and(|live| live.holds)
    }

    /// Keeps the session from lapsing before it can be attached.
    fn begin_opening(&self, peer: &Sender, session: SessionId) -> Result<()> {
        let mut state = self.state.lock();
        if state.ending.contains(&session) || self.master.keeps_late(session, self.lease) {
            return Err(lapsed(session));
        }
        if peer.user.is_some() && state.others_of(peer.owner, session) >= SESSIONS_OF_A_USER {
            let text = format!(
                "this user has {SESSIONS_OF_A_USER} mounts, the most that a user may have: \
                 unmount one; a mount that is gone counts until its lease is over",
            );
            return Err(Error::Unavailable(text));
        }
        let lapses = self.master.working_time() + self.lease;
        let opening = InheritedSession { owner: peer.owner, may_hold: false, lapses };
        state.opening.insert(session, opening);
        Ok(())
    }

    fn check_owner(&self, peer: &Sender, session: SessionId) -> Result<()> {
        let state = self.state.lock();
        let live = state.live.get(&session).map(|live| live.peer);
        let inherited = state.inherited.get(&session).map(|one| one.owner);
        match live.map(|peer| peer.owner).or(inherited) {
            Some(owner) if owner != peer.owner => {
                return Err(Error::Denied(format!("session {session} belongs to another node")));
            }
            _ => {}
        }
        match live {
            // The message is late: the session has been attached elsewhere since it was sent.
            Some(live) if live.connection > peer.connection => Err(Error::Unavailable(format!(
                "session {session} is attached by a later connection"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns whether a session is attached here, by this peer.
    pub(super) fn is_attached(&self, peer: &Sender, session: SessionId) -> bool {
        self.state.lock().live.get(&session).is_some_and(|live| live.peer == *peer)
    }

    /// Returns whether the session keeps operations until they are durable.
    pub(super) fn is_hasty(&self, session: SessionId) -> bool {
        self.state.lock().live.get(&session).is_some_and(|live| live.hasty)
    }

    /// Returns whether the session is sending its kept operations again.
    pub(super) fn is_replaying(&self, session: SessionId) -> bool {
        self.state.lock().replaying.contains_key(&session)
    }

    pub(super) fn renew(&self, peer: &Sender, renew: &Renew) -> Result<Option<RenewReply>> {
        // A session that does not give up rows reads them until its lease is over, and is ended
        // only then: it may not have received the recall.
        let is_late = self.master.is_late(renew.session, self.lease);
        if is_late || !self.is_attached(peer, renew.session) {
            return Ok(None);
        }
        // A renewed session goes on reading leased rows, and another master could not know that.
        if !is_planted(Bug::RenewedWithoutLease) {
            self.master.check_serving()?;
        }
        let settled = if self.is_holding(renew.session) { 0 } else { self.master.settled_batch() };
        if let Some(live) = self.state.lock().live.get_mut(&renew.session) {
            live.renewed = self.clock.monotonic();
            live.counted = self.master.working_time();
            live.reads_from = live.reads_from.max(renew.reads_from);
            if live.reads_from >= live.due.0 {
                live.due = (settled, live.counted);
            }
        }
        Ok(Some(RenewReply { settled }))
    }

    /// Notes that the session reads under the lease of this master, if it named this master: the
    /// next master then need not wait for the session.
    pub(super) async fn bind(&self, peer: &Sender, bind: &Bind) -> Result<Option<Bound>> {
        let Bind { session, epoch } = *bind;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        if peer.user.is_some() {
            return Err(Error::Denied("a mount is in no process with a master".into()));
        }
        if epoch == self.master.epoch() {
            self.master.run(&Caller::system(), BindSession { session, epoch }).await?;
        }
        Ok(Some(Bound { epoch: self.master.epoch() }))
    }

    /// Ends the sessions that former processes of this node have left, so that nobody waits until
    /// they lapse. A session that is attached by an open connection is left alone: its process is
    /// alive, whatever the other process claims.
    pub(super) fn succeed(&self, peer: &Sender, message: &Succeed) -> Result<Option<()>> {
        if !self.is_attached(peer, message.session) {
            return Ok(None);
        }
        if peer.user.is_some() {
            return Err(Error::Denied("a mount is not the only process of its user".into()));
        }
        let mut state = self.state.lock();
        let is_former =
            |session: &SessionId, owner: u64| *session != message.session && owner == peer.owner;
        let inherited = state.inherited.iter().filter(|(id, one)| is_former(id, one.owner));
        let mut former: Vec<SessionId> = inherited.map(|(id, _)| *id).collect();
        let gone = state.live.iter().filter(|(id, one)| {
            is_former(id, one.peer.owner) && one.told.is_closed() && !state.opening.contains_key(id)
        });
        former.extend(gone.map(|(id, _)| *id));
        for session in former {
            tracing::info!(%session, %peer, "session ended: its process has a successor");
            state.live.remove(&session);
            self.retire(&mut state, session);
        }
        self.open_if_due(&mut state);
        Ok(Some(()))
    }

    pub(super) async fn detach(&self, peer: &Sender, detach: &Detach) -> Result<Option<()>> {
        let session = detach.session;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        {
            let mut state = self.state.lock();
            state.live.remove(&session);
            state.replaying.remove(&session);
            self.open_if_due(&mut state);
        }
        self.master.tell(Event::Ended { session });
        self.master.run(&Caller::system(), EndSession { session, reaped: false }).await?;
        Ok(Some(()))
    }

    pub(super) fn replayed(&self, peer: &Sender, message: &ReplayEnd) -> Result<Option<()>> {
        if !self.is_attached(peer, message.session) {
            return Ok(None);
        }
        self.master.tell(Event::Replayed { session: message.session });
        let mut state = self.state.lock();
        state.replaying.remove(&message.session);
        self.open_if_due(&mut state);
        Ok(Some(()))
    }

    /// Waits until sessions are answered and changes are made, or until this master has ended,
    /// which then answers nothing.
    pub async fn opened(&self) {
        if self.opened_now() {
            return;
        }
        tokio::select! {
            biased;
            () = self.open.wait_for(|open| open.then_some(())) => {}
            _ = self.master.wait_failed() => {}
        }
    }

    /// Returns whether sessions are answered, and changes made.
    pub fn opened_now(&self) -> bool {
        self.open.get()
    }

    /// Opens when all inherited sessions have attached or lapsed. From then on only attached
    /// sessions can hold old rows, and these give them up first.
    fn open_if_due(&self, state: &mut SessionsState) {
        let is_due = !state.awaits_any() && state.replaying.is_empty();
        if !is_due || state.recalling || self.opened_now() {
            return;
        }
        let holders = state.live.iter().filter(|(_, live)| live.holds);
        let holders: Vec<SessionId> = holders.map(|(session, _)| *session).collect();
        if holders.is_empty() || is_planted(Bug::HeldRowsNotRecalled) {
            self.open.set(true);
            return;
        }
        state.recalling = true;
        let open = Arc::clone(&self.open);
        let done = Box::new(move || open.set(true));
        self.master.tell(Event::AllRecalled { sessions: holders, done });
    }

    /// Ends the sessions that have lapsed. Must be called several times a second.
    ///
    /// # Errors
    /// Those of the master; the next call tries again.
    pub async fn tick(&self) -> Result<()> {
        self.dumps.lock().let_go(self.clock.monotonic());
        self.note_lapsed();
        let ending = self.state.lock().ending.clone();
        for session in ending {
            match self.end(session).await {
                // The session was about to be opened, and never was.
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            self.state.lock().ending.remove(&session);
        }
        Ok(())
    }

    /// Ends a session, and meanwhile notes other sessions that lapse: the end of one may wait until
    /// another gives up a row.
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
        let SessionsState { live, inherited, opening, replaying, .. } = &mut *state;
        let mut lapsed = Vec::new();
        opening.retain(|session, one| {
            lapsed.extend((now >= one.lapses).then_some(*session));
            now < one.lapses
        });
        live.retain(|session, one| {
            // However often it attaches again meanwhile.
            let is_late =
                one.lags(now) || replaying.get(session).is_some_and(|lapses| now >= *lapses);
            let renewed = now.saturating_sub(one.counted) < self.lease;
            let alive = !is_late && (renewed || opening.contains_key(session));
            lapsed.extend((!alive).then_some(*session));
            alive
        });
        // A session may be attached although another attempt to attach it failed.
        lapsed.retain(|session| !live.contains_key(session));
        inherited.retain(|session, one| {
            let alive = now < one.lapses || opening.contains_key(session);
            lapsed.extend((!alive).then_some(*session));
            alive
        });
        for session in lapsed {
            tracing::warn!(%session, "session ended: it has not renewed, not let go of what was \
                recalled, not sent all again, or read what was before, for too long");
            self.retire(&mut state, session);
        }
        self.open_if_due(&mut state);
    }

    /// Moves a session that is no longer among the live ones to those that are about to be ended.
    fn retire(&self, state: &mut SessionsState, session: SessionId) {
        state.inherited.remove(&session);
        state.opening.remove(&session);
        state.replaying.remove(&session);
        state.ending.insert(session);
        self.master.tell(Event::Ended { session });
    }

    /// Returns a batch such that no session reads an older state.
    pub fn reads_from(&self) -> u64 {
        let state = self.state.lock();
        if state.inherited.is_empty() {
            state.live.values().map(|one| one.reads_from).min().unwrap_or(u64::MAX)
        } else {
            0
        }
    }

    /// Describes why requests wait for this master: the sessions that have not acknowledged a
    /// recall, if there are any.
    pub fn awaited(self: &Arc<Self>) -> WaitTarget {
        let sessions = Arc::downgrade(self);
        WaitTarget::Asked(Arc::new(move || {
            sessions.upgrade().map_or_else(String::new, |sessions| sessions.name_awaited())
        }))
    }

    pub(super) fn name_awaited(&self) -> String {
        let mut late = self.master.awaited();
        late.sort_unstable_by_key(|(_, time)| std::cmp::Reverse(*time));
        let state = self.state.lock();
        let name = |(session, time): &(SessionId, Duration)| {
            let owner = state.live.get(session).map(|live| Owner::of(live.peer.owner));
            let owner = match owner {
                Some(Owner::Mount(user)) => format!("a mount of user {user}"),
                Some(Owner::Node(node)) => format!("node {node}"),
                None => "not attached".to_owned(),
            };
            format!("session {session} ({owner}) for {:.1} s", time.as_secs_f64())
        };
        match late.len() {
            0 if !self.open.get() => "sessions that the former master knew".to_owned(),
            0 => "the master in this process".to_owned(),
            count => {
                let shown: Vec<String> = late.iter().take(SHOWN).map(name).collect();
                let more = match count.saturating_sub(SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("recall not acknowledged by {}{more}", shown.join(", "))
            }
        }
    }

    /// Returns the sessions that are attached, with the time since each renewed.
    pub fn list(&self) -> Vec<(SessionId, Owner, Duration)> {
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let one = |(session, live): (&SessionId, &Live)| {
            (*session, Owner::of(live.peer.owner), now.saturating_sub(live.renewed))
        };
        state.live.iter().map(one).collect()
    }
}

/// Returns whether a session reads leased rows only under the lease of the master before that of
/// `epoch`, which is over. A session that named an earlier master may have been attached since.
fn is_bound_to_former(row: &Session, epoch: u64) -> bool {
    let named = if is_planted(Bug::BoundToAnyMaster) {
        row.bound > 0
    } else {
        row.bound > 0 && row.bound + 1 == epoch
    };
    named && !row.loaded
}

fn lapsed(session: SessionId) -> Error {
    Error::Unavailable(format!("outcome unknown: session {session} has lapsed"))
}
