//! A connection: reads calls, and sends replies in any order.
//!
//! A call that can be answered from memory is answered by the connection's own task, when it has
//! its turn: turns go round by client address. Any other call becomes a task, which sends its reply
//! back to the connection. No call is taken while too many are at work, or too many bytes of
//! replies wait for the client.
//!
//! A call whose outcome is unknown gets no reply. The connection ends, so that the client makes
//! another one and sends the same calls again.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use cairn_base::shares::{Party, Share, Take};
use futures_util::poll;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, interval};

use crate::desk::{Client, Desk};
use crate::dispatch::{answer, reply_bytes};
use crate::limits::{
    CALLS, COMES, COMES_WANTED, CONNECTION_BYTES, DRAIN, IDLE, PARTY_BYTES, STALLED, TURN,
    TURN_BYTES, TURN_CALLS,
};
use crate::load::Full;
use crate::parties::Part;
use crate::record::Records;
use crate::rpc::{Incoming, Reply, read};

/// Number of parts of replies that are written at once.
const PARTS: usize = 32;
/// Period at which a connection is checked for timeouts.
const LOOK: Duration = Duration::from_secs(5);

/// Tasks of one type: the code around a task is compiled once.
type Work = Pin<Box<dyn Future<Output = Option<Reply>> + Send>>;

/// A call that has ended: its reply, if it has one, and the bytes that were counted for it.
type Answered = (Option<Reply>, usize);

/// The place that a connection takes among those of all clients.
pub type Place = Arc<dyn Any + Send + Sync>;

/// A call at work. The connection receives the outcome when this is dropped, however the call ends.
struct AtWork {
    sender: UnboundedSender<Answered>,
    bytes: usize,
    /// The share of the call's client and its place. Both are held also while the call is at work
    /// for a client that has left: connecting again and again leads to no more calls at work than
    /// the client's connections may have.
    _counted: (Part, Place),
    /// Share of the memory for long calls, if the call is long.
    _share: Option<Share>,
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
    /// Time at which the record that is being received began.
    begun: Option<Instant>,
    /// The share of memory for that record, if it is a long one, and the wait for the share.
    share: Option<Share>,
    waits: Option<Take>,
    /// The turn of this connection to answer calls, and the wait for the turn.
    turn: Option<Share>,
    had_turn: Option<Share>,
    waits_for_turn: Option<Take>,
    sender: UnboundedSender<Answered>,
    /// Number of calls at work, and the bytes counted for them.
    calls: usize,
    call_bytes: usize,
    /// Replies that wait for the client.
    replies: VecDeque<Bytes>,
    reply_bytes: usize,
    /// Bytes of these replies, counted together with those of all connections of the same party.
    party: Part,
    place: Place,
    full: Full,
    /// Time at which bytes last arrived or were sent.
    moved: Instant,
    /// Time at which the client last took bytes of replies, or at which replies began to wait for
    /// it.
    taken: Instant,
}

/// Serves a client until it leaves, breaks the rules, or `stopped`. The `place` is kept until the
/// last of its calls has ended.
///
/// # Errors
/// The reason, if the client did not end the connection itself.
pub async fn converse(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    address: IpAddr,
    place: Place,
    desk: Arc<Desk>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let (sender, mut answers) = unbounded_channel();
    let mut connection = Connection::new(desk, address, place, sender);
    let mut looks = interval(LOOK);
    let (mut takes, mut is_stopped) = (true, false);
    loop {
        let has_more = connection.take()?;
        let has_replies = !connection.replies.is_empty();
        if connection.had_turn.is_some() && connection.desk.load.clients() > 1 && has_replies {
            let sent = poll!(pin!(write(&mut writer, &connection.replies)));
            if let Poll::Ready(written) = sent {
                connection.written(written?);
            }
            // Keeps its turn until the other connections that are ready have had the chance to ask
            // for one.
            yield_now().await;
        }
        connection.had_turn = None;
        // The replies just sent may have made room for calls that have already arrived.
        let has_more = has_more || connection.has_call();
        connection.look_at_record();
        if !takes && !has_more && connection.is_done() {
            return Ok(());
        }
        let has_room = connection.has_room();
        let waits = connection.waits.is_some() || connection.waits_for_turn.is_some();
        let reads = takes && has_room && !has_more && !waits;
        if reads {
            connection.records.reserve();
        }
        connection.full.set(connection.is_full());
        let Connection { records, replies, waits, waits_for_turn, .. } = &mut connection;
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
            came = records.read(&mut reader), if reads => {
                takes = came? > 0;
                connection.moved = Instant::now();
            }
            room = wait(waits) => connection.granted(room),
            turn = wait(waits_for_turn) => {
                (connection.turn, connection.waits_for_turn) = (Some(turn), None);
            }
            () = yield_now(), if has_more => {}
        }
    }
}

