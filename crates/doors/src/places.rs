//! The places of requests in progress: their number in this process, and their division.
//!
//! A request that may wait takes a place until its reply has been sent. Places are counted by the
//! address of the client until its user is known, and by the user from then on. A party may have
//! three times as many places as are free: so there is always a place for a newcomer, and clients
//! with a valid key find a place whatever others at the same address do.
//!
//! ```text
//!   request ──► its address, without credentials ───────────────────► the reply is sent
//!           └─► its address, with credentials ──► verified: its user ─┘
//! ```
//!
//! A connection of HTTP/1.1 has one request at a time, and the door counts its connections. So a
//! request without a body takes no place there, and the fastest path through a door counts nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use cairn_base::shares::FAIR;
use cairn_base::{Party, Share, UserId};
use parking_lot::Mutex;

use crate::limits;

/// Number of parts of the table of accounts, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// Number of accounts in a part of the table from which on accounts without a place are removed.
const ACCOUNTS: usize = 64;

/// The account that a request is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Holder {
    party: Party,
    /// True if the request has credentials that are yet to be verified.
    is_claimed: bool,
}

/// All places of a process.
pub struct Places {
    room: u64,
    taken: AtomicU64,
    refused: AtomicU64,
    shards: [Mutex<Accounts>; SHARDS],
}

#[derive(Default)]
struct Accounts {
    accounts: HashMap<Holder, Weak<PlaceAccount>>,
    /// Number of accounts from which on those without a place are removed.
    most: usize,
}

/// The number of places that one holder has.
#[derive(Debug, Default)]
pub(crate) struct PlaceAccount(AtomicU64);

/// The place of one request; clones belong to the same request. The place is released with the last
/// clone.
#[derive(Clone)]
pub(crate) struct Place(Arc<PlaceState>);

struct PlaceState {
    places: Arc<Places>,
    address: Party,
    account: Mutex<Arc<PlaceAccount>>,
    /// A share that the request holds as long as its place.
    beside: OnceLock<Share>,
}

/// Error: there is no place for a further request of this holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPlace;

impl Default for Places {
    fn default() -> Places {
        Places::new(limits::REQUESTS_MAX)
    }
}

impl Places {
    pub fn new(room: u64) -> Places {
        Places {
            room: room.max(1),
            taken: AtomicU64::default(),
            refused: AtomicU64::default(),
            shards: Default::default(),
        }
    }

    /// Returns as many places as there is memory for, in a process that may have `memory` bytes in
    /// all.
    pub fn within(memory: u64) -> Places {
        let room = memory / limits::REQUESTS_PART / limits::REQUEST_BYTES;
        Places::new(room.clamp(limits::REQUESTS_MIN, limits::REQUESTS_MAX))
    }

    /// Returns the number of places that are taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Returns the number of requests that found no place.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    pub fn room(&self) -> u64 {
        self.room
    }

    /// Returns the account of requests from an address.
    pub(crate) fn at(&self, address: Party, is_claimed: bool) -> Arc<PlaceAccount> {
        self.account(Holder { party: address, is_claimed })
    }

    fn account(&self, holder: Holder) -> Arc<PlaceAccount> {
        let mut shard = self.shards[shard_of(holder)].lock();
        if let Some(account) = shard.accounts.get(&holder).and_then(Weak::upgrade) {
            return account;
        }
        if shard.accounts.len() >= shard.most.max(ACCOUNTS) {
            shard.accounts.retain(|_, account| account.strong_count() > 0);
            shard.most = 2 * shard.accounts.len();
        }
        let account = Arc::<PlaceAccount>::default();
        shard.accounts.insert(holder, Arc::downgrade(&account));
        account
    }

    /// Takes a place of an account at an address.
    ///
    /// # Errors
    /// The holder has its full part, or no place is free.
    pub(crate) fn take(
        self: &Arc<Self>,
        address: Party,
        account: &Arc<PlaceAccount>,
    ) -> Result<Place, NoPlace> {
        let taken = self.taken.fetch_add(1, Relaxed);
        if !self.count_in(account, taken) {
            self.taken.fetch_sub(1, Relaxed);
            return Err(NoPlace);
        }
        let (places, account) = (Arc::clone(self), Mutex::new(Arc::clone(account)));
        let beside = OnceLock::new();
        Ok(Place(Arc::new(PlaceState { places, address, account, beside })))
    }

    /// Counts one more place in an account, if it is allowed another while `others` places are
    /// taken in all.
    fn count_in(&self, account: &PlaceAccount, others: u64) -> bool {
        let held = account.0.fetch_add(1, Relaxed);
        let free = self.room.saturating_sub(others);
        if free == 0 || held >= FAIR.saturating_mul(free) {
            account.0.fetch_sub(1, Relaxed);
            self.refused.fetch_add(1, Relaxed);
            return false;
        }
        true
    }
}

fn shard_of(holder: Holder) -> usize {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(holder) as usize % SHARDS
}

impl Place {
    /// Keeps a share for as long as the place is held.
    pub(crate) fn beside(self, share: Share) -> Place {
        // A second share would be dropped at once, but there is never a second one.
        let _ = self.0.beside.set(share);
        self
    }

