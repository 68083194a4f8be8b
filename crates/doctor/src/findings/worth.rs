//! From where on something is a finding.

/// Below this a finding is noise, percent.
pub const WORTH_PERCENT: f64 = 5.0;
/// Requests of an interval from which something can be concluded.
pub const REQUESTS: f64 = 50.0;
