//! Serves a door on a socket: connections, TLS, HTTP/1.1 and HTTP/2, limits, orderly shutdown.
//!
//! A connection has no timer of its own per request. It has a pulse, which beats when a request
//! begins and when bytes are sent. A connection that has neither a pulse nor a request in progress
//! for [`Limits::idle`] is closed, whatever it is doing. It is closed much sooner if others wait
//! for its place.
//!
//! Places of connections are divided by address ([`Shares::fair`]), and those of requests by
//! address and by user ([`Places`]). A connection that finds no place waits in turn. While others
//! wait, a connection ends if its client sends a body too slowly, or takes a reply too slowly. Only
//! clients at the same address, and addresses that have fewer connections, count as others.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::accept::pause_after;
use cairn_base::{Party, Share, Shares};
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, DATE, EXPECT, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt;
use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::dates;
use crate::limits::{self, Limits};
use crate::metrics::{Connections, Handshake};
use crate::places::{NoPlace, Place, Places, PlacesAt};
use crate::proxies::{self, Proxies};
use crate::pulse::{Gait, Pulse, PulsedStream};
pub use crate::pulse::{HeldRoom, Seat};
use crate::records::{self, RecordedBody, Records};
use crate::tls::Tls;
use crate::upload::Upload;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub address: SocketAddr,
    pub tls: bool,
}

/// A door, which answers requests. Also any
/// `Fn(Remote, Request<Upload>) -> impl Future<Output = Response>`.
pub trait Door: Clone + Send + Sync + 'static {
    type Body: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static;
    type Reply: Future<Output = Response<Self::Body>> + Send + 'static;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Self::Reply;
}

impl<F, R, B> Door for F
where
    F: Fn(Remote, Request<Upload>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Body = B;
    type Reply = R;

    fn call(&self, peer: Remote, request: Request<Upload>) -> R {
        self(peer, request)
    }
}

/// The settings with which a door is served.
#[derive(Clone, Default)]
pub struct Serving {
    pub tls: Option<Arc<Tls>>,
    pub limits: Limits,
    pub connections: Arc<Connections>,
    /// The places of requests, of all doors of the process.
    pub places: Arc<Places>,
    /// The destinations of the records of requests.
    pub records: Records,
    /// Proxies that are trusted to name their clients.
    pub proxies: Proxies,
}

/// Listens on `address` (port 0: any free port).
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    begin(bind(address)?)
}

/// Takes an address. Connections are refused until [`begin`].
pub fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    notice_the_gone(&socket)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Ends connections whose other end is gone without notice. They inherit this from their listening
/// socket.
fn notice_the_gone(socket: &TcpSocket) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, limits::KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, limits::KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, limits::KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, limits::UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// Begins to accept connections.
pub fn begin(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(limits::BACKLOG)
}

/// Serves until `shutdown` becomes true (or its sender is dropped); then finishes the requests in
/// progress, for at most [`Limits::drain`].
pub async fn serve<D: Door>(
    listener: TcpListener,
    door: D,
    serving: Serving,
    mut shutdown: watch::Receiver<bool>,
) {
    let limits = serving.limits.clone();
    let waiting = (limits.connections / limits::WAITING_PART).max(1);
    let most = limits.connections + waiting;
    let slots = Arc::new(Semaphore::new(most));
    let shared = Arc::new(ServeShared {
        door,
        serving,
        seats: Shares::fair(limits.connections as u64),
        waiting: Shares::fair(waiting as u64),
        proxied: Shares::fair((limits.connections - limits.connections / 4).max(1) as u64),
        handshakes: Shares::new(limits.handshakes as u64),
        shutdown: shutdown.clone(),
    });
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let Some((stream, address, slot)) = accepted else { break };
        let shared = Arc::clone(&shared);
        if shared.serving.proxies.trusts(address.ip()) {
            tokio::spawn(shared.take_proxied(stream, address, slot));
            continue;
        }
        let Some(entry) = shared.enter(address) else { continue };
        tokio::spawn(async move {
            let _slot = slot;
            shared.take(stream, address, entry).await;
        });
    }
    drop(listener);
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    if timeout(limits.drain, slots.acquire_many(all)).await.is_err() {
        tracing::warn!("requests still in progress after {} s", limits.drain.as_secs());
    }
}