    /// Counts the request by its user from here on, as its credentials have been verified.
    ///
    /// # Errors
    /// The user has its full part of the places. The request should be refused.
    pub(crate) fn admit(&self, user: UserId) -> Result<(), NoPlace> {
        self.move_to(Holder { party: Party::User(user), is_claimed: false })
    }

    /// Counts the request as anonymous, as its credentials are wrong.
    ///
    /// # Errors
    /// The address has its full part of the places. The request should be refused at once.
    pub(crate) fn disown(&self) -> Result<(), NoPlace> {
        self.move_to(Holder { party: self.0.address, is_claimed: false })
    }

    fn move_to(&self, holder: Holder) -> Result<(), NoPlace> {
        let places = &self.0.places;
        let account = places.account(holder);
        let mut own = self.0.account.lock();
        if Arc::ptr_eq(&own, &account) {
            return Ok(());
        }
        let others = places.taken().saturating_sub(1);
        if !places.count_in(&account, others) {
            return Err(NoPlace);
        }
        own.0.fetch_sub(1, Relaxed);
        *own = account;
        Ok(())
    }
}

impl Drop for PlaceState {
    fn drop(&mut self) {
        self.account.get_mut().0.fetch_sub(1, Relaxed);
        self.places.taken.fetch_sub(1, Relaxed);
    }
}

/// The places of requests from one address.
pub(crate) struct PlacesAt {
    places: Arc<Places>,
    address: Party,
    /// Accounts of requests without credentials, and with some. They are made when they are first
    /// needed.
    accounts: [OnceLock<Arc<PlaceAccount>>; 2],
}

impl PlacesAt {
    pub(crate) fn new(places: &Arc<Places>, address: Party) -> PlacesAt {
        PlacesAt { places: Arc::clone(places), address, accounts: Default::default() }
    }

    /// Takes a place for a request, which may have credentials with it.
    ///
    /// # Errors
    /// Where there is none for it.
    pub(crate) fn take(&self, is_claimed: bool) -> Result<Place, NoPlace> {
        let account = &self.accounts[usize::from(is_claimed)];
        let account = account.get_or_init(|| self.places.at(self.address, is_claimed));
        self.places.take(self.address, account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Party {
        Party::at(std::net::IpAddr::from([10, 0, 0, last]))
    }

    fn all(at: &PlacesAt, is_claimed: bool) -> Vec<Place> {
        std::iter::from_fn(|| at.take(is_claimed).ok()).collect()
    }

    #[test]
    fn no_address_takes_all_places() {
        let places = Arc::new(Places::new(64));
        let one = PlacesAt::new(&places, address(1));
        let taken = all(&one, false);
        assert_eq!(taken.len(), 48);
        let same = PlacesAt::new(&places, address(1));
        assert_eq!(same.take(false).err(), Some(NoPlace), "it is the same address");
        let others: Vec<_> =
            (2..20).filter_map(|n| PlacesAt::new(&places, address(n)).take(false).ok()).collect();
        assert!(others.len() >= 10, "{}", others.len());
        drop((taken, others));
        assert_eq!(places.taken(), 0);
        assert_eq!(all(&one, false).len(), 48);
    }

    #[test]
    fn a_valid_key_finds_a_place_whatever_others_at_its_address_do() {
        let places = Arc::new(Places::new(64));
        let at = PlacesAt::new(&places, address(1));
        let strangers = all(&at, false);
        let place = at.take(true).unwrap();
        place.admit(UserId(7)).unwrap();
        let guessed = at.take(true).unwrap();
        assert_eq!(guessed.disown(), Err(NoPlace), "its address has its part");
        drop(strangers);
        assert_eq!(guessed.disown(), Ok(()));
        assert_eq!(places.taken(), 2);
        drop((place.clone(), place, guessed));
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn a_user_has_its_part_wherever_its_requests_come_from() {
        let places = Arc::new(Places::new(64));
        let mut taken = Vec::new();
        for last in 0..100 {
            let place = PlacesAt::new(&places, address(last)).take(true).unwrap();
            if place.admit(UserId(7)).is_err() {
                break;
            }
            taken.push(place);
        }
        assert_eq!(taken.len(), 48);
    }

    #[test]
    fn accounts_without_places_are_forgotten() {
        let places = Arc::new(Places::new(64));
        for number in 0..10_000u32 {
            let address = Party::at(std::net::IpAddr::from(number.to_be_bytes()));
            drop(PlacesAt::new(&places, address).take(false).unwrap());
        }
        let kept: usize = places.shards.iter().map(|shard| shard.lock().accounts.len()).sum();
        assert!(kept <= SHARDS * ACCOUNTS, "{kept}");
    }

    #[test]
    fn a_large_machine_has_more_places() {
        assert_eq!(Places::within(0).room(), limits::REQUESTS_MIN);
        assert!(Places::within(1 << 30).room() > limits::REQUESTS_MIN);
        assert_eq!(Places::within(u64::MAX).room(), limits::REQUESTS_MAX);
    }
}
