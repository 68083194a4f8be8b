//! Clients: they put, append, delete and read objects through gateways, and note what happened.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::rng::SeededRng;
use cairn_base::{Error, Ino, Result, UserId, limits};
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::create::Create;
use cairn_fs::ops::delete_object::DeleteObject;
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::rows::ObjectAttributes;
use cairn_fs::{Fs, Piece, PutRequest};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::history::History;
use super::roles::Slot;

pub const BUCKET: &str = "bucket";
/// The one in whose directories files are made, as through a mount.
pub const FILES: &str = "files";
/// Keys that are put, and keys that are appended to.
pub const PUT_KEYS: u64 = 4;
pub const APPEND_KEYS: u64 = 2;
const RECORD_HEAD: usize = 8;
/// The pattern that fills records: see there.
const PERIOD: usize = 1 << 16;
const STEP: usize = 31;
const PLACE: usize = 60_199;
/// Time that a client waits, and time that a read-only client waits.
pub const PATIENCE: Duration = Duration::from_secs(25);
const READER_PATIENCE: Duration = Duration::from_secs(1);
/// Number of uploads and downloads of which one is slow, and the longest delay, milliseconds.
const SLOW_ONE_IN: u64 = 8;
const SLOW_MS: u64 = 10_000;
/// Number of requests of which one is given up, and the longest time until then, milliseconds.
const HANG_UP_ONE_IN: u64 = 12;
const HANG_UP_MS: u64 = 100;
/// Names in a directory, and number of directories in use at the same time.
const NAMES: u64 = 8;
const DIRECTORIES: u64 = 4;

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Get,
    Put(Record),
    /// If there is no such object.
    Create(Record),
    Append(Record),
    Delete,
    /// Makes an empty file, if its name is free, and its directory. Durable when it is filled.
    Make,
    /// Writes the file that was made. Sent once, by its maker.
    Fill(Record),
}

/// Bytes that no other record has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub id: u32,
    pub length: u32,
}

/// The answer to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// Done; the record begins at this offset.
    Appended(u64),
    /// Refused, as the name exists.
    Refused,
    /// Done; `true` if the object existed.
    Deleted(bool),
    /// Records of the object, if it exists.
    Got(Option<Vec<u32>>),
    /// It may have been done, or may still be done.
    Unknown(String),
    /// Bytes that nobody put there.
    Wrong(String),
    /// An object that can be opened and not be read.
    Lost(String),
}

impl Outcome {
    pub fn is_known(&self) -> bool {
        !matches!(self, Outcome::Unknown(_))
    }
}

