//! A gateway: the store of a cluster, over a session with the master that serves.

use std::sync::Arc;

use cairn_blocks::Blocks;
use cairn_fs::Fs;
use cairn_meta::Meta;
use cairn_meta::session::client::{self, Client};

use crate::duties;
use crate::node::Node;

#[derive(Clone, Debug)]
pub struct Config {
    pub session: client::Config,
    pub fs: cairn_fs::Config,
    /// Most connections in use to each chunkserver.
    pub connections: usize,
}

/// Opens a session with whatever master serves; retries until there is one. `before` may put
/// something in front of the cluster's blocks.
///
/// # Errors
/// Same errors as `before`.
pub async fn open<E>(
    node: &Node,
    config: Config,
    before: impl FnOnce(Arc<dyn Blocks>) -> Result<Arc<dyn Blocks>, E>,
) -> Result<Fs, E> {
    let Config { session, fs, connections } = config;
    node.agent.has_map().await;
    let client = loop {
        let (clock, rng) = (Arc::clone(&node.clock), Arc::clone(&node.rng));
        match Client::start(Arc::clone(&node.agent) as _, clock, rng, session.clone()).await {
            Ok(client) => break client,
            Err(error) => tracing::warn!(%error, "no session with a master yet"),
        }
    };
    let map = Arc::clone(&node.agent) as _;
    let blocks = node.replicated(map, node.pool(), connections);
    let blocks = before(Arc::new(blocks))?;
    Ok(Fs::over(Meta::Remote(client), blocks, Arc::clone(&node.clock), fs))
}

/// Ends the session. Bodies that were written and not published are deleted, if that can be done
/// now.
pub async fn close(fs: &Fs) {
    duties::drop_abandoned_now(fs).await;
    if let Meta::Remote(session) = fs.meta() {
        session.close().await;
    }
}
