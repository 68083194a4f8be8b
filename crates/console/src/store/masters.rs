//! Requests of pages to the masters of a cluster, with a deadline.

use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::{ClusterMap, Error, Result};
use cairn_fs::ops::cluster::GetMap;
use tokio::time::timeout;

use crate::inner::Inner;
use crate::insight::nodes::{Asking, Nodes};

/// Time that a page waits for the masters.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the cluster map, or nothing if the store is one server on one machine.
pub async fn map(inner: &Inner) -> Result<Option<ClusterMap>> {
    let row = inner.fs().read(&Caller::system(), GetMap).await?;
    row.as_ref().map(ClusterMap::decode).transpose()
}

/// Returns the access to the masters.
///
/// # Errors
/// `Unavailable` if this process is no node of a cluster.
pub fn nodes(inner: &Inner) -> Result<&Arc<dyn Nodes>> {
    let nodes = inner.insight.nodes.as_ref();
    nodes.ok_or_else(|| Error::Unavailable("this process cannot ask the master".into()))
}

/// Asks the masters for a page, which can do without their answer if it comes late.
pub async fn soon<R>(inner: &Inner, ask: impl FnOnce(&dyn Nodes) -> Asking<R>) -> Result<R> {
    let late = |_| Error::Unavailable(format!("no master answers within {PATIENCE:?}"));
    let asking = ask(&**nodes(inner)?);
    timeout(PATIENCE, asking).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
}
