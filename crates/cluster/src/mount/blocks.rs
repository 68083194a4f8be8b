//! Blocks as a mount sees them, over separate connections, so that no recall waits behind them.

#![expect(clippy::disallowed_methods, reason = "files of another process are not simulated")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::inflight::{WaitTarget, waiting};
use cairn_base::waits;
use cairn_base::{
    BlockId, Error, GroupId, Owner, Redundancy, Result, Rng, SessionId, Stage, stage,
};
use cairn_blocks::{BlockCounters, BlockInfo, BlockPlace, Blocks, Manner, NearBlocks, Usage, Wish};
use cairn_meta::wire;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::Agent;
use super::messages::{GET, Get, LOCATE, Locate, NEAR, PUT, Put, SPACE, Space};
use super::near::{Files, Key, Near};
use crate::control::join;
use crate::wire::{CallFailure, Dial, NoService, Payload, Peer, Reconnect, Retry};

/// Connections.
const CONNECTIONS: usize = 3;

/// Returns the time until which a request made now is sent to any server that answers, and the time
/// until which its answer is awaited while the connection stands.
fn deadlines() -> (Instant, Instant) {
    let now = Instant::now();
    (now + waits::MOUNT_BLOCKS, now + waits::SLOW_SERVER)
}

/// Blocks of a server, read and written where the session is attached.
pub struct MountBlocks {
    connections: Vec<Reconnect<NoService>>,
    turn: AtomicUsize,
    agent: Arc<Agent>,
    near: Arc<Near>,
    session: Box<dyn Fn() -> SessionId + Send + Sync>,
}

impl MountBlocks {
    /// Makes the blocks of a mount; `session` returns the session in which blocks are read.
    pub fn new(
        dialer: &Arc<dyn Dial>,
        agent: Arc<Agent>,
        rng: &Arc<dyn Rng>,
        session: impl Fn() -> SessionId + Send + Sync + 'static,
    ) -> MountBlocks {
        let connection = |_| {
            Reconnect::new(
                Arc::clone(dialer),
                vec![agent.place().to_string()],
                super::terms(),
                NoService,
                Arc::clone(rng),
                Retry { most: Duration::from_millis(500), ..Retry::default() },
            )
        };
        let connections = (0..CONNECTIONS).map(connection).collect();
        let (turn, near) = (AtomicUsize::new(0), Arc::default());
        MountBlocks { connections, turn, agent, near, session: Box::new(session) }
    }

    /// Names the server in the table of requests in flight.
    fn server(&self) -> WaitTarget {
        WaitTarget::Named("server", self.agent.place())
    }