/// A connection that was accepted.
enum Entry {
    Seated(Share),
    /// It waits: its address has its full part of the connections, or all are taken.
    Waiting(Party, Share),
}

/// Returns an error with its sources, as text.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

type Slot = tokio::sync::OwnedSemaphorePermit;

/// Returns the next connection, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, Slot)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return Some((stream, address, slot)),
            Err(error) => {
                if let Some(pause) = pause_after(&error) {
                    tracing::warn!(%error, "accepting connections");
                    sleep(pause).await;
                }
            }
        }
    }
}

struct ServeShared<D> {
    door: D,
    serving: Serving,
    /// Places of connections.
    seats: Arc<Shares>,
    /// Places for connections that wait for one of those.
    waiting: Arc<Shares>,
    /// Places of requests that come from trusted proxies, divided among the proxies' clients.
    proxied: Arc<Shares>,
    handshakes: Arc<Shares>,
    shutdown: watch::Receiver<bool>,
}

impl<D: Door> ServeShared<D> {
    /// Returns a place for a connection, or a place to wait. Returns `None` if the connection
    /// should be closed.
    fn enter(&self, address: SocketAddr) -> Option<Entry> {
        let party = Party::at(address.ip());
        if let Some(seat) = self.seats.take_now(party, 1) {
            return Some(Entry::Seated(seat));
        }
        let waiting = self.waiting.take_now(party, 1);
        if waiting.is_none() {
            self.serving.connections.refuse();
            tracing::debug!(%address, "a connection too many was closed");
        }
        Some(Entry::Waiting(party, waiting?))
    }

    /// Serves a connection to its end.
    async fn take(&self, stream: TcpStream, address: SocketAddr, entry: Entry) {
        let Some(seat) = self.seat(entry).await else { return };
        let _counted = self.serving.connections.enter();
        if let Err(error) = self.connect(stream, address, &seat).await {
            tracing::debug!(%address, error = %chain(&*error), "connection ended");
        }
    }

    /// Serves a connection from a trusted proxy to its end. The proxy may first name its client.
    async fn take_proxied(self: Arc<Self>, mut stream: TcpStream, proxy: SocketAddr, _slot: Slot) {
        let named = async {
            let is_enough = |head: &[u8]| !proxies::may_be_header(head);
            let (head, len) = first_bytes::<{ proxies::LOOK_BYTES }>(&stream, is_enough).await?;
            proxies::take_header(&mut stream, head.get(..len).unwrap_or_default()).await
        };
        let address = match timeout(self.serving.limits.idle, named).await {
            Ok(Ok(client)) => client.unwrap_or(proxy),
            Ok(Err(error)) => {
                tracing::warn!(%proxy, %error, "a trusted proxy sent what cannot be read");
                return;
            }
            Err(_) => return,
        };
        if let Some(entry) = self.enter(address) {
            self.take(stream, address, entry).await;
        }
    }

