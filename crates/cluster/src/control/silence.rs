//! Notes how long no master has answered a node, and whether other nodes fare better.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_base::NodeId;
use cairn_meta::session::MasterSilence;
use parking_lot::Mutex;

use super::report::MemberReport;

/// Age up to which a master's contact with a leader counts as current.
const HEARD_MS: u64 = 1000;

/// State of the masters as an agent sees it while no serving master answers.
#[derive(Default)]
pub(super) struct Silence {
    /// Time at which the last answered beat was sent, in milliseconds of the monotonic clock.
    heard_ms: AtomicU64,
    cut_off: Mutex<Option<String>>,
}

impl Silence {
    /// Notes that a beat sent at `sent` was answered.
    pub fn end(&self, sent: Duration) {
        self.heard_ms.fetch_max(millis(sent), Ordering::Relaxed);
        *self.cut_off.lock() = None;
    }

    /// Notes the reason why only this node has no master, if that is so.
    pub fn set_cut_off(&self, why: Option<String>) {
        *self.cut_off.lock() = why;
    }

    pub fn at(&self, now: Duration) -> MasterSilence {
        MasterSilence { lasts: self.lasts(now), cut_off: self.cut_off.lock().clone() }
    }

    pub fn lasts(&self, now: Duration) -> Duration {
        Duration::from_millis(millis(now).saturating_sub(self.heard_ms.load(Ordering::Relaxed)))
    }
}

/// Returns the reason, in words, why a node that reaches only the masters of these reports is the
/// only node without a master; `None` if it may not be the only one.
pub(super) fn is_cut_off(reports: &[MemberReport]) -> Option<String> {
    let leads = reports.iter().find_map(|report| {
        let leader =
            (report.leader != 0 && report.silence_ms < HEARD_MS).then_some(report.leader)?;
        let is_reached = reports.iter().any(|other| other.member == leader);
        (!is_reached).then_some((leader, report.member))
    });
    leads.map(|(leader, by)| {
        let (leader, by) = (NodeId(leader), NodeId(by));
        format!(
            "master {leader}, which leads, cannot be reached from here, though master {by} hears it"
        )
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(member: u64, leader: u64, silence_ms: u64) -> MemberReport {
        MemberReport { member, leader, silence_ms, ..MemberReport::default() }
    }

    #[test]
    fn a_node_is_cut_off_if_others_hear_a_leader_that_it_does_not_reach() {
        let is = |reports: &[MemberReport]| is_cut_off(reports).unwrap_or_default();
        assert!(is(&[report(2, 1, 300)]).contains("master 1, which leads, cannot be reached"));
        assert!(is(&[report(2, 0, 300), report(3, 1, 10)]).contains("though master 3 hears it"));
        for all_are_without in [
            &[report(2, 1, 1700), report(3, 1, 1500)][..],
            &[report(2, 0, 10), report(3, 0, 10)],
            // It leads, and does not serve yet.
            &[report(2, 3, 10), report(3, 3, 10)],
        ] {
            assert_eq!(is(all_are_without), "");
        }
        assert_eq!(is(&[]), "");
    }

    #[test]
    fn silence_is_counted_from_the_last_beat_that_was_answered() {
        let silence = Silence::default();
        let secs = Duration::from_secs;
        silence.end(secs(5));
        silence.end(secs(4));
        silence.set_cut_off(Some("why".into()));
        assert_eq!(silence.lasts(secs(8)), secs(3));
        silence.end(secs(8));
        assert_eq!(
            (silence.lasts(secs(8)), silence.cut_off.lock().clone()),
            (Duration::ZERO, None)
        );
    }
}
