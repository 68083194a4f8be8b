//! The network that nodes use: TCP with TLS 1.3, in which both sides show their certificates.
//!
//! The first message of a client (ALPN) decides what it may do. `cairn-wire/1` is for nodes of the
//! cluster only, and so are `cairn-blocks/1`, over which blocks move, and `h2`, over which masters
//! are administered. `cairn-join/1` leads to the desk where nodes are admitted, and nowhere else.
//! There is no session resumption: each connection asks the cluster map anew.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cairn_base::{Clock, Error, Party, Result, Share, Shares};
use cairn_tls::Verifier;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{Acceptor, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsConnector, TlsStream, client};

use super::desk;
pub(crate) use super::link::lost;
use super::link::{Dial, Handshake, Link, Listen, PeerIdentity, Standing, Taker};
use super::refusal;
use crate::identity::{
    Applying, ByToken, Desk, Identity, JoinToken, Mutual, NodeKey, Pins, PublicKey, TlsClock, Usage,
};
use crate::limits::{DIAL, HANDSHAKE_WANTED, HANDSHAKES, JOINS, READ_BYTES};

/// Deadline of a machine to answer at all.
const REACH: Duration = Duration::from_secs(1);
const WIRE: &[u8] = b"cairn-wire/1";
const JOIN: &[u8] = b"cairn-join/1";
const BLOCKS: &[u8] = b"cairn-blocks/1";
const ADMIN: &[u8] = b"h2";
/// Interval at which a certificate is verified again while its connection lasts.
const VERIFY_AGAIN: Duration = Duration::from_secs(60);

/// The library of TLS reads 4 KiB at a time: from this buffer, not from the socket.
type Buffered = BufReader<TcpStream>;

/// The identity of this node, whom it trusts, and what time it is.
#[derive(Clone)]
pub struct Trust {
    pub identity: Arc<Identity>,
    pub pins: Arc<dyn Pins>,
    pub clock: Arc<dyn Clock>,
}

impl Trust {
    fn mutual(&self) -> Mutual {
        let authority = self.identity.authority().clone();
        Mutual { authority, pins: Arc::clone(&self.pins) }
    }

    /// The node that showed the certificate. It was admitted in the handshake; here is found out as
    /// whom.
    fn authenticate(
        &self,
        certificates: Option<&[CertificateDer<'_>]>,
        usage: Usage,
        address: String,
    ) -> Result<PeerIdentity> {
        let certificate = certificates.and_then(|all| all.first());
        let none = || Error::Denied("the peer shows no certificate".into());
        let certificate = certificate.ok_or_else(none)?.clone().into_owned();
        let (node, roles) = self.mutual().admit(&certificate, self.clock.now(), usage)?;
        let standing = self.standing(certificate.clone(), usage)?;
        let pins = Arc::clone(&self.pins);
        let required = Arc::new(move || pins.required());
        let certificate = Some(certificate);
        Ok(PeerIdentity { node, roles, address, certificate, required, standing })
    }

    /// Asks the map each time and the certificate now and then.
    fn standing(&self, certificate: CertificateDer<'static>, usage: Usage) -> Result<Standing> {
        let (mutual, clock) = (self.mutual(), Arc::clone(&self.clock));
        let facts = mutual.authority.verify(&certificate, clock.now(), usage)?;
        let next = |clock: &dyn Clock| (clock.monotonic() + VERIFY_AGAIN).as_secs();
        let again = AtomicU64::new(next(&*clock));
        Ok(Arc::new(move || {
            if clock.monotonic().as_secs() >= again.load(Ordering::Relaxed) {
                mutual.authority.verify(&certificate, clock.now(), usage)?;
                again.store(next(&*clock), Ordering::Relaxed);
            }
            mutual.pinned(facts.node, facts.key).map(|_| ())
        }))
    }
}

fn invalid(error: rustls::Error) -> Error {
    Error::Invalid(format!("TLS: {error}"))
}

/// Dials nodes of the cluster.
pub struct TlsDialer {
    trust: Trust,
    connector: TlsConnector,
}

impl TlsDialer {
    /// Dials to ask.
    pub fn new(trust: Trust) -> Result<TlsDialer> {
        TlsDialer::speaking(WIRE, trust)
    }

    /// Dials to move blocks.
    pub fn for_blocks(trust: Trust) -> Result<TlsDialer> {
        TlsDialer::speaking(BLOCKS, trust)
    }

    /// Dials to administer.
    pub fn for_admin(trust: Trust) -> Result<TlsDialer> {
        TlsDialer::speaking(ADMIN, trust)
    }

    /// Dials to speak a protocol of any name and version.
    pub fn speaking(protocol: &[u8], trust: Trust) -> Result<TlsDialer> {
        let verifier = Verifier::of_nodes(trust.mutual());
        let time = Arc::new(TlsClock(Arc::clone(&trust.clock)));
        let config = ClientConfig::builder_with_details(provider(protocol), time)
            .with_protocol_versions(&[&TLS13])
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::clone(&trust.identity) as _);
        Ok(TlsDialer { trust, connector: connector(config, protocol) })
    }
}

