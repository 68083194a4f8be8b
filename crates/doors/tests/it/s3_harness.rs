//! An S3 server in this process, and a client that signs on its own and can lie on request.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, NewCredential, SealKey};
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, RealDisk, Secret, Timestamp};
use cairn_blocks::Store;
use cairn_doors::Records;
use cairn_doors::admit::{Admit, ensure_root};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::Metrics;
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::s3::{PublicAcl, S3Config, S3Door, service};
use cairn_doors::serve::{Serving, listen, serve};
use cairn_fs::Fs;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub const REGION: &str = "eu-test-1";
/// 2026-01-01T00:00:00Z.
pub const NOW: i64 = 1_767_225_600;

/// A clock that stands still until it is set.
pub struct StillClock(AtomicI64);

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed) as u64)
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub admit: Arc<Admit>,
    pub root: NewCredential,
    pub clock: Arc<StillClock>,
    pub runtime: Runtime,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Server {
        Server::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Server {
        Server::build(limits, None, PublicAcl::Accept, Records::default())
    }

    /// A server that accepts no ACL which opens a bucket.
    pub fn with_closed_acls() -> Server {
        Server::build(Limits::default(), None, PublicAcl::Refuse, Records::default())
    }

    /// A server that has records made of requests.
    pub fn with_records(records: Records) -> Server {
        Server::build(Limits::default(), None, PublicAcl::Accept, records)
    }

    /// A server that answers every completion of an upload piecemeal.
    pub fn impatient() -> Server {
        let patience = Some(Duration::ZERO);
        Server::build(Limits::default(), patience, PublicAcl::Accept, Records::default())
    }

    fn build(
        limits: Limits,
        patience: Option<Duration>,
        public_acl: PublicAcl,
        records: Records,
    ) -> Server {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(StillClock(NOW.into()));
        let (admit, root) = runtime.block_on(store(dir.path(), clock.clone()));
        let domains = vec!["s3.test".to_owned()];
        let config = S3Config { domains, region: REGION.into(), public_acl, ..S3Config::default() };
        let (fs, keys) = (admit.fs().clone(), Arc::clone(&admit));
        let observer = Observer::new(&**admit.rng(), SLOW);
        let metrics = Metrics::new(fs.clone(), Arc::default(), observer).door("s3");
        let door = match patience {
            None => service(fs, keys, &metrics, config),
            Some(patience) => S3Door::with_patience(fs, keys, &metrics, config, patience),
        };
        let serving = Serving { limits, records: records.of("s3"), ..Serving::default() };
        let (stop, stopped) = watch::channel(false);
        let address = runtime.block_on(async {
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, door, serving, stopped));
            address
        });
        Server { address, admit, root, clock, runtime, _stop: stop, _dir: dir }
    }

    pub fn fs(&self) -> &Fs {
        self.admit.fs()
    }

    pub fn root(&self) -> Client {
        self.client(Some((self.root.id.clone(), self.root.secret.expose().clone())))
    }

    pub fn anonymous(&self) -> Client {
        self.client(None)
    }

    pub fn client(&self, key: Option<(String, String)>) -> Client {
        Client { address: self.address, key, clock: self.clock.clone() }
    }

    /// A client with the access key of a new user.
    pub fn user(&self, name: &str) -> Client {
        let id = format!("KEY-{name}");
        let secret = format!("secret-of-{name}-0123456789");
        let credential = NewCredential { id: id.clone(), secret: Secret::new(secret.clone()) };
        let sealed = self.admit.seal(&credential);
        let verb = AddAccessKey { id: id.clone(), sealed, user: name.into(), replace: false };
        self.runtime.block_on(self.fs().run(&Caller::system(), verb)).unwrap();
        self.client(Some((id, secret)))
    }

    /// Runs an operation of the store past the door.
    pub fn run<V: cairn_fs::WireVerb>(&self, caller: &Caller, verb: V) -> V::Reply {
        self.runtime.block_on(self.fs().run(caller, verb)).unwrap()
    }

    pub fn advance(&self, secs: i64) {
        self.clock.0.fetch_add(secs, Ordering::Relaxed);
    }
}

