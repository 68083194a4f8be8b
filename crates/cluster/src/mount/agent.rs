//! The mount's side: a connection for its session, made again when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::inflight::WaitTarget;
use cairn_base::waits;
use cairn_base::{Result, Rng};
use cairn_meta::session::{self, Dialed};
use cairn_meta::wire;
use parking_lot::Mutex;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::messages::SERVES;
use crate::control::{Recalls, SessionLink};
use crate::wire::{Dial, Reconnect, Retry};

/// Finds the server of a mount's session: one of several gateways, or the only one.
pub struct Agent {
    reconnect: Reconnect<Recalls>,
    recalls: Recalls,
    place: Mutex<Arc<str>>,
    /// Generation of the metadata, as a server reported last.
    generation: AtomicU64,
}

impl Agent {
    /// # Panics
    /// If there is no address.
    pub fn new(dialer: Arc<dyn Dial>, addresses: Vec<String>, rng: Arc<dyn Rng>) -> Arc<Agent> {
        let recalls = Recalls::default();
        let place = Mutex::new(Arc::from(addresses[0].as_str()));
        let retry = Retry { most: waits::MOUNT_RETRY_MAX, ..Retry::default() };
        let terms = super::terms();
        let reconnect = Reconnect::new(dialer, addresses, terms, recalls.clone(), rng, retry);
        Arc::new(Agent { reconnect, recalls, place, generation: AtomicU64::default() })
    }

    /// Returns the address by which the session was last attached: blocks are read and written
    /// there.
    pub fn place(&self) -> Arc<str> {
        Arc::clone(&self.place.lock())
    }
}

#[async_trait]
impl session::Dialer for Agent {
    async fn dial(&self) -> Result<Dialed> {
        let peer = self.reconnect.peer(Instant::now() + waits::MOUNT_SERVES).await?;
        let (sender, recalls) = unbounded_channel();
        self.recalls.send_to(&peer, sender);
        match peer.call(SERVES, Bytes::new(), waits::MOUNT_SERVES).await {
            Ok(answer) => {
                // Servers of earlier versions do not report it.
                if !answer.is_empty() {
                    self.generation.store(wire::decode(&answer)?, Ordering::Relaxed);
                }
                *self.place.lock() = Arc::from(peer.info().authenticated.address.as_str());
                Ok((Arc::new(SessionLink { peer, answer: waits::SLOW_SERVER }), recalls))
            }
            Err(error) => {
                self.reconnect.leave(&peer);
                Err(error)
            }
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn master(&self) -> WaitTarget {
        WaitTarget::Named("server", self.place())
    }
}
