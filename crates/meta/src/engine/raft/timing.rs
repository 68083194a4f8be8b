//! Times that members wait for one another. All are derived from the time of a lease.

use std::time::Duration;

/// See [docs/decisions/0033](../../../../../docs/decisions/0033-replicated-metadata.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Time for which a master answers from memory after the start of a batch, or a round, that a
    /// majority answered.
    pub lease: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { lease: Duration::from_secs(2) }
    }
}

impl Timing {
    /// Time that a new master waits for the lease of the former one. It is longer than the lease,
    /// since no two clocks run at the same rate.
    pub fn former_lease(&self) -> Duration {
        self.lease * 11 / 10
    }

    /// Interval between two rounds that renew a lease.
    pub fn renewal(&self) -> Duration {
        self.lease / 3
    }

    /// Interval between two looks for work.
    pub fn look(&self) -> Duration {
        self.lease / 20
    }

    /// Interval between two messages of an idle leader.
    pub fn heartbeat(&self) -> Duration {
        self.lease * 3 / 20
    }

    /// Timeout of one call of another member. Longer than any sync that is not an outage.
    pub fn call(&self) -> Duration {
        self.lease * 9 / 20
    }

    /// Time that a full log waits for its entries to be applied. Shorter than a call, so that a
    /// call that finds the log full is answered.
    pub fn room(&self) -> Duration {
        self.call() / 2
    }

    /// Time after hearing a leader in which a member votes for no other one.
    pub fn silence(&self) -> Duration {
        self.lease * 19 / 40
    }

    /// Time without a majority after which a leader sends nothing that keeps others from an
    /// election.
    pub fn deaf(&self) -> Duration {
        self.lease * 2
    }

    /// Time that a leader that hands over waits for its successor, and is silent.
    pub fn handing_over(&self) -> Duration {
        self.lease * 2
    }

    /// Time without a leader for which a member that may have lost the end of its log neither votes
    /// nor asks for votes.
    pub fn suspicion(&self) -> Duration {
        self.lease * 2
    }

    /// Time without progress and without a reason that counts as a stall.
    pub fn stall(&self) -> Duration {
        self.lease * 5
    }

    /// Longest wait for a batch of unknown outcome.
    pub fn settle(&self) -> Duration {
        self.lease * 5
    }
}
