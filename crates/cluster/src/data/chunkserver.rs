//! The side that has the blocks: its state and its connections.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use cairn_base::{BlockId, Error, GroupId, NodeId, Result, Role};
use cairn_blocks::Store;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, interval_at, timeout};

use super::form::CHAIN_NODES;
use super::running::{Copying, Running};
use super::scrubs::OrderedScrubs;
use super::{MapSource, Pool};
use crate::limits::{DATA_BUFFER_BYTES, DATA_CONNECTIONS, DATA_IDLE, GET_BYTES, PUT_BYTES};
use crate::wire::{Link, Stream, Taker};

/// A block that failed verification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sick {
    pub group: GroupId,
    pub block: BlockId,
}

/// Counts of blocks that were found damaged.
#[derive(Default)]
pub(super) struct Damage {
    /// Damaged blocks that have not been replaced yet.
    waiting: Mutex<BTreeSet<(GroupId, BlockId)>>,
    damaged: AtomicU64,
    healed: AtomicU64,
}

impl Damage {
    /// Counts a block that failed verification, unless it is known already.
    pub(super) fn find(&self, sick: Sick) {
        let is_new = self.waiting.lock().insert((sick.group, sick.block));
        self.damaged.fetch_add(u64::from(is_new), Ordering::Relaxed);
    }

    /// Counts a block that was replaced.
    pub(super) fn heal(&self, sick: Sick) {
        self.healed.fetch_add(1, Ordering::Relaxed);
        self.forget(sick);
    }

    /// Forgets a block that is well, or gone.
    pub(super) fn forget(&self, sick: Sick) {
        self.waiting.lock().remove(&(sick.group, sick.block));
    }
}

/// Serves the blocks of one store to other nodes.
pub struct Chunkserver {
    pub(super) own: NodeId,
    pub(super) store: Store,
    pub(super) map: Arc<dyn MapSource>,
    pub(super) pool: Arc<Pool>,
    pub(super) running: Running,
    pub(super) copying: Copying,
    /// Room for blocks that are being received, one for each position in a chain. A block that
    /// waits for the next node of its chain waits only for room of a later position, so that no two
    /// wait for each other.
    pub(super) puts: [Semaphore; CHAIN_NODES],
    pub(super) gets: Arc<Semaphore>,
    pub(super) damage: Damage,
    scrubs: OnceLock<Arc<dyn OrderedScrubs>>,
    on_corrupt: Option<mpsc::Sender<Sick>>,
    slots: Arc<Semaphore>,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Phase {
    Serving,
    /// Answers requests that have begun, and takes no others.
    Draining,
    Ended,
}

impl Chunkserver {
    /// Makes a chunkserver. `on_corrupt` receives the blocks that failed verification when they
    /// were read here; blocks for which it has no room are left out.
    pub fn new(
        own: NodeId,
        store: Store,
        map: Arc<dyn MapSource>,
        pool: Arc<Pool>,
        on_corrupt: Option<mpsc::Sender<Sick>>,
    ) -> Arc<Chunkserver> {
        Arc::new(Chunkserver {
            own,
            store,
            map,
            pool,
            running: Running::default(),
            copying: Copying::default(),
            puts: [const { Semaphore::const_new(PUT_BYTES) }; CHAIN_NODES],
            gets: Arc::new(Semaphore::new(GET_BYTES)),
            damage: Damage::default(),
            scrubs: OnceLock::new(),
            on_corrupt,
            slots: Arc::new(Semaphore::new(DATA_CONNECTIONS)),
            phase: watch::Sender::new(Phase::Serving),
        })
    }

    /// Returns the taker for [`crate::wire::tls::Takers`].
    pub fn taker(self: &Arc<Self>) -> Taker {
        let server = Arc::clone(self);
        Arc::new(move |link| server.take(link))
    }

    /// Returns the number of PUTs that have begun and not ended.
    pub fn puts_in_progress(&self) -> usize {
        self.running.puts()
    }

