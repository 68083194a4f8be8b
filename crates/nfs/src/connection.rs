//! A connection: calls in, replies out in any order.
//!
//! A call that needs nothing that is not there is answered by the task of the connection itself.
//! Any other one becomes a task, whose reply comes back here. No call is taken while too many are
//! at work, or too many bytes of replies wait for the client.
//!
//! A call of which it is not known whether it was done has no reply. The connection ends: so the
//! client makes another one, and sends the same calls again.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use cairn_base::Party;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::desk::{Client, Desk};
use crate::dispatch::{answer, reply_bytes};
use crate::limits::{CALLS, CONNECTION_BYTES, DRAIN, IDLE, PARTY_BYTES, STALLED};
use crate::parties::Part;
use crate::record::Records;
use crate::rpc::{Incoming, Reply, read};

/// Parts of replies that are written at once.
const PARTS: usize = 32;
/// How often a connection is looked at on which nothing happens.
const LOOK: Duration = Duration::from_secs(5);

/// Tasks of one type: the code around a task is compiled once.
type Work = Pin<Box<dyn Future<Output = Option<Reply>> + Send>>;

/// A call that has ended, with its reply if it has one, and the bytes that were counted for it.
type Answered = (Option<Reply>, usize);

/// A call at work, of which the connection hears when that ends, however it does.
struct AtWork {
    sender: UnboundedSender<Answered>,
    bytes: usize,
    /// Also while it is at work for a client that has left.
    _counted: Part,
    reply: Option<Reply>,
}

impl AtWork {
    fn end(&mut self, reply: Option<Reply>) {
        self.reply = reply;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let _ = self.sender.send((self.reply.take(), self.bytes));
    }
}

struct Connection {
    desk: Arc<Desk>,
    address: IpAddr,
    records: Records,
    sender: UnboundedSender<Answered>,
    /// Calls at work, and the bytes counted for them.
    calls: usize,
    call_bytes: usize,
    /// Replies that wait for the client.
    replies: VecDeque<Bytes>,
    reply_bytes: usize,
    /// Those count for all connections from there.
    party: Part,
    /// When something came or went last.
    moved: Instant,
}

/// Serves a client until it leaves, breaks the rules, or `stopped`.
///
/// # Errors
/// Why it ended otherwise than by the client.
pub async fn converse(
    (mut reader, mut writer): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    address: IpAddr,
    desk: Arc<Desk>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let (sender, mut answers) = unbounded_channel();
    let mut connection = Connection::new(desk, address, sender);
    let mut looks = interval(LOOK);
    let (mut takes, mut is_stopped) = (true, false);
    loop {
        connection.take()?;
        if !takes && connection.is_done() {
            return Ok(());
        }
        connection.records.reserve();
        let has_room = connection.has_room();
        let Connection { records, replies, .. } = &mut connection;
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop), if !is_stopped => {
                (takes, is_stopped) = (false, true);
                connection.moved = Instant::now();
            }
            _ = looks.tick() => connection.check(is_stopped)?,
            answered = next(&mut answers) => connection.answered(answered)?,
            written = write(&mut writer, replies), if !replies.is_empty() => {
                connection.written(written?);
            }
            came = reader.read_buf(&mut records.came), if takes && has_room => {
                takes = came? > 0;
                connection.moved = Instant::now();
            }
        }
    }
}

/// The sender is kept where the replies are waited for, so there is always a next one.
async fn next(answers: &mut UnboundedReceiver<Answered>) -> Answered {
    match answers.recv().await {
        Some(answered) => answered,
        None => std::future::pending().await,
    }
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    replies: &VecDeque<Bytes>,
) -> io::Result<usize> {
    let mut parts = [IoSlice::new(&[]); PARTS];
    let filled = parts.iter_mut().zip(replies).map(|(part, reply)| *part = IoSlice::new(reply));
    let filled = filled.count();
    writer.write_vectored(parts.get(..filled).unwrap_or_default()).await
}

