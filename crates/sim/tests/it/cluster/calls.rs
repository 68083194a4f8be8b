//! Calls of NFS as bytes, and how a client sends them: over connections that it gives up, twice,
//! late, to one gateway and to another, until there is a reply.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::rng::SeededRng;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{sleep, timeout};

use super::client::Door;
use super::files::CLIENTS;
use super::roles::Slot;

const NFS: u32 = 100_003;
const LAST: u32 = 1 << 31;
/// Bytes that a connection holds.
const HELD_BYTES: usize = 1 << 16;
/// Time that a client waits for a reply before it sends a call again.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time that a client waits for a reply to a call that it does not send again.
const PATIENCE_ONCE: Duration = Duration::from_secs(10);
/// Number of calls of which one is sent twice at once; of which one goes over a connection that is
/// given up soon.
const TWICE_ONE_IN: u64 = 6;
const GIVEN_UP_ONE_IN: u64 = 5;
const GIVEN_UP_MS: u64 = 60;
/// Number of connections of which one is to any gateway, and not to the former one.
const LEAVES_ONE_IN: u64 = 4;

pub const OK: u32 = 0;
pub const NOENT: u32 = 2;
pub const EXIST: u32 = 17;
/// The client is to send another call later.
pub const JUKEBOX: u32 = 10_008;

/// Arguments, in XDR.
#[derive(Clone, Default)]
pub struct Args(pub Vec<u8>);

impl Args {
    pub fn number(mut self, number: u32) -> Args {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn long(mut self, number: u64) -> Args {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Args {
        self = self.number(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends the attributes to set: at most a mode, and at most a size.
    pub fn changes(self, mode: Option<u32>, size: Option<u64>) -> Args {
        let args = self.number(mode.is_some().into());
        let args = mode.into_iter().fold(args, Args::number);
        let args = args.number(0).number(0).number(size.is_some().into());
        let args = size.into_iter().fold(args, Args::long);
        args.number(0).number(0)
    }
}

/// The part of a reply after its head.
pub struct Reply {
    pub status: u32,
    rest: Vec<u8>,
}

impl Reply {
    fn take(&mut self, len: usize) -> Vec<u8> {
        self.rest.drain(..len).collect()
    }

    pub fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let len = self.number() as usize;
        let mut bytes = self.take(len.next_multiple_of(4));
        bytes.truncate(len);
        bytes
    }

    /// Attributes that may be there.
    pub fn skip_after(&mut self) {
        let len = if self.number() == 1 { 84 } else { 0 };
        self.take(len);
    }

    /// Those before and after a change.
    pub fn skip_around(&mut self) {
        let len = if self.number() == 1 { 24 } else { 0 };
        self.take(len);
        self.skip_after();
    }

    pub fn verifier(&mut self) -> [u8; 8] {
        self.take(8).try_into().unwrap()
    }

    /// Reads the time of the last change of these attributes.
    pub fn changed(&mut self) -> [u8; 8] {
        self.take(76);
        self.verifier()
    }
}

/// The connection of a client to gateways.
pub struct Way {
    pub doors: Vec<Slot<Door>>,
    /// Random numbers of its own: no other client draws from them.
    pub rng: Arc<SeededRng>,
    pub address: IpAddr,
    /// Gateway that it keeps to for a while.
    pub door: usize,
    pub stream: Option<DuplexStream>,
    pub xid: u32,
    /// Number of calls that were sent again.
    pub again: u64,
}

impl Way {
    /// Makes a call that differs from all others.
    pub fn call(&mut self, procedure: u32, args: &Args) -> Vec<u8> {
        self.call_of((NFS, procedure), args)
    }

    /// Makes a call of any program.
    pub fn call_of(&mut self, (program, procedure): (u32, u32), args: &Args) -> Vec<u8> {
        self.xid += 1;
        let credentials = Args::default().number(0).bytes(b"sim").number(0).number(0).number(0);
        let head = Args::default().number(self.xid).number(0).number(2);
        let head = head.number(program).number(3).number(procedure);
        let mut call = head.number(1).bytes(&credentials.0).number(0).number(0);
        call.0.extend(&args.0);
        call.0
    }

    /// Connects with a gateway, if it runs.
    pub fn connect(&self, door: usize) -> Option<DuplexStream> {
        let (own, other) = duplex(HELD_BYTES);
        let door = self.doors[door].lock().clone()?;
        door.streams.send((other, self.address)).ok()?;
        Some(own)
    }

    /// The reply to a call, which is sent until there is one: to any gateway.
    pub async fn ask(&mut self, call: &[u8]) -> Reply {
        loop {
            if self.stream.is_none() {
                if self.rng.below(LEAVES_ONE_IN) == 0 {
                    self.door = self.rng.below(self.doors.len() as u64) as usize;
                }
                self.stream = self.connect(self.door);
            }
            if self.stream.is_none() {
                sleep(Duration::from_millis(50 + self.rng.below(200))).await;
                continue;
            }
            let copies = if self.rng.below(TWICE_ONE_IN) == 0 { 2 } else { 1 };
            let patience = match self.rng.below(GIVEN_UP_ONE_IN) {
                0 => Duration::from_millis(self.rng.below(GIVEN_UP_MS)),
                _ => PATIENCE,
            };
            let Some(stream) = &mut self.stream else { continue };
            match timeout(patience, exchange(stream, call, copies)).await {
                Ok(Ok(reply)) => return reply,
                // The reply is lost, or the call.
                _ => {
                    self.stream = None;
                    self.again += 1;
                    self.pause().await;
                }
            }
        }
    }

    /// The reply to a call that is sent once, to one gateway. None: nobody knows what becomes of
    /// it.
    pub async fn once(&self, door: usize, call: &[u8]) -> Option<Reply> {
        let mut stream = loop {
            match self.connect(door) {
                Some(stream) => break stream,
                None => sleep(Duration::from_millis(50)).await,
            }
        };
        let reply = timeout(PATIENCE_ONCE, exchange(&mut stream, call, 1)).await;
        if !matches!(reply, Ok(Ok(_))) {
            self.pause().await;
        }
        reply.ok()?.ok()
    }

    /// A call of before comes once more, to a gateway. Nobody asks for its reply.
    pub async fn late(&self, call: &[u8]) {
        let door = self.rng.below(self.doors.len() as u64) as usize;
        if let Some(mut stream) = self.connect(door) {
            let _ = timeout(PATIENCE, exchange(&mut stream, call, 1)).await;
            self.pause().await;
        }
    }

    /// Waits before a client goes on. When a gateway dies, its clients notice it in no order that
    /// depends on the seed. Here they go on in an order that does: each at times of its own.
    async fn pause(&self) {
        let IpAddr::V4(address) = self.address else { return };
        let own = u64::from(address.octets()[3]);
        sleep(Duration::from_millis(own + self.rng.below(10) * u64::from(CLIENTS))).await;
    }
}

async fn exchange(stream: &mut DuplexStream, call: &[u8], copies: u32) -> std::io::Result<Reply> {
    let mut record = (call.len() as u32 | LAST).to_be_bytes().to_vec();
    record.extend(call);
    for _ in 0..copies {
        stream.write_all(&record).await?;
    }
    loop {
        let len = stream.read_u32().await? & !LAST;
        let mut reply = vec![0; len as usize];
        stream.read_exact(&mut reply).await?;
        // One to a call of before may still be on its way.
        if reply.get(..4) == call.get(..4) {
            let rest = reply.split_off(24);
            assert_eq!(reply[4..], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let mut reply = Reply { status: 0, rest };
            reply.status = reply.number();
            return Ok(reply);
        }
    }
}
