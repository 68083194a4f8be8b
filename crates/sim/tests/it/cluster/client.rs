//! Clients: they put, append, delete and read objects through gateways, and note what happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Result, UserId};
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::rows::ObjectAttributes;
use cairn_fs::{Fs, PutRequest};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::history::History;
use super::roles::Slot;

pub const BUCKET: &str = "bucket";
/// Keys that are put, and keys that are appended to.
pub const PUT_KEYS: u64 = 4;
pub const APPEND_KEYS: u64 = 2;
const RECORD_HEAD: usize = 8;
/// How long a client waits, and how long one that only reads.
pub const PATIENCE: Duration = Duration::from_secs(25);
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// Of so many uploads and downloads one is slow, and by how much at most, milliseconds.
const SLOW_ONE_IN: u64 = 8;
const SLOW_MS: u64 = 10_000;
/// Of so many requests one is given up, and after how long at most, milliseconds.
const HANG_UP_ONE_IN: u64 = 12;
const HANG_UP_MS: u64 = 100;

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Get,
    Put(Record),
    /// If there is no such object.
    Create(Record),
    Append(Record),
    Delete,
}

/// Bytes that no other record has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub id: u32,
    pub length: u32,
}

/// What it was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// Where the record begins.
    Appended(u64),
    /// There is one.
    Refused,
    /// Whether there was one.
    Deleted(bool),
    /// The records of the object, if there is one.
    Got(Option<Vec<u32>>),
    /// It may have been done, or may be done yet.
    Unknown(String),
    /// Bytes that nobody put there.
    Wrong(String),
    /// An object that can be opened and not be read.
    Lost(String),
}

impl Record {
    fn bytes(self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.length as usize);
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend((0..self.length as usize - RECORD_HEAD).map(|at| self.filler(at)));
        Bytes::from(bytes)
    }

    fn filler(self, at: usize) -> u8 {
        (self.id as usize).wrapping_mul(0x9E37_79B9).wrapping_add(at * 31).to_le_bytes()[1]
    }

    fn draw(id: u32, rng: &SeededRng) -> Record {
        let length = match rng.below(4) {
            0 => 8 + rng.below(100),
            1 => 1_000 + rng.below(15_000),
            _ => 17_000 + rng.below(30_000),
        };
        Record { id, length: length as u32 }
    }
}

fn parse(mut bytes: &[u8]) -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| {
            let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map(u32::from_le_bytes).ok_or("cut short")
        };
        let record = Record { id: number(0)?, length: number(4)? };
        let length = record.length as usize;
        if length < RECORD_HEAD || bytes.get(..length).is_none_or(|all| all != record.bytes()) {
            return Err(format!("not the bytes of record {}", record.id));
        }
        ids.push(record.id);
        bytes = &bytes[length..];
    }
    Ok(ids)
}

/// An operation on its way to a gateway.
pub struct Request {
    pub key: String,
    pub op: Op,
    /// Between the opening of an object and its bytes, or its bytes and their publication.
    pub slow: Duration,
    /// After that the client hangs up, and the gateway drops what it was doing.
    pub hang_up: Option<Duration>,
    pub number: u64,
    pub waiting: Arc<Waiting>,
}

/// Who waits for an answer of one process.
#[derive(Default)]
pub struct Waiting(Mutex<BTreeMap<u64, oneshot::Sender<Outcome>>>);

/// Where a gateway takes requests.
#[derive(Clone)]
pub struct Door {
    pub requests: UnboundedSender<Request>,
    pub waiting: Arc<Waiting>,
}

impl Waiting {
    fn enter(&self) -> (u64, oneshot::Receiver<Outcome>) {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.0.lock();
        let number = waiting.last_key_value().map_or(0, |(last, _)| last + 1);
        waiting.insert(number, answer);
        (number, answered)
    }

    /// The process is no more: those who wait hear of it one after another.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for (_, answer) in all {
            let _ = answer.send(Outcome::Unknown("the gateway died".into()));
        }
    }
}

impl Request {
    pub async fn answer(self, fs: Fs) {
        let run = run(&fs, &self.key, self.op, self.slow);
        let outcome = match self.hang_up {
            None => run.await,
            Some(after) => timeout(after, run)
                .await
                .unwrap_or_else(|_| Ok(Outcome::Unknown("the client hung up".into()))),
        };
        let outcome = outcome.unwrap_or_else(|error| Outcome::Unknown(error.to_string()));
        let answer = self.waiting.0.lock().remove(&self.number);
        // The client may have given up.
        answer.into_iter().for_each(|answer| drop(answer.send(outcome.clone())));
    }
}

/// Also where an operation is done when it has run, the client hears of it when it is durable.
async fn run(fs: &Fs, key: &str, op: Op, slow: Duration) -> Result<Outcome> {
    let lost = fs.meta().lost();
    let outcome = run_now(fs, key, op, slow).await?;
    fs.meta().flush().await?;
    match fs.meta().lost() == lost {
        true => Ok(outcome),
        false => Ok(Outcome::Unknown("done, and lost".into())),
    }
}

