//! Amounts of a shared resource by client address, so that no client can take all of it.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_base::Party;
use parking_lot::Mutex;

/// The amount that each party has. Only parties that have something are listed.
#[derive(Default)]
pub struct PartyAmounts(Mutex<HashMap<Party, usize>>);

/// An amount that a party has until this is dropped.
pub struct Part {
    taken: Arc<PartyAmounts>,
    party: Party,
    amount: usize,
}

impl PartyAmounts {
    pub fn of(&self, party: Party) -> usize {
        self.0.lock().get(&party).copied().unwrap_or_default()
    }

    /// Returns the number of parties that have something.
    pub fn parties(&self) -> usize {
        self.0.lock().len()
    }

    pub fn sum(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Adds one to the amount of a party. Returns `None` if the party already has `most`.
    pub fn one(self: &Arc<PartyAmounts>, party: Party, most: usize) -> Option<Part> {
        let mut taken = self.0.lock();
        let of = taken.entry(party).or_default();
        if *of >= most {
            return None;
        }
        *of += 1;
        Some(Part { taken: Arc::clone(self), party, amount: 1 })
    }

    /// Returns an empty part, to be enlarged later.
    pub fn nothing(self: &Arc<PartyAmounts>, party: Party) -> Part {
        Part { taken: Arc::clone(self), party, amount: 0 }
    }
}

impl Part {
    pub fn add(&mut self, more: usize) {
        self.amount += more;
        *self.taken.0.lock().entry(self.party).or_default() += more;
    }

    pub fn less(&mut self, by: usize) {
        self.amount -= by;
        let mut taken = self.taken.0.lock();
        if let Some(of) = taken.get_mut(&self.party) {
            *of -= by;
            if *of == 0 {
                taken.remove(&self.party);
            }
        }
    }

    /// Returns the whole amount of its party.
    pub fn all(&self) -> usize {
        self.taken.of(self.party)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.less(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_network_has_so_much_and_gives_it_back() {
        let taken = Arc::new(PartyAmounts::default());
        let at = |address: &str| Party::at(address.parse::<IpAddr>().unwrap());
        let one = taken.one(at("2001:db8::1"), 2).unwrap();
        let other = taken.one(at("2001:db8::2"), 2).unwrap();
        assert!(taken.one(at("2001:db8:0:0:ffff::3"), 2).is_none(), "the same network");
        let _elsewhere = taken.one(at("2001:db8:0:1::1"), 2).unwrap();
        drop((one, other));
        let mut bytes = taken.nothing(at("10.0.0.1"));
        bytes.add(70);
        bytes.less(30);
        assert_eq!((bytes.all(), taken.of(at("2001:db8::1"))), (40, 0));
        drop(bytes);
        assert_eq!(taken.0.lock().len(), 1, "what has nothing is not kept");
    }
}
