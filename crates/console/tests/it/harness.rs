//! A store with its console and its S3 door in this process, and a browser that says what it is
//! told to.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_audit::{LineLog, LineQueue};
use cairn_auth::{Caller, NewCredential, SealKey};
use cairn_base::clock::RealClock;
use cairn_base::rng::SeededRng;
use cairn_base::{Clock, RealDisk, Rng, Secret, Timestamp};
use cairn_blocks::Store;
use cairn_console::{ConsoleDoor, Data, Insight, Site, loopback};
use cairn_doors::Records;
use cairn_doors::admit::{Admit, ensure_root};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::s3::{self, S3Config};
use cairn_doors::serve::{Serving, listen, serve};
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_fs::{Fs, WireVerb};
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(60);

/// The clock of the machine, and ahead of it by as much as a test says.
#[derive(Default)]
pub struct Ahead {
    real: RealClock,
    secs: AtomicU64,
}

impl Ahead {
    pub fn advance(&self, by: Duration) {
        self.secs.fetch_add(by.as_secs(), Ordering::SeqCst);
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

pub struct Rig {
    pub console: SocketAddr,
    pub s3: SocketAddr,
    pub clock: Arc<Ahead>,
    pub admit: Arc<Admit>,
    pub root: NewCredential,
    pub runtime: Runtime,
    metrics: Arc<Metrics>,
    audit: Arc<LineQueue>,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub fn start() -> Rig {
        Rig::knowing(Insight::default())
    }

    /// With what its process knows besides the store.
    pub fn knowing(insight: Insight) -> Rig {
        Rig::limited(insight, Limits::default())
    }

    /// The same, with limits of its console.
    pub fn limited(insight: Insight, limits: Limits) -> Rig {
        let runtime = Runtime::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Ahead::default());
        let (admit, root) = runtime.block_on(store(&dir, Arc::clone(&clock) as _));
        let audit = Arc::new(LineQueue::new("audit", "test"));
        let log =
            LineLog::new(Arc::clone(&clock) as _, Arc::new(|_| None), std::slice::from_ref(&audit));
        let records = Records::new(Some(log), None);
        let observer = Observer::new(&**admit.rng(), SLOW);
        let metrics = Metrics::new(admit.fs().clone(), Arc::new(Connections::default()), observer);
        let (stop, stopped) = watch::channel(false);
        let (console, s3) = runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let (at_console, at_s3) = (listen(any).unwrap(), listen(any).unwrap());
            let (console, s3) = (at_console.local_addr().unwrap(), at_s3.local_addr().unwrap());
            let data = Data::Beside { scheme: "http", port: s3.port() };
            let links = Data::At("https://files.example".to_owned());
            let origins = loopback(console.port());
            let site = Site::new(&origins, data, links, false, console.port()).unwrap();
            let own = metrics.door("console");
            let door = ConsoleDoor::new(Arc::clone(&admit), &own, site, insight);
            let serving = |door| Serving { records: records.of(door), ..Serving::default() };
            let of_console = Serving { limits, ..serving("console") };
            tokio::spawn(serve(at_console, door, of_console, stopped.clone()));
            let config = S3Config { pages: origins, ..S3Config::default() };
            let (fs, keys) = (admit.fs().clone(), Arc::clone(&admit));
            let door = s3::service(fs, keys, &metrics.door("s3"), config);
            tokio::spawn(serve(at_s3, door, serving("s3"), stopped));
            (console, s3)
        });
        Rig { console, s3, clock, admit, root, runtime, metrics, audit, _stop: stop, _dir: dir }
    }

    pub fn fs(&self) -> &Fs {
        self.admit.fs()
    }

    /// The sum of a metric.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.runtime.block_on(self.metrics.text(true));
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let lines = lines.filter(|rest| rest.starts_with([' ', '{']));
        lines.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    pub fn run<V: WireVerb>(&self, verb: V) -> V::Reply {
        self.runtime.block_on(self.fs().run(&Caller::system(), verb)).unwrap()
    }

    /// A browser that has not logged in.
    pub fn browser(&self) -> Browser {
        Browser {
            at: self.console,
            cookie: None,
            host: format!("127.0.0.1:{}", self.console.port()),
        }
    }

    /// A browser in which root has logged in.
    pub fn root(&self) -> Browser {
        let mut browser = self.browser();
        let reply = browser.log_in(&self.root.id, self.root.secret.expose());
        assert_eq!(reply.status, 303, "{}", reply.body);
        browser
    }

    /// A browser in which a new user has logged in.
    pub fn user(&self, name: &str) -> Browser {
        let (id, secret) = self.credential(name, false);
        let mut browser = self.browser();
        assert_eq!(browser.log_in(&id, &secret).status, 303);
        browser
    }

    /// An access key of a user: a new one, or a new secret for the same.
    pub fn credential(&self, name: &str, replace: bool) -> (String, String) {
        let id = format!("KEY-{name}");
        let secret = format!("secret-of-{name}-{}", self.admit.rng().next_u64());
        let credential = NewCredential { id: id.clone(), secret: Secret::new(secret.clone()) };
        let sealed = self.admit.seal(&credential);
        self.run(AddAccessKey { id: id.clone(), sealed, user: name.into(), replace });
        (id, secret)
    }

    /// Waits for a record of the audit with this text, and returns it; those before it are gone.
    pub fn audited(&self, text: &str) -> String {
        loop {
            let batch = self.audit.take(Duration::ZERO).unwrap();
            let lines = String::from_utf8(batch.bytes).unwrap();
            if let Some(line) = lines.lines().find(|line| line.contains(text)) {
                return line.to_owned();
            }
        }
    }
}

