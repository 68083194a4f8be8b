//! Asking the master that serves, as the node whose directory this is.

use std::path::Path;

use cairn_base::waits;
use cairn_base::{Error, JoinGrant, Role, TokenId};
use cairn_cluster::admin::AdminClient;
use cairn_cluster::control::{Edit, Status};

use crate::failure::{Failure, Result};
use crate::node::ThisNode;

/// The status that the master sees; any node may ask.
pub fn status(dir: &Path) -> Result<Status> {
    ask(dir, &Role::ALL, async |admin| admin.status().await)
}

/// Changes the cluster; `dir` is that of a master.
pub fn edit(dir: &Path, edit: Edit) -> Result<()> {
    ask(dir, &[Role::Master], async |admin| admin.edit(edit).await)
}

/// Has the cluster remember a join token; `dir` is that of a master.
pub fn issue(dir: &Path, id: TokenId, grant: &JoinGrant) -> Result<()> {
    ask(dir, &[Role::Master], async |admin| admin.issue(id, grant).await)
}

/// As a node that has one of these roles.
fn ask<R>(
    dir: &Path,
    roles: &[Role],
    call: impl AsyncFnOnce(&AdminClient) -> cairn_base::Result<R>,
) -> Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut node = Err(Failure::new("the directory has no role of a node"));
        for role in roles {
            node = ThisNode::open(dir, *role);
            if node.is_ok() {
                break;
            }
        }
        let node = node?;
        let addresses = node.loaded.addresses.clone();
        let admin = AdminClient::new(node.trust(), addresses, waits::ADMIN)?;
        call(&admin).await.map_err(|error| match error {
            Error::Unavailable(why) => Failure::new(format!(
                "no master answers: {why}: is `cairn master` running, and reachable from here?"
            )),
            error => error.into(),
        })
    })
}
