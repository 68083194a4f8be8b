//! Takes messages of syslog over TCP, for one user. Nothing is acknowledged by this protocol: a
//! message that cannot be stored is tried again, and meanwhile no more of its connection is read.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use cairn_auth::{Caller, Network};
use cairn_base::accept::pause_after;
use cairn_base::{Error, Party, Result, Share, Shares};
use cairn_fs::ops::credentials::{FindAccessKey, FindToken, ListCredentials};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::counts::{Protocol, add};
use crate::intake::Intake;
use crate::limits::{
    RECORD_BYTES, SYSLOG_BYTES, SYSLOG_CALLER, SYSLOG_DRAIN, SYSLOG_READ_BYTES, SYSLOG_RETRY,
};
use crate::syslog;

/// Whose messages these are, and where they may come from.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the user as whom records are stored.
    pub user: String,
    pub clients: Arc<[Network]>,
    /// At the same time.
    pub connections: usize,
}

/// Serves until `stopped` is true, or its sender is gone; what has come whole is durable then.
pub async fn serve(
    listener: TcpListener,
    intake: Arc<Intake>,
    options: Options,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Shares::new(options.connections as u64);
    let memory = Shares::new(SYSLOG_BYTES);
    // Received from when all connections have ended.
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
        if !options.clients.iter().any(|network| network.contains(address)) {
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
            stopped: stopped.clone(),
        };
        let alive = alive.clone();
        tokio::spawn(async move {
            let _held = (place, alive);
            if let Err(error) = connection.serve(stream).await {
                tracing::warn!(%address, %error, "a connection of syslog ended");
            }
        });
    }
    drop(alive);
    if timeout(SYSLOG_DRAIN, ended.recv()).await.is_err() {
        tracing::warn!("messages of syslog still in progress");
    }
}

/// The caller for a user of this name who is not disabled and has some credentials.
async fn caller_of(intake: &Intake, name: &str) -> Result<Caller> {
    let (fs, system) = (intake.gather().fs(), Caller::system());
    for credential in fs.read(&system, ListCredentials).await? {
        if credential.user != name {
            continue;
        }
        let id = credential.id;
        let user = match credential.is_token {
            true => {
                let token = fs.read(&system, FindToken { id }).await?;
                token.filter(|token| token.is_in_time(fs.clock().now())).map(|token| token.user)
            }
            false => fs.read(&system, FindAccessKey { id }).await?.map(|key| key.user),
        };
        if let Some(user) = user {
            return Ok(Caller::verified(user));
        }
    }
    let what = format!("user {name}: there is none with an access key or a token that is good");
    Err(Error::Denied(what))
}

struct Connection {
    intake: Arc<Intake>,
    user: String,
    sender: IpAddr,
    /// As whom it stores, and when that was looked up.
    caller: Option<(Caller, Duration)>,
    /// What long messages take while they come; see [`Connection::room`].
    memory: Arc<Shares>,
    /// Bytes that wait, in which no message ends.
    searched: usize,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(mut self, mut stream: TcpStream) -> Result<()> {
        let (mut waiting, mut room) = (BytesMut::new(), None);
        loop {
            if waiting.len() < SYSLOG_READ_BYTES {
                room = None;
            } else if room.is_none() {
                room = self.room().await;
            }
            waiting.reserve(SYSLOG_READ_BYTES);
            let (read, is_stopped) = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stop| *stop) => (0, true),
                read = stream.read_buf(&mut waiting) => (read?, false),
            };
            if read == 0 && !is_stopped && !waiting.is_empty() && waiting.last() != Some(&b'\n') {
                // The last one may end with the connection.
                waiting.extend_from_slice(b"\n");
            }
            self.take(&mut waiting).await?;
            if read == 0 {
                if !waiting.is_empty() {
                    self.lost(1);
                }
                return Ok(());
            }
            if waiting.len() > 2 * RECORD_BYTES {
                self.lost(1);
                return Err(Error::TooLarge("a message of syslog".into()));
            }
        }
    }

    /// Waits for the memory that a long message takes, of which no network takes all. `None`: the
    /// server stops.
    async fn room(&mut self) -> Option<Share> {
        let taking = self.memory.take(Party::at(self.sender), 4 * RECORD_BYTES as u64);
        tokio::select! {
            biased;
            _ = self.stopped.wait_for(|stop| *stop) => None,
            share = taking => Some(share),
        }
    }

    /// As whom it stores: a user who was disabled is noticed after a while.
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

    /// Stores the messages that have come whole.
    async fn take(&mut self, waiting: &mut BytesMut) -> Result<()> {
        let (mut ends, mut taken, mut broken) = (Vec::new(), 0, None);
        while let Some(rest) = waiting.get(taken..) {
            let searched = if taken == 0 { self.searched } else { 0 };
            match syslog::frame(rest, searched) {
                Ok(Some((message, used))) => {
                    let start = taken + used - message.len();
                    // Behind a message that ends with a new line are one or two bytes more.
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
            None => Ok(()),
            Some(error) => {
                // Where the next one begins nobody knows.
                self.lost(1);
                waiting.clear();
                self.searched = 0;
                Err(error)
            }
        }
    }

    /// Stores messages, those that could not be stored again and again.
    async fn store(&mut self, messages: Vec<Vec<u8>>) -> Result<()> {
        let sender = self.sender.to_string();
        let mut wanted = messages;
        while !wanted.is_empty() {
            let mut batch = self.intake.batch();
            wanted.iter().for_each(|message| syslog::message(message, &sender, &mut batch));
            let pushed = match self.caller().await {
                Ok(caller) => {
                    self.intake.push(&caller, Protocol::Syslog, (batch, None), Arc::new(())).await
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
