//! Failed requests without a user: a few of each network are recorded, the others counted. Without
//! this, anybody could cause the records of others to be rotated away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use cairn_base::Party;
use parking_lot::Mutex;
use serde::Serialize;

/// Time within which they are counted.
const WINDOW: Duration = Duration::from_secs(600);
/// Records within that time, of one network and of all networks.
const RECORDS: u32 = 60;
const RECORDS_OF_ALL: u32 = 600;
/// Networks that are counted separately. Further networks count as one.
const NETWORKS: usize = 256;

/// Requests within one window.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Period>);

#[derive(Debug, Default)]
struct Period {
    /// Start of the window; none if there was no request since the previous window ended.
    began: Option<Duration>,
    recorded: u32,
    networks: HashMap<Party, OfNetwork>,
    /// Requests of networks that are not counted separately.
    of_others: u64,
}

#[derive(Debug, Default)]
struct OfNetwork {
    recorded: u32,
    more: u64,
}

/// Requests of a network that have no records of their own.
#[derive(PartialEq, Eq, Debug, Serialize)]
pub(crate) struct MoreRefusals {
    /// An address, the network of an IPv6 address, or `others`.
    pub source: String,
    pub more: u64,
}

impl Refusals {
    /// Decides whether a request is recorded. If not, it is counted.
    pub fn admit(&self, source: Option<IpAddr>, now: Duration) -> bool {
        let mut window = self.0.lock();
        window.began.get_or_insert(now);
        let party = source.map_or(Party::Other, Party::at);
        let is_full = window.networks.len() >= NETWORKS;
        let has_room = window.recorded < RECORDS_OF_ALL;
        let of_network = match window.networks.get_mut(&party) {
            Some(known) => known,
            None if is_full => {
                window.of_others += 1;
                return false;
            }
            None => window.networks.entry(party).or_default(),
        };
        let is_recorded = has_room && of_network.recorded < RECORDS;
        if is_recorded {
            of_network.recorded += 1;
        } else {
            of_network.more += 1;
        }
        window.recorded += u32::from(is_recorded);
        is_recorded
    }

    /// Returns the counts of a window that has ended, or ends now if `is_end`.
    pub fn take(&self, now: Duration, is_end: bool) -> Vec<MoreRefusals> {
        let mut window = self.0.lock();
        let has_ended = window.began.is_some_and(|began| now.saturating_sub(began) >= WINDOW);
        if !has_ended && !is_end {
            return Vec::new();
        }
        let Period { networks, of_others, .. } = std::mem::take(&mut *window);
        drop(window);
        let counted = networks.into_iter().map(|(party, of)| (name(party), of.more));
        let all = counted.chain([("others".to_owned(), of_others)]);
        let all = all.filter(|(_, more)| *more > 0);
        let mut all: Vec<_> = all.map(|(source, more)| MoreRefusals { source, more }).collect();
        all.sort_by(|a, b| a.source.cmp(&b.source));
        all
    }
}

fn name(party: Party) -> String {
    match party {
        Party::Network(IpAddr::V6(network)) => format!("{network}/64"),
        Party::Network(address) => address.to_string(),
        Party::User(_) | Party::ShareLink(_) | Party::Other => "others".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn more(source: &str, more: u64) -> MoreRefusals {
        MoreRefusals { source: source.to_owned(), more }
    }

    #[test]
    fn a_few_of_each_network_are_recorded_and_the_others_counted() {
        let (refusals, now) = (Refusals::default(), Duration::from_secs(5));
        let (one, two) = (address("10.0.0.7"), address("2001:db8::7"));
        let admitted = |source, now| (0..100).filter(|_| refusals.admit(source, now)).count();
        assert_eq!(admitted(one, now), 60);
        assert_eq!(admitted(two, now), 60, "of another network");
        assert_eq!(admitted(address("2001:db8::8"), now), 0, "of the same one");
        assert!(refusals.take(now + WINDOW / 2, false).is_empty());
        let counted = [more("10.0.0.7", 40), more("2001:db8::/64", 140)];
        assert_eq!(refusals.take(now + WINDOW, false), counted);
        assert!(refusals.take(now + 2 * WINDOW, true).is_empty(), "each is told once");
        assert_eq!(admitted(one, now + 2 * WINDOW), 60, "a new window");
        assert_eq!(refusals.take(now + 2 * WINDOW, true), [more("10.0.0.7", 40)], "at the end");
    }

    #[test]
    fn many_networks_are_bounded_too() {
        let (refusals, now) = (Refusals::default(), Duration::ZERO);
        let sources = (0..1000u32).map(|number| Some(IpAddr::from(number.to_be_bytes())));
        let recorded: u32 = sources
            .flat_map(|source| [source; 10])
            .map(|one| u32::from(refusals.admit(one, now)))
            .sum();
        assert_eq!(recorded, RECORDS_OF_ALL);
        let counted = refusals.take(now + WINDOW, false);
        assert_eq!(counted.len(), NETWORKS - 60 + 1, "60 networks had ten each");
        let all: u64 = counted.iter().map(|of| of.more).sum();
        assert_eq!(all, 10_000 - u64::from(RECORDS_OF_ALL), "none is lost");
    }
}
