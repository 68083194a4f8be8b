//! Takes syslog messages over TCP or TLS, for one user. The protocol has no acknowledgements: a
//! message that cannot be stored is tried again, and its connection is not read further meanwhile.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use cairn_auth::{Caller, Network};
use cairn_base::accept::pause_after;
use cairn_base::{Error, Party, Result, Share, Shares};
use cairn_fs::ops::credentials::{FindAccessKey, FindToken, ListCredentials};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::counts::{Protocol, add};
use crate::intake::Intake;
use crate::limits::{
    RECORD_BYTES, SYSLOG_BYTES, SYSLOG_CALLER, SYSLOG_DRAIN, SYSLOG_HANDSHAKE, SYSLOG_READ_BYTES,
    SYSLOG_RETRY,
};
use crate::syslog;

/// The connection of a sender.
pub trait Incoming: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Incoming for T {}

/// Does the TLS handshake with a sender.
pub type ShakeHands = Arc<dyn Fn(TcpStream) -> Handshake + Send + Sync>;
pub type Handshake = BoxFuture<'static, io::Result<Box<dyn Incoming>>>;

/// Settings of the listener: the user of the messages, and the senders that are admitted.
#[derive(Clone)]
pub struct Options {
    /// Name of the user as whom records are stored.
    pub user: String,
    /// Networks of senders. `None`: any address, as senders show certificates.
    pub clients: Option<Arc<[Network]>>,
    /// TLS handshake. `None`: no TLS.
    pub tls: Option<ShakeHands>,
    /// Number of connections at the same time.
    pub connections: usize,
    /// Deadline for receiving a whole message, once it has begun.
    pub patience: Duration,
}

/// Serves until `stopped` is true, or its sender is dropped. All complete messages are durable when
/// this returns.
pub async fn serve(
    listener: TcpListener,
    intake: Arc<Intake>,
    options: Options,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Shares::new(options.connections as u64);
    let memory = Shares::new(SYSLOG_BYTES);
    // Closes when the last connection has ended.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok((stream, address)) => (stream, address.ip().to_canonical()),
            Err(error) => {
                tracing::warn!(%error, "accepting connections of syslog");
                if let Some(pause) = pause_after(&error) {
                    sleep(pause).await;
                }
                continue;
            }
        };
        let is_inside =
            |networks: &Arc<[Network]>| networks.iter().any(|network| network.contains(address));
        if !options.clients.as_ref().is_none_or(is_inside) {
            tracing::debug!(%address, "a connection from outside of the networks was closed");
            continue;
        }
        let party = Party::at(address);
        let Some(place) = places.take_now(party, 1) else {
            tracing::warn!(%address, "too many connections of syslog: one was closed");
            continue;
        };
        let connection = Connection {
            intake: Arc::clone(&intake),
            user: options.user.clone(),
            sender: address,
            caller: None,
            memory: Arc::clone(&memory),
            searched: 0,
            patience: options.patience,
            stopped: stopped.clone(),
        };
        let (alive, tls) = (alive.clone(), options.tls.clone());
        tokio::spawn(async move {
            let _held = (place, alive);
            if let Err(error) = connection.begin(stream, tls).await {
                tracing::warn!(%address, %error, "a connection of syslog ended");
            }
        });
    }
    drop(alive);
    if timeout(SYSLOG_DRAIN, ended.recv()).await.is_err() {
        tracing::warn!("messages of syslog still in progress");
    }
}

/// Returns the caller for an enabled user of this name that has credentials.
async fn caller_of(intake: &Intake, name: &str) -> Result<Caller> {
    let (fs, system) = (intake.gather().fs(), Caller::system());
    for credential in fs.read(&system, ListCredentials).await? {
        if credential.user != name {
            continue;
        }
        let id = credential.id;
        let user = if credential.is_token {
            let token = fs.read(&system, FindToken { id }).await?;
            token.filter(|token| token.is_in_time(fs.clock().now())).map(|token| token.user)
        } else {
            fs.read(&system, FindAccessKey { id }).await?.map(|key| key.user)
        };
        if let Some(user) = user {
            return Ok(Caller::verified(user));
        }
    }
    let what = format!("user {name}: there is none with an access key or a token that is good");
    Err(Error::Denied(what))
}

fn late(_: Elapsed) -> Error {
    Error::Invalid("a message of syslog that did not come whole in time".into())
}

struct Connection {
    intake: Arc<Intake>,
    user: String,
    sender: IpAddr,
    /// The caller as whom records are stored, and the time of its lookup.
    caller: Option<(Caller, Duration)>,
    /// Memory of messages that are being received; see [`Connection::room`].
    memory: Arc<Shares>,
    /// Number of waiting bytes in which no message ends.
    searched: usize,
    patience: Duration,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    async fn begin(self, stream: TcpStream, tls: Option<ShakeHands>) -> Result<()> {
        let mut stream: Box<dyn Incoming> = match tls {
            None => Box::new(stream),
            Some(shake_hands) => match timeout(SYSLOG_HANDSHAKE, shake_hands(stream)).await {
                Ok(Ok(stream)) => stream,
                // Logged at debug level, as anybody can cause this.
                Ok(Err(error)) => {
                    let sender = self.sender;
                    tracing::debug!(%sender, %error, "a handshake of syslog failed");
                    return Ok(());
                }
                Err(_) => return Ok(()),
            },
        };
        self.serve(&mut *stream).await?;
        // Ends TLS properly, as some senders wait for that.
        let _ = timeout(SYSLOG_HANDSHAKE, stream.shutdown()).await;
        Ok(())
    }