/// For blocks the cipher that takes the least time is asked for first.
fn provider(protocol: &[u8]) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if protocol == BLOCKS {
        let fast = TLS13_AES_128_GCM_SHA256.suite();
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != fast);
    }
    Arc::new(provider)
}

fn connector(mut config: ClientConfig, protocol: &[u8]) -> TlsConnector {
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    TlsConnector::from(Arc::new(config))
}

#[async_trait]
impl Dial for TlsDialer {
    async fn dial(&self, address: &str) -> Result<Link> {
        let stream = dial(&self.connector, address).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let peer = self.trust.authenticate(shown, Usage::Server, address.to_owned())?;
        Ok(Link { stream: Box::new(stream), peer })
    }

    async fn reaches_machine(&self, address: &str) -> bool {
        let reaching = async {
            for to in lookup_host(address).await? {
                // One without a route is not reached; another address of the name may be.
                if is_here(to).unwrap_or(true) {
                    continue;
                }
                match TcpStream::connect(to).await {
                    // The kernel of that machine answers for a process that is gone.
                    Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {}
                    _ => return Ok(true),
                }
            }
            Ok(false)
        };
        let reached: io::Result<bool> = timeout(REACH, reaching).await.unwrap_or(Ok(false));
        reached.unwrap_or(false)
    }
}

/// Returns true if an address is one of this machine: packets to it would leave from there.
fn is_here(to: SocketAddr) -> io::Result<bool> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // Nothing is sent.
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip() == to.ip())
}

async fn dial(connector: &TlsConnector, address: &str) -> Result<client::TlsStream<Buffered>> {
    let dialing = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        // Not sent, and not what the peer is known by.
        let name = ServerName::try_from("cairn").map_err(io::Error::other)?;
        connector.connect(name, BufReader::with_capacity(READ_BYTES, stream)).await
    };
    let late = |_| Error::Unavailable(format!("dialing: no answer within {DIAL:?}"));
    timeout(DIAL, dialing).await.map_err(late)?.map_err(lost("dialing"))
}

/// Dials a master that `token` names, to join. The certificate shown is signed by nobody: it shows
/// that the key is here.
pub(crate) async fn dial_to_join(
    address: &str,
    token: &JoinToken,
    key: &NodeKey,
    clock: &Arc<dyn Clock>,
) -> Result<client::TlsStream<Buffered>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = vec![key.self_signed()?];
    let certified = CertifiedKey::from_der(chain, key.to_der(), &provider).map_err(invalid)?;
    let verifier = ByToken { cluster: token.cluster, authority: token.authority };
    let config =
        ClientConfig::builder_with_details(provider, Arc::new(TlsClock(Arc::clone(clock))))
            .with_protocol_versions(&[&TLS13])
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(Verifier::of_nodes(verifier))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    dial(&connector(config, JOIN), address).await
}

/// Listens for nodes of the cluster: those that call, and those that want another protocol, if
/// there is a taker for it. If there is a desk, also for nodes that ask to join.
pub struct TlsListener {
    tcp: TcpListener,
    shared: Arc<ListenerShared>,
}

/// The takers of connections that do not use `cairn-wire/1`.
#[derive(Clone, Default)]
pub struct Takers {
    /// Taker of connections that move blocks.
    pub blocks: Option<Taker>,
    /// Taker of connections for administration, on masters.
    pub admin: Option<Taker>,
}

struct ListenerShared {
    trust: Trust,
    wire: Arc<ServerConfig>,
    takers: Vec<(&'static [u8], Arc<ServerConfig>, Taker)>,
    join: Option<(Arc<ServerConfig>, Arc<Desk>)>,
    joins: Arc<Shares>,
    handshakes: Arc<Shares>,
}

impl TlsListener {
    pub fn new(tcp: TcpListener, trust: Trust, desk: Option<Arc<Desk>>) -> Result<TlsListener> {
        TlsListener::with_takers(tcp, trust, desk, Takers::default())
    }

    pub fn with_takers(
        tcp: TcpListener,
        trust: Trust,
        desk: Option<Arc<Desk>>,
        takers: Takers,
    ) -> Result<TlsListener> {
        let wire = server(&trust, Verifier::of_nodes(trust.mutual()), WIRE)?;
        let join = match desk {
            Some(desk) => Some((server(&trust, Verifier::of_nodes(Applying), JOIN)?, desk)),
            None => None,
        };
        let mut taken = Vec::new();
        for (protocol, taker) in [(BLOCKS, takers.blocks), (ADMIN, takers.admin)] {
            if let Some(taker) = taker {
                let config = server(&trust, Verifier::of_nodes(trust.mutual()), protocol)?;
                taken.push((protocol, config, taker));
            }
        }
        let (joins, handshakes) = (Shares::new(JOINS as u64), Shares::new(HANDSHAKES as u64));
        let shared = ListenerShared { trust, wire, takers: taken, join, joins, handshakes };
        Ok(TlsListener { tcp, shared: Arc::new(shared) })
    }

    pub fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.tcp.local_addr()?)
    }
}

