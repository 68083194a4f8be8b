//! The way of a session to a master.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::inflight::Awaited;
use cairn_base::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedReceiver;

use super::messages::{Reply, SessionMethod};
use crate::wire;

/// The connection is gone, and whether the master got the call is not known.
#[derive(Debug)]
pub struct Lost(pub String);

/// One connection to a master.
#[async_trait]
pub trait MasterLink: Send + Sync + 'static {
    async fn call(&self, method: SessionMethod, message: Bytes) -> Result<Bytes, Lost>;
}

/// A connection, and what the master sends on it unasked: recalls, encoded.
pub type Dialed = (Arc<dyn MasterLink>, UnboundedReceiver<Bytes>);

/// The time since a serving master last answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MasterSilence {
    pub lasts: Duration,
    /// Reason why only this node has no master, if it is known.
    pub cut_off: Option<String>,
}

/// Finds the master that serves.
#[async_trait]
pub trait Dialer: Send + Sync + 'static {
    async fn dial(&self) -> Result<Dialed>;

    /// The generation of the metadata that the master serves that was dialed last.
    fn generation(&self) -> u64 {
        0
    }

    /// The master that it found last, or looks for, as an operator knows it.
    fn master(&self) -> Awaited {
        Awaited::Text("the master".into())
    }

    /// Returns how long no master has answered, as far as the dialer knows it apart from sessions.
    fn silence(&self) -> MasterSilence {
        MasterSilence::default()
    }
}

/// Asks the master at the other end, and waits for its answer.
pub async fn call<M: Serialize, R: DeserializeOwned>(
    link: &dyn MasterLink,
    method: SessionMethod,
    message: &M,
) -> Result<Reply<R>, Lost> {
    let lost = |error: Error| Lost(error.to_string());
    let answer = link.call(method, wire::encode(message).map_err(lost)?).await?;
    wire::decode(&answer).map_err(lost)
}
