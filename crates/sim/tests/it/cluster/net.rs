//! The network: streams between hosts that are late, break, and are cut one way or both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use cairn_base::rng::SeededRng;
use cairn_base::{Error, NodeId, Result, Roles};
use cairn_cluster::wire::{Dial, Handshake, Link, Listen, PeerIdentity, Taker, require_none};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::digest::Digest;

/// Bytes on their way before a writer waits.
const WINDOW_BYTES: usize = 512 << 10;
/// Interval at which messages that met a cut are sent again, microseconds.
const AGAIN_US: u64 = 100_000;

/// Returns the address of a node.
pub fn address_of(node: NodeId) -> String {
    format!("host-{}:7400", node.0)
}

/// The purpose of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Wire,
    Blocks,
}

/// All hosts' network. Clones are the same.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<NetState>>,
    rng: Arc<SeededRng>,
}

struct NetState {
    now_us: u64,
    next: u64,
    pipes: BTreeMap<u64, Pipe>,
    listeners: BTreeMap<String, Listener>,
    events: BTreeMap<(u64, u64), (u64, Event)>,
    /// From whom nothing reaches whom.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// By how much longer it takes, microseconds.
    delays: BTreeMap<(NodeId, NodeId), u64>,
    /// A host that dies, and its pipes that end with it.
    dying: Option<(NodeId, BTreeSet<u64>)>,
    /// Hosts that answer nothing, not even that nobody listens.
    gone: BTreeSet<NodeId>,
    /// Time when messages that met a cut are sent again.
    again_us: u64,
    digest: Digest,
}

struct Listener {
    node: NodeId,
    roles: Roles,
    accepted: UnboundedSender<Dialed>,
}

struct Dialed {
    stream: SimStream,
    from: PeerIdentity,
    purpose: Purpose,
}

/// One direction of a stream.
struct Pipe {
    from: NodeId,
    to: NodeId,
    arrived: VecDeque<Bytes>,
    /// The messages that met a cut, and the later ones.
    held: VecDeque<Event>,
    /// Written and not read.
    pending: usize,
    last_us: u64,
    ended: bool,
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Its ends that still exist.
    has_reader: bool,
    has_writer: bool,
}

enum Event {
    Data(Bytes),
    End,
    Break,
}

impl Net {
    pub fn new(rng: Arc<SeededRng>) -> Net {
        let state = NetState {
            now_us: 0,
            next: 0,
            pipes: BTreeMap::new(),
            listeners: BTreeMap::new(),
            events: BTreeMap::new(),
            cuts: BTreeSet::new(),
            delays: BTreeMap::new(),
            dying: None,
            gone: BTreeSet::new(),
            again_us: 0,
            digest: Digest::default(),
        };
        Net { state: Arc::new(Mutex::new(state)), rng }
    }

    pub fn digest(&self) -> u64 {
        self.state.lock().digest.value()
    }

    /// Time goes on: delivers what is due.
    pub fn advance(&self, now_us: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state.lock();
            state.now_us = now_us;
            while let Some(entry) = state.events.first_entry()
                && entry.key().0 <= now_us
            {
                let (pipe, event) = entry.remove();
                state.deliver(pipe, event, &mut wakers);
            }
            if state.again_us <= now_us {
                state.again_us = now_us + AGAIN_US;
                state.send_again(&mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether nothing passes from `from` to `to`.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.state.lock().cuts.contains(&(from, to))
    }

    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.state.lock().cuts.insert((from, to));
    }

    pub fn delay(&self, from: NodeId, to: NodeId, by_us: u64) {
        self.state.lock().delays.insert((from, to), by_us);
    }

    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cuts.clear();
        state.delays.clear();
    }