    async fn serve(mut self, stream: &mut dyn Incoming) -> Result<()> {
        let mut waiting = BytesMut::new();
        loop {
            // A silent sender holds no memory.
            let mut first = [0; 1];
            let read = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stop| *stop) => return Ok(()),
                read = stream.read(&mut first) => match read {
                    // Between messages, any end of TLS will do.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                    read => read?,
                },
            };
            if read == 0 {
                return Ok(());
            }
            waiting.extend_from_slice(&first);
            let ended = self.converse(stream, &mut waiting).await;
            if !waiting.is_empty() {
                self.lost(1);
            }
            if ended? {
                return Ok(());
            }
            waiting = BytesMut::new();
        }
    }

    /// Stores messages until none waits. Returns true if the sender has ended or the server stops:
    /// bytes that wait then belong to a message that is lost.
    async fn converse(
        &mut self,
        stream: &mut dyn Incoming,
        waiting: &mut BytesMut,
    ) -> Result<bool> {
        let (mut room, mut is_long) = (None, false);
        let mut due = Instant::now() + self.patience;
        while !waiting.is_empty() {
            if room.is_none() || is_long != (waiting.len() >= SYSLOG_READ_BYTES) {
                is_long = waiting.len() >= SYSLOG_READ_BYTES;
                // Connections must not hold memory while they wait for more: all could wait for
                // each other.
                drop(room.take());
                room = self.room(is_long).await;
                // The time of this wait is no fault of the sender.
                due = Instant::now() + self.patience;
            }
            waiting.reserve(SYSLOG_READ_BYTES);
            let (read, is_stopped) = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stop| *stop) => (0, true),
                read = timeout_at(due, stream.read_buf(waiting)) => {
                    (read.map_err(late)??, false)
                }
            };
            if read == 0 && !is_stopped && waiting.last() != Some(&b'\n') {
                // The last message may end with the connection.
                waiting.extend_from_slice(b"\n");
            }
            if self.take(waiting).await? {
                due = Instant::now() + self.patience;
            }
            if read == 0 {
                return Ok(true);
            }
            if waiting.len() > 2 * RECORD_BYTES {
                return Err(Error::TooLarge("a message of syslog".into()));
            }
        }
        Ok(false)
    }

    /// Waits for memory to receive messages, of which no network takes all. Returns `None` if the
    /// server stops.
    async fn room(&mut self, is_long: bool) -> Option<Share> {
        let bytes = if is_long { 4 * RECORD_BYTES } else { 2 * SYSLOG_READ_BYTES };
        let taking = self.memory.take(Party::at(self.sender), bytes as u64);
        tokio::select! {
            biased;
            _ = self.stopped.wait_for(|stop| *stop) => None,
            share = taking => Some(share),
        }
    }

    /// Returns the caller as whom records are stored. A user that was disabled is noticed after
    /// [`SYSLOG_CALLER`].
    async fn caller(&mut self) -> Result<Caller> {
        let now = self.intake.gather().fs().clock().monotonic();
        match &self.caller {
            Some((caller, since)) if now.saturating_sub(*since) < SYSLOG_CALLER => {
                Ok(caller.clone())
            }
            _ => {
                let caller = caller_of(&self.intake, &self.user).await?;
                self.caller = Some((caller.clone(), now));
                Ok(caller)
            }
        }
    }

    fn lost(&self, records: usize) {
        add(&self.intake.counts().of(Protocol::Syslog).lost, records);
    }

    /// Stores the complete messages. Returns true if there were any.
    async fn take(&mut self, waiting: &mut BytesMut) -> Result<bool> {
        let (mut ends, mut taken, mut broken) = (Vec::new(), 0, None);
        while let Some(rest) = waiting.get(taken..) {
            let searched = if taken == 0 { self.searched } else { 0 };
            match syslog::frame(rest, searched) {
                Ok(Some((message, used))) => {
                    let start = taken + used - message.len();
                    // A message that ends with a newline is followed by one or two more bytes.
                    let start =
                        if rest.first().is_some_and(u8::is_ascii_digit) { start } else { taken };
                    if !message.is_empty() {
                        ends.push(start..start + message.len());
                    }
                    taken += used;
                }
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        let messages: Vec<&[u8]> = ends.into_iter().filter_map(|at| waiting.get(at)).collect();
        let messages: Vec<Vec<u8>> = messages.into_iter().map(<[u8]>::to_vec).collect();
        let outcome = self.store(messages).await;
        waiting.advance(taken);
        self.searched = waiting.len();
        outcome?;
        match broken {
            None => Ok(taken > 0),
            // The beginning of the next message is unknown.
            Some(error) => Err(error),
        }
    }

    /// Stores messages; those that could not be stored are tried again and again.
    async fn store(&mut self, messages: Vec<Vec<u8>>) -> Result<()> {
        let sender = self.sender.to_string();
        let mut wanted = messages;
        while !wanted.is_empty() {
            let mut batch = self.intake.batch();
            wanted.iter().for_each(|message| syslog::message(message, &sender, &mut batch));
            let pushed = match self.caller().await {
                Ok(caller) => {
                    let held = Arc::new(());
                    self.intake.push(&caller, Protocol::Syslog, batch, None, held).await
                }
                Err(error) => Err(error),
            };
            match pushed {
                Ok(outcome) => {
                    let failed: HashSet<usize> =
                        outcome.failed.iter().map(|(number, _)| *number).collect();
                    let mut number = 0..;
                    wanted.retain(|_| number.next().is_some_and(|at| failed.contains(&at)));
                }
                Err(error) => tracing::warn!(%error, "messages of syslog wait"),
            }
            if !wanted.is_empty() {
                if *self.stopped.borrow() {
                    self.lost(wanted.len());
                    return Err(Error::Unavailable("the server stops".into()));
                }
                sleep(SYSLOG_RETRY).await;
            }
        }
        Ok(())
    }
}
