//! Room that many parties share: memory for uploads, places for handshakes, mounts.
//!
//! No party takes the last quarter of it, and parties that wait are served in turn: so others come
//! in, whatever one party does. It needs no runtime; the futures here wake whatever polls them.
//!
//! ```text
//!   take ──► a Share, once there is room and the party has not taken its part
//!   grow ──► more for a Share that holds some: before all that hold nothing
//! ```
//!
//! [`Shares::fair`] divides places that are held for long, such as those of connections: a party
//! may have at most three times the free room. So one party alone has three quarters at most;
//! the more parties there are, the less each of them has; and there is always a place for a
//! newcomer. Nobody has to wait for the turn of a party that has much.
//!
//! Shares that all hold some and all wait for more would wait indefinitely. So one of them, the
//! leader, gets more than there is until it is dropped: a caller bounds what one share may grow to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::UserId;

/// A party among which shared room is divided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Party {
    User(UserId),
    /// The addresses that one network hands out; see [`Party::at`].
    Network(IpAddr),
    /// All senders by one share link, by a number of it.
    ShareLink(u64),
    /// The store itself, and requests without credentials whose address does not matter.
    Other,
}

impl Party {
    /// The party at an address: an IPv4 address, or the half of an IPv6 address that a network
    /// hands out.
    pub fn at(address: IpAddr) -> Party {
        Party::Network(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        })
    }
}

/// Multiple of the free room that one party may take, where shares are fair.
pub const FAIR: u64 = 3;

pub struct Shares {
    /// Amount of all the room.
    room: u64,
    /// Most that one party may take of it.
    most: u64,
    /// Limits a party to [`FAIR`] times the free room.
    is_fair: bool,
    state: Mutex<SharesState>,
}

#[derive(Default)]
struct SharesState {
    taken: u64,
    /// Parties that hold or wait for something; no others.
    parties: HashMap<Party, Account>,
    /// Parties that wait for new shares, the next one first.
    turns: VecDeque<Party>,
    /// Shares that wait to grow, the oldest first.
    growing: VecDeque<Ask>,
    /// Ids of grants that were not fetched yet.
    granted: HashSet<u64>,
    /// Share that may grow beyond the limits, so that one of the growing shares can always finish.
    leader: Option<u64>,
    next: u64,
}

#[derive(Default)]
struct Account {
    taken: u64,
    waiting: VecDeque<Ask>,
}

/// A request for room that waits.
struct Ask {
    id: u64,
    party: Party,
    /// Id of the share that should grow, or of a new share.
    share: u64,
    amount: u64,
    waker: Waker,
}

/// A part of the room, which is given back on drop.
pub struct Share {
    of: Arc<Shares>,
    party: Party,
    id: u64,
    amount: u64,
}

impl Shares {
    pub fn new(room: u64) -> Arc<Shares> {
        Shares::divided(room, false)
    }

    /// Creates room of which a party may have three times the free part. Its shares do not grow.
    pub fn fair(room: u64) -> Arc<Shares> {
        Shares::divided(room, true)
    }