async fn store(dir: &tempfile::TempDir, clock: Arc<dyn Clock>) -> (Arc<Admit>, NewCredential) {
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(1));
    let engine = Arc::new(Memory::new());
    let master = Master::start(engine, Arc::clone(&clock), Default::default()).unwrap();
    let disk = Arc::new(RealDisk::open(&dir.path().join("blocks")).unwrap());
    let mut config = cairn_blocks::Config::new([1; 16], [2; 16]);
    config.segment_bytes = 64 << 20;
    config.reserve_bytes = 40 << 20;
    config.durability = cairn_blocks::Durability::Async;
    let blocks = Arc::new(Store::open(disk, config).unwrap());
    let fs = Fs::start(master, blocks, clock, &*rng, Default::default()).await.unwrap();
    let seal = SealKey::new(&Secret::new([7; 32]));
    let admit = Arc::new(Admit::new(fs, seal, rng));
    let root = ensure_root(&admit, None).await.unwrap().unwrap();
    (admit, root)
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// By lower-case names; a name that came twice has its last value.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[derive(Clone)]
pub struct Browser {
    pub at: SocketAddr,
    pub cookie: Option<String>,
    pub host: String,
}

impl Browser {
    pub fn get(&mut self, target: &str) -> Reply {
        self.send("GET", target, &[], "")
    }

    /// Sends a form from a page of the console.
    pub fn post(&mut self, target: &str, form: &str) -> Reply {
        self.send("POST", target, &[("sec-fetch-site", "same-origin")], form)
    }

    pub fn log_in(&mut self, id: &str, secret: &str) -> Reply {
        self.post("/login", &format!("key={id}&secret={secret}"))
    }

    pub fn is_logged_in(&mut self) -> bool {
        self.get("/").status == 200
    }

    /// Asks for something that comes bit by bit.
    pub fn open(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, cookie) = (&self.host, self.cookie.as_deref().unwrap_or_default());
        let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Sends a form, and does not wait for the reply.
    pub fn open_form(&self, target: &str, form: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let text = format!(
            "POST {target} HTTP/1.1\r\nhost: {}\r\nsec-fetch-site: same-origin\r\n\
             content-length: {}\r\n\r\n{form}",
            self.host,
            form.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut text = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str(&format!("host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(cookie) = &self.cookie {
            text.push_str(&format!("cookie: {cookie}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let reply = exchange(self.at, &format!("{text}\r\n{body}"));
        if let Some(set) = reply.headers.get("set-cookie") {
            let cookie = set.split(';').next().unwrap();
            self.cookie = (!set.ends_with("Max-Age=0")).then(|| cookie.to_owned());
        }
        reply
    }
}

pub fn exchange(at: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or("0");
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Reply { status: status.parse().unwrap(), headers: headers.collect(), body: body.to_owned() }
}
