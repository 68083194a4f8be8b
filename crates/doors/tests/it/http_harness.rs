//! A server in this process, and a client that says exactly what it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cairn_auth::{Caller, LinkKey, NewCredential, SealKey};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, Clock, GroupId, RealDisk, Result, Secret, Timestamp};
use cairn_blocks::{Blocks, Store};
use cairn_doors::Records;
use cairn_doors::admit::{Admit, ensure_root};
use cairn_doors::http::{FilesDoor, HttpDoor, Redirects, WebsiteDoor};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::serve::{Serving, listen, serve};
use cairn_doors::tls::Tls;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_fs::{BlockReader, Fs};
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Far more than anything takes, and less than the time after which a server gives up on its own.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The clock of the machine, and ahead of it by as much as a test says.
#[derive(Default)]
pub struct Ahead {
    real: RealClock,
    secs: AtomicU64,
}

impl Ahead {
    pub fn advance(&self, secs: u64) {
        self.secs.fetch_add(secs, Ordering::SeqCst);
    }

    fn by(&self) -> Duration {
        Duration::from_secs(self.secs.load(Ordering::SeqCst))
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp(self.real.now().0 + self.by().as_nanos() as i64)
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + self.by()
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub clock: Arc<Ahead>,
    /// The door for links, if there is one.
    pub files: Option<SocketAddr>,
    pub admit: Arc<Admit>,
    pub root: NewCredential,
    pub connections: Arc<Connections>,
    pub runtime: Runtime,
    stop: watch::Sender<bool>,
    served: Option<tokio::task::JoinHandle<()>>,
    pub dir: tempfile::TempDir,
    pub log: Log,
}

/// All that a server logs, at the highest level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A runtime whose threads log to `log`.
fn runtime(log: &Log) -> Runtime {
    let log = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || log.clone())
        .finish();
    let dispatch = tracing::Dispatch::new(subscriber);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().on_thread_start(move || {
        // For as long as the thread lives.
        std::mem::forget(tracing::dispatcher::set_default(&dispatch));
    });
    builder.build().unwrap()
}

/// How a server under test differs from one by default.
#[derive(Default)]
pub struct Setup {
    pub limits: Limits,
    /// Memory for uploads, unless it is as much as usual.
    pub upload_bytes: Option<usize>,
    /// Where blocks are, unless on a disk of their own.
    pub blocks: Option<Arc<dyn Blocks>>,
    /// Whether it has a certificate (see [`Server::certificate`]).
    pub tls: bool,
    /// Whether clients can be sent to a door for links, that of a chunkserver.
    pub redirects: bool,
    /// Where records of requests go, if anywhere.
    pub records: Records,
}

impl Server {
    pub fn start() -> Server {
        Server::with(Setup::default())
    }

    pub fn with(setup: Setup) -> Server {
        let log = Log::default();
        let runtime = runtime(&log);
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Ahead::default());
        let made = store(dir.path(), Arc::clone(&clock) as _, &setup);
        let (admit, root) = runtime.block_on(made);
        let connections = Arc::new(Connections::default());
        let metrics = Metrics::new(
            admit.fs().clone(),
            Arc::clone(&connections),
            Observer::new(&**admit.rng(), SLOW),
        );
        let tls = setup.tls.then(|| {
            write_certificate(dir.path(), "first.test");
            Tls::load(&dir.path().join("cert.pem"), &dir.path().join("key.pem")).unwrap()
        });
        if let Some(tls) = &tls {
            runtime.spawn(Arc::clone(tls).watch());
        }
        let records = setup.records.of("http");
        let most = setup.limits.connections;
        let (limits, connections) = (setup.limits, Arc::clone(&connections));
        let counted = Arc::clone(&connections);
        let serving = Serving { tls, limits, connections: counted, records, ..Serving::default() };
        let (stop, stopped) = watch::channel(false);
        let (files, redirects) =
            if setup.redirects { runtime.block_on(files(&admit, &stopped)) } else { (None, None) };
        let door = HttpDoor::new(Arc::clone(&admit), metrics.door("http"), redirects)
            .with_connections(most);
        let (address, served) = runtime.block_on(async {
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            (address, tokio::spawn(serve(listener, door, serving, stopped)))
        });
        let served = Some(served);
        Server { address, clock, files, admit, root, connections, runtime, stop, served, dir, log }
    }

    /// Opens a door for websites.
    pub fn websites(&self, domains: &[&str]) -> SocketAddr {
        let connections = Arc::clone(&self.connections);
        let observer = Observer::new(&**self.admit.rng(), SLOW);
        let metrics = Metrics::new(self.fs().clone(), connections, observer);
        let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
        let (rng, metrics) = (&**self.admit.rng(), metrics.door("website"));
        let door = WebsiteDoor::new(self.fs().clone(), rng, &metrics, domains);
        let stopped = self.stop.subscribe();
        self.runtime.block_on(async {
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, door, Serving::default(), stopped));
            address
        })
    }

    pub fn fs(&self) -> &Fs {
        self.admit.fs()
    }

    pub fn stop_master(&self) {
        match self.fs().meta() {
            cairn_meta::Meta::Local { master, .. } => master.stop(),
            cairn_meta::Meta::Remote(_) => panic!("no master in this process"),
        }
    }

    /// A client with the credentials of root.
    pub fn root(&self) -> Client {
        self.client(&self.root.id, self.root.secret.expose())
    }

    pub fn anonymous(&self) -> Client {
        Client { address: self.address, authorization: None }
    }

    /// A client that fetches linked objects.
    pub fn linked(&self) -> Client {
        Client { address: self.files.expect("a door for links"), authorization: None }
    }

    pub fn client(&self, id: &str, secret: &str) -> Client {
        let basic = BASE64.encode(format!("{id}:{secret}"));
        Client { address: self.address, authorization: Some(format!("Basic {basic}")) }
    }

    /// A client with credentials of a new user.
    pub fn user(&self, name: &str) -> Client {
        let id = format!("KEY-{name}");
        let secret = format!("secret-of-{name}-0123456789");
        let credential = NewCredential { id: id.clone(), secret: Secret::new(secret.clone()) };
        let sealed = self.admit.seal(&credential);
        let verb = AddAccessKey { id: id.clone(), sealed, user: name.into(), replace: false };
        self.runtime.block_on(self.fs().run(&Caller::system(), verb)).unwrap();
        self.client(&id, &secret)
    }

    /// Tells the server to stop; [`Server::wait`] tells when it has.
    pub fn stop(&self) {
        self.stop.send(true).unwrap();
    }

    pub fn wait(&mut self) {
        let served = self.served.take().unwrap();
        self.runtime.block_on(served).unwrap();
    }
}