    fn divided(room: u64, is_fair: bool) -> Arc<Shares> {
        let most = (room - room / 4).max(1);
        Arc::new(Shares { room: room.max(1), most, is_fair, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, SharesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room. An amount beyond a party's limit is reduced to the limit.
    pub fn take(self: &Arc<Self>, party: Party, amount: u64) -> Take {
        let amount = amount.min(self.most);
        let id = self.state().next_id();
        Take { of: Arc::clone(self), party, share: id, grows: false, amount, waits: None }
    }

    /// Takes room, if there is some right now.
    pub fn take_now(self: &Arc<Self>, party: Party, amount: u64) -> Option<Share> {
        let amount = amount.min(self.most);
        let mut state = self.state();
        let id = state.next_id();
        let is_free = self.is_free(&state, party, amount);
        is_free.then(|| {
            state.add(party, amount);
            Share { of: Arc::clone(self), party, id, amount }
        })
    }

    /// Returns whether the amount can be granted without overtaking others that wait.
    fn is_free(&self, state: &SharesState, party: Party, amount: u64) -> bool {
        let waits = |account: &Account| !account.waiting.is_empty();
        self.fits(state, party, amount)
            && !state.parties.get(&party).is_some_and(waits)
            && (self.is_fair || !self.is_short(state))
    }

    fn fits(&self, state: &SharesState, party: Party, amount: u64) -> bool {
        if state.taken.saturating_add(amount) > self.room {
            return false;
        }
        if self.is_fair {
            let free = self.room.saturating_sub(state.taken);
            return state.taken_by(party).saturating_add(amount) <= FAIR.saturating_mul(free);
        }
        self.is_due(state, party, amount)
    }

    /// Returns whether the party may take `amount` more.
    fn is_due(&self, state: &SharesState, party: Party, amount: u64) -> bool {
        state.taken_by(party).saturating_add(amount) <= self.most
    }

    /// Returns whether somebody waits only because there is no room, and not because of the limit
    /// of one party.
    fn is_short(&self, state: &SharesState) -> bool {
        let is_due = |ask: &Ask| self.is_due(state, ask.party, ask.amount);
        state.growing.iter().any(is_due)
            || state.turns.iter().any(|party| {
                let first = state.parties.get(party).and_then(|account| account.waiting.front());
                first.is_some_and(is_due)
            })
    }

    /// Returns whether others wait for what this party holds. Where shares are fair, only the party
    /// itself and parties that hold less count as others.
    pub fn is_wanted_of(&self, party: Party) -> bool {
        let state = self.state();
        if self.is_fair {
            let taken = state.taken_by(party);
            let wants = |other: &Party| *other == party || state.taken_by(*other) < taken;
            return state.turns.iter().any(wants);
        }
        let waits = |account: &Account| !account.waiting.is_empty();
        state.parties.get(&party).is_some_and(waits)
            || state.growing.iter().any(|ask| ask.party == party)
            || self.is_short(&state)
    }

    /// Returns the amount that is taken in total.
    pub fn taken(&self) -> u64 {
        self.state().taken
    }

    /// Grants what can be granted, and returns the tasks to wake.
    fn settle(&self, state: &mut SharesState) -> Vec<Waker> {
        let mut woken = Vec::new();
        let mut at = 0;
        while let Some(ask) = state.growing.get(at) {
            let leads = *state.leader.get_or_insert(ask.share) == ask.share;
            let (party, amount) = (ask.party, ask.amount);
            if leads || self.fits(state, party, amount) {
                woken.extend(state.growing.remove(at).map(|ask| state.grant(ask)))
            } else {
                at += 1;
            }
        }
        if state.growing.iter().any(|ask| self.is_due(state, ask.party, ask.amount)) {
            return woken;
        }
        let mut passed = 0;
        while passed < state.turns.len() {
            let Some(party) = state.turns.pop_front() else { break };
            let Some(account) = state.parties.get(&party) else { continue };
            let Some(amount) = account.waiting.front().map(|ask| ask.amount) else { continue };
            if self.fits(state, party, amount) {
                let account = state.parties.entry(party).or_default();
                let ask = account.waiting.pop_front();
                if !account.waiting.is_empty() {
                    state.turns.push_back(party);
                }
                woken.extend(ask.map(|ask| state.grant(ask)));
                passed = 0;
            } else if !self.is_fair && self.is_due(state, party, amount) {
                // Its turn has come: nobody overtakes it.
                state.turns.push_front(party);
                break;
            } else {
                state.turns.push_back(party);
                passed += 1;
            }
        }
        woken
    }

    fn wake(&self, mut state: MutexGuard<'_, SharesState>) {
        let woken = self.settle(&mut state);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn give_back(&self, party: Party, amount: u64, share: Option<u64>) {
        let mut state = self.state();
        if state.leader == share {
            state.leader = None;
        }
        state.remove(party, amount);
        self.wake(state);
    }
}

impl SharesState {
    fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn taken_by(&self, party: Party) -> u64 {
        self.parties.get(&party).map_or(0, |account| account.taken)
    }

    fn add(&mut self, party: Party, amount: u64) {
        self.taken += amount;
        self.parties.entry(party).or_default().taken += amount;
    }

    fn grant(&mut self, ask: Ask) -> Waker {
        self.add(ask.party, ask.amount);
        self.granted.insert(ask.id);
        ask.waker
    }

    fn remove(&mut self, party: Party, amount: u64) {
        self.taken = self.taken.saturating_sub(amount);
        if let Some(account) = self.parties.get_mut(&party) {
            account.taken = account.taken.saturating_sub(amount);
        }
        self.forget(party);
    }

    /// Forgets a party that neither holds nor waits.
    fn forget(&mut self, party: Party) {
        let is_idle = |account: &Account| account.taken == 0 && account.waiting.is_empty();
        if self.parties.get(&party).is_some_and(is_idle) {
            self.parties.remove(&party);
        }
    }

    fn enqueue(&mut self, ask: Ask, grows: bool) {
        if grows {
            return self.growing.push_back(ask);
        }
        let party = ask.party;
        let account = self.parties.entry(party).or_default();
        account.waiting.push_back(ask);
        if account.waiting.len() == 1 {
            self.turns.push_back(party);
        }
    }

    fn waiting_mut(&mut self, party: Party, id: u64, grows: bool) -> Option<&mut Ask> {
        let asks =
            if grows { &mut self.growing } else { &mut self.parties.get_mut(&party)?.waiting };
        asks.iter_mut().find(|ask| ask.id == id)
    }

    fn give_up(&mut self, party: Party, id: u64, grows: bool) {
        if grows {
            return self.growing.retain(|ask| ask.id != id);
        }
        let Some(account) = self.parties.get_mut(&party) else { return };
        account.waiting.retain(|ask| ask.id != id);
        if account.waiting.is_empty() {
            self.turns.retain(|other| *other != party);
            self.forget(party);
        }
    }
}

/// A wait for room, see [`Shares::take`]. It ends when it is dropped.
#[must_use = "room is taken when this is awaited"]
pub struct Take {
    of: Arc<Shares>,
    party: Party,
    share: u64,
    grows: bool,
    amount: u64,
    /// Id of the request that waits.
    waits: Option<u64>,
}

impl Take {
    /// Returns whether the share has been granted; if not, `context` is woken when it is.
    fn poll_granted(&mut self, context: &mut Context<'_>) -> bool {
        let of = Arc::clone(&self.of);
        let mut state = of.state();
        let Some(id) = self.waits else {
            let is_free = if self.grows {
                state.growing.is_empty() && of.fits(&state, self.party, self.amount)
            } else {
                of.is_free(&state, self.party, self.amount)
            };
            if is_free {
                state.add(self.party, self.amount);
                return true;
            }
            let id = state.next_id();
            let (party, share, amount) = (self.party, self.share, self.amount);
            let ask = Ask { id, party, share, amount, waker: context.waker().clone() };
            state.enqueue(ask, self.grows);
            self.waits = Some(id);
            // A leader does not wait.
            let woken = of.settle(&mut state);
            let is_granted = state.granted.remove(&id);
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            if is_granted {
                self.waits = None;
            }
            return is_granted;
        };
        if state.granted.remove(&id) {
            self.waits = None;
            return true;
        }
        if let Some(ask) = state.waiting_mut(self.party, id, self.grows) {
            ask.waker.clone_from(context.waker());
        }
        false
    }
}

impl Future for Take {
    type Output = Share;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Share> {
        if self.poll_granted(context) {
            Poll::Ready(Share {
                of: Arc::clone(&self.of),
                party: self.party,
                id: self.share,
                amount: self.amount,
            })
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let Some(id) = self.waits else { return };
        let mut state = self.of.state();
        if state.granted.remove(&id) {
            state.remove(self.party, self.amount)
        } else {
            state.give_up(self.party, id, self.grows)
        }
        // A leader that was only waiting for more stays the leader: its share still exists.
        self.of.wake(state);
    }
}

impl Share {
    /// Waits for more room. The size to which one share grows must be bounded: see above.
    pub async fn grow(&mut self, amount: u64) {
        let amount = amount.min(self.of.most);
        let more = Take {
            of: Arc::clone(&self.of),
            party: self.party,
            share: self.id,
            grows: true,
            amount,
            waits: None,
        };
        let mut more = more.await;
        self.amount += std::mem::take(&mut more.amount);
        // Otherwise its drop would end the lead of the share that it belongs to.
        more.id = 0;
    }

    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns whether others wait for what this share holds.
    pub fn is_wanted(&self) -> bool {
        self.of.is_wanted_of(self.party)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.give_back(self.party, self.amount, Some(self.id));
    }
}

#[cfg(test)]
mod tests;
