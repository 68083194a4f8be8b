//! Messages between members: they are late, lost, and cut one way or both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Result};
use cairn_meta::engine::Later;
use cairn_meta::engine::raft::Peers;
use cairn_meta::engine::raft::message::{self, Message};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cluster::digest::Digest;

/// Sender for the answer to a message.
type Waiting = oneshot::Sender<Result<Bytes>>;

/// The way from one member to another. Number 0 stands for any.
pub type Way = (u64, u64);

/// A message or answer on its way.
pub struct Item {
    pub from: u64,
    pub to: u64,
    pub bytes: Bytes,
    pub waiting: Waiting,
    pub is_reply: bool,
}

/// All members' network. Clones are the same.
#[derive(Clone)]
pub struct Wires {
    state: Arc<Mutex<WiresState>>,
    rng: Arc<SeededRng>,
}

#[derive(Default)]
struct WiresState {
    now_us: u64,
    next: u64,
    items: BTreeMap<(u64, u64), Item>,
    /// Number of faults that cut each way.
    cuts: BTreeMap<Way, u32>,
    /// Number of faults that let only answers pass each way.
    unheard: BTreeMap<Way, u32>,
    /// Number of faults that lose the entries that a member sends.
    entries_lost: BTreeMap<u64, u32>,
    /// Number of faults that make each way slow.
    late: BTreeMap<Way, u32>,
    /// Lost messages, whose senders never learn of the loss.
    lost: Vec<Waiting>,
    digest: Digest,
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn subtract<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// Returns whether this message brings entries.
pub fn has_entries(bytes: &Bytes) -> bool {
    match message::parse(bytes) {
        Ok((_, Message::Append { entries, .. })) => !entries.is_empty(),
        _ => false,
    }
}

impl WiresState {
    fn is_cut(&self, item: &Item) -> bool {
        let ways = [(item.from, item.to), (item.from, 0), (0, item.to)];
        let is_unheard = |way| !item.is_reply && self.unheard.contains_key(way);
        ways.iter().any(|way| self.cuts.contains_key(way) || is_unheard(way))
            || !item.is_reply
                && self.entries_lost.contains_key(&item.from)
                && has_entries(&item.bytes)
    }
}

impl Wires {
    pub fn new(rng: Arc<SeededRng>) -> Wires {
        Wires { state: Arc::default(), rng }
    }

    /// Nothing passes until it is healed as often.
    pub fn cut(&self, way: Way) {
        add(&mut self.state.lock().cuts, way);
    }

    pub fn heal(&self, way: Way) {
        subtract(&mut self.state.lock().cuts, way);
    }

    /// Only answers pass until they are heard as often: the connections of the one side are broken,
    /// those of the other side are not.
    pub fn silence(&self, way: Way) {
        add(&mut self.state.lock().unheard, way);
    }

    pub fn hear(&self, way: Way) {
        subtract(&mut self.state.lock().unheard, way);
    }

    /// No entries of `member` pass until it keeps them as often.
    pub fn lose_entries(&self, member: u64) {
        add(&mut self.state.lock().entries_lost, member);
    }

    pub fn keep_entries(&self, member: u64) {
        subtract(&mut self.state.lock().entries_lost, member);
    }

    /// All that passes takes much longer until it is hurried as often.
    pub fn delay(&self, way: Way) {
        add(&mut self.state.lock().late, way);
    }

    pub fn hurry(&self, way: Way) {
        subtract(&mut self.state.lock().late, way);
    }

    pub fn digest(&self) -> u64 {
        self.state.lock().digest.value()
    }

    pub fn put(&self, item: Item) {
        let delay_us = match self.rng.below(1000) {
            0..940 => 200 + self.rng.below(4_000),
            940..990 => 5_000 + self.rng.below(60_000),
            _ => 100_000 + self.rng.below(400_000),
        };
        let more_us = 100_000 + self.rng.below(300_000);
        let is_lost = self.rng.below(200) == 0;
        let mut state = self.state.lock();
        let way = (item.from, item.to);
        if is_lost || state.is_cut(&item) {
            return state.lost.push(item.waiting);
        }
        let late_us = if state.late.contains_key(&way) { more_us } else { 0 };
        let due = (state.now_us + delay_us + late_us, state.next);
        state.next += 1;
        state.items.insert(due, item);
    }

    /// Everything that arrives by `now_us`.
    pub fn arrived(&self, now_us: u64) -> Vec<Item> {
        let mut state = self.state.lock();
        state.now_us = now_us;
        let later = state.items.split_off(&(now_us + 1, 0));
        let due = std::mem::replace(&mut state.items, later);
        let mut arrived = Vec::new();
        for item in due.into_values() {
            if state.is_cut(&item) {
                state.lost.push(item.waiting);
                continue;
            }
            state.digest.add(&[now_us, item.from, item.to]);
            state.digest.add_bytes(&item.bytes);
            arrived.push(item);
        }
        arrived
    }
}

/// The way of one member to the others.
pub struct Port {
    pub from: u64,
    pub wires: Wires,
    /// Members that were given up, as its map says.
    pub former: BTreeSet<u64>,
}

impl Peers for Port {
    fn send(&self, to: u64, bytes: Bytes) -> Later<Result<Bytes>> {
        let (waiting, reply) = oneshot::channel();
        self.wires.put(Item { from: self.from, to, bytes, waiting, is_reply: false });
        Box::pin(async move {
            let gone = |_| Err(Error::Unavailable("the connection broke".into()));
            reply.await.unwrap_or_else(gone)
        })
    }

    fn former(&self) -> BTreeSet<u64> {
        self.former.clone()
    }
}
