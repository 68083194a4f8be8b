//! One connection, driven by the task that uses it: there is no task and no thread between a
//! request and the socket.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::target::Target;

/// Size of hyper's read buffer, bytes.
const READ_BYTES: usize = 256 << 10;

trait Stream: AsyncRead + AsyncWrite {}
impl<T: AsyncRead + AsyncWrite> Stream for T {}
type Io = TokioIo<Pin<Box<dyn Stream>>>;
type Driver = http1::Connection<Io, Full<Bytes>>;

/// Reason why an exchange failed, in the form in which it is counted.
pub type Cause = String;

pub struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Driver,
    is_over: bool,
    /// Set once the server has said that it accepts nothing more here. It may wait long for the
    /// client to hang up.
    is_last: bool,
}

/// A new connection, and how long it took to make.
pub struct OpenedConnection {
    pub connection: Connection,
    pub connect: Duration,
    pub tls: Option<Duration>,
}

/// An answered request.
pub struct Exchange {
    pub head: response::Parts,
    /// Number of received bytes of the body.
    pub bytes: u64,
    /// Start of the body, if it was requested.
    pub body: Vec<u8>,
    /// Time at which the whole head had arrived.
    pub first_byte: Instant,
    pub end: Instant,
}

pub async fn open(
    target: &Target,
    address: SocketAddr,
    connector: &TlsConnector,
) -> Result<OpenedConnection, Cause> {
    let begun = Instant::now();
    let tcp = TcpStream::connect(address).await;
    let tcp = tcp.map_err(|error| format!("connect: {}", plain(&error)))?;
    tcp.set_nodelay(true).map_err(|error| format!("connect: {}", plain(&error)))?;
    let connect = begun.elapsed();
    let mut tls = None;
    let stream: Pin<Box<dyn Stream>> = if target.is_tls {
        let begun = Instant::now();
        let name = target.server_name().map_err(|error| error.to_string())?;
        let stream = connector.connect(name, tcp).await;
        let stream = stream.map_err(|error| format!("tls: {}", plain(&error)))?;
        tls = Some(begun.elapsed());
        Box::pin(stream)
    } else {
        Box::pin(tcp)
    };
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BYTES);
    let (sender, driver) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| cause(&error))?;
    Ok(OpenedConnection {
        connection: Connection { sender, driver, is_over: false, is_last: false },
        connect,
        tls,
    })
}

impl Connection {
    /// Sends a request and receives the whole answer; keeps the first `keep` bytes of its body.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        keep: usize,
    ) -> Result<Exchange, Cause> {
        let Connection { sender, driver, is_over, is_last } = self;
        drive(driver, is_over, poll_fn(|cx| sender.poll_ready(cx))).await.map_err(closed)?;
        let reply = drive(driver, is_over, sender.send_request(request)).await;
        let (head, mut incoming) = reply.map_err(|error| cause(&error))?.into_parts();
        let first_byte = Instant::now();
        *is_last = says_close(&head);
        let (mut bytes, mut body) = (0, Vec::new());
        while let Some(frame) = drive(driver, is_over, incoming.frame()).await {
            let frame = frame.map_err(|error| cause(&error))?;
            let Some(data) = frame.data_ref() else { continue };
            bytes += data.len() as u64;
            body.extend_from_slice(&data[..data.len().min(keep - body.len())]);
        }
        Ok(Exchange { head, bytes, body, first_byte, end: Instant::now() })
    }

    /// Returns true if it can carry another request, as far as is known.
    pub async fn is_open(&mut self) -> bool {
        let Connection { sender, driver, is_over, is_last } = self;
        !*is_last && drive(driver, is_over, poll_fn(|cx| sender.poll_ready(cx))).await.is_ok()
    }
}

fn says_close(head: &response::Parts) -> bool {
    let said = head.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("close"))
}

/// Waits for a future while the connection makes progress.
async fn drive<F: Future>(driver: &mut Driver, is_over: &mut bool, wanted: F) -> F::Output {
    let mut wanted = pin!(wanted);
    poll_fn(|cx| {
        if let Poll::Ready(output) = wanted.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if !*is_over && Pin::new(&mut *driver).poll(cx).is_ready() {
            *is_over = true;
        }
        wanted.as_mut().poll(cx)
    })
    .await
}

fn closed(_: hyper::Error) -> Cause {
    "closed by the server".to_owned()
}

/// Returns an error of hyper with its cause.
fn cause(error: &hyper::Error) -> Cause {
    use std::error::Error as _;
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "closed by the server".to_owned();
    }
    match error.source().and_then(|source| source.downcast_ref::<std::io::Error>()) {
        Some(io) => plain(io),
        None => error.to_string(),
    }
}

/// Returns the error without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
