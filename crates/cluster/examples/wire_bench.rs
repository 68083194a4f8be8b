//! Echoes of 64 bytes between two processes over loopback TCP, with mutual TLS and without.
//!
//! `wire_bench [SECONDS]` measures 1, 64 and 1,024 in flight, each with calls that are answered at
//! once and with calls that are not. It starts itself again as the server.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{CapabilitySet, Clock, ClusterId, NodeId, Pin, Result, Role, Roles, Secret};
use cairn_cluster::identity::{Authority, Ca, Identity, NodeKey, Pins};
use cairn_cluster::wire::tls::{TlsDialer, TlsListener, Trust};
use cairn_cluster::wire::{
    Dial, Handshake, Link, Listen, NoService, Peer, PeerIdentity, Terms, connect, require_none,
    serve,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const CLUSTER: ClusterId = ClusterId(1);
const MASTER: NodeId = NodeId(1);
const GATEWAY: NodeId = NodeId(2);
const SLOW: u16 = 2;

/// Knows both nodes by the keys in the arguments of the server.
#[derive(Clone, Copy)]
struct Two(Pin, Pin);

impl Pins for Two {
    fn pin(&self, node: NodeId) -> Option<Pin> {
        [(MASTER, self.0), (GATEWAY, self.1)].iter().find(|(id, _)| *id == node).map(|p| p.1)
    }

    fn nodes(&self, _: Role) -> Vec<(NodeId, Pin)> {
        vec![(MASTER, self.0)]
    }

    fn required(&self) -> CapabilitySet {
        CapabilitySet::NONE
    }
}

/// TCP without TLS, to see what TLS costs. Used only here.
struct Plain(Option<TcpListener>);

fn plain(stream: TcpStream, node: NodeId, role: Role) -> Link {
    stream.set_nodelay(true).unwrap();
    let standing = Arc::new(|| Ok(()));
    let (roles, address) = (Roles::from(role), String::new());
    let peer = PeerIdentity {
        node,
        roles,
        address,
        certificate: None,
        required: require_none(),
        standing,
    };
    Link { stream: Box::new(stream), peer }
}

#[async_trait]
impl Dial for Plain {
    async fn dial(&self, address: &str) -> Result<Link> {
        Ok(plain(TcpStream::connect(address).await?, MASTER, Role::Master))
    }

    async fn reaches_machine(&self, _: &str) -> bool {
        false
    }
}

#[async_trait]
impl Listen for Plain {
    async fn accept(&self) -> Result<Handshake> {
        let (stream, _) = self.0.as_ref().unwrap().accept().await?;
        Ok(Box::pin(async { Ok(Some(plain(stream, GATEWAY, Role::Gateway))) }))
    }
}

/// Both identities are made by the client, which hands the server its own through a pipe.
#[derive(Clone)]
struct World {
    ca: Vec<u8>,
    keys: [Secret<String>; 2],
    certificates: [Vec<u8>; 2],
}

impl World {
    fn new() -> World {
        let clock = RealClock::default();
        let ca = Ca::init(CLUSTER, clock.now(), &RealRng).unwrap();
        let keys = [NodeKey::generate().unwrap(), NodeKey::generate().unwrap()];
        let issue = |node, role: Role, key: &NodeKey| {
            let made = ca.issue(node, role.into(), &key.public(), clock.now(), &RealRng);
            made.unwrap().to_vec()
        };
        let certificates =
            [issue(MASTER, Role::Master, &keys[0]), issue(GATEWAY, Role::Gateway, &keys[1])];
        let ca = ca.authority().certificate().to_vec();
        World { ca, keys: keys.map(|key| key.to_pem()), certificates }
    }

    fn write(&self, mut out: impl Write) {
        for key in &self.keys {
            writeln!(out, "{}", key.expose().replace('\n', "|")).unwrap();
        }
        for bytes in [&self.ca, &self.certificates[0], &self.certificates[1]] {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{hex}").unwrap();
        }
    }

    fn read(input: impl BufRead) -> World {
        let lines: Vec<String> = input.lines().take(5).map(|line| line.unwrap()).collect();
        let key = |at: usize| Secret::new(lines[at].replace('|', "\n"));
        let bytes = |at: usize| -> Vec<u8> {
            let digits = |at| u8::from_str_radix(at, 16).unwrap();
            lines[at].as_bytes().chunks(2).map(|d| digits(str::from_utf8(d).unwrap())).collect()
        };
        World { keys: [key(0), key(1)], ca: bytes(2), certificates: [bytes(3), bytes(4)] }
    }

    fn trust(&self, which: usize) -> Trust {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let authority = Authority::new(CLUSTER, self.ca.clone().into()).unwrap();
        let [master, gateway] = [0, 1].map(|at: usize| NodeKey::from_pem(&self.keys[at]).unwrap());
        let pin = |key: &NodeKey, role: Role| Pin { key: key.public().hash(), roles: role.into() };
        let pins = Two(pin(&master, Role::Master), pin(&gateway, Role::Gateway));
        let key = if which == 0 { master } else { gateway };
        let node = [MASTER, GATEWAY][which];
        let certificate = self.certificates[which].clone().into();
        let identity = Identity::new(node, authority, key, certificate, clock.now()).unwrap();
        Trust { identity, pins: Arc::new(pins), clock }
    }
}

async fn echo(method: u16, payload: Bytes) -> Result<Bytes> {
    if method == SLOW {
        tokio::task::yield_now().await;
    }
    Ok(payload)
}

/// Prints its two addresses and serves until its input ends.
async fn server() {
    let world = World::read(std::io::stdin().lock());
    let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = TlsListener::new(listen().await, world.trust(0), None).unwrap();
    let plain = listen().await;
    println!("{}\n{}", tls.local_address().unwrap(), plain.local_addr().unwrap());
    let (stop, stopped) = watch::channel(false);
    let terms = Terms::new(CLUSTER, MASTER, Role::Master);
    let listeners: [Arc<dyn Listen>; 2] = [Arc::new(tls), Arc::new(Plain(Some(plain)))];
    for listener in listeners {
        let service = |_: &Peer, method: u16, payload: Bytes| echo(method, payload);
        let drain = Duration::from_secs(1);
        tokio::spawn(serve(listener, terms.clone(), service, drain, stopped.clone()));
    }
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        stop.send_replace(true);
        std::process::exit(0);
    });
    std::future::pending::<()>().await;
}

