//! The mount's side: a connection for its session, made again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::{Result, Rng};
use cairn_meta::session::{self, Dialed};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::messages::SERVES;
use crate::control::{Recalls, SessionLink};
use crate::wire::{Dial, Reconnect, Retry};

/// How long the server may take to answer that it is there.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two attempts to reach the server, at most.
const PAUSE: Duration = Duration::from_millis(500);

/// Finds the server of a mount's session.
pub struct Agent {
    reconnect: Reconnect<Recalls>,
    recalls: Recalls,
}

impl Agent {
    pub fn new(dialer: Arc<dyn Dial>, address: &str, rng: Arc<dyn Rng>) -> Arc<Agent> {
        let recalls = Recalls::default();
        let reconnect = Reconnect::new(
            dialer,
            vec![address.to_owned()],
            super::terms(),
            recalls.clone(),
            rng,
            Retry { most: PAUSE, ..Retry::default() },
        );
        Arc::new(Agent { reconnect, recalls })
    }
}

#[async_trait]
impl session::Dialer for Agent {
    async fn dial(&self) -> Result<Dialed> {
        let peer = self.reconnect.peer(Instant::now() + PATIENCE).await?;
        let (sender, recalls) = unbounded_channel();
        self.recalls.send_to(sender);
        match peer.call(SERVES, Bytes::new(), PATIENCE).await {
            Ok(_) => Ok((Arc::new(SessionLink { peer }), recalls)),
            Err(error) => {
                self.reconnect.leave(&peer);
                Err(error)
            }
        }
    }
}
