//! The knowledge of a process about itself, beyond the operations of its store.

pub mod lookup;
pub mod nodes;
pub mod scrubs;

use std::sync::Arc;

use cairn_audit::RecentLines;

use nodes::Nodes;
use scrubs::Scrubs;

/// Parts of that knowledge that a process has.
#[derive(Clone, Default)]
pub struct Insight {
    pub audit: AuditPlaces,
    /// Scrubs, if this process keeps blocks.
    pub scrubs: Option<Arc<dyn Scrubs>>,
    /// Masters and nodes, if this process is a node of a cluster.
    pub nodes: Option<Arc<dyn Nodes>>,
}

/// Places of the audit's records.
#[derive(Clone, Debug, Default)]
pub struct AuditPlaces {
    /// Last records of this process.
    pub recent: Option<Arc<RecentLines>>,
    /// Bucket that has the records of all processes that were configured so.
    pub bucket: Option<String>,
}