async fn store(dir: &Path, clock: Arc<dyn Clock>) -> (Arc<Admit>, NewCredential) {
    let engine = Arc::new(Memory::new());
    let master = Master::start(engine, Arc::clone(&clock), Default::default()).unwrap();
    let disk = Arc::new(RealDisk::open(&dir.join("blocks")).unwrap());
    let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
    config.segment_bytes = 64 << 20;
    config.reserve_bytes = 40 << 20;
    config.durability = cairn_blocks::Durability::Async;
    let blocks = Arc::new(Store::open(disk, config).unwrap());
    let rng = Arc::new(SeededRng::new(7));
    let fs = Fs::start(master, blocks, clock, &*rng, Default::default()).await.unwrap();
    let admit = Arc::new(Admit::new(fs, SealKey::new(&Secret::new([9; 32])), rng));
    let root = ensure_root(&admit, None).await.unwrap().unwrap();
    (admit, root)
}

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub key: Option<(String, String)>,
    pub clock: Arc<StillClock>,
}

impl Client {
    pub fn ask(&self, method: &str, path: &str) -> Ask {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut ask = Ask {
            client: self.clone(),
            method: method.into(),
            path: path.into(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Vec::new(),
            mode: Mode::Hashed,
            chunk: 64 << 10,
            trailers: Vec::new(),
            host: "test".into(),
            lie: Lie::default(),
            later: Vec::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            ask.query.push((name.into(), value.into()));
        }
        ask
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).send()
    }

    pub fn head(&self, path: &str) -> Reply {
        self.ask("HEAD", path).send()
    }

    pub fn put(&self, path: &str, body: &[u8]) -> Reply {
        self.ask("PUT", path).body(body).send()
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path).body(body.as_bytes()).send()
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.ask("DELETE", path).send()
    }
}

/// How the body is sent and signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Unsigned,
    Hashed,
    Chunks,
    ChunksTrailer,
    UnsignedTrailer,
    /// All in the query, for that many seconds.
    Presigned(i64),
}

impl Mode {
    pub const BODIES: [Mode; 5] =
        [Mode::Unsigned, Mode::Hashed, Mode::Chunks, Mode::ChunksTrailer, Mode::UnsignedTrailer];

    pub fn is_framed(self) -> bool {
        matches!(self, Mode::Chunks | Mode::ChunksTrailer | Mode::UnsignedTrailer)
    }

    pub fn has_trailer(self) -> bool {
        matches!(self, Mode::ChunksTrailer | Mode::UnsignedTrailer)
    }
}

/// The part that is wrong.
#[derive(Clone, Default)]
pub struct Lie {
    pub algorithm: Option<&'static str>,
    pub region: Option<&'static str>,
    pub service: Option<&'static str>,
    pub terminal: Option<&'static str>,
    pub day: Option<&'static str>,
    /// Seconds the client's clock is ahead.
    pub ahead: i64,
    pub no_date: bool,
    pub signature: Option<&'static str>,
    /// Headers that are sent and not signed, and names that are signed and not sent.
    pub unsigned: Vec<&'static str>,
    pub phantom: Vec<&'static str>,
    pub content_sha256: Option<String>,
    pub no_content_sha256: bool,
    pub decoded_length: Option<String>,
    pub no_decoded_length: bool,
    pub no_content_length: bool,
    /// Applied to the body as it goes over the wire, and to its announced length.
    pub wire: Option<fn(Vec<u8>) -> Vec<u8>>,
    /// Applied to the body alone.
    pub cut: Option<usize>,
    /// Query parameters of a presigned URL that are replaced, or removed.
    pub parameters: Vec<(&'static str, Option<&'static str>)>,
}

#[derive(Clone)]
pub struct Ask {
    client: Client,
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub mode: Mode,
    pub chunk: usize,
    pub trailers: Vec<(String, String)>,
    pub host: String,
    pub lie: Lie,
    /// Headers added after signing.
    pub later: Vec<(String, String)>,
}

impl Ask {
    pub fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn late_header(mut self, name: &str, value: &str) -> Ask {
        self.later.push((name.into(), value.into()));
        self
    }

    pub fn query(mut self, name: &str, value: &str) -> Ask {
        self.query.push((encode(name, true), encode(value, true)));
        self
    }