/// Measures calls per second with `in_flight` of them in progress.
async fn measure(peer: &Peer, method: u16, in_flight: usize, length: Duration) -> f64 {
    let payload = Bytes::from(vec![7; 64]);
    let start = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (peer, payload) = (peer.clone(), payload.clone());
            tokio::spawn(async move {
                let mut count = 0u64;
                while start.elapsed() < length {
                    let call = peer.call(method, payload.clone(), Duration::from_secs(10));
                    assert_eq!(call.await.unwrap().len(), 64);
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    count as f64 / start.elapsed().as_secs_f64()
}

async fn client(length: Duration) {
    let world = World::new();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    world.write(&mut input);
    let mut lines = std::io::BufReader::new(server.stdout.take().unwrap()).lines();
    let mut address = || lines.next().unwrap().unwrap();
    let networks: [(&str, String, Arc<dyn Dial>); 2] = [
        ("TLS", address(), Arc::new(TlsDialer::new(world.trust(1)).unwrap())),
        ("plain", address(), Arc::new(Plain(None))),
    ];
    let terms = Terms::new(CLUSTER, GATEWAY, Role::Gateway);
    println!("{:8}{:>12}{:>14}{:>14}", "", "in flight", "at once/s", "later/s");
    for (name, address, dialer) in networks {
        let peer = connect(dialer.dial(&address).await.unwrap(), &terms, NoService).await.unwrap();
        measure(&peer, 1, 64, length / 4).await;
        for in_flight in [1, 64, 1024] {
            let at_once = measure(&peer, 1, in_flight, length).await;
            let later = measure(&peer, SLOW, in_flight, length).await;
            println!("{name:8}{in_flight:>12}{at_once:>14.0}{later:>14.0}");
        }
    }
    drop(input);
    server.wait().unwrap();
}

fn main() {
    let argument = std::env::args().nth(1);
    let runtime = match std::env::var("WORKERS").ok().and_then(|n| n.parse().ok()) {
        Some(0) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        workers => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers.unwrap_or(2))
            .enable_all()
            .build(),
    }
    .unwrap();
    match argument.as_deref() {
        Some("server") => runtime.block_on(server()),
        seconds => {
            let seconds = seconds.map_or(2.0, |text| text.parse().unwrap());
            runtime.block_on(client(Duration::from_secs_f64(seconds)));
        }
    }
}