    /// Reads from the server's files, if it is on this machine and they may be read.
    async fn get_near(&self, key: Key, range: &Range<u32>) -> Option<Bytes> {
        let files = match self.near.files() {
            Files::There(files) => files,
            Files::Not(_) => return None,
            Files::Unknown => self.find_files().await?,
        };
        let place = match self.near.place(key) {
            Some(place) => place,
            None => self.locate(key).await?,
        };
        let (group, block) = key;
        let read = match files.read_now(group, block, place, range) {
            Ok(None) => {
                let range = range.clone();
                let read = spawn_blocking(move || files.read(group, block, place, &range));
                read.await.unwrap_or_else(|ended| Err(Error::Unavailable(ended.to_string())))
            }
            Ok(Some(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        self.ended(key, read)
    }

    fn ended(&self, key: Key, read: Result<Bytes>) -> Option<Bytes> {
        match &read {
            Ok(_) => self.near.succeeded(),
            Err(error) => self.near.failed(key, error),
        }
        read.ok()
    }

    async fn find_files(&self) -> Option<NearBlocks> {
        let directory = self.ask(NEAR, || Ok(Bytes::new())).await;
        match directory.and_then(|answer| wire::decode::<Option<String>>(&answer)) {
            Ok(directory) => self.near.found(directory.as_deref()),
            // Otherwise the server is older than this message.
            Err(_) => self.near.rest(),
        }
        match self.near.files() {
            Files::There(files) => Some(files),
            _ => None,
        }
    }

    async fn locate(&self, (group, block): Key) -> Option<BlockPlace> {
        let locate = || wire::encode(&Locate { session: (self.session)(), group, block });
        let answer = self.ask(LOCATE, locate).await.ok()?;
        let place = wire::decode::<Option<BlockPlace>>(&answer).ok()??;
        self.near.learn((group, block), place);
        Some(place)
    }

    /// Returns the next connection to the server of the session.
    async fn peer(&self, deadline: Instant) -> Result<Peer> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let connection = &self.connections[turn % CONNECTIONS];
        loop {
            let place = self.agent.place();
            let tried =
                connection.peer(deadline.min(Instant::now() + waits::MOUNT_BLOCKS_TRY)).await;
            match tried {
                Ok(peer) if *peer.info().authenticated.address == *place => return Ok(peer),
                Ok(peer) => {
                    connection.set_addresses(vec![place.to_string()]);
                    connection.leave(&peer);
                }
                // Nothing waits for credentials to become valid again.
                Err(Error::Denied(why)) => return Err(Error::Unavailable(why)),
                Err(error) if Instant::now() + waits::MOUNT_BLOCKS_RETRY >= deadline => {
                    return Err(error);
                }
                Err(_) => {
                    connection.set_addresses(vec![self.agent.place().to_string()]);
                    sleep(waits::MOUNT_BLOCKS_RETRY).await;
                }
            }
        }
    }

    /// Sends a message that may be sent twice.
    async fn ask(&self, method: u16, message: impl Fn() -> Result<Bytes>) -> Result<Bytes> {
        let (deadline, answer_by) = deadlines();
        loop {
            let peer = self.peer(deadline).await?;
            let left = answer_by.saturating_duration_since(Instant::now());
            match peer.attempt(method, message()?, left).await.map_err(Error::from) {
                Err(Error::Unavailable(why)) => {
                    if Instant::now() + waits::MOUNT_BLOCKS_RETRY >= deadline {
                        return Err(Error::Unavailable(why));
                    }
                    sleep(waits::MOUNT_BLOCKS_RETRY).await;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a message that may not be sent twice: the remains of a block that was not written are
    /// being deleted.
    async fn ask_once(&self, method: u16, message: Payload) -> Result<Bytes> {
        let (deadline, answer_by) = deadlines();
        loop {
            let peer = self.peer(deadline).await?;
            let left = answer_by.saturating_duration_since(Instant::now());
            match peer.attempt(method, message.clone(), left).await {
                Err(CallFailure::NotSent(_))
                    if Instant::now() + waits::MOUNT_BLOCKS_RETRY < deadline =>
                {
                    sleep(waits::MOUNT_BLOCKS_RETRY).await
                }
                answer => return Ok(answer?),
            }
        }
    }
}

#[async_trait]
impl Blocks for MountBlocks {
    async fn write(
        &self,
        wish: Wish,
        block: BlockId,
        owner: Owner,
        data: Bytes,
    ) -> Result<GroupId> {
        // A mount does not compress: compression is no more than a wish.
        let Wish { group, redundancy, compress: _ } = wish;
        let replicas = redundancy.map_or(0, Redundancy::number);
        let put = Put { session: block.session, group, replicas, block, owner };
        let asked = waiting(|| self.server(), self.ask_once(PUT, join(&put, data)?));
        wire::decode(&stage::time(Stage::Peer, asked).await?)
    }

    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        if let Some(bytes) = stage::time(Stage::Read, self.get_near((group, block), &range)).await {
            return Ok(bytes);
        }
        let Range { start, end } = range;
        let get = || {
            // The session may be another by the next attempt.
            wire::encode(&Get { session: (self.session)(), group, block, start, end })
        };
        let asked = waiting(|| self.server(), self.ask(GET, get));
        let bytes = stage::time(Stage::Peer, asked).await?;
        if bytes.len() == (end - start) as usize {
            return Ok(bytes);
        }
        Err(Error::corrupt(format!("block {block}"), bytes.len(), end - start))
    }

    /// `get` reads the server's files: a disk cache in front of this keeps what that reads.
    fn get_now(&self, _: GroupId, _: BlockId, _: Range<u32>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    /// An unpublished block is deleted when the session has ended: a mount deletes no blocks.
    async fn delete(&self, _: GroupId, _: &[BlockId]) -> Result<()> {
        Ok(())
    }

    fn groups(&self) -> Vec<GroupId> {
        Vec::new()
    }

    async fn inventory(&self, _: GroupId, _: Option<BlockId>, _: usize) -> Result<Vec<BlockInfo>> {
        Err(Error::NotImplemented("a mount cannot list the blocks of a group".into()))
    }

    async fn is_compressed(&self, _: GroupId, _: BlockId) -> Result<bool> {
        Err(Error::NotImplemented("a mount is not told how blocks are stored".into()))
    }

    async fn usage(&self) -> Result<Usage> {
        let asked = self.ask(SPACE, || Ok(Bytes::new()));
        let answer = waiting(|| self.server(), asked).await?;
        let Space { live_bytes, free_bytes } = wire::decode(&answer)?;
        Ok(Usage { live_bytes, free_bytes, ..Usage::default() })
    }

    async fn room(&self) -> Result<Usage> {
        self.usage().await
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn place(&self, _: GroupId, _: BlockId) -> Option<BlockPlace> {
        None
    }

    fn manner(&self) -> Manner {
        let is_near = matches!(self.near.files(), Files::There(_));
        Manner { patience: waits::MOUNT_BLOCKS, is_near }
    }

    fn counted(&self) -> BlockCounters {
        BlockCounters::default()
    }
}