fn server(
    trust: &Trust,
    verifier: Arc<dyn rustls::server::danger::ClientCertVerifier>,
    protocol: &[u8],
) -> Result<Arc<ServerConfig>> {
    let time = Arc::new(TlsClock(Arc::clone(&trust.clock)));
    let mut config = ServerConfig::builder_with_details(provider(protocol), time)
        .with_protocol_versions(&[&TLS13])
        .map_err(invalid)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(&trust.identity) as _);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

#[async_trait]
impl Listen for TlsListener {
    async fn accept(&self) -> Result<Handshake> {
        let (stream, address) = self.tcp.accept().await?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::pin(async move { shared.shake(stream, address).await }))
    }
}

/// Waits for something, but not for long where others wait for its place.
async fn while_unwanted<F: Future>(place: &Share, work: F) -> Result<F::Output> {
    let mut work = pin!(work);
    loop {
        match timeout(HANDSHAKE_WANTED, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if place.is_wanted() => {
                let text = "handshake: too slow while others wait for its place";
                return Err(Error::Unavailable(text.into()));
            }
            Err(_) => {}
        }
    }
}

impl ListenerShared {
    /// A handshake takes its place when the first bytes of a hello have come, and may take less
    /// time while others wait for that place. So a stranger that says nothing is in nobody's way.
    async fn shake(&self, stream: TcpStream, address: SocketAddr) -> Result<Option<Link>> {
        stream.set_nodelay(true).map_err(lost("handshake"))?;
        stream.peek(&mut [0]).await.map_err(lost("handshake"))?;
        let party = Party::at(address.ip());
        let place = self.handshakes.take(party, 1).await;
        let start = LazyConfigAcceptor::new(
            Acceptor::default(),
            BufReader::with_capacity(READ_BYTES, stream),
        );
        let start = while_unwanted(&place, start).await?.map_err(lost("handshake"))?;
        let is_to_join = start.client_hello().alpn().is_some_and(|asked| asked.eq([JOIN]));
        if is_to_join && self.join.is_some() {
            // Work at the desk is not broken off for others.
            let _turn = self.joins.take(party, 1).await;
            drop(place);
            return self.go_on(start, address).await;
        }
        while_unwanted(&place, self.go_on(start, address)).await?
    }

    async fn go_on(
        &self,
        start: StartHandshake<Buffered>,
        address: SocketAddr,
    ) -> Result<Option<Link>> {
        let lost = || lost("handshake");
        let asks_for = |protocol: &[u8]| {
            let hello = start.client_hello();
            hello.alpn().is_some_and(|asked| asked.eq([protocol]))
        };
        if asks_for(WIRE) {
            return Ok(Some(self.admit(start, &self.wire, address).await?));
        }
        if let Some((_, config, taker)) = self.takers.iter().find(|(name, ..)| asks_for(name)) {
            taker(self.admit(start, config, address).await?);
            return Ok(None);
        }
        if let Some((asked, spoken)) = self.other_version(&start) {
            let config = server(&self.trust, Verifier::of_nodes(self.trust.mutual()), &asked)?;
            let link = self.admit(start, &config, address).await?;
            let own = self.trust.identity.node();
            let cluster = self.trust.identity.cluster();
            return Err(refusal::refuse(link, cluster, own, &asked, spoken).await);
        }
        match &self.join {
            Some((config, desk)) if asks_for(JOIN) => {
                let mut stream = start.into_stream(Arc::clone(config)).await.map_err(lost())?;
                let shown = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
                let public = shown.map(PublicKey::of);
                let none = || Error::Denied("the peer shows no key".into());
                desk::serve(desk, &mut stream, &public.ok_or_else(none)??).await?;
                Ok(None)
            }
            _ => Err(Error::Invalid(
                "handshake: the peer asks for a protocol that this node does not speak".into(),
            )),
        }
    }

    /// The wanted protocol, and the one spoken here for the same purpose, if only the versions
    /// differ.
    fn other_version(&self, start: &StartHandshake<Buffered>) -> Option<(Vec<u8>, &'static [u8])> {
        let purpose = |name: &[u8]| name.iter().position(|byte| *byte == b'/');
        let hello = start.client_hello();
        let mut asked = hello.alpn()?;
        let (Some(name), None) = (asked.next(), asked.next()) else { return None };
        let prefix = name.get(..=purpose(name)?)?;
        let mut all = std::iter::once(WIRE).chain(self.takers.iter().map(|(spoken, ..)| *spoken));
        let spoken = all.find(|spoken| spoken.starts_with(prefix))?;
        Some((name.to_vec(), spoken))
    }

    /// The rest of the handshake with a node of the cluster.
    async fn admit(
        &self,
        start: StartHandshake<Buffered>,
        config: &Arc<ServerConfig>,
        address: SocketAddr,
    ) -> Result<Link> {
        let stream = start.into_stream(Arc::clone(config)).await.map_err(lost("handshake"))?;
        let shown = stream.get_ref().1.peer_certificates();
        let peer = self.trust.authenticate(shown, Usage::Client, address.to_string())?;
        Ok(Link { stream: Box::new(TlsStream::Server(stream)), peer })
    }
}
