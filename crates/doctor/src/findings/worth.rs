//! Bounds from which on something is a finding.

/// Cost below which a finding is noise, percent.
pub const WORTH_PERCENT: f64 = 5.0;
/// Requests in an interval from which on they are conclusive.
pub const REQUESTS: f64 = 50.0;
