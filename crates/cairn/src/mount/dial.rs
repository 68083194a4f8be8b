//! Path of a mount to a server or a gateway: its HTTP door, which hands the connection over to the
//! mount.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cairn_base::waits;
use cairn_base::{Error, Result as BaseResult, Secret, UserId};
use cairn_cluster::mount::{always, link};
use cairn_cluster::wire::{Dial, Link, Stream, require_none};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::connection::http::{authority, host_header};
use crate::connection::{NOT_LISTENING, OTHER_SITE, S3_DOOR, ServerAccess, in_words};
use crate::failure::{Failure, Result};

/// Time without further attempts after credentials were refused: doors soon accept nothing from a
/// network that sends wrong credentials, whoever they belong to.
const REFUSED: Duration = Duration::from_secs(20);
/// Longest answer to the request that opens a connection, bytes.
const ANSWER_BYTES: usize = 16 << 10;

/// Connects to a server, or to any of the gateways of a cluster. It has no `Debug`: it holds
/// secrets.
pub struct HttpDialer {
    doors: Vec<Door>,
    authorization: Secret<String>,
    /// Time of the last refusal, and its text.
    refused: Mutex<Option<(Instant, String)>>,
}

/// Address of one of the doors.
struct Door {
    base: String,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Door {
    fn new(known: &ServerAccess) -> Result<Door> {
        let base = known.base.clone();
        let (scheme, rest) = base.split_once("://").unwrap_or(("http", &base));
        let is_tls = scheme == "https";
        let (host, port) = authority(rest, if is_tls { 443 } else { 80 }).ok_or_else(|| {
            Failure::usage(format!(
                "server {base:?}: not a URL: use one such as http://127.0.0.1:8080"
            ))
        })?;
        let tls = if is_tls {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|error| Failure::usage(format!("{host}: {error}")))?;
            Some((TlsConnector::from(Arc::new(client_config(known)?)), name))
        } else {
            None
        };
        Ok(Door { base, host, port, tls })
    }
}

impl HttpDialer {
    /// Makes a dialer to all of these, with the credentials of the first.
    pub fn new(known: Vec<ServerAccess>) -> Result<HttpDialer> {
        let doors = known.iter().map(Door::new).collect::<Result<Vec<Door>>>()?;
        let authorization = known.into_iter().next().and_then(|first| first.authorization);
        let authorization = authorization.map(|credentials| credentials.header);
        let none = || Failure::new("no credentials: set CAIRN_KEY and CAIRN_SECRET");
        let authorization = authorization.ok_or_else(none)?;
        Ok(HttpDialer { doors, authorization, refused: Mutex::default() })
    }

    pub fn addresses(&self) -> Vec<String> {
        self.doors.iter().map(|door| door.base.clone()).collect()
    }

    /// Returns the user that the mount is, by the first door that answers.
    pub async fn user(&self) -> Result<UserId> {
        let mut said = "no server is named: give its URL".to_owned();
        for door in &self.doors {
            match self.connect(door).await {
                Ok((_, user)) => return Ok(user),
                Err(Error::Unavailable(why)) => said = why,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failure::new(said).passing())
    }

    async fn connect(&self, door: &Door) -> BaseResult<(Box<dyn Stream>, UserId)> {
        let late = |_| Error::Unavailable(format!("{}: no answer in time", door.base));
        timeout(waits::MOUNT_DIAL, self.connect_once(door)).await.map_err(late)?
    }

    async fn connect_once(&self, door: &Door) -> BaseResult<(Box<dyn Stream>, UserId)> {
        let Door { base, host, port, tls } = door;
        let lost = |error: std::io::Error| {
            let why = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => NOT_LISTENING.to_owned(),
                _ => in_words(&error.to_string()),
            };
            Error::Unavailable(format!("{base}: {why}"))
        };
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(lost)?;
        tcp.set_nodelay(true).map_err(lost)?;
        let mut stream: Box<dyn Stream> = match tls {
            None => Box::new(tcp),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), tcp).await.map_err(lost)?),
        };
        let authorization = self.authorization.expose();
        let request = format!(
            "GET /mount HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\n\
             Upgrade: cairn-mount/2\r\nAuthorization: {authorization}\r\n\
             User-Agent: cairn/{}\r\n\r\n",
            host_header(host, *port),
            env!("CARGO_PKG_VERSION"),
        );
        stream.write_all(request.as_bytes()).await.map_err(lost)?;
        stream.flush().await.map_err(lost)?;
        let user = answered(base, &mut *stream).await?;
        Ok((stream, user))
    }
}