    pub fn body(mut self, body: &[u8]) -> Ask {
        self.body = body.to_vec();
        self
    }

    pub fn mode(mut self, mode: Mode) -> Ask {
        self.mode = mode;
        self
    }

    pub fn trailer(mut self, name: &str, value: &str) -> Ask {
        self.trailers.push((name.into(), value.into()));
        self
    }

    pub fn host(mut self, host: &str) -> Ask {
        self.host = host.into();
        self
    }

    pub fn lie(mut self, lie: impl FnOnce(&mut Lie)) -> Ask {
        lie(&mut self.lie);
        self
    }

    pub fn send(&self) -> Reply {
        let mut connection = Connection::open(self.client.address);
        connection.send(&self.wire());
        if self.lie.cut.is_some() {
            let _ = connection.stream.shutdown(std::net::Shutdown::Write);
        }
        connection.try_reply(&self.method).unwrap_or_else(|| {
            // Nobody is there to be answered.
            assert!(self.lie.cut.is_some());
            Reply { status: 0, headers: Vec::new(), body: Vec::new() }
        })
    }

    /// The whole request as bytes.
    pub fn wire(&self) -> Vec<u8> {
        let lie = &self.lie;
        let at = amz_date(self.client.clock.now().secs() + lie.ahead);
        let hash = lie.content_sha256.clone().unwrap_or_else(|| self.content_sha256());
        let mut headers = self.headers.clone();
        headers.push(("host".into(), self.host.clone()));
        let mut query = self.query.clone();
        let framed = self.mode.is_framed();
        if framed {
            let length = lie.decoded_length.clone().unwrap_or(self.body.len().to_string());
            if !lie.no_decoded_length {
                headers.push(("x-amz-decoded-content-length".into(), length));
            }
            headers.push(("content-encoding".into(), "aws-chunked".into()));
        }
        let mut seed = String::new();
        match (&self.client.key, self.mode) {
            (None, _) => {
                if framed {
                    headers.push(("x-amz-content-sha256".into(), hash));
                }
            }
            (Some(key), Mode::Presigned(secs)) => {
                self.presign(key, &at, secs, &headers, &mut query);
            }
            (Some(key), _) => {
                if !lie.no_date {
                    headers.push(("x-amz-date".into(), at.clone()));
                }
                if !lie.no_content_sha256 {
                    headers.push(("x-amz-content-sha256".into(), hash.clone()));
                }
                let (authorization, signature) = self.authorize(key, &at, &hash, &headers, &query);
                headers.push(("authorization".into(), authorization));
                seed = signature;
            }
        }
        headers.extend(self.later.iter().cloned());
        let mut body = if framed { self.frames(&at, seed) } else { self.body.clone() };
        if let Some(change) = lie.wire {
            body = change(body);
        }
        self.assemble(&headers, &query, body)
    }

