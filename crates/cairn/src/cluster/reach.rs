//! Requests to the master that serves, as the node of a directory.

use std::path::Path;
use std::time::Duration;

use cairn_base::clock::RealClock;
use cairn_base::fsck::{FsckFound, FsckState};
use cairn_base::rng::RealRng;
use cairn_base::scrub::{DegradedObjects, NodeScrub, RunOrder};
use cairn_base::waits;
use cairn_base::{Clock, Error, JoinGrant, NodeId, Role, Roles, Timestamp, TokenId};
use cairn_cluster::admin::AdminClient;
use cairn_cluster::control::{Edit, Status};
use cairn_cluster::identity::JoinToken;
use cairn_cluster::limits::TOKEN_ADDRESSES;

use crate::dir::DirectoryKind;
use crate::failure::{Failure, Result};
use crate::node::ThisNode;

/// Validity of a token by default.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns the status that the master sees; any node may ask.
pub fn status(dir: &Path) -> Result<Status> {
    ask(dir, &Role::ALL, async |admin| admin.status().await)
}

/// Changes the cluster; `dir` is that of a master.
pub fn edit(dir: &Path, edit: Edit) -> Result<()> {
    ask(dir, &[Role::Master], async |admin| admin.edit(edit).await)
}

/// Roles that may order scrubs and an fsck.
const SCRUBBERS: [Role; 2] = [Role::Master, Role::Gateway];

/// Orders a scrub of all chunkservers, or returns its state.
pub fn scrub(dir: &Path, run: u64, order: RunOrder) -> Result<Vec<(NodeId, NodeScrub)>> {
    ask(dir, &SCRUBBERS, async |admin| admin.scrub(run, order).await)
}

/// Returns the objects that a scrub found damaged; nothing while they are being looked up.
pub fn degraded(dir: &Path, run: u64) -> Result<Option<DegradedObjects>> {
    ask(dir, &SCRUBBERS, async |admin| admin.degraded(run).await)
}

/// Begins an fsck of the cluster, stops it, or returns its state.
pub fn fsck(dir: &Path, run: u64, order: RunOrder) -> Result<FsckState> {
    ask(dir, &SCRUBBERS, async |admin| admin.fsck(run, order, String::new()).await)
}

/// Returns the results of an fsck; `None` if it did not reach its end.
pub fn fsck_found(dir: &Path, run: u64) -> Result<Option<FsckFound>> {
    ask(dir, &SCRUBBERS, async |admin| admin.fsck_found(run).await)
}

/// Makes the cluster remember a join token.
fn issue(dir: &Path, id: TokenId, grant: &JoinGrant) -> Result<()> {
    ask(dir, &[Role::Master], async |admin| admin.issue(id, grant).await)
}

/// Makes a token for a node with these roles. The cluster remembers it for the given time, or for a
/// day. `dir` is that of a master.
pub fn new_token(dir: &Path, roles: Roles, expires: Option<Duration>) -> Result<JoinToken> {
    let mut addresses = status(dir)?.map.master_addresses();
    addresses.truncate(TOKEN_ADDRESSES);
    let authority = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _entered = runtime.enter();
        ThisNode::open(dir, Role::Master)?.loaded.identity.authority().clone()
    };
    let token = JoinToken::new(&authority, addresses, roles, &RealRng)?;
    let expires = expires.unwrap_or(DAY);
    let lasts = i64::try_from(expires.as_nanos()).map_err(|_| {
        Failure::usage(format!("--expires {} s is too long: use less", expires.as_secs()))
    })?;
    let expires = Timestamp(RealClock::default().now().0.saturating_add(lasts));
    issue(dir, token.id, &token.grant(expires))?;
    Ok(token)
}

/// Asks the master as a node that has one of these roles.
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
        let node = node.map_err(|failure| of_one_server(dir).unwrap_or(failure))?;
        let addresses = node.loaded.addresses.clone();
        let admin = AdminClient::new(node.trust(), addresses, waits::ADMIN)?;
        call(&admin).await.map_err(|error| match error {
            Error::Unavailable(why) => Failure::new(format!(
                "no master answers: {why}: are the masters running (cairn master, cairn node), and \
                 reachable from here? `cairn cluster status` says which are missing"
            ))
            .passing(),
            error => refusal(error),
        })
    })
}

/// Says that a directory is that of a single server, if it is; such a directory has no node.
fn of_one_server(dir: &Path) -> Option<Failure> {
    let kinds = DirectoryKind::of(dir).ok()?;
    kinds.contains(&DirectoryKind::Server).then(|| {
        let shown = dir.display();
        Failure::new(format!(
            "{shown}: holds the store of a single server, which is no cluster: `cairn doctor \
             {shown}`, the console and GET /admin/status show how it is"
        ))
    })
}

/// Returns a refusal of the cluster in its own words. It does not say that nothing has changed, and
/// to try again does not help.
pub fn refusal(error: Error) -> Failure {
    match error {
        Error::Conflict(what) => Failure::new(what),
        error => error.into(),
    }
}
