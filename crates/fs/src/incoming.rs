//! Bytes of uploads on their way, held to quotas before they are stored.
//!
//! What is published counts in the metadata. What is not yet published counts here, in this process
//! alone: of several gateways each lets in as much as the quota leaves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cairn_base::{BucketId, UserId, limits};
use parking_lot::Mutex;

/// A quota that bytes count for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quota {
    Bucket(BucketId),
    /// Of the owner of the bucket, over all its buckets.
    Owner(UserId),
}

/// The bytes on their way, by quota; quotas for which there are none are left out.
#[derive(Default)]
pub struct Incoming {
    bytes: Mutex<HashMap<Quota, u64>>,
}

/// Bytes that count until this is dropped.
pub struct Held {
    incoming: Arc<Incoming>,
    pub(crate) quotas: Vec<(Quota, u64)>,
    bytes: u64,
}

impl Incoming {
    /// Counts bytes for quotas. Notes beside each how many there were before.
    pub fn hold(self: &Arc<Incoming>, quotas: impl Iterator<Item = Quota>, bytes: u64) -> Held {
        let mut all = self.bytes.lock();
        let count = |quota| {
            let held = all.entry(quota).or_insert(0);
            let before = *held;
            *held = held.saturating_add(bytes);
            (quota, before)
        };
        Held { quotas: quotas.map(count).collect(), incoming: Arc::clone(self), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = self.incoming.bytes.lock();
        for (quota, _) in &self.quotas {
            if let Entry::Occupied(mut entry) = all.entry(*quota) {
                let left = entry.get().saturating_sub(self.bytes);
                match left {
                    0 => drop(entry.remove()),
                    left => *entry.get_mut() = left,
                }
            }
        }
    }
}

/// How many bytes are to be let in.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// All of them, or none.
    Exactly(u64),
    /// The next part of an upload whose length nobody knows: as long as anything is free.
    Portion,
}

impl Wanted {
    pub fn bytes(self) -> u64 {
        match self {
            Wanted::Exactly(bytes) => bytes,
            Wanted::Portion => limits::QUOTA_PORTION,
        }
    }

    pub fn fits(self, free: u64) -> bool {
        match self {
            Wanted::Exactly(bytes) => bytes <= free,
            Wanted::Portion => free > 0,
        }
    }
}
