//! Accepting connections until the node stops.

use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Result, waits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::connect::{Terms, accept};
use super::link::{Handshake, Listen};
use super::service::Service;
use crate::limits::{CONNECTIONS, HANDSHAKE};

/// Serves until `shutdown` becomes true (or its sender is gone). Then tells every peer to go away,
/// and answers the requests in progress for at most `drain`.
pub async fn serve<S: Service>(
    listener: Arc<dyn Listen>,
    terms: Terms,
    service: S,
    drain: Duration,
    mut shutdown: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let shared = Arc::new(ServeShared { terms, service, drain, shutdown: shutdown.clone() });
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => break,
            accepted = next(&*listener, &slots) => accepted,
        };
        match accepted {
            Ok((handshake, slot)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let _slot = slot;
                    if let Err(error) = shared.converse(handshake).await {
                        tracing::debug!(%error, "connection refused");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: other connections must end first.
                tracing::warn!(%error, "accepting connections");
                sleep(waits::ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    // Each connection ends within `drain`.
    let _ = slots.acquire_many(CONNECTIONS as u32).await;
}

type Slot = OwnedSemaphorePermit;

/// Accepts the next connection, once there is a slot for it. Its handshake takes its place when it
/// begins, and not before.
async fn next(listener: &dyn Listen, slots: &Arc<Semaphore>) -> Result<(Handshake, Slot)> {
    let closed = |_| Error::Unavailable("the node is stopping".into());
    let slot = Arc::clone(slots).acquire_owned().await.map_err(closed)?;
    Ok((listener.accept().await?, slot))
}

struct ServeShared<S> {
    terms: Terms,
    service: S,
    drain: Duration,
    shutdown: watch::Receiver<bool>,
}

impl<S: Service> ServeShared<S> {
    async fn converse(&self, handshake: Handshake) -> Result<()> {
        let late = |_| Error::Unavailable(format!("no handshake within {HANDSHAKE:?}"));
        let Some(link) = timeout(HANDSHAKE, handshake).await.map_err(late)?? else {
            return Ok(());
        };
        let peer = accept(link, &self.terms, self.service.clone()).await?;
        let mut shutdown = self.shutdown.clone();
        let stop = async { shutdown.wait_for(|stop| *stop).await.map(drop) };
        tokio::select! {
            biased;
            _ = peer.closed() => return Ok(()),
            _ = stop => {}
        }
        peer.go_away(&Error::Unavailable("this node is stopping".into()));
        if timeout(self.drain, peer.closed()).await.is_err() {
            tracing::warn!(peer = %peer.info(), "requests unanswered at the stop");
            peer.close();
            peer.closed().await;
        }
        Ok(())
    }
}
