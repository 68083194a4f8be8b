//! Bytes of uploads in progress, which are held to quotas before they are stored.
//!
//! Published bytes count in the metadata. Bytes not yet published count here, in this process
//! alone: of several gateways each admits as much as the quota leaves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use cairn_base::{BucketId, UserId, limits};
use parking_lot::Mutex;

/// A quota that bytes count for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Quota {
    Bucket(BucketId),
    /// The quota of the owner of the bucket, over all its buckets.
    Owner(UserId),
}

/// The bytes in progress by quota, without quotas that have none.
#[derive(Default)]
pub struct Incoming {
    bytes: Mutex<HashMap<Quota, u64>>,
}

/// Bytes that count until this is dropped.
pub struct QuotaHold {
    incoming: Arc<Incoming>,
    pub(crate) quotas: Vec<(Quota, u64)>,
    bytes: u64,
}

impl Incoming {
    /// Counts bytes for quotas. Also notes the earlier count of each quota.
    pub fn hold(
        self: &Arc<Incoming>,
        quotas: impl Iterator<Item = Quota>,
        bytes: u64,
    ) -> QuotaHold {
        let mut all = self.bytes.lock();
        let count = |quota| {
            let held = all.entry(quota).or_insert(0);
            let before = *held;
            *held = held.saturating_add(bytes);
            (quota, before)
        };
        QuotaHold { quotas: quotas.map(count).collect(), incoming: Arc::clone(self), bytes }
    }
}

impl Drop for QuotaHold {
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

/// The number of bytes to be admitted.
#[derive(Clone, Copy, Debug)]
pub enum AdmissionRequest {
    /// This many bytes, or none.
    Exactly(u64),
    /// The next part of an upload of unknown length: admitted as long as anything is free.
    Portion,
}

impl AdmissionRequest {
    pub fn bytes(self) -> u64 {
        match self {
            AdmissionRequest::Exactly(bytes) => bytes,
            AdmissionRequest::Portion => limits::QUOTA_PORTION,
        }
    }

    pub fn fits(self, free: u64) -> bool {
        match self {
            AdmissionRequest::Exactly(bytes) => bytes <= free,
            AdmissionRequest::Portion => free > 0,
        }
    }
}
