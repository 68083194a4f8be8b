//! The network, and clocks on its other side.

use super::worth::WORTH_PERCENT;
use crate::Finding;
use crate::sample::Pair;

const RESENT: f64 = 0.01;
/// Segments in an interval from which on they are conclusive.
const SEGMENTS: u64 = 1000;
/// Least time that a lost segment costs until it is sent again, seconds.
const TIMEOUT: f64 = 0.2;
/// Difference of clocks from which on it is a finding, seconds; the header by which clocks are
/// compared has whole seconds.
const SKEW: f64 = 2.0;

/// Segments that had to be sent again.
pub fn resent(pair: &Pair<'_>) -> Vec<Finding> {
    let (before, after) = (&pair.before.host, &pair.after.host);
    let sent = after.segments_sent.saturating_sub(before.segments_sent);
    let resent = after.segments_resent.saturating_sub(before.segments_resent);
    let share = resent as f64 / sent.max(1) as f64;
    if sent < SEGMENTS || share < RESENT {
        return Vec::new();
    }
    let seconds: f64 = pair.servers().map(|server| server.request_seconds()).sum();
    let lost = resent as f64 * TIMEOUT;
    vec![Finding {
        kind: "packet loss",
        cost_percent: 100.0 * lost / (lost + seconds),
        what: "packets are lost on the way".to_owned(),
        evidence: vec![format!(
            "{resent} of {sent} TCP segments were sent again ({:.1} %)",
            100.0 * share
        )],
        remedy: "look at the links and switches between (ip -s link, ethtool -S), and at their \
                 speed and duplex"
            .to_owned(),
    }]
}

/// Clocks that differ. Leases do not depend on them; signatures of S3 do.
pub fn clocks(pair: &Pair<'_>) -> Vec<Finding> {
    let nodes = pair.after.nodes.iter();
    let ahead = nodes.filter_map(|node| Some((&node.url, node.clock_ahead?)));
    let wrong = ahead.filter(|(_, ahead)| ahead.abs() >= SKEW);
    let found = wrong.map(|(url, ahead)| Finding {
        kind: "clock skew",
        // Signed requests are refused beyond 15 minutes.
        cost_percent: (100.0 * ahead.abs() / 900.0).clamp(WORTH_PERCENT, 100.0),
        what: format!("the clock of {url} differs from the one here"),
        evidence: vec![format!("by {ahead:+.0} s; S3 refuses signatures at 900 s")],
        remedy: "have both follow the same time servers (chrony, systemd-timesyncd)".to_owned(),
    });
    found.collect()
}
