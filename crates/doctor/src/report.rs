//! The report at the end.

use serde::Serialize;

/// Something that slows the store, or is about to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// One word or two, always the same for the same cause.
    pub kind: &'static str,
    /// The share of time or throughput that it costs, percent; an estimate.
    pub cost_percent: f64,
    pub what: String,
    pub evidence: Vec<String>,
    pub remedy: String,
}

/// Findings, the most costly first, and what holds the rest back.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub seconds: f64,
    pub requests: f64,
    pub findings: Vec<Finding>,
    /// The limit of the throughput, once the findings are gone.
    pub limit: Limit,
    /// Sources that could not be looked at, and why.
    pub blind: Vec<String>,
}

/// A limit that a store cannot exceed as it is used now.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Limit {
    /// `client`, `cpu`, `disk` or `network`; `server` for what is behind a gateway or a mount;
    /// `none` if nothing was asked.
    pub kind: &'static str,
    pub what: String,
}
