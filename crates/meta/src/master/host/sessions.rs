//! Which sessions there are: attaching, renewing and ending them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_audit::LineLog;
use cairn_auth::Caller;
use cairn_base::inflight::Awaited;
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
    Attach, Attached, Bind, Bound, Detach, Recall, Renew, Renewed, Replayed, SessionMethod, Succeed,
};

/// Sessions of mounts that one user has at a time. Each leaves a row.
pub const SESSIONS_OF_A_USER: usize = 512;
/// Messages of mounts a second that are exported, of one user a quarter of them.
const CLAIMED: u32 = 1000;
/// Sessions that are named to whoever asks what is waited for.
const SHOWN: usize = 3;
/// Between two looks for sessions that have lapsed, while the end of one is waited for.
const LOOK: Duration = Duration::from_millis(250);
/// How long a mount may go on reading a state of before: as long nothing that was deleted since is
/// given back to the disk.
const LAG: Duration = Duration::from_secs(120);

/// Takes an operation of a session that is over, by its name, and where its time went. The trace is
/// that of the request, with the span of the node that asked. Must not wait.
pub type Export = Arc<dyn Fn(&'static str, Stages) + Send + Sync>;

/// The sessions of a master.
pub struct Sessions {
    pub(super) master: Master,
    pub(super) clock: Arc<dyn Clock>,
    lease: Duration,
    state: Mutex<SessionsState>,
    /// Whether sessions are answered: not before every session that an earlier master may have
    /// given leases to is attached here and has sent again what it kept, or has lapsed; and has let
    /// go of what it held.
    open: Arc<Watched<bool>>,
    /// Takes operations of requests that are sampled, and how many of mounts, which say so
    /// themselves.
    pub(super) export: OnceLock<Export>,
    claimed: Allowance,
    /// Takes records of what mounts ask for, if anybody does.
    pub(super) audit: OnceLock<LineLog>,
    pub(super) dumps: Mutex<Dumps>,
}

#[derive(Default)]
struct SessionsState {
    live: BTreeMap<SessionId, Live>,
    /// When those that an earlier master knew lapse: these times, too, are those in which this
    /// master has worked. Nobody lapses because of its disk.
    inherited: BTreeMap<SessionId, Inherited>,
    /// Sessions that are about to be attached, and when they lapse if that fails.
    opening: BTreeMap<SessionId, Inherited>,
    /// Sessions that have lapsed and are not ended yet.
    ending: BTreeSet<SessionId>,
    /// Sessions that are attached and send again the operations they keep, and when they lapse if
    /// they go on with that.
    replaying: BTreeMap<SessionId, Duration>,
    /// Sessions were told to let go of what former masters have leased to them. This is open when
    /// they have.
    recalling: bool,
}

impl SessionsState {
    /// Whether a session that has not come yet may hold what former masters have leased to it.
    fn awaits_any(&self) -> bool {
        self.inherited.values().any(|one| one.may_hold)
    }

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
    /// Whether it may hold what former masters have leased to it.
    may_hold: bool,
    lapses: Duration,
}

struct Live {
    /// The peer that attached it, and the connection: nobody else may speak for it.
    peer: Sender,
    /// When its last renewal was answered, by the monotonic clock; and by the time of the master.
    renewed: Duration,
    counted: Duration,
    reads_from: u64,
    /// The batch before which it must read no state, and since when by the time of the master.
    due: (u64, Duration),
    /// It keeps operations until they are durable.
    hasty: bool,
    /// Until this master is open it goes on reading what former masters have leased to it.
    holds: bool,
    /// Is closed when the connection has ended.
    told: UnboundedSender<Recall>,
}

impl Live {
    /// Whether it is a mount that goes on reading what was before. A node may: a client that it
    /// serves is slow.
    fn lags(&self, now: Duration) -> bool {
        self.peer.user.is_some() && now.saturating_sub(self.due.1) > LAG
    }
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
        let epoch = master.epoch();
        let from = |row: &Session| Inherited {
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

    /// From now on operations of requests that are sampled go there. The first one stays.
    pub fn export_to(&self, export: Export) {
        let _ = self.export.set(export);
    }

    /// Whether a message of a request that is sampled, as its sender says, is exported.
    pub(super) fn is_exported(&self, peer: &Sender) -> bool {
        // A node passes on what its clients said, and has bounded that.
        peer.user.is_none_or(|user| self.claimed.take(Party::User(user), self.clock.monotonic()))
    }

    /// Records what mounts ask for. Once, before there are mounts.
    pub fn audit_to(&self, log: LineLog) {
        let _ = self.audit.set(log);
    }

    pub(super) async fn attach(
        &self,
        peer: &Sender,
        method: SessionMethod,
        attach: &Attach,
    ) -> Result<(Attached, UnboundedReceiver<Recall>)> {
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
            // A session that comes again goes on reading for its own clients what it read before,
            // and is due as before. What it read of a former master is not known.
            let first = if holds || was_inherited { 0 } else { durable };
            let (reads_from, due) = former.unwrap_or((first, (durable, counted)));
            let reads_from = if holds { 0 } else { reads_from };
            let told = sender.clone();
            let live = Live { peer: *peer, renewed, counted, reads_from, due, hasty, holds, told };
            state.live.insert(session, live);
            // Before this is open, all others wait until it has sent everything again. A new
            // session has nothing to send, and one that comes again has no more time than it had.
            if hasty && (was_inherited || self.open.get()) {
                state.replaying.insert(session, counted + self.lease);
            }
            self.master.tell(Event::Attached { session, recalls: sender });
            self.open_if_due(&mut state);
        }
        let lease_ms = self.lease.as_millis() as u64;
        let batch = if holds { 0 } else { self.master.durable_batch() };
        Ok((Attached { lease_ms, batch }, recalls))
    }

    /// Whether a session may go on reading what former masters have leased to it. To all others it
    /// is then as one that has not come here yet: nobody is answered before it has let go.
    ///
    /// # Errors
    /// `Conflict` where others were answered already, or are about to be, or it has let go before.
    /// `Unavailable` where another master may say something else.
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
        match peer.user.is_none() && is_due && !self.opened_now() {
            true => Ok(()),
            false => Err(Error::Conflict(format!(
                "session {session} has no leases of a former master any more"
            ))),
        }
    }

    /// Whether it goes on reading what former masters have leased to it.
    pub(super) fn is_holding(&self, session: SessionId) -> bool {
        // Each read asks this. Once this is open, it takes no lock of all sessions.
        !self.opened_now() && self.state.lock().live.get(&session).is_some_and(|live| live.holds)
    }

    /// From here on the session does not lapse before it can be attached.
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
        let opening = Inherited { owner: peer.owner, may_hold: false, lapses };
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
            // It is late: the session has been attached elsewhere since this was sent.
            Some(live) if live.connection > peer.connection => Err(Error::Unavailable(format!(
                "session {session} is attached by a later connection"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a session is attached here, by this peer.
    pub(super) fn is_attached(&self, peer: &Sender, session: SessionId) -> bool {
        self.state.lock().live.get(&session).is_some_and(|live| live.peer == *peer)
    }

    /// Whether it keeps operations until they are durable.
    pub(super) fn is_hasty(&self, session: SessionId) -> bool {
        self.state.lock().live.get(&session).is_some_and(|live| live.hasty)
    }

    /// Whether it sends again what it keeps.
    pub(super) fn is_replaying(&self, session: SessionId) -> bool {
        self.state.lock().replaying.contains_key(&session)
    }

    pub(super) fn renew(&self, peer: &Sender, renew: &Renew) -> Result<Option<Renewed>> {
        // A session that does not let go reads what it keeps until its lease is over, and is to end
        // only then: it may have heard of no recall.
        let is_late = self.master.is_late(renew.session, self.lease);
        if is_late || !self.is_attached(peer, renew.session) {
            return Ok(None);
        }
        // A session that is renewed goes on reading what it keeps: another master could not know.
        if !is_planted(Bug::RenewedWithoutLease) {
            self.master.check_serving()?;
        }
        let settled = match self.is_holding(renew.session) {
            true => 0,
            false => self.master.settled_batch(),
        };
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

    /// Notes that the session reads under the lease of this master, if that is the one it names:
    /// the next master then need not wait for it.
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

    /// Ends the sessions that former processes of this node have left: nobody need wait until they
    /// lapse. One that is attached by a connection that has not ended is left alone: its process is
    /// there, whatever the other one says.
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

    pub(super) fn replayed(&self, peer: &Sender, message: &Replayed) -> Result<Option<()>> {
        if !self.is_attached(peer, message.session) {
            return Ok(None);
        }
        self.master.tell(Event::Replayed { session: message.session });
        let mut state = self.state.lock();
        state.replaying.remove(&message.session);
        self.open_if_due(&mut state);
        Ok(Some(()))
    }

    /// Waits until sessions are answered, and changes made; or until this master has ended, which
    /// answers nothing then.
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

    /// Whether sessions are answered, and changes made.
    pub fn opened_now(&self) -> bool {
        self.open.get()
    }

    /// Opens when all have come or lapsed. From then on nobody else may hold anything, and sessions
    /// that do let go first.
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

    /// Ends the sessions that have lapsed. To be called several times a second.
    ///
    /// # Errors
    /// Those of the master; the next call tries again.
    pub async fn tick(&self) -> Result<()> {
        self.dumps.lock().let_go(self.clock.monotonic());
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
        let SessionsState { live, inherited, opening, replaying, .. } = &mut *state;
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
            self.retire(&mut state, session);
        }
        self.open_if_due(&mut state);
    }

    /// A session that is not among the live ones any more is about to be ended.
    fn retire(&self, state: &mut SessionsState, session: SessionId) {
        state.inherited.remove(&session);
        state.opening.remove(&session);
        state.replaying.remove(&session);
        state.ending.insert(session);
        self.master.tell(Event::Ended { session });
    }

    /// No session reads a state older than this batch.
    pub fn reads_from(&self) -> u64 {
        let state = self.state.lock();
        match state.inherited.is_empty() {
            true => state.live.values().map(|one| one.reads_from).min().unwrap_or(u64::MAX),
            false => 0,
        }
    }

    /// The reason for which requests wait that this master has not answered, in words: sessions
    /// that have not acknowledged a recall, if there are any.
    pub fn awaited(self: &Arc<Self>) -> Awaited {
        let sessions = Arc::downgrade(self);
        Awaited::Asked(Arc::new(move || {
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

/// Whether a session reads leased rows only under the lease of the master before that of `epoch`.
/// That lease is over. A session that named an earlier master may have been attached since.
fn is_bound_to_former(row: &Session, epoch: u64) -> bool {
    let named = match is_planted(Bug::BoundToAnyMaster) {
        true => row.bound > 0,
        false => row.bound > 0 && row.bound + 1 == epoch,
    };
    named && !row.loaded
}

fn lapsed(session: SessionId) -> Error {
    Error::Unavailable(format!("outcome unknown: session {session} has lapsed"))
}