    /// Breaks some of the open streams.
    pub fn break_some(&self, one_in: u64) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state.lock();
            let all: Vec<u64> = state.pipes.keys().copied().filter(|id| id % 2 == 0).collect();
            for id in all {
                if self.rng.below(one_in) == 0 {
                    state.deliver(id, Event::Break, &mut wakers);
                    state.deliver(id + 1, Event::Break, &mut wakers);
                }
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// While `dying` runs, the streams of a host end without a word if it vanishes.
    pub fn while_dying(&self, node: NodeId, vanishes: bool, dying: impl FnOnce()) {
        {
            let mut state = self.state.lock();
            state.dying = Some((node, BTreeSet::new()));
            state.listeners.retain(|_, listener| listener.node != node);
            state.gone.extend(vanishes.then_some(node));
        }
        dying();
        let ended = self.state.lock().dying.take();
        if !vanishes {
            // In an order of their own: that in which tasks are dropped is anybody's guess.
            let ended = ended.into_iter().flat_map(|(_, pipes)| pipes);
            ended.for_each(|pipe| self.send(pipe, Event::End));
        }
    }

    /// A host is there again.
    pub fn appear(&self, node: NodeId) {
        self.state.lock().gone.remove(&node);
    }

    pub fn listen(
        &self,
        node: NodeId,
        roles: Roles,
        address: &str,
        taker: Option<Taker>,
    ) -> Arc<SimListener> {
        let (accepted, waiting) = unbounded_channel();
        let listener = Listener { node, roles, accepted };
        self.state.lock().listeners.insert(address.to_owned(), listener);
        Arc::new(SimListener { waiting: tokio::sync::Mutex::new(waiting), taker })
    }

    pub fn dialer(&self, node: NodeId, roles: Roles, purpose: Purpose) -> Arc<SimDialer> {
        Arc::new(SimDialer { net: self.clone(), node, roles, purpose })
    }

    fn connect(&self, from: &SimDialer, address: &str) -> Result<Link> {
        let mut state = self.state.lock();
        let refused = || Error::Unavailable(format!("{address}: connection refused"));
        let listener = state.listeners.get(address).ok_or_else(refused)?;
        let (node, roles, accepted) = (listener.node, listener.roles, listener.accepted.clone());
        let there = state.next;
        state.next += 2;
        state.pipes.insert(there, Pipe::new(from.node, node));
        state.pipes.insert(there + 1, Pipe::new(node, from.node));
        drop(state);
        let ours = SimStream { net: self.clone(), incoming: there + 1, outgoing: there };
        let theirs = SimStream { net: self.clone(), incoming: there, outgoing: there + 1 };
        let who = |node, roles| PeerIdentity {
            node,
            roles,
            address: address.to_owned(),
            certificate: None,
            required: require_none(),
            standing: Arc::new(|| Ok(())),
        };
        let dialed =
            Dialed { stream: theirs, from: who(from.node, from.roles), purpose: from.purpose };
        accepted.send(dialed).map_err(|_| refused())?;
        Ok(Link { stream: Box::new(ours), peer: who(node, roles) })
    }

    /// Puts something on its way.
    fn send(&self, pipe: u64, event: Event) {
        let mut state = self.state.lock();
        let now = state.now_us;
        let jitter = match self.rng.below(100) {
            0..90 => self.rng.below(2_000),
            90..99 => self.rng.below(15_000),
            _ => self.rng.below(200_000),
        };
        let Some((from, to)) = state.pipes.get(&pipe).map(|pipe| (pipe.from, pipe.to)) else {
            return;
        };
        let further = state.delays.get(&(from, to)).copied().unwrap_or(0);
        let due = now + 200 + jitter + further;
        state.schedule(pipe, due, event);
    }
}

impl NetState {
    fn schedule(&mut self, id: u64, due: u64, event: Event) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        // In order.
        let due = due.max(pipe.last_us);
        pipe.last_us = due;
        self.next += 2;
        self.events.insert((due, self.next), (id, event));
    }

    fn send_again(&mut self, wakers: &mut Vec<Waker>) {
        let waiting = |pipe: &Pipe| !pipe.held.is_empty();
        let free = |pipe: &Pipe| waiting(pipe) && !self.cuts.contains(&(pipe.from, pipe.to));
        let free = self.pipes.iter().filter(|(_, pipe)| free(pipe));
        let free: Vec<u64> = free.map(|(id, _)| *id).collect();
        for id in free {
            let held = self.pipes.get_mut(&id).map(|pipe| std::mem::take(&mut pipe.held));
            held.into_iter().flatten().for_each(|event| self.deliver(id, event, wakers));
        }
    }

    fn deliver(&mut self, id: u64, event: Event, wakers: &mut Vec<Waker>) {
        let now = self.now_us;
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        if !pipe.held.is_empty() || self.cuts.contains(&(pipe.from, pipe.to)) {
            pipe.held.push_back(event);
            return;
        }
        match event {
            Event::Data(bytes) => {
                self.digest.add(&[now, id, bytes.len() as u64]);
                self.digest.add_bytes(&bytes);
                tracing::trace!(now, id, from = %pipe.from, to = %pipe.to, len = bytes.len(), crc = cairn_base::checksum::crc32c(&bytes), "data");
                if pipe.has_reader {
                    pipe.arrived.push_back(bytes);
                } else if !self.gone.contains(&pipe.to) {
                    // Nobody is there: that is what the writer hears.
                    pipe.broken = true;
                    wakers.extend(pipe.writer.take());
                }
            }
            Event::End => {
                tracing::trace!(now, id, from = %pipe.from, to = %pipe.to, "end");
                self.digest.add(&[now, id, 1 << 40]);
                pipe.ended = true;
            }
            Event::Break => {
                tracing::trace!(now, id, from = %pipe.from, to = %pipe.to, "break");
                self.digest.add(&[now, id, 1 << 41]);
                pipe.broken = true;
            }
        }
        wakers.extend(pipe.reader.take());
        if pipe.broken {
            wakers.extend(pipe.writer.take());
        }
        if !pipe.has_reader && !pipe.has_writer {
            self.pipes.remove(&id);
        }
    }
}

