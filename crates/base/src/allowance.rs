//! Limits how often each party, and all parties together, may do something that costs everybody.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::Party;

/// Permits at most `all` uses in each period, a quarter of them to one party. The counts start anew
/// when a period is over, so up to twice as many uses may come in a short time.
#[derive(Debug)]
pub struct Allowance {
    period: Duration,
    all: u32,
    counts: Mutex<Counts>,
}

#[derive(Default, Debug)]
struct Counts {
    /// Start of the current period.
    since: Duration,
    all: u32,
    /// Uses of each party; at most `all` parties.
    each: HashMap<Party, u32>,
}

impl Allowance {
    pub fn new(period: Duration, all: u32) -> Allowance {
        Allowance { period, all, counts: Mutex::default() }
    }

    /// Takes one use for the party at `now` (by any clock); returns whether there was one left.
    pub fn take(&self, party: Party, now: Duration) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(counts.since) >= self.period {
            *counts = Counts { since: now, ..Counts::default() };
        }
        let of_party = counts.each.get(&party).copied().unwrap_or_default();
        let is_free = counts.all < self.all && of_party < self.all.div_ceil(4);
        if is_free {
            counts.all += 1;
            counts.each.insert(party, of_party + 1);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UserId;

    #[test]
    fn a_party_has_a_quarter_and_all_have_all() {
        let (period, all) = (Duration::from_secs(10), 400);
        let allowance = Allowance::new(period, all);
        let take = |user, now| {
            let party = Party::User(UserId(user));
            (0..all).filter(|_| allowance.take(party, now)).count()
        };
        let now = Duration::from_secs(100);
        assert_eq!([1, 1, 2, 3, 4, 5].map(|user| take(user, now)), [100, 0, 100, 100, 100, 0]);
        assert_eq!(take(5, now + period), 100);
        assert_eq!(allowance.counts.lock().unwrap().each.len(), 1);
    }
}
