//! The connection of a session to a master.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::inflight::WaitTarget;
use cairn_base::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedReceiver;

use super::messages::{Reply, SessionMethod};
use crate::wire;

/// The connection is gone, and it is unknown whether the master received the call.
#[derive(Debug)]
pub struct LostCall(pub String);

/// One connection to a master.
#[async_trait]
pub trait MasterLink: Send + Sync + 'static {
    async fn call(&self, method: SessionMethod, message: Bytes) -> Result<Bytes, LostCall>;
}

/// A connection, and the channel of the recalls that the master sends on it, encoded.
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

    /// Returns the generation of the metadata of the master that was dialed last.
    fn generation(&self) -> u64 {
        0
    }

    /// Names the master that it found last, or looks for, as an operator knows it.
    fn master(&self) -> WaitTarget {
        WaitTarget::Text("the master".into())
    }

    /// Returns how long no master has answered, as far as the dialer knows it apart from sessions.
    fn silence(&self) -> MasterSilence {
        MasterSilence::default()
    }
}

/// Calls the master at the other end, and waits for its answer.
pub async fn call<M: Serialize, R: DeserializeOwned>(
    link: &dyn MasterLink,
    method: SessionMethod,
    message: &M,
) -> Result<Reply<R>, LostCall> {
    let lost = |error: Error| LostCall(error.to_string());
    let answer = link.call(method, wire::encode(message).map_err(lost)?).await?;
    wire::decode(&answer).map_err(lost)
}