/// Blocks as a chunkserver reads them.
struct Reader(Arc<dyn Blocks>);

#[async_trait]
impl BlockReader for Reader {
    async fn get(&self, group: GroupId, block: BlockId, range: Range<u32>) -> Result<Bytes> {
        self.0.get(group, block, range).await
    }
}

/// Opens a door for links, and says how clients are sent there.
async fn files(
    admit: &Admit,
    stopped: &watch::Receiver<bool>,
) -> (Option<SocketAddr>, Option<Redirects>) {
    let key = || LinkKey::new(&LinkKey::derive(&Secret::new([9; 32])));
    let blocks = Arc::new(Reader(Arc::clone(admit.fs().blocks())));
    let (rng, clock) = (SeededRng::new(8), Arc::clone(admit.fs().clock()));
    let metrics = Metrics::of_links(Arc::default(), Observer::new(&rng, SLOW));
    let door =
        FilesDoor::new(key(), blocks, clock, &rng, Arc::new(Vec::new), metrics.door("files"));
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, door, Serving::default(), stopped.clone()));
    let place = move |_| Some(format!("http://{address}/"));
    let redirects = Redirects::new(key(), Arc::new(SeededRng::new(9)), place);
    (Some(address), Some(redirects))
}

async fn store(dir: &Path, clock: Arc<dyn Clock>, setup: &Setup) -> (Arc<Admit>, NewCredential) {
    let engine = Arc::new(Memory::new());
    let master = Master::start(engine, Arc::clone(&clock), Default::default()).unwrap();
    let disk = Arc::new(RealDisk::open(&dir.join("blocks")).unwrap());
    let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
    config.segment_bytes = 64 << 20;
    config.reserve_bytes = 40 << 20;
    config.durability = cairn_blocks::Durability::Async;
    let here = || Arc::new(Store::open(disk, config).unwrap()) as Arc<dyn Blocks>;
    let blocks = setup.blocks.clone().unwrap_or_else(here);
    let rng = Arc::new(SeededRng::new(7));
    let usual = cairn_fs::Config::default();
    let upload_bytes = setup.upload_bytes.unwrap_or(usual.upload_bytes);
    let config = cairn_fs::Config { upload_bytes, ..usual };
    let fs = Fs::start(master, blocks, clock, &*rng, config).await.unwrap();
    let admit = Arc::new(Admit::new(fs, SealKey::new(&Secret::new([9; 32])), rng));
    let root = ensure_root(&admit, None).await.unwrap().unwrap();
    (admit, root)
}

/// Writes a self-signed certificate for `name`; returns it in DER.
pub fn write_certificate(dir: &Path, name: &str) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert.der().to_vec()
}

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub authorization: Option<String>,
}

/// A reply as it came.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// All values of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self
            .headers
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The kind of an error.
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

impl Client {
    pub fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut connection = self.connect();
        connection.send(&self.head(method, path, headers, Some(body.len())));
        connection.send(body);
        connection.reply(method)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &[], b"")
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.call("GET", path, headers, b"")
    }

    pub fn put(&self, path: &str, body: &[u8]) -> Reply {
        self.call("PUT", path, &[], body)
    }

    /// The head of a request, with a length unless there is none.
    pub fn head(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.address);
        if let Some(authorization) = &self.authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if method == "POST" && path.starts_with("/admin/") && !has_type {
            head.push_str("Content-Type: application/json\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { stream, read: Vec::new() }
    }
}

/// A connection that bytes are sent on and replies read from.
pub struct Connection {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// A failure to send is ignored: a server may have said all it wants to say.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn half_close(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads more; false at the end.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the server has closed, with nothing more to read.
    pub fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.fill()
    }

    /// Waits until the server closes, whatever there is still to read.
    pub fn wait_closed(&mut self) {
        while self.fill() {}
    }

    pub fn try_reply(&mut self, method: &str) -> Option<Reply> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if !self.fill() {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
        self.read.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: Vec::new() };
        if status == 100 {
            return self.try_reply(method);
        }
        let length = reply.header("content-length").and_then(|length| length.parse().ok());
        let has_body = method != "HEAD" && !matches!(status, 204 | 304);
        let length: usize = length.filter(|_| has_body).unwrap_or(0);
        while self.read.len() < length {
            if !self.fill() {
                return None;
            }
        }
        reply.body = self.read.drain(..length).collect();
        Some(reply)
    }

    pub fn reply(&mut self, method: &str) -> Reply {
        self.try_reply(method).expect("a reply")
    }
}
