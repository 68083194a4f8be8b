//! Names what slows a running store.
//!
//! Two samples are taken, some time apart; the difference of both gives a list of findings, the
//! most costly first. It knows nothing of Cairn's inside: it knows of a server only what `/metrics`
//! says.
//!
//! ```text
//!   /metrics of servers ──┐
//!   /proc, cgroups ───────┴─► collect ──► Sample, Sample ──► findings ──► Report
//!                             (parsers)                      (pure)
//! ```

#![allow(clippy::disallowed_methods, reason = "it looks at this machine")]

mod metrics;
mod report;

mod sample;

pub mod collect;
pub mod findings;

pub use metrics::Metrics;
pub use report::{Finding, Report};
pub use sample::{
    Cgroup, Cluster, DiskTimes, Host, Limits, NetworkDevice, Node, Pair, Process, Program, Sample,
    Server, Store, Thread,
};
