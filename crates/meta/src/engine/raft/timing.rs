//! How long members wait for one another. All follows from the time of a lease.

use std::time::Duration;

/// See [docs/decisions/0033](../../../../../docs/decisions/0033-replicated-metadata.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How long a master answers from memory after a batch, or a round, was begun that a majority
    /// answered.
    pub lease: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { lease: Duration::from_secs(2) }
    }
}

impl Timing {
    /// How long a new master waits for the lease of the former one. No two clocks run at the same
    /// rate.
    pub fn former_lease(&self) -> Duration {
        self.lease * 11 / 10
    }

    /// Between two rounds that renew a lease.
    pub fn renewal(&self) -> Duration {
        self.lease / 3
    }

    /// Between two looks at what there is to do.
    pub fn look(&self) -> Duration {
        self.lease / 20
    }

    /// Between two messages of a leader that has nothing to say.
    pub fn heartbeat(&self) -> Duration {
        self.lease * 3 / 20
    }

    /// For one call of another member. Longer than any sync that is not an outage.
    pub fn call(&self) -> Duration {
        self.lease * 9 / 20
    }

    /// A log that is full waits so long for its entries to be applied. Shorter than a call, so that
    /// a call that finds it full is answered.
    pub fn room(&self) -> Duration {
        self.call() / 2
    }

    /// A member that heard a leader so recently votes for no other one.
    pub fn silence(&self) -> Duration {
        self.lease * 19 / 40
    }

    /// A leader that heard no majority for so long sends nothing that keeps others from an
    /// election.
    pub fn deaf(&self) -> Duration {
        self.lease * 2
    }

    /// A leader that hands over waits so long for its successor, and is silent meanwhile.
    pub fn handing_over(&self) -> Duration {
        self.lease * 2
    }

    /// A member that may have lost the end of its log leaves it so long to the others to elect a
    /// leader.
    pub fn suspicion(&self) -> Duration {
        self.lease * 2
    }

    /// What stands still for so long without a reason is a stall.
    pub fn stall(&self) -> Duration {
        self.lease * 5
    }

    /// The longest wait for the outcome of a batch that is unknown.
    pub fn settle(&self) -> Duration {
        self.lease * 5
    }
}