impl Connection {
    fn new(desk: Arc<Desk>, address: IpAddr, sender: UnboundedSender<Answered>) -> Connection {
        let party = desk.bytes.nothing(Party::at(address));
        Connection {
            desk,
            address,
            records: Records::default(),
            sender,
            calls: 0,
            call_bytes: 0,
            replies: VecDeque::new(),
            reply_bytes: 0,
            party,
            moved: Instant::now(),
        }
    }

    fn has_room(&self) -> bool {
        let bytes = self.call_bytes + self.reply_bytes;
        let is_fair = bytes == 0 || self.party.all() < PARTY_BYTES;
        self.calls < CALLS && bytes < CONNECTION_BYTES && is_fair
    }

    fn is_done(&self) -> bool {
        self.calls == 0 && self.replies.is_empty()
    }

    /// Takes the calls that have come.
    fn take(&mut self) -> io::Result<()> {
        while self.has_room() {
            let record = self.records.next().map_err(|_| bad("a record is too long"))?;
            let Some(record) = record else { return Ok(()) };
            match read(record.clone()).map_err(|_| bad("the record is no call"))? {
                Incoming::Refused(reply) => self.reply(reply),
                Incoming::Call(call) => {
                    let bytes = record.len() + reply_bytes(&call);
                    let client = Client::new(self.address, call.identity.clone());
                    let work = answer(Arc::clone(&self.desk), client, call, record);
                    self.begin(Box::pin(work), bytes)?;
                }
            }
        }
        Ok(())
    }

    /// # Errors
    /// It has ended, and has no reply.
    fn begin(&mut self, mut work: Work, bytes: usize) -> io::Result<()> {
        if let Poll::Ready(reply) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.reply(reply.ok_or_else(unknown)?);
            return Ok(());
        }
        self.calls += 1;
        self.call_bytes += bytes;
        let mut counted = self.desk.bytes.nothing(Party::at(self.address));
        counted.add(bytes);
        let sender = self.sender.clone();
        let mut at_work = AtWork { sender, bytes, _counted: counted, reply: None };
        // Also when the client has left: what it asked for is done, and not half of it.
        tokio::spawn(async move {
            at_work.end(work.await);
        });
        Ok(())
    }

    /// # Errors
    /// The call has no reply.
    fn answered(&mut self, (reply, bytes): Answered) -> io::Result<()> {
        self.calls -= 1;
        self.call_bytes -= bytes;
        self.reply(reply.ok_or_else(unknown)?);
        Ok(())
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.is_empty() {
            // From here on the client is waited for.
            self.moved = Instant::now();
        }
        for part in reply.into_record() {
            if !part.is_empty() {
                self.reply_bytes += part.len();
                self.party.add(part.len());
                self.replies.push_back(part);
            }
        }
    }

    fn written(&mut self, mut bytes: usize) {
        self.moved = Instant::now();
        self.reply_bytes -= bytes;
        self.party.less(bytes);
        while let Some(part) = self.replies.front_mut() {
            let taken = bytes.min(part.len());
            part.advance(taken);
            bytes -= taken;
            if !part.is_empty() {
                return;
            }
            self.replies.pop_front();
        }
    }

    /// # Errors
    /// `TimedOut` where nothing has happened for too long.
    fn check(&self, is_stopped: bool) -> io::Result<()> {
        let (patience, what) = match (self.replies.is_empty(), self.calls) {
            _ if is_stopped => (DRAIN, "calls are at work, and the server stops"),
            (false, _) => (STALLED, "the client takes no replies"),
            (true, 0) => (IDLE, "the client asks for nothing"),
            (true, _) => return Ok(()),
        };
        match self.moved.elapsed() > patience {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, what)),
            false => Ok(()),
        }
    }
}

fn unknown() -> io::Error {
    io::Error::other("it is not known what became of a call")
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