impl Pipe {
    fn new(from: NodeId, to: NodeId) -> Pipe {
        Pipe {
            from,
            to,
            arrived: VecDeque::new(),
            held: VecDeque::new(),
            pending: 0,
            last_us: 0,
            ended: false,
            broken: false,
            reader: None,
            writer: None,
            has_reader: true,
            has_writer: true,
        }
    }
}

pub struct SimDialer {
    net: Net,
    node: NodeId,
    roles: Roles,
    purpose: Purpose,
}

impl SimDialer {
    /// Returns whether packets arrive at the machine with an address.
    fn reaches(&self, address: &str) -> bool {
        let state = self.net.state.lock();
        let to = state.listeners.get(address).map(|listener| listener.node);
        let is_cut =
            |to| state.cuts.contains(&(self.node, to)) || state.cuts.contains(&(to, self.node));
        let is_gone = state.gone.iter().any(|node| address_of(*node) == address);
        !is_gone && !to.is_some_and(is_cut)
    }
}

#[async_trait]
impl Dial for SimDialer {
    async fn dial(&self, address: &str) -> Result<Link> {
        sleep(Duration::from_millis(1 + self.net.rng.below(3))).await;
        loop {
            if self.reaches(address) {
                return self.net.connect(self, address);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn reaches_machine(&self, address: &str) -> bool {
        sleep(Duration::from_millis(1 + self.net.rng.below(3))).await;
        self.reaches(address)
    }
}

pub struct SimListener {
    waiting: tokio::sync::Mutex<UnboundedReceiver<Dialed>>,
    taker: Option<Taker>,
}

#[async_trait]
impl Listen for SimListener {
    async fn accept(&self) -> Result<Handshake> {
        let dialed = self.waiting.lock().await.recv().await;
        let Some(Dialed { stream, from, purpose }) = dialed else {
            return std::future::pending().await;
        };
        let link = Link { stream: Box::new(stream), peer: from };
        let taker = self.taker.clone();
        Ok(Box::pin(async move {
            match (purpose, taker) {
                (Purpose::Wire, _) => return Ok(Some(link)),
                (Purpose::Blocks, Some(taker)) => taker(link),
                (Purpose::Blocks, None) => {}
            }
            Ok(None)
        }))
    }
}

pub struct SimStream {
    net: Net,
    incoming: u64,
    outgoing: u64,
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.state.lock();
        let Some(pipe) = state.pipes.get_mut(&self.incoming) else {
            return Poll::Ready(Err(reset()));
        };
        if pipe.broken {
            return Poll::Ready(Err(reset()));
        }
        let Some(first) = pipe.arrived.front_mut() else {
            if pipe.ended {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let length = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..length]);
        first.advance(length);
        if first.is_empty() {
            pipe.arrived.pop_front();
        }
        pipe.pending -= length;
        let writer = pipe.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        {
            let mut state = self.net.state.lock();
            let Some(pipe) = state.pipes.get_mut(&self.outgoing) else {
                return Poll::Ready(Err(reset()));
            };
            if pipe.broken {
                return Poll::Ready(Err(reset()));
            }
            if pipe.pending >= WINDOW_BYTES {
                pipe.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            pipe.pending += bytes.len();
        }
        self.net.send(self.outgoing, Event::Data(Bytes::copy_from_slice(bytes)));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.send(self.outgoing, Event::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let later = {
            let mut state = self.net.state.lock();
            let from = state.pipes.get(&self.outgoing).map(|pipe| pipe.from);
            if let Some(pipe) = state.pipes.get_mut(&self.outgoing) {
                (pipe.has_writer, pipe.writer) = (false, None);
            }
            if let Some(pipe) = state.pipes.get_mut(&self.incoming) {
                (pipe.has_reader, pipe.reader) = (false, None);
                pipe.arrived.clear();
            }
            match &mut state.dying {
                Some((node, ended)) if from == Some(*node) => {
                    ended.insert(self.outgoing);
                    true
                }
                _ => false,
            }
        };
        if !later {
            self.net.send(self.outgoing, Event::End);
        }
    }
}