    /// Returns the place of a connection, once there is one for it. Returns `None` if there was
    /// none in time, or the server stops.
    async fn seat(&self, entry: Entry) -> Option<Share> {
        let (party, _waiting) = match entry {
            Entry::Seated(seat) => return Some(seat),
            Entry::Waiting(party, waiting) => (party, waiting),
        };
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => None,
            seat = timeout(self.serving.limits.idle, self.seats.take(party, 1)) => seat.ok(),
        }
    }

    async fn connect(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        seat: &Share,
    ) -> Result<(), BoxError> {
        stream.set_nodelay(true)?;
        let limits = &self.serving.limits;
        let peer = Remote { address, tls: self.serving.tls.is_some() };
        let Some(tls) = &self.serving.tls else {
            let is_http2 = self.while_unwanted(seat, begins_http2(&stream)).await??;
            return self.converse(stream, is_http2, peer, seat).await;
        };
        let begun = Instant::now();
        let shaken = timeout(limits.handshake, self.shake(tls, stream, address, seat)).await;
        let kind = match &shaken {
            Ok(Ok(stream)) => match stream.get_ref().1.handshake_kind() {
                Some(HandshakeKind::Resumed) => Handshake::Resumed,
                _ => Handshake::Full,
            },
            _ => Handshake::Failed,
        };
        self.serving.connections.shook_hands(kind, begun.elapsed());
        let stream = shaken??;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.converse(stream, is_http2, peer, seat).await
    }

    /// Does a TLS handshake. It takes its place when the client has sent its whole hello, and has
    /// less time while others wait for that place. So a stranger that sends nothing blocks nobody.
    async fn shake(
        &self,
        tls: &Tls,
        stream: TcpStream,
        address: SocketAddr,
        seat: &Share,
    ) -> Result<TlsStream<TcpStream>, BoxError> {
        self.while_unwanted(seat, first_bytes::<HELLO_BYTES>(&stream, is_hello)).await??;
        let place = self.handshakes.take(Party::at(address.ip()), 1).await;
        let soon = self.serving.limits.handshake_wanted;
        let mut shaking = pin!(tls.acceptor().accept(stream));
        loop {
            match timeout(soon, shaking.as_mut()).await {
                Ok(shaken) => return Ok(shaken?),
                Err(late) if place.is_wanted() => return Err(late.into()),
                Err(_) => {}
            }
        }
    }

    /// Waits for `work`, but not as long as a connection may be idle, and less if others wait for
    /// its place.
    async fn while_unwanted<F: Future>(&self, seat: &Share, work: F) -> Result<F::Output, Elapsed> {
        let (period, looks) = self.looks();
        let mut work = pin!(work);
        for look in 1.. {
            match timeout(period, work.as_mut()).await {
                Ok(done) => return Ok(done),
                Err(late) if look >= looks || seat.is_wanted() => return Err(late),
                Err(_) => {}
            }
        }
        unreachable!("it ends with the last look")
    }

    /// Returns the period of looks at a connection, and the number of idle looks after which it is
    /// closed.
    fn looks(&self) -> (Duration, u32) {
        /// Smallest number of looks.
        const LOOKS: u32 = 4;
        let Limits { idle, idle_wanted, .. } = self.serving.limits;
        let period = (idle / LOOKS).min(idle_wanted).max(Duration::from_millis(1));
        (period, idle.as_millis().div_ceil(period.as_millis()) as u32)
    }

    async fn converse<T>(
        &self,
        stream: T,
        is_http2: bool,
        peer: Remote,
        seat: &Share,
    ) -> Result<(), BoxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let pulse = Arc::new(Pulse::new(self.shutdown.clone()));
        let io = PulsedStream::new(TokioIo::new(stream), Arc::clone(&pulse));
        let party = Party::at(peer.address.ip());
        let desk = ServeDesk {
            door: self.door.clone(),
            limits: self.serving.limits.clone(),
            records: self.serving.records.clone(),
            places: PlacesAt::new(&self.serving.places, party),
            proxied: self.serving.proxies.trusts(peer.address.ip()).then(|| ProxyContext {
                proxies: self.serving.proxies.clone(),
                places: Arc::clone(&self.serving.places),
                room: Arc::clone(&self.proxied),
            }),
            pulse: Arc::clone(&pulse),
            is_http2,
            peer,
        };
        let service = service_fn(move |request| desk.answer(request));
        if is_http2 {
            let connection = http2_builder().serve_connection(io, service);
            let connection = pin!(connection);
            self.run(connection, http2::Connection::graceful_shutdown, &pulse, seat).await
        } else {
            let connection = http1_builder().serve_connection(io, service).with_upgrades();
            let connection = pin!(connection);
            self.run(connection, http1::UpgradeableConnection::graceful_shutdown, &pulse, seat)
                .await
        }
    }

    /// Drives a connection to its end, to the end of the server, or until its pulse stops or its
    /// client is too slow for the connections that wait.
    async fn run<C: Future<Output = hyper::Result<()>>>(
        &self,
        mut connection: Pin<&mut C>,
        finish: fn(Pin<&mut C>),
        pulse: &Pulse,
        seat: &Share,
    ) -> Result<(), BoxError> {
        let mut shutdown = self.shutdown.clone();
        let (period, looks) = self.looks();
        let least = (period.as_secs_f64() * limits::UPLOAD_LEAST_RATE as f64) as u64;
        let mut watchdog = interval_at(Instant::now() + period, period);
        let (mut silent, mut gait) = (0, Gait::default());
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut connection => return Ok(ended?),
                _ = shutdown.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    finish(connection.as_mut());
                }
                _ = watchdog.tick() => {
                    silent = if pulse.take() { 0 } else { silent + 1 };
                    let is_slow = gait.look(pulse, least) >= limits::SLOW_LOOKS;
                    let is_in_the_way = (silent > 0 || is_slow) && seat.is_wanted()
                        || is_slow && pulse.holds_what_is_wanted();
                    if silent >= looks || is_in_the_way {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Everything that the requests of one connection need.
struct ServeDesk<D> {
    door: D,
    limits: Limits,
    records: Records,
    places: PlacesAt,
    /// Set if the other end is a trusted proxy.
    proxied: Option<ProxyContext>,
    pulse: Arc<Pulse>,
    is_http2: bool,
    peer: Remote,
}

/// Everything that requests from a trusted proxy need in addition.
struct ProxyContext {
    proxies: Proxies,
    places: Arc<Places>,
    /// Places that are divided among the proxy's clients.
    room: Arc<Shares>,
}

impl<D: Door> ServeDesk<D> {
    fn answer(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<RecordedBody<D::Body>>, Infallible>> + use<D> {
        let Ok((peer, place)) = self.place(&request) else {
            return Either::Left(ready(Ok(no_place())));
        };
        let mut request = request.map(|incoming| {
            let mut upload = Upload::new(incoming, &self.limits, &self.pulse);
            if let Some(place) = &place {
                upload.takes(place.clone());
            }
            upload.by_http2(self.is_http2)
        });
        let waits = !self.is_http2 && request.headers().contains_key(EXPECT);
        let continued = waits.then(|| request.body_mut().watch_continue());
        let in_progress = Pulse::begin(&self.pulse);
        let source = peer.address.ip().to_canonical();
        let recorded = self.records.begin(source, &mut request);
        Either::Right(self.door.call(peer, request).map(move |mut response| {
            if let Some(seat) = response.extensions_mut().remove::<Seat>() {
                in_progress.give(&seat);
            }
            drop(in_progress);
            response.headers_mut().entry(DATE).or_insert_with(dates::date);
            // Clients that got an answer in place of `100 Continue` are confused by further replies
            // on the same connection: botocore reads the next reply as this one.
            if continued.is_some_and(|continued| !continued.load(Ordering::Relaxed)) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok(records::of_reply(response, recorded, place))
        }))
    }

    /// Returns the client of a request, and its place; no place for the only request of a
    /// connection if it has no body. A connection of a trusted proxy has many clients, so each of
    /// its requests takes a place.
    fn place(&self, request: &Request<Incoming>) -> Result<(Remote, Option<Place>), NoPlace> {
        if let Some(proxied) = &self.proxied {
            let address = proxied.proxies.client(self.peer.address, request.headers());
            let party = Party::at(address.ip());
            let share = proxied.room.take_now(party, 1).ok_or(NoPlace)?;
            let place = PlacesAt::new(&proxied.places, party).take(claims(request))?;
            return Ok((Remote { address, ..self.peer }, Some(place.beside(share))));
        }
        Ok((self.peer, self.own_place(request)?))
    }

    fn own_place(&self, request: &Request<Incoming>) -> Result<Option<Place>, NoPlace> {
        let is_more = self.is_http2 && self.pulse.in_progress() > 0;
        if !is_more && http_body::Body::is_end_stream(request.body()) {
            return Ok(None);
        }
        self.places.take(claims(request)).map(Some)
    }
}

/// Returns whether a request has credentials, of whatever kind and however wrong.
fn claims<B>(request: &Request<B>) -> bool {
    const SIGNED: [&str; 2] = ["X-Amz-Signature=", "Signature="];
    let headers = request.headers();
    let query = request.uri().query().unwrap_or_default();
    headers.contains_key(AUTHORIZATION)
        || headers.contains_key(COOKIE)
        || SIGNED.iter().any(|name| query.contains(name))
}

/// Returns the reply to a request that found no place. Nothing of it is kept, so it has no record.
fn no_place<B>() -> Response<RecordedBody<B>> {
    let mut reply = Response::new(RecordedBody::empty());
    *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(limits::NO_PLACE_SECS));
    reply
}

/// Number of bytes of a client's first message that are examined: the whole message is sometimes
/// longer.
const HELLO_BYTES: usize = 512;

/// Returns whether these are the first bytes of a complete TLS hello, as far as it is examined; or
/// of something else.
fn is_hello(head: &[u8]) -> bool {
    const HANDSHAKE_RECORD: u8 = 22;
    if head.first().is_some_and(|kind| *kind != HANDSHAKE_RECORD) {
        return true;
    }
    let Some((header, _)) = head.split_first_chunk::<5>() else { return false };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    head.len() >= HELLO_BYTES.min(header.len() + length)
}

/// Returns whether a client without TLS begins with HTTP/2 (its preface is `PRI * HTTP/2.0`).
/// Leaves the bytes in the stream.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8; 4] = b"PRI ";
    let is_enough = |head: &[u8]| head.len() == PREFACE.len() || !PREFACE.starts_with(head);
    let (head, len) = first_bytes::<4>(stream, is_enough).await?;
    Ok(len == PREFACE.len() && head == *PREFACE)
}

/// Returns the first bytes of a connection, and how many of them have arrived: all that were sent,
/// or enough. Leaves the bytes in the stream.
async fn first_bytes<const N: usize>(
    stream: &TcpStream,
    is_enough: impl Fn(&[u8]) -> bool,
) -> io::Result<([u8; N], usize)> {
    /// Milliseconds between looks that find too little. A socket does not notify when it has more
    /// bytes than before.
    const PAUSES: [u64; 4] = [1, 10, 100, 500];
    let mut head = [0; N];
    let mut pauses = PAUSES.into_iter();
    loop {
        let len = stream.peek(&mut head).await?;
        if len == 0 || len == N || is_enough(&head[..len]) {
            return Ok((head, len));
        }
        let pause = pauses.next().unwrap_or(PAUSES[PAUSES.len() - 1]);
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Built without `pipeline_flush`: that would copy every body behind its head instead of `writev`.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits::HEADER_BYTES)
        .max_buf_size(limits::BUFFER_BYTES)
        .header_read_timeout(None)
        .writev(true);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits::STREAMS)
        .max_header_list_size(limits::HEADER_BYTES as u32)
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(limits::BUFFER_BYTES);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_end_whose_other_end_is_gone() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (stream, _)) = (client.unwrap(), accepted.unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), limits::KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), limits::KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), limits::KEEPALIVE_PROBES);
        let millis = limits::UNACKNOWLEDGED.as_millis() as u32;
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), millis);
    }

    #[test]
    fn a_hello_is_whole_or_not() {
        assert!(!is_hello(b"\x16\x03\x01\x00"));
        assert!(!is_hello(b"\x16\x03\x01\x00\x03ab"));
        assert!(is_hello(b"\x16\x03\x01\x00\x03abc"));
        let long = [&b"\x16\x03\x01\x20\x00"[..], &[0; HELLO_BYTES - 5]].concat();
        assert!(is_hello(&long) && !is_hello(&long[..HELLO_BYTES - 1]));
        // A message that is no hello is not waited for.
        assert!(is_hello(b"G"));
    }
}