/// Returns the next call that has ended. The sender lives in the connection, so the channel never
/// closes.
async fn next(answers: &mut UnboundedReceiver<Answered>) -> Answered {
    match answers.recv().await {
        Some(answered) => answered,
        None => std::future::pending().await,
    }
}

/// Waits for a share, or for ever if none is wanted.
async fn wait(waits: &mut Option<Take>) -> Share {
    match waits {
        Some(waits) => waits.await,
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
    fn new(
        desk: Arc<Desk>,
        address: IpAddr,
        place: Place,
        sender: UnboundedSender<Answered>,
    ) -> Connection {
        let party = desk.bytes.nothing(Party::at(address));
        let full = Full::new(&desk.load);
        let records = Records::new(desk.records.clone());
        Connection {
            desk,
            address,
            records,
            begun: None,
            share: None,
            waits: None,
            turn: None,
            had_turn: None,
            waits_for_turn: None,
            sender,
            calls: 0,
            call_bytes: 0,
            replies: VecDeque::new(),
            reply_bytes: 0,
            party,
            place,
            full,
            moved: Instant::now(),
            taken: Instant::now(),
        }
    }

    fn has_room(&self) -> bool {
        let bytes = self.call_bytes + self.reply_bytes;
        let is_fair = bytes == 0 || self.party.all() < PARTY_BYTES;
        self.calls < CALLS && bytes < CONNECTION_BYTES && is_fair
    }

    /// Returns whether there is a call that the connection may take now.
    fn has_call(&self) -> bool {
        self.waits_for_turn.is_none() && self.has_room() && self.records.is_ready()
    }

    /// Returns whether the connection has as many calls at work as it may.
    fn is_full(&self) -> bool {
        self.calls >= CALLS || self.call_bytes >= CONNECTION_BYTES
    }

    fn is_done(&self) -> bool {
        self.calls == 0 && self.replies.is_empty() && self.waits_for_turn.is_none()
    }

    /// Takes calls that have arrived, once the connection has its turn, and for one turn. Returns
    /// true if there may be more of them.
    fn take(&mut self) -> io::Result<bool> {
        let turn = self.turn.take();
        if !self.has_call() {
            return Ok(false);
        }
        let (turns, party) = (&self.desk.turns, Party::at(self.address));
        self.had_turn = turn.or_else(|| turns.take_now(party, 1));
        if self.had_turn.is_none() {
            self.waits_for_turn = Some(turns.take(party, 1));
            return Ok(false);
        }
        let (began, mut calls, mut taken) = (Instant::now(), 0, 0);
        let waiting = self.reply_bytes;
        while self.has_room() {
            let bytes = taken + self.reply_bytes.saturating_sub(waiting);
            if calls >= TURN_CALLS || bytes >= TURN_BYTES || began.elapsed() > TURN {
                return Ok(true);
            }
            let record = self.records.next().map_err(|_| bad("a record is too long"))?;
            let Some(record) = record else { return Ok(false) };
            (calls, taken) = (calls + 1, taken + record.len());
            let share = self.share.take();
            self.begun = None;
            match read(record.clone()).map_err(|_| bad("the record is no call"))? {
                Incoming::Refused(reply) => self.reply(reply),
                Incoming::Call(call) => {
                    let bytes = record.len() + reply_bytes(&call);
                    let client = Client::new(self.address, call.identity.clone());
                    let work = answer(Arc::clone(&self.desk), client, call, record);
                    self.begin(Box::pin(work), bytes, share)?;
                }
            }
        }
        Ok(false)
    }

    /// Asks for memory for a long record, which is read once there is a share for it.
    fn look_at_record(&mut self) {
        // A record that is ready, or that cannot be read yet because of other calls, has no
        // deadline.
        let comes = self.records.is_partial() && !self.records.is_ready();
        if comes && self.has_room() {
            self.begun.get_or_insert_with(Instant::now);
        } else {
            self.begun = None;
        }
        let long = self.records.long();
        match long {
            None => (self.share, self.waits) = (None, None),
            Some(len) if self.share.is_none() && self.waits.is_none() => {
                let (long, party) = (&self.desk.long, Party::at(self.address));
                self.share = long.take_now(party, len as u64);
                if self.share.is_none() {
                    self.waits = Some(long.take(party, len as u64));
                }
            }
            Some(_) => {}
        }
    }

    /// Restarts the deadline of the record: the time that it waited for room is not the client's.
    fn granted(&mut self, room: Share) {
        (self.share, self.waits) = (Some(room), None);
        self.begun = Some(Instant::now());
    }

    /// # Errors
    /// The call has ended without a reply.
    fn begin(&mut self, mut work: Work, bytes: usize, share: Option<Share>) -> io::Result<()> {
        if let Poll::Ready(reply) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.reply(reply.ok_or_else(unknown)?);
            return Ok(());
        }
        self.calls += 1;
        self.call_bytes += bytes;
        let mut counted = self.desk.bytes.nothing(Party::at(self.address));
        counted.add(bytes);
        let (sender, place) = (self.sender.clone(), Arc::clone(&self.place));
        let counted = (counted, place);
        let mut at_work = AtWork { sender, bytes, _counted: counted, _share: share, reply: None };
        // In a task, so that a call is completed even if the client has left.
        tokio::spawn(async move {
            at_work.end(work.await);
        });
        Ok(())
    }

    /// # Errors
    /// The call has ended without a reply.
    fn answered(&mut self, (reply, bytes): Answered) -> io::Result<()> {
        self.calls -= 1;
        self.call_bytes -= bytes;
        self.reply(reply.ok_or_else(unknown)?);
        Ok(())
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.is_empty() {
            // The client has to take replies from here on.
            self.taken = Instant::now();
        }
        let bytes = reply.len();
        self.reply_bytes += bytes;
        self.party.add(bytes);
        self.replies.extend(reply.into_parts().filter(|part| !part.is_empty()));
    }

    fn written(&mut self, mut bytes: usize) {
        self.moved = Instant::now();
        self.taken = self.moved;
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
    /// `TimedOut` if nothing has happened for too long.
    fn check(&self, is_stopped: bool) -> io::Result<()> {
        if let Some(begun) = self.begun.filter(|_| self.waits.is_none()) {
            let is_wanted = self.share.as_ref().is_some_and(Share::is_wanted);
            if begun.elapsed() > if is_wanted { COMES_WANTED } else { COMES } {
                return Err(timed_out("a call does not come to its end"));
            }
        }
        let (since, patience, what) = match (self.replies.is_empty(), self.calls) {
            _ if is_stopped => (self.moved, DRAIN, "calls are at work, and the server stops"),
            (false, _) => (self.taken, STALLED, "the client takes no replies"),
            (true, 0) => (self.moved, IDLE, "the client asks for nothing"),
            (true, _) => return Ok(()),
        };
        if since.elapsed() > patience { Err(timed_out(what)) } else { Ok(()) }
    }
}

fn unknown() -> io::Error {
    io::Error::other("it is not known what became of a call")
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