    fn assemble(
        &self,
        headers: &[(String, String)],
        query: &[(String, String)],
        mut body: Vec<u8>,
    ) -> Vec<u8> {
        let query: Vec<String> = query
            .iter()
            .map(
                |(name, value)| {
                    if value.is_empty() { name.clone() } else { format!("{name}={value}") }
                },
            )
            .collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let mut out = format!("{} {}{query} HTTP/1.1\r\n", self.method, self.path);
        let has_body = matches!(self.method.as_str(), "PUT" | "POST") || !body.is_empty();
        if has_body && !self.lie.no_content_length {
            out.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        out.push_str("\r\n");
        if let Some(len) = self.lie.cut {
            body.truncate(len);
        }
        [out.as_bytes(), &body].concat()
    }

    fn content_sha256(&self) -> String {
        match self.mode {
            Mode::Unsigned | Mode::Presigned(_) => "UNSIGNED-PAYLOAD".into(),
            Mode::Hashed => hex_sha256(&self.body),
            Mode::Chunks => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into(),
            Mode::ChunksTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER".into(),
            Mode::UnsignedTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".into(),
        }
    }

    fn scope(&self, at: &str) -> String {
        let lie = &self.lie;
        format!(
            "{}/{}/{}/{}",
            lie.day.unwrap_or(&at[..8]),
            lie.region.unwrap_or(REGION),
            lie.service.unwrap_or("s3"),
            lie.terminal.unwrap_or("aws4_request")
        )
    }

    fn signed(&self, headers: &[(String, String)]) -> BTreeMap<String, String> {
        let mut signed: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers {
            if self.lie.unsigned.contains(&name.as_str()) {
                continue;
            }
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            signed
                .entry(name.to_lowercase())
                .and_modify(|present| *present = format!("{present},{value}"))
                .or_insert(value);
        }
        for name in &self.lie.phantom {
            signed.insert((*name).into(), String::new());
        }
        signed
    }

    fn signature(
        &self,
        secret: &str,
        at: &str,
        payload: &str,
        signed: &BTreeMap<String, String>,
        query: &[(String, String)],
    ) -> String {
        let mut pairs: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.sort();
        let lines: String =
            signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names = signed.keys().cloned().collect::<Vec<_>>().join(";");
        let path = encode(&decode(&self.path), false);
        let canonical =
            format!("{}\n{path}\n{}\n{lines}\n{names}\n{payload}", self.method, pairs.join("&"));
        let hash = hex_sha256(canonical.as_bytes());
        self.sign(secret, at, "AWS4-HMAC-SHA256", &[&hash])
    }

    fn sign(&self, secret: &str, at: &str, kind: &str, lines: &[&str]) -> String {
        let scope = self.scope(at);
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in scope.split('/') {
            key = hmac(&key, part.as_bytes());
        }
        let text = format!("{kind}\n{at}\n{scope}\n{}", lines.join("\n"));
        hex(&hmac(&key, text.as_bytes()))
    }

    fn authorize(
        &self,
        (id, secret): &(String, String),
        at: &str,
        hash: &str,
        headers: &[(String, String)],
        query: &[(String, String)],
    ) -> (String, String) {
        let signed = self.signed(headers);
        let made = self.signature(secret, at, hash, &signed, query);
        let signature = self.lie.signature.map_or(made.clone(), str::to_owned);
        let algorithm = self.lie.algorithm.unwrap_or("AWS4-HMAC-SHA256");
        let names = signed.keys().cloned().collect::<Vec<_>>().join(";");
        let scope = self.scope(at);
        let authorization = format!(
            "{algorithm} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        (authorization, made)
    }

    fn presign(
        &self,
        (id, secret): &(String, String),
        at: &str,
        secs: i64,
        headers: &[(String, String)],
        query: &mut Vec<(String, String)>,
    ) {
        let signed = self.signed(headers);
        let names = signed.keys().cloned().collect::<Vec<_>>().join(";");
        let credential = format!("{id}/{}", self.scope(at));
        let algorithm = self.lie.algorithm.unwrap_or("AWS4-HMAC-SHA256");
        let mut add = |name: &str, value: &str| {
            let lie = self.lie.parameters.iter().find(|(lied, _)| *lied == name);
            match lie {
                Some((_, None)) => {}
                Some((_, Some(other))) => query.push((name.into(), encode(other, true))),
                None => query.push((name.into(), encode(value, true))),
            }
        };
        add("X-Amz-Algorithm", algorithm);
        add("X-Amz-Credential", &credential);
        add("X-Amz-Date", at);
        add("X-Amz-Expires", &secs.to_string());
        add("X-Amz-SignedHeaders", &names);
        let payload = self.lie.content_sha256.as_deref().unwrap_or("UNSIGNED-PAYLOAD");
        let made = self.signature(secret, at, payload, &signed, query);
        query.push(("X-Amz-Signature".into(), self.lie.signature.unwrap_or(&made).into()));
    }

    /// The body in frames of aws-chunked.
    fn frames(&self, at: &str, mut previous: String) -> Vec<u8> {
        let secret = self.client.key.as_ref().map(|(_, secret)| secret.as_str());
        let is_signed = self.mode != Mode::UnsignedTrailer;
        let mut out = Vec::new();
        let empty: &[u8] = b"";
        for data in self.body.chunks(self.chunk.max(1)).chain([empty]) {
            out.extend_from_slice(format!("{:x}", data.len()).as_bytes());
            if is_signed {
                let hashes = [previous.as_str(), &hex_sha256(b""), &hex_sha256(data)];
                let kind = "AWS4-HMAC-SHA256-PAYLOAD";
                previous = self.sign(secret.unwrap_or("none"), at, kind, &hashes);
                out.extend_from_slice(format!(";chunk-signature={previous}").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(data);
            if !data.is_empty() {
                out.extend_from_slice(b"\r\n");
            }
        }
        if self.mode.has_trailer() {
            let mut sorted = self.trailers.clone();
            sorted.sort();
            let text: String =
                sorted.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            for (name, value) in &self.trailers {
                out.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
            }
            if is_signed {
                let hashes = [previous.as_str(), &hex_sha256(text.as_bytes())];
                let kind = "AWS4-HMAC-SHA256-TRAILER";
                let signature = self.sign(secret.unwrap_or("none"), at, kind, &hashes);
                out.extend_from_slice(
                    format!("x-amz-trailer-signature:{signature}\r\n").as_bytes(),
                );
            }
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

/// A reply as it came.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The texts of all elements of that name, unescaped.
    pub fn all(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        text.split(&open)
            .skip(1)
            .filter_map(|rest| rest.split_once(&close).map(|(inside, _)| unescape(inside)))
            .collect()
    }

    pub fn one(&self, name: &str) -> String {
        self.all(name).into_iter().next().unwrap_or_default()
    }

    pub fn etag(&self) -> String {
        self.header("etag").unwrap_or_default().to_owned()
    }

    /// The code of an error; empty for a success.
    pub fn code(&self) -> String {
        if self.text().contains("<Error>") { self.one("Code") } else { String::new() }
    }

    #[track_caller]
    pub fn ok(self) -> Reply {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self
    }

    #[track_caller]
    pub fn fails(self, status: u16, code: &str) -> Reply {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.text());
        self
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let (name, tail) = rest[at + 1..].split_once(';').unwrap();
        match name {
            "amp" => out.push('&'),
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            number => {
                let code = number.strip_prefix('#').unwrap().parse().unwrap();
                out.push(char::from_u32(code).unwrap());
            }
        }
        rest = tail;
    }
    out + rest
}

pub struct Connection {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        Connection { stream, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 256 << 10];
        match self.stream.read(&mut buffer) {
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                n > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.read.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.read[..at]).into_owned();
                self.read.drain(..at + 2);
                return Some(line);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.read.len() < len {
            if !self.fill() {
                return None;
            }
        }
        Some(self.read.drain(..len).collect())
    }

    pub fn try_reply(&mut self, method: &str) -> Option<Reply> {
        let status: u16 = self.line()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        if status == 100 {
            return self.try_reply(method);
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        if method == "HEAD" || matches!(status, 204 | 304) {
            return Some(reply);
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            loop {
                let len = usize::from_str_radix(&self.line()?, 16).ok()?;
                reply.body.extend(self.take(len)?);
                self.line()?;
                if len == 0 {
                    return Some(reply);
                }
            }
        }
        let len = reply.header("content-length").and_then(|text| text.parse().ok());
        reply.body = self.take(len.unwrap_or(0))?;
        Some(reply)
    }

    pub fn reply(&mut self, method: &str) -> Reply {
        self.try_reply(method).expect("a reply")
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn hex_sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0u8; 64];
    let key = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block[..key.len()].copy_from_slice(&key);
    let inner = Sha256::digest([&block.map(|byte| byte ^ 0x36)[..], text].concat());
    Sha256::digest([&block.map(|byte| byte ^ 0x5c)[..], &inner[..]].concat()).to_vec()
}

/// `20260101T000000Z`.
pub fn amz_date(secs: i64) -> String {
    let time = Timestamp::from_secs(secs).to_system_time();
    let text = httpdate::fmt_http_date(time);
    let words: Vec<&str> = text.split(' ').collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(words[2]).unwrap() / 3 + 1;
    format!("{}{month:02}{}T{}Z", words[3], words[1], words[4].replace(':', ""))
}

pub fn encode(text: &str, slash: bool) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || (byte == b'/' && !slash)
    };
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
