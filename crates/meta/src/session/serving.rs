//! The master in this process, for a session in the same process that answers under its lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Watched;

/// Function that returns how long a master holds its lease without a further renewal.
pub type LeaseLeft = Arc<dyn Fn() -> Duration + Send + Sync>;

/// A master that took over in this process. It does not keep that master alive.
#[derive(Clone)]
pub struct Serving {
    epoch: u64,
    left: LeaseLeft,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Serving {
    pub fn new(epoch: u64, left: LeaseLeft) -> Serving {
        Serving { epoch, left }
    }

    /// Returns the epoch in which it took over; each master has another one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how long no other master can take over without a further renewal of this master's
    /// lease. Zero for a master that has ended.
    pub fn left(&self) -> Duration {
        (self.left)()
    }
}

/// The serving master in this process, if there is one.
#[derive(Debug, Default)]
pub struct OwnMaster(Watched<Option<Serving>>);

impl OwnMaster {
    pub fn now(&self) -> Option<Serving> {
        self.0.get()
    }

    pub fn set(&self, serving: Option<Serving>) {
        self.0.set(serving);
    }

    /// Waits until a master serves whose epoch is not `known`.
    pub async fn next(&self, known: Option<u64>) -> Serving {
        let other = |now: &Option<Serving>| now.clone().filter(|now| Some(now.epoch) != known);
        self.0.wait_for(other).await
    }
}
