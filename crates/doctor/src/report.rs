//! The report at the end.

use serde::Serialize;

/// Something that slows the store, or is about to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// One or two words, always the same for the same cause.
    pub kind: &'static str,
    /// Estimated cost, as a share of time or throughput, percent.
    pub cost_percent: f64,
    pub what: String,
    pub evidence: Vec<String>,
    pub remedy: String,
}

/// Findings, the most costly first, and what limits the rest.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub seconds: f64,
    pub requests: f64,
    pub findings: Vec<Finding>,
    /// Limit of the throughput, once the findings are gone.
    pub limit: Limit,
    /// Sources that could not be read, and the reasons.
    pub blind: Vec<String>,
}

/// A limit that a store cannot exceed in its present use.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limit {
    /// `client`, `cpu`, `disk` or `network`; `server` for what is behind a gateway or a mount;
    /// `none` if there were no requests.
    pub kind: &'static str,
    pub what: String,
}