impl Record {
    fn bytes(self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.length as usize);
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.filler());
        Bytes::from(bytes)
    }

    /// Bytes that no other record has, and that cost next to nothing: clients make and compare them
    /// all the time. From a place of its own, a part of what repeats after 64 KiB.
    fn filler(self) -> &'static [u8] {
        static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
            (0..2 * PERIOD).map(|at| (at * STEP % PERIOD).to_le_bytes()[1]).collect()
        });
        let from = (self.id as usize).wrapping_mul(PLACE) % PERIOD;
        &ALL[from..from + self.length as usize - RECORD_HEAD]
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
        let is_whole = (RECORD_HEAD..=PERIOD).contains(&length)
            && bytes.get(RECORD_HEAD..length).is_some_and(|all| all == record.filler());
        if !is_whole {
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

/// The callers that wait for an answer of one process.
#[derive(Default)]
pub struct Waiting(Mutex<BTreeMap<u64, oneshot::Sender<Outcome>>>);

/// Entrance of a gateway for requests.
#[derive(Clone)]
pub struct Door {
    pub requests: UnboundedSender<Request>,
    /// Connections of clients of NFS, with their addresses.
    pub streams: UnboundedSender<(DuplexStream, IpAddr)>,
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

/// Also where an operation is done when it has run, the client hears of it when it is durable; but
/// at once of a file that was made.
async fn run(fs: &Fs, key: &str, op: Op, slow: Duration) -> Result<Outcome> {
    let lost = fs.meta().lost();
    let outcome = run_now(fs, key, op, slow).await?;
    if op == Op::Make {
        return Ok(outcome);
    }
    fs.meta().flush().await?;
    if fs.meta().lost() == lost {
        Ok(outcome)
    } else {
        Ok(Outcome::Unknown("done, and lost".into()))
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
        Op::Make => make(fs, key).await,
        Op::Fill(record) => fill(fs, key, record, slow).await,
    }
}

/// The part of a key before the slash, as a directory that is made if there is none, and the part
/// behind it.
async fn directory_of<'a>(fs: &Fs, key: &'a str) -> Result<(Ino, &'a str)> {
    let caller = Caller::verified(UserId::ROOT);
    let (directory, name) = key.split_once('/').unwrap_or(("", key));
    let lookup = |parent, name: &str| Lookup { parent, name: name.into() };
    let (parent, _) = fs.read(&caller, lookup(Ino::ROOT, FILES)).await?;
    let found = fs.read(&caller, lookup(parent, directory)).await;
    if let Ok((directory, _)) = found {
        return Ok((directory, name));
    }
    let mkdir = Mkdir { parent, name: directory.into(), mode: 0o755, umask: 0 };
    let made = match fs.run(&caller, mkdir).await {
        Err(Error::Exists(_)) => fs.read(&caller, lookup(parent, directory)).await,
        made => made,
    };
    Ok((made?.0, name))
}

async fn make(fs: &Fs, key: &str) -> Result<Outcome> {
    let (parent, name) = directory_of(fs, key).await?;
    let create = Create { parent, name: name.into(), mode: 0o644, umask: 0, exclusive: true };
    // As a mount does it.
    let made = match fs.run_now(&Caller::verified(UserId::ROOT), &create) {
        Some(_) => Ok(()),
        None => fs.run(&Caller::verified(UserId::ROOT), create).await.map(drop),
    };
    match made {
        Ok(()) => Ok(Outcome::Done),
        Err(Error::Exists(_)) => Ok(Outcome::Refused),
        Err(error) => Err(error),
    }
}

async fn fill(fs: &Fs, key: &str, record: Record, slow: Duration) -> Result<Outcome> {
    let caller = Caller::verified(UserId::ROOT);
    let (parent, name) = directory_of(fs, key).await?;
    let (ino, _) = fs.read(&caller, Lookup { parent, name: name.into() }).await?;
    let (session, writer) = (fs.session(), fs.writer(ino));
    let data = record.bytes();
    let piece = if data.len() <= limits::INLINE_BYTES {
        Piece::Inline(0, data)
    } else {
        Piece::Block(writer.upload(&caller, &[(0, data)]).await?)
    };
    sleep(slow).await;
    writer.publish(&caller, session, vec![piece], &mut None).await?;
    Ok(Outcome::Done)
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
    let bucket = if key.contains('/') { FILES } else { BUCKET };
    let object = match fs.open(&Caller::verified(UserId::ROOT), bucket, key).await {
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
    /// So many of them, from the first on, are asked for changes. The others are only read from.
    pub changing: usize,
    pub history: Arc<Mutex<History>>,
    pub rng: Arc<SeededRng>,
    /// In a hundred operations.
    pub reads: u64,
}

impl Client {
    /// Works until the history is closed.
    pub async fn work(self) {
        while !self.history.lock().is_closed() {
            sleep(Duration::from_millis(self.rng.below(300))).await;
            let door = self.rng.below(self.changing as u64) as usize;
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

    /// Makes directories and fills them, each through one gateway, as a mount does.
    pub async fn make(self) {
        while !self.history.lock().is_closed() {
            let directory = self.history.lock().next_directory();
            let door = self.rng.below(self.doors.len() as u64) as usize;
            for name in 0..NAMES {
                sleep(Duration::from_millis(self.rng.below(100))).await;
                if !self.history.lock().is_closed() {
                    self.make_and_fill(door, file(directory, name)).await;
                }
            }
        }
    }

    /// Makes and reads files in directories that others fill.
    pub async fn interfere(self) {
        while !self.history.lock().is_closed() {
            sleep(Duration::from_millis(self.rng.below(300))).await;
            let door = self.rng.below(self.doors.len() as u64) as usize;
            let last = self.history.lock().directories();
            let directory = last.saturating_sub(self.rng.below(DIRECTORIES));
            let key = file(directory, self.rng.below(NAMES));
            match self.rng.below(4) {
                0 => self.make_and_fill(door, key).await,
                _ => drop(self.ask(door, key, Op::Get, Duration::ZERO, READER_PATIENCE).await),
            }
        }
    }

    async fn make_and_fill(&self, door: usize, key: String) {
        let made = self.ask(door, key.clone(), Op::Make, Duration::ZERO, PATIENCE).await;
        if made == Some(Outcome::Done) && !self.history.lock().is_closed() {
            if self.rng.below(4) == 0 {
                // Nobody but the gateway that made it may know of it yet.
                let other = self.rng.below(self.doors.len() as u64) as usize;
                self.ask(other, key.clone(), Op::Get, Duration::ZERO, READER_PATIENCE).await;
            }
            let record = Record::draw(self.history.lock().next_id(), &self.rng);
            self.ask(door, key, Op::Fill(record), self.draw_slow(), PATIENCE).await;
        }
    }

    /// Puts a record, as often as it takes until that is answered.
    pub async fn put_at_last(&self, door: usize, key: &str) {
        loop {
            let record = Record::draw(self.history.lock().next_id(), &self.rng);
            let (op, slow) = (Op::Put(record), Duration::ZERO);
            let outcome = self.ask(door, key.to_owned(), op, slow, PATIENCE).await;
            if outcome.is_some_and(|outcome| outcome.is_known()) {
                return;
            }
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

    /// Asks one gateway; what comes of it is noted. `None`: there is no gateway.
    pub async fn ask(
        &self,
        door: usize,
        key: String,
        op: Op,
        slow: Duration,
        patience: Duration,
    ) -> Option<Outcome> {
        let Some(Door { requests, waiting, .. }) = self.doors[door].lock().clone() else {
            sleep(Duration::from_millis(200)).await;
            return None;
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
        self.history.lock().end(&key, call, door, outcome.clone());
        Some(outcome)
    }
}

fn file(directory: u64, name: u64) -> String {
    format!("directory-{directory}/{name}")
}

pub fn key(number: u64) -> String {
    if number < PUT_KEYS { format!("put-{number}") } else { format!("append-{number}") }
}
