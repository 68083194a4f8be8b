//! Asking the master that serves, as the node whose directory this is.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Role};
use cairn_cluster::control::messages::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Result};
use crate::node::ThisNode;

/// How long the master may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks, and waits for the answer.
pub fn ask<M: Serialize, R: DeserializeOwned>(
    dir: &Path,
    role: Option<Role>,
    method: Method,
    message: &M,
) -> Result<R> {
    let answer = ask_bytes(dir, role, method, cairn_meta::wire::encode(message)?)?;
    Ok(cairn_meta::wire::decode(&answer)?)
}

/// Asks for something to be done.
pub fn tell<M: Serialize>(dir: &Path, method: Method, message: &M) -> Result<()> {
    ask_bytes(dir, Some(Role::Master), method, cairn_meta::wire::encode(message)?).map(drop)
}

fn ask_bytes(dir: &Path, role: Option<Role>, method: Method, message: Bytes) -> Result<Bytes> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let roles = role.map_or_else(|| Role::ALL.to_vec(), |role| vec![role]);
        let mut node = Err(Failure::new("no role"));
        for role in roles {
            node = ThisNode::open(dir, role);
            if node.is_ok() {
                break;
            }
        }
        let node = node?;
        let answer = node.agent.ask(method, message, PATIENCE).await;
        answer.map_err(|error| match error {
            Error::Unavailable(why) => Failure::new(format!(
                "no master answers: {why}: is `cairn master` running, and reachable from here?"
            )),
            error => error.into(),
        })
    })
}