    /// Returns the number of blocks that were found damaged since this was made, each counted once.
    pub fn damaged(&self) -> u64 {
        self.damage.damaged.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks that were replaced by another member's replica since this was
    /// made.
    pub fn healed(&self) -> u64 {
        self.damage.healed.load(Ordering::Relaxed)
    }

    /// Sets the scrubs that are ordered here from now on. Only the first call counts.
    pub fn scrub_by(&self, scrubs: Arc<dyn OrderedScrubs>) {
        let _ = self.scrubs.set(scrubs);
    }

    pub(super) fn scrubs(&self) -> Result<&dyn OrderedScrubs> {
        let none = || Error::Unavailable("the chunkserver has not opened its scrubs yet".into());
        self.scrubs.get().map(|scrubs| &**scrubs).ok_or_else(none)
    }

    /// Notes that the repair of a block was tried.
    pub fn tried(&self, sick: Sick, is_repaired: bool) {
        if let Some(scrubs) = self.scrubs.get() {
            scrubs.tried(sick.group, sick.block, is_repaired);
        }
    }

    /// Serves a connection of a node that was authenticated, in a task of its own.
    pub fn take(self: &Arc<Self>, link: Link) {
        let address = link.peer.address.clone();
        if !Role::ALL.into_iter().any(|role| link.peer.roles.contains(role)) {
            tracing::warn!(%address, node = %link.peer.node, "no role: not served");
            return;
        }
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            tracing::warn!(%address, "more than {DATA_CONNECTIONS} connections for blocks");
            return;
        };
        let server = Arc::clone(self);
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = server.converse(link).await {
                tracing::debug!(%address, %error, "connection for blocks ended");
            }
        });
    }

    async fn converse(self: Arc<Self>, link: Link) -> Result<()> {
        let moved = Arc::new(AtomicBool::new(true));
        let watched = WatchedStream { stream: link.stream, moved: Arc::clone(&moved) };
        let mut phase = self.phase.subscribe();
        let (server, peer) = (self, Arc::new(link.peer));
        let service = service_fn(move |request| {
            let (server, peer) = (Arc::clone(&server), Arc::clone(&peer));
            async move { Ok::<_, Infallible>(server.answer(&peer, request).await) }
        });
        let connection = http1::Builder::new()
            .max_buf_size(DATA_BUFFER_BYTES)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(watched), service);
        let mut connection = pin!(connection);
        let mut ticks = interval_at(Instant::now() + DATA_IDLE, DATA_IDLE);
        let mut draining = false;
        let broken = |error| Error::Unavailable(format!("{error}"));
        loop {
            let next = if draining { Phase::Ended } else { Phase::Draining };
            tokio::select! {
                biased;
                ended = connection.as_mut() => return ended.map_err(broken),
                _ = phase.wait_for(|phase| *phase >= next) => {
                    if draining {
                        return Ok(());
                    }
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = ticks.tick() => {
                    if !moved.swap(false, Ordering::Relaxed) {
                        return Err(Error::Unavailable(format!("the connection was idle for \
                            {DATA_IDLE:?}")));
                    }
                }
            }
        }
    }

    /// Takes no more requests, answers those that have begun, for at most `drain`, and then closes
    /// all connections.
    pub async fn stop(&self, drain: Duration) {
        self.phase.send_replace(Phase::Draining);
        if timeout(drain, self.slots.acquire_many(DATA_CONNECTIONS as u32)).await.is_err() {
            tracing::warn!("requests for blocks unanswered at the stop");
            self.phase.send_replace(Phase::Ended);
        }
    }

    pub(super) fn found_corrupt(&self, group: GroupId, block: BlockId) {
        if let Some(hook) = &self.on_corrupt {
            // If it is full, the next reader finds the block again.
            let _ = hook.try_send(Sick { group, block });
        }
    }
}

/// A stream that notes when bytes are transferred.
struct WatchedStream {
    stream: Box<dyn Stream>,
    moved: Arc<AtomicBool>,
}

impl WatchedStream {
    fn note<T>(&self, polled: Poll<T>) -> Poll<T> {
        if polled.is_ready() {
            self.moved.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.note(polled)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
