use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

const ONE: Party = Party::User(UserId(1));
const OTHER: Party = Party::User(UserId(2));
const THIRD: Party = Party::User(UserId(3));

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The result of a future's first poll.
fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let waker = Arc::new(Woken::default()).into();
    match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn addresses_of_one_network_are_one_party() {
    let at = |text: &str| Party::at(text.parse().unwrap());
    assert_eq!(at("1.2.3.4"), at("::ffff:1.2.3.4"));
    assert_eq!(at("2001:db8::1"), at("2001:db8::2"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
}

#[test]
fn no_party_takes_the_last_quarter() {
    let shares = Shares::new(8);
    let mut taken: Vec<Share> = (0..6).map(|_| shares.take_now(ONE, 1).unwrap()).collect();
    assert!(shares.take_now(ONE, 1).is_none());
    let others = [shares.take_now(OTHER, 1).unwrap(), shares.take_now(THIRD, 1).unwrap()];
    assert!(shares.take_now(OTHER, 1).is_none(), "all are taken");
    taken.pop();
    assert!(shares.take_now(OTHER, 1).is_some());
    assert!(shares.take_now(ONE, 1).is_some());
    drop((taken, others));
    assert!(shares.take_now(THIRD, 1).is_some());
    assert!(shares.state().parties.is_empty(), "a party that has nothing is forgotten");
}

#[test]
fn a_party_that_waits_for_its_own_keeps_nobody_else_waiting() {
    let shares = Shares::new(8);
    let taken = poll(&mut shares.take(ONE, 6)).unwrap();
    let mut waiting = shares.take(ONE, 1);
    assert!(poll(&mut waiting).is_none());
    assert!(shares.is_wanted_of(ONE) && !shares.is_wanted_of(OTHER));
    let other = poll(&mut shares.take(OTHER, 2)).unwrap();
    assert!(!other.is_wanted());
    drop(taken);
    assert!(poll(&mut waiting).is_some());
}

#[test]
fn parties_that_wait_are_served_in_turn() {
    let shares = Shares::new(4);
    let held: Vec<Share> =
        [ONE, OTHER, THIRD, THIRD].map(|party| shares.take_now(party, 1).unwrap()).into();
    let mut of_one: Vec<Take> = (0..3).map(|_| shares.take(ONE, 1)).collect();
    assert!(of_one.iter_mut().all(|take| poll(take).is_none()));
    let mut of_other = shares.take(OTHER, 1);
    assert!(poll(&mut of_other).is_none());
    assert!(held.iter().all(Share::is_wanted));
    assert!(shares.take_now(Party::Other, 1).is_none(), "nobody passes by");
    let mut held = held.into_iter();
    drop((held.next(), held.next()));
    let first = poll(&mut of_one[0]).unwrap();
    let second = poll(&mut of_other).unwrap();
    assert!(poll(&mut of_one[1]).is_none(), "the other's turn was before");
    drop(first);
    assert!(poll(&mut of_one[1]).is_some());
    drop((second, held, of_one));
    assert_eq!(shares.taken(), 0);
}

#[test]
fn a_large_one_is_not_passed_by_for_ever() {
    let shares = Shares::new(8);
    let mut held: Vec<Share> = (0..4).map(|_| shares.take_now(ONE, 1).unwrap()).collect();
    held.extend((0..4).map(|_| shares.take_now(OTHER, 1).unwrap()));
    let mut large = shares.take(THIRD, 4);
    let mut small = shares.take(OTHER, 1);
    assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
    held.truncate(5);
    assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
    held.truncate(4);
    assert!(poll(&mut large).is_some(), "it was first");
    assert!(poll(&mut small).is_some());
}

#[test]
fn what_no_longer_waits_is_passed_over_and_gives_back() {
    let shares = Shares::new(4);
    let held = [shares.take_now(ONE, 3).unwrap(), shares.take_now(OTHER, 1).unwrap()];
    let (mut first, mut second) = (shares.take(OTHER, 1), shares.take(OTHER, 1));
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    drop(held);
    // Granted, and never fetched.
    drop(first);
    drop(poll(&mut second).unwrap());
    assert_eq!(shares.taken(), 0);
    assert!(shares.state().parties.is_empty());
}

#[test]
fn growing_shares_come_first_and_one_of_them_always_gets_on() {
    let shares = Shares::new(8);
    let mut held: Vec<Share> = [ONE, ONE, ONE, OTHER]
        .into_iter()
        .map(|party| shares.take_now(party, 2).unwrap())
        .collect();
    let mut waits = shares.take(THIRD, 1);
    assert!(poll(&mut waits).is_none());
    // All hold some, and all want more: the oldest gets it beyond the limits.
    let [a, b, c, d] = held.get_disjoint_mut([0, 1, 2, 3]).unwrap();
    {
        let mut second = Box::pin(b.grow(1));
        assert!(poll(&mut Box::pin(a.grow(1))).is_some(), "the first that asks leads");
        assert!(poll(&mut second).is_none());
        assert!(poll(&mut Box::pin(a.grow(1))).is_some());
        let (mut third, mut fourth) = (Box::pin(c.grow(1)), Box::pin(d.grow(1)));
        assert!(poll(&mut third).is_none() && poll(&mut fourth).is_none());
        assert_eq!(shares.taken(), 10);
    }
    let first = held.remove(0);
    let mut second = Box::pin(held[0].grow(1));
    assert!(poll(&mut second).is_none());
    drop(first);
    assert!(poll(&mut second).is_some());
    drop(second);
    assert!(poll(&mut waits).is_some());
    drop((held, waits));
    assert_eq!((shares.taken(), shares.state().leader), (0, None));
}

#[test]
fn more_than_a_party_may_have_is_all_that_it_may_have() {
    let shares = Shares::new(8);
    let all = poll(&mut shares.take(ONE, u64::MAX)).unwrap();
    assert_eq!(shares.taken(), 6);
    drop(all);
    let tiny = Shares::new(1);
    assert!(tiny.take_now(ONE, 5).is_some());
    assert_eq!(tiny.taken(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Take(u64, u64),
    Drop(usize),
    GiveUp(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..5_u64, 1..9_u64).prop_map(|(party, amount)| Act::Take(party, amount)),
        any::<usize>().prop_map(Act::Drop),
        any::<usize>().prop_map(Act::GiveUp),
    ]
}

proptest! {
    /// Takes, gives back and gives up room at random. Never more than all room is taken, no waiter
    /// waits for room that it could have, and in the end all room is back.
    #[test]
    fn room_is_neither_lost_nor_made(acts in proptest::collection::vec(act(), 0..200)) {
        let shares = Shares::new(16);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for act in acts {
            match act {
                Act::Take(party, amount) => {
                    let mut take = shares.take(Party::User(UserId(party)), amount);
                    match poll(&mut take) {
                        Some(share) => held.push(share),
                        None => waiting.push(take),
                    }
                }
                Act::Drop(at) if !held.is_empty() => drop(held.remove(at % held.len())),
                Act::GiveUp(at) if !waiting.is_empty() => {
                    drop(waiting.remove(at % waiting.len()));
                }
                _ => {}
            }
            let mut still = Vec::new();
            for mut take in waiting {
                match poll(&mut take) {
                    Some(share) => held.push(share),
                    None => still.push(take),
                }
            }
            waiting = still;
            let out: u64 = held.iter().map(|share| share.amount).sum();
            prop_assert_eq!(shares.taken(), out);
            prop_assert!(out <= 16);
            prop_assert!(!held.is_empty() || waiting.is_empty(), "nobody waits for nothing");
        }
        drop((held, waiting));
        prop_assert_eq!(shares.taken(), 0);
        let state = shares.state();
        prop_assert!(state.parties.is_empty() && state.turns.is_empty());
        prop_assert!(state.granted.is_empty() && state.growing.is_empty());
    }
}

#[test]
fn a_party_of_fair_shares_has_three_times_what_is_free() {
    let shares = Shares::fair(16);
    let take_all =
        |party| -> Vec<Share> { std::iter::from_fn(|| shares.take_now(party, 1)).collect() };
    let ones = take_all(ONE);
    assert_eq!(ones.len(), 12, "three quarters for one party");
    let others = take_all(OTHER);
    assert_eq!(others.len(), 3);
    assert!(shares.take_now(THIRD, 1).is_some(), "a newcomer finds a place");
    drop((ones, others));
    assert_eq!(shares.taken(), 0);
    for room in 1..5 {
        assert!(Shares::fair(room).take_now(ONE, 1).is_some(), "{room}");
    }
}

#[test]
fn whoever_waits_for_fair_shares_keeps_nobody_waiting_who_has_less() {
    let shares = Shares::fair(8);
    let mut ones: Vec<Share> = std::iter::from_fn(|| shares.take_now(ONE, 1)).collect();
    assert_eq!(ones.len(), 6);
    let mut waiting = shares.take(ONE, 1);
    assert!(poll(&mut waiting).is_none());
    let other = shares.take_now(OTHER, 1).unwrap();
    assert!(shares.is_wanted_of(ONE), "it waits itself");
    assert!(!shares.is_wanted_of(OTHER), "the other has less");
    let third = shares.take_now(THIRD, 1).unwrap();
    let mut fourth = shares.take(Party::User(UserId(4)), 1);
    assert!(poll(&mut fourth).is_none(), "all are taken");
    assert!(shares.is_wanted_of(OTHER), "a party without room waits");
    ones.truncate(3);
    let fourth = poll(&mut fourth);
    assert!(fourth.is_some() && poll(&mut waiting).is_some());
    drop((ones, other, third, fourth));
    assert_eq!(shares.taken(), 0);
}
