//! HTTP/1.1 for commands, which wait for each reply on a separate thread. Connections are reused.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use cairn_base::waits;
use cairn_tls::Trust;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

/// Idle connections that are kept, and for how long.
const IDLE: usize = 64;
const IDLE_TIME: Duration = Duration::from_secs(15);
/// Length of the pieces in which bodies are read for sending, bytes.
const PIECE: usize = 64 << 10;
/// Pieces that wait to be sent, at most.
const PIECES: usize = 4;

/// One server.
#[derive(Clone)]
pub struct Client(Arc<HttpShared>);

struct HttpShared {
    runtime: Runtime,
    host: String,
    port: u16,
    host_header: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Deadline of a request and its whole reply.
    within: Option<Duration>,
    idle: Mutex<Vec<(SendRequest<RequestBody>, Instant)>>,
}

/// Body that is sent with a request.
pub enum Outgoing<'a> {
    Nothing,
    Bytes(Bytes),
    /// A body of this many bytes, if that is known.
    Reader(&'a mut dyn Read, Option<u64>),
}

impl Client {
    /// Makes a client. `base` begins with `http://` or `https://`; its path is ignored.
    ///
    /// # Errors
    /// In words: it is no such URL.
    pub fn new(base: &str, trust: Trust, within: Option<Duration>) -> Result<Client, String> {
        let bad = || format!("server {base:?}: not a URL");
        let (scheme, rest) = base.split_once("://").ok_or_else(bad)?;
        let is_tls = scheme == "https";
        let (host, port) = authority(rest, if is_tls { 443 } else { 80 }).ok_or_else(bad)?;
        let tls = if is_tls {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|error| format!("{host}: {error}"))?;
            let config = cairn_tls::client_config(trust);
            let config = config.map_err(|error| format!("TLS: {error}"))?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let host_header = host_header(&host, port);
        let idle = Mutex::default();
        Ok(Client(Arc::new(HttpShared { runtime, host, port, host_header, tls, within, idle })))
    }

    /// Sends a request, whose URI is a path, and waits for the head of its reply.
    ///
    /// # Errors
    /// `ConnectionRefused`; `TimedOut`; the error of reading the body; otherwise in words.
    pub fn send(
        &self,
        request: Request<()>,
        body: Outgoing<'_>,
    ) -> io::Result<Response<ReplyBody>> {
        let shared = &self.0;
        let end = shared.within.map(|within| Instant::now() + within);
        let (mut parts, ()) = request.into_parts();
        let host = HeaderValue::from_str(&shared.host_header).map_err(io::Error::other)?;
        parts.headers.insert(HOST, host);
        let sending = async {
            let (response, sender) = match body {
                Outgoing::Nothing => self.exchange(parts, RequestBody::Whole(Bytes::new())).await?,
                Outgoing::Bytes(bytes) => self.exchange(parts, RequestBody::Whole(bytes)).await?,
                // Then it can be sent again.
                Outgoing::Reader(reader, Some(length)) if length <= PIECE as u64 => {
                    self.exchange(parts, RequestBody::Whole(whole(reader, length)?)).await?
                }
                Outgoing::Reader(reader, length) => self.pour(parts, reader, length).await?,
            };
            let (client, rest) = (self.clone(), Bytes::new());
            Ok(response.map(|body| {
                let mut reply = ReplyBody { client, body, sender: Some(sender), rest, end };
                if reply.body.is_end_stream() {
                    reply.finish();
                }
                reply
            }))
        };
        shared.runtime.block_on(async {
            match end {
                None => sending.await,
                Some(end) => timeout_at(end, sending).await.map_err(late)?,
            }
        })
    }

    async fn exchange(
        &self,
        parts: hyper::http::request::Parts,
        sent: RequestBody,
    ) -> io::Result<(Response<Incoming>, SendRequest<RequestBody>)> {
        let exchange = self.0.exchange(Request::from_parts(parts, sent));
        timeout(waits::CLIENT_REPLY, exchange).await.map_err(late)?
    }

    /// Sends what `reader` gives until the reply arrives.
    async fn pour(
        &self,
        parts: hyper::http::request::Parts,
        reader: &mut dyn Read,
        length: Option<u64>,
    ) -> io::Result<(Response<Incoming>, SendRequest<RequestBody>)> {
        let (sender, pieces) = channel(PIECES);
        let request = Request::from_parts(parts, RequestBody::Pieces { pieces, left: length });
        let client = self.clone();
        let mut task = tokio::spawn(async move { client.0.exchange(request).await });
        let mut buffer = vec![0; PIECE];
        loop {
            let piece = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => Bytes::copy_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // The error must not look like the end of the body.
                    let shown = io::Error::new(error.kind(), error.to_string());
                    let _ = sender.send(Err(error)).await;
                    let _ = task.await;
                    return Err(shown);
                }
            };
            tokio::select! {
                biased;
                done = &mut task => return done.map_err(io::Error::other)?,
                sent = sender.send(Ok(piece)) => if sent.is_err() { break },
            }
        }
        drop(sender);
        timeout(waits::CLIENT_REPLY, task).await.map_err(late)?.map_err(io::Error::other)?
    }
}

