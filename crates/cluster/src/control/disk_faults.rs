//! Chunkservers whose disks take no writes, by their own reports.

use std::collections::BTreeMap;
use std::time::Duration;

use cairn_base::NodeId;
use parking_lot::Mutex;

/// Characters of an error that are kept.
const ERROR_CHARS: usize = 200;

/// Faults of disks that were reported lately. A chunkserver reports its fault again and again.
#[derive(Default)]
pub(super) struct DiskFaults {
    told: Mutex<BTreeMap<NodeId, Fault>>,
}

struct Fault {
    since: Duration,
    told: Duration,
    error: String,
}

impl DiskFaults {
    /// Notes a fault. Returns true if it is new. A fault that was not reported again within
    /// `silence` has passed.
    pub(super) fn note(&self, node: NodeId, error: &str, now: Duration, silence: Duration) -> bool {
        let mut told = self.told.lock();
        let known = told.get(&node).filter(|fault| now.saturating_sub(fault.told) < silence);
        let (is_new, since) = (known.is_none(), known.map_or(now, |fault| fault.since));
        let error = error.chars().take(ERROR_CHARS).collect();
        told.insert(node, Fault { since, told: now, error });
        is_new
    }

    /// Returns the faults that last, each with its duration and error.
    pub(super) fn lasting(
        &self,
        now: Duration,
        silence: Duration,
    ) -> BTreeMap<NodeId, (Duration, String)> {
        let told = self.told.lock();
        let lasting = told.iter().filter(|(_, fault)| now.saturating_sub(fault.told) < silence);
        let of = |fault: &Fault| (now.saturating_sub(fault.since), fault.error.clone());
        lasting.map(|(node, fault)| (*node, of(fault))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_lasts_while_it_is_told() {
        let faults = DiskFaults::default();
        let (silence, secs) = (Duration::from_secs(4), Duration::from_secs);
        let note = |at| faults.note(NodeId(7), "no disk", secs(at), silence);
        let lasts = |at| faults.lasting(secs(at), silence).remove(&NodeId(7)).map(|one| one.0);
        assert!(note(10) && !note(12) && !note(15));
        assert_eq!(lasts(16), Some(secs(6)));
        assert_eq!(lasts(19), None);
        // It is another one.
        assert!(note(30));
        assert_eq!(lasts(31), Some(secs(1)));
    }
}