/// Reads the answer, and nothing behind it.
async fn answered(base: &str, stream: &mut dyn Stream) -> BaseResult<UserId> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES {
            return Err(Error::Invalid(format!(
                "{base}: its answer is too long for a server of Cairn"
            )));
        }
        let byte = stream.read_u8().await;
        head.push(byte.map_err(|error| Error::Unavailable(format!("{base}: {error}")))?);
    }
    let head = String::from_utf8_lossy(&head);
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if let Some(other) = other_door(&head, status) {
        return Err(Error::Invalid(format!("{base}: {other}")));
    }
    match status {
        "101" => {
            let user = header(&head, "cairn-user").and_then(|user| user.parse().ok());
            user.map(UserId).ok_or_else(|| {
                Error::Invalid(format!(
                    "{base}: is not a server of Cairn, or an older \
                    version: check the URL, or upgrade the server"
                ))
            })
        }
        "401" | "403" => {
            let text = "the credentials are refused: check CAIRN_KEY and CAIRN_SECRET";
            Err(Error::Denied(format!("{base}: {text}")))
        }
        "404" => Err(Error::Invalid(format!(
            "{base}: is not the HTTP door of a server: check the URL and the port (8080 by default)"
        ))),
        "501" => {
            let text = "takes no mounts: an older gateway? upgrade it, or use --node";
            Err(Error::NotImplemented(format!("{base}: {text}")))
        }
        status => Err(Error::Unavailable(format!("{base}: answers with status {status}"))),
    }
}

/// Says which door has answered, if it is not the HTTP door. A proxy before that door answers with
/// pages, too, while no server is there.
fn other_door(head: &str, status: &str) -> Option<&'static str> {
    if matches!(status, "408" | "429") || status.starts_with('5') {
        return None;
    }
    let is_of = |kind: &str| header(head, "content-type").is_some_and(|sent| sent.contains(kind));
    if header(head, "x-amz-request-id").is_some() || is_of("xml") {
        Some(S3_DOOR)
    } else if status.starts_with('3') || is_of("text/html") {
        Some(OTHER_SITE)
    } else {
        None
    }
}

#[async_trait]
impl Dial for HttpDialer {
    async fn dial(&self, address: &str) -> BaseResult<Link> {
        let door = self.doors.iter().find(|door| door.base == address);
        let unknown = || Error::NotFound(format!("server {address}"));
        let door = door.ok_or_else(unknown)?;
        if let Some((at, why)) = &*self.refused.lock()
            && at.elapsed() < REFUSED
        {
            return Err(Error::Denied(why.clone()));
        }
        let connected = self.connect(door).await;
        if let Err(Error::Denied(why)) = &connected {
            *self.refused.lock() = Some((Instant::now(), why.clone()));
        }
        let (stream, _) = connected?;
        Ok(link(stream, address.to_owned(), require_none(), always()))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn client_config(known: &ServerAccess) -> Result<ClientConfig> {
    let config = cairn_tls::client_config(known.trust()?);
    let mut config = config.map_err(|error| Failure::new(format!("TLS: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a door that says so has refused the credentials.
    #[test]
    fn what_was_answered_is_told_as_it_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = |head: &str| {
            let mut head = format!("HTTP/1.1 {head}\r\n\r\n").into_bytes();
            head.extend(b"what comes after it");
            let mut stream = stream_of(head);
            let user = runtime.block_on(answered("http://a", &mut *stream));
            let mut rest = Vec::new();
            runtime.block_on(stream.read_to_end(&mut rest)).unwrap();
            assert!(user.is_err() || rest == b"what comes after it");
            user
        };
        assert_eq!(answer("101 x\r\nCairn-User: 7").unwrap(), UserId(7));
        for (head, is_refused, text) in [
            ("401 Unauthorized", true, "the credentials are refused"),
            ("403 Forbidden", true, "the credentials are refused"),
            ("408 Request Timeout", false, "answers with status 408"),
            ("429 Too Many Requests", false, "answers with status 429"),
            ("500 Internal Server Error", false, "answers with status 500"),
            ("503 Service Unavailable", false, "answers with status 503"),
            ("404 Not Found", false, "not the HTTP door"),
            ("501 Not Implemented", false, "takes no mounts"),
            ("101 x", false, "is not a server of Cairn"),
            ("403 x\r\nContent-Type: application/xml", false, "this is an S3 door"),
            ("404 x\r\nx-amz-request-id: 1", false, "this is an S3 door"),
            ("303 See Other\r\nLocation: /login", false, "this is no HTTP door"),
            ("403 x\r\nContent-Type: text/html", false, "this is no HTTP door"),
            ("503 x\r\nContent-Type: text/html", false, "answers with status 503"),
        ] {
            let error = answer(head).unwrap_err();
            assert_eq!(matches!(error, Error::Denied(_)), is_refused, "{head}: {error}");
            let said = error.to_string();
            assert!(said.contains(text) && said.contains("http://a"), "{head}: {said}");
            assert_eq!(said.contains("credentials"), is_refused, "{head}: {said}");
        }
    }

    fn stream_of(bytes: Vec<u8>) -> Box<dyn Stream> {
        let (mut ours, theirs) = tokio::io::duplex(bytes.len() + 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(ours.write_all(&bytes)).unwrap();
        Box::new(theirs)
    }

    #[test]
    fn headers_are_found() {
        let head = "HTTP/1.1 101 x\r\nCairn-User: 7\r\n\r\n";
        assert_eq!(header(head, "cairn-user"), Some("7"));
        assert_eq!(header(head, "user"), None);
    }
}