impl HttpShared {
    async fn exchange(
        &self,
        mut request: Request<RequestBody>,
    ) -> io::Result<(Response<Incoming>, SendRequest<RequestBody>)> {
        while let Some(mut sender) = self.kept() {
            if sender.ready().await.is_err() {
                continue;
            }
            let again = repeated(&request);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match (error.take_message(), again) {
                    // The connection was closed meanwhile, and nothing was sent.
                    (Some(unsent), _) => request = unsent,
                    // The connection was closed while the request was sent, and there was no
                    // answer.
                    (None, Some(again)) => {
                        request = again;
                        break;
                    }
                    (None, None) => return Err(said(error.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(said)?;
        Ok((response, sender))
    }

    fn kept(&self) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.idle.lock();
        idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_TIME);
        idle.pop().map(|(sender, _)| sender)
    }

    async fn connect(&self) -> io::Result<SendRequest<RequestBody>> {
        let connecting = async {
            let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
            tcp.set_nodelay(true)?;
            match &self.tls {
                None => shake(tcp).await,
                Some((tls, name)) => shake(tls.connect(name.clone(), tcp).await?).await,
            }
        };
        timeout(waits::CLIENT_CONNECT, connecting).await.map_err(late)?
    }
}

/// Reads all that `reader` gives.
fn whole(reader: &mut dyn Read, length: u64) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    reader.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length {
        Ok(bytes.into())
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "there is less than was said"))
    }
}

/// Returns a copy of the request if it may be sent twice: all of it is here, and doing it once more
/// changes neither its effect nor its answer.
fn repeated(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let RequestBody::Whole(body) = request.body() else { return None };
    let has_condition = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE]
        .iter()
        .any(|condition| request.headers().contains_key(condition));
    let is_safe = request.method().is_safe();
    if !is_safe && (!request.method().is_idempotent() || has_condition) {
        return None;
    }
    let mut again = Request::new(RequestBody::Whole(body.clone()));
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

async fn shake<S>(stream: S) -> io::Result<SendRequest<RequestBody>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(said)?;
    // The request that is ended receives the error.
    tokio::spawn(connection);
    Ok(sender)
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time")
}

/// Returns the error and its cause, in words.
fn said(error: hyper::Error) -> io::Error {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    io::Error::other(text)
}

/// Body of a request.
enum RequestBody {
    Whole(Bytes),
    /// Pieces of a body; `left` is the number of bytes still to come, if known.
    Pieces {
        pieces: Receiver<io::Result<Bytes>>,
        left: Option<u64>,
    },
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            RequestBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            RequestBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            RequestBody::Pieces { pieces, left } => {
                let piece = ready!(pieces.poll_recv(context));
                if let (Some(left), Some(Ok(piece))) = (left, &piece) {
                    *left = left.saturating_sub(piece.len() as u64);
                }
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, RequestBody::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            RequestBody::Pieces { left: Some(left), .. } => SizeHint::with_exact(*left),
            RequestBody::Pieces { left: None, .. } => SizeHint::default(),
        }
    }
}

/// Body of a reply, to be read to its end.
pub struct ReplyBody {
    client: Client,
    body: Incoming,
    sender: Option<SendRequest<RequestBody>>,
    rest: Bytes,
    end: Option<Instant>,
}

impl ReplyBody {
    /// Keeps the connection for the next request.
    fn finish(&mut self) {
        let mut idle = self.client.0.idle.lock();
        if let Some(sender) = self.sender.take().filter(|_| idle.len() < IDLE) {
            idle.push((sender, Instant::now()));
        }
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let frame = match self.end {
                None => self.body.frame().await,
                Some(end) => timeout_at(end, self.body.frame()).await.map_err(late)?,
            };
            let Some(frame) = frame.transpose().map_err(said)? else { return Ok(None) };
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}

impl Read for ReplyBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && self.sender.is_some() {
            let client = self.client.clone();
            match client.0.runtime.block_on(self.next())? {
                Some(bytes) => self.rest = bytes,
                None => self.finish(),
            }
        }
        let read = self.rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.rest[..read]);
        self.rest.advance(read);
        Ok(read)
    }
}

/// Returns host and port of what follows `://` in a URL.
pub fn authority(rest: &str, default_port: u16) -> Option<(String, u16)> {
    let authority = rest.split('/').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Returns the value of the header: an IPv6 address is in brackets.
pub fn host_header(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests;
