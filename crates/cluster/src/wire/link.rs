//! Seam to the network: dialers and listeners give authenticated streams, and the connection over
//! them knows neither TCP nor TLS.

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use cairn_base::{CapabilitySet, Error, NodeId, Result, Roles};
use futures_util::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open stream to a node that has proven its identity.
pub struct Link {
    pub stream: Box<dyn Stream>,
    pub peer: PeerIdentity,
}

/// The identity at the other end, by its certificate and the cluster map.
#[derive(Clone)]
pub struct PeerIdentity {
    pub node: NodeId,
    pub roles: Roles,
    pub address: String,
    /// Certificate with which it proved its identity; none on a network without TLS.
    pub certificate: Option<CertificateDer<'static>>,
    /// Capabilities that the program there must have, as long as the connection lasts.
    pub required: Required,
    /// Checks again, while the connection lasts, that all this still holds.
    pub standing: Standing,
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerIdentity { node, roles, address, .. } = self;
        write!(f, "PeerIdentity({node}, {roles:?}, {address})")
    }
}

/// Takes over links of a protocol other than `cairn-wire`, and serves them in tasks of its own.
pub type Taker = Arc<dyn Fn(Link) + Send + Sync>;

/// Returns the capabilities that are turned on in the store.
pub type Required = Arc<dyn Fn() -> CapabilitySet + Send + Sync>;

/// Requires no capability, for a peer that sees no rows.
pub fn require_none() -> Required {
    Arc::new(|| CapabilitySet::NONE)
}

/// Returns `Denied` once the peer is no longer admitted: its node was removed, its certificate
/// expired.
pub type Standing = Arc<dyn Fn() -> Result<()> + Send + Sync>;

#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Opens an authenticated stream.
    ///
    /// # Errors
    /// `Unavailable` if no node answers there, `Denied` if this side does not trust the node, or
    /// the node does not trust this side.
    async fn dial(&self, address: &str) -> Result<Link>;

    /// Returns true if another machine answers at the address, even if no node runs there.
    async fn reaches_machine(&self, address: &str) -> bool;
}

/// An accepted connection in its handshake. Ends with `None` if it was for another purpose, and is
/// done.
pub type Handshake = BoxFuture<'static, Result<Option<Link>>>;

#[async_trait]
pub trait Listen: Send + Sync + 'static {
    /// Accepts the next connection. Its handshake goes on only while the returned future is polled.
    async fn accept(&self) -> Result<Handshake>;
}

/// Converts an error of a stream. Objections of TLS to the peer, or of the peer to us, are
/// `Denied`; other errors of TLS are `Invalid`; all else is `Unavailable`.
pub fn lost(doing: &str) -> impl Fn(io::Error) -> Error {
    move |error| {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            None => Error::Unavailable(format!("{doing}: {error}")),
            Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
                match other.0.downcast_ref::<Error>() {
                    Some(Error::Denied(why)) => Error::Denied(format!("{doing}: {why}")),
                    _ => Error::Denied(format!("{doing}: {}", other.0)),
                }
            }
            Some(rustls::Error::InvalidCertificate(why)) => {
                Error::Denied(format!("{doing}: the peer's certificate: {why}"))
            }
            Some(rustls::Error::AlertReceived(alert)) => {
                Error::Denied(format!("{doing}: the peer refuses this node: {alert:?}"))
            }
            Some(rustls::Error::NoCertificatesPresented) => {
                Error::Denied(format!("{doing}: the peer shows no certificate"))
            }
            Some(other) => Error::Invalid(format!("{doing}: {other}")),
        }
    }
}