async fn run_now(fs: &Fs, key: &str, op: Op, slow: Duration) -> Result<Outcome> {
    let caller = Caller::verified(UserId::ROOT);
    match op {
        Op::Get => get(fs, key, slow).await,
        Op::Put(record) => put(fs, key, record, Conditions::default(), slow).await,
        Op::Create(record) => {
            let if_none_match = Some(EtagMatch::Any);
            let conditions = Conditions { if_none_match, ..Conditions::default() };
            put(fs, key, record, conditions, slow).await
        }
        Op::Append(record) => {
            let (offset, ..) = fs.append(&caller, BUCKET, key, record.bytes()).await?;
            Ok(Outcome::Appended(offset))
        }
        Op::Delete => {
            let (bucket, key) = (BUCKET.to_owned(), key.to_owned());
            let delete = DeleteObject { bucket, key, conditions: Conditions::default() };
            Ok(Outcome::Deleted(fs.run(&caller, delete).await?))
        }
    }
}

async fn put(
    fs: &Fs,
    key: &str,
    record: Record,
    conditions: Conditions,
    slow: Duration,
) -> Result<Outcome> {
    let caller = Caller::verified(UserId::ROOT);
    let mut writer = fs.begin(&caller, BUCKET).await?;
    writer.push(record.bytes()).await?;
    let written = writer.finish().await?;
    sleep(slow).await;
    let (bucket, key) = (BUCKET.to_owned(), key.to_owned());
    let object = ObjectAttributes::default();
    let request = PutRequest { bucket, key, object, tags: Vec::new(), conditions };
    match fs.put_object(&caller, request, written).await {
        Ok(_) => Ok(Outcome::Done),
        Err(Error::PreconditionFailed(_)) => Ok(Outcome::Refused),
        Err(error) => Err(error),
    }
}

async fn get(fs: &Fs, key: &str, slow: Duration) -> Result<Outcome> {
    let object = match fs.open(&Caller::verified(UserId::ROOT), BUCKET, key).await {
        Err(Error::NotFound(_)) => return Ok(Outcome::Got(None)),
        opened => opened?,
    };
    sleep(slow).await;
    match object.read_all(0..object.size()).await {
        Ok(bytes) => Ok(match parse(&bytes) {
            Ok(ids) => Outcome::Got(Some(ids)),
            Err(what) => Outcome::Wrong(what),
        }),
        Err(error @ (Error::NotFound(_) | Error::Corrupt { .. } | Error::Invalid(_))) => {
            Ok(Outcome::Lost(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// One user of the gateways.
#[derive(Clone)]
pub struct Client {
    pub doors: Vec<Slot<Door>>,
    pub history: Arc<Mutex<History>>,
    pub rng: Arc<SeededRng>,
    /// In a hundred operations.
    pub reads: u64,
}

impl Client {
    /// Goes on until it is told to stop.
    pub async fn work(self) {
        while !self.history.lock().is_closed() {
            sleep(Duration::from_millis(self.rng.below(300))).await;
            let door = self.rng.below(self.doors.len() as u64) as usize;
            let (key, op) = self.draw();
            let slow = self.draw_slow();
            self.ask(door, key, op, slow, PATIENCE).await;
        }
    }

    /// Only reads, and through one gateway: goes on whatever becomes of the others.
    pub async fn read(self, door: usize) {
        while !self.history.lock().is_closed() {
            sleep(Duration::from_millis(self.rng.below(300))).await;
            let key = key(self.rng.below(PUT_KEYS + APPEND_KEYS));
            self.ask(door, key, Op::Get, Duration::ZERO, READER_PATIENCE).await;
        }
    }

    fn draw_slow(&self) -> Duration {
        match self.rng.below(SLOW_ONE_IN) {
            0 => Duration::from_millis(self.rng.below(SLOW_MS)),
            _ => Duration::ZERO,
        }
    }

    fn draw(&self) -> (String, Op) {
        let number = self.rng.below(PUT_KEYS + APPEND_KEYS);
        let record = || Record::draw(self.history.lock().next_id(), &self.rng);
        let op = match self.rng.below(100) {
            drawn if drawn < self.reads => Op::Get,
            _ => match self.rng.below(50) {
                0..8 => Op::Delete,
                _ if number >= PUT_KEYS => Op::Append(record()),
                8..20 => Op::Create(record()),
                _ => Op::Put(record()),
            },
        };
        (key(number), op)
    }

    /// Asks one gateway; what comes of it is noted. Whether there was an answer.
    pub async fn ask(
        &self,
        door: usize,
        key: String,
        op: Op,
        slow: Duration,
        patience: Duration,
    ) -> bool {
        let Some(Door { requests, waiting }) = self.doors[door].lock().clone() else {
            sleep(Duration::from_millis(200)).await;
            return false;
        };
        let (number, answered) = waiting.enter();
        let call = self.history.lock().begin(&key, op);
        let hang_up = (self.rng.below(HANG_UP_ONE_IN) == 0)
            .then(|| slow + Duration::from_millis(self.rng.below(HANG_UP_MS)));
        let sent = requests.send(Request { key: key.clone(), op, slow, hang_up, number, waiting });
        let outcome = match timeout(patience, answered).await {
            _ if sent.is_err() => Outcome::Unknown("no gateway".into()),
            Ok(Ok(outcome)) => outcome,
            _ => Outcome::Unknown("no answer".into()),
        };
        let known = !matches!(outcome, Outcome::Unknown(_));
        self.history.lock().end(&key, call, door, outcome);
        known
    }
}

pub fn key(number: u64) -> String {
    if number < PUT_KEYS { format!("put-{number}") } else { format!("append-{number}") }
}
