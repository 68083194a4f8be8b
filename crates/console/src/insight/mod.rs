//! The knowledge of a process about itself, beyond the operations of its store.

pub mod lookup;
pub mod nodes;
pub mod scrubs;

use std::sync::Arc;

use cairn_audit::RecentLines;

use nodes::Nodes;
use scrubs::Scrubs;

/// Each part of that knowledge that a process has.
#[derive(Clone, Default)]
pub struct Insight {
    pub audit: AuditPlaces,
    /// Where this process keeps blocks.
    pub scrubs: Option<Arc<dyn Scrubs>>,
    /// Where it is a node of a cluster.
    pub nodes: Option<Arc<dyn Nodes>>,
}

/// Where records of the audit can be read.
#[derive(Clone, Debug, Default)]
pub struct AuditPlaces {
    /// The last ones of this process.
    pub recent: Option<Arc<RecentLines>>,
    /// The bucket that has all of them, of all processes that were told so.
    pub bucket: Option<String>,
}
