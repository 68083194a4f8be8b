//! The identity of this node while it runs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use cairn_base::{ClusterId, Error, NodeId, Result, Timestamp};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::{Authority, Usage};
use super::key::{NodeKey, invalid};
use crate::limits::CERTIFICATE;

/// Key and certificate of this node; the certificate is renewed while the node runs.
pub struct Identity {
    node: NodeId,
    authority: Authority,
    key: NodeKey,
    certified: ArcSwap<CertifiedKey>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?}, {:?})", self.node, self.key)
    }
}

impl Identity {
    /// Makes an identity.
    ///
    /// # Errors
    /// `Denied` if the certificate is not valid now, `Invalid` if it is of another node or key.
    pub fn new(
        node: NodeId,
        authority: Authority,
        key: NodeKey,
        certificate: CertificateDer<'static>,
        now: Timestamp,
    ) -> Result<Arc<Identity>> {
        let certified = ArcSwap::from_pointee(certify(&authority, &key, certificate)?);
        let identity = Identity { node, authority, key, certified };
        let certificate = identity.certificate();
        identity.check(&certificate, now)?;
        Ok(Arc::new(identity))
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn cluster(&self) -> ClusterId {
        self.authority.cluster()
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn key(&self) -> &NodeKey {
        &self.key
    }

    /// Returns the certificate in use.
    pub fn certificate(&self) -> CertificateDer<'static> {
        let certified = self.certified.load();
        certified.cert.first().cloned().unwrap_or_else(|| CertificateDer::from(Vec::new()))
    }

    /// Returns true if two thirds of the certificate's time are over.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let third = i64::try_from((CERTIFICATE / 3).as_nanos()).unwrap_or(i64::MAX);
        let later = Timestamp(now.0.saturating_add(third));
        self.authority.verify(&self.certificate(), later, Usage::Client).is_err()
    }

    /// Uses a new certificate from the next handshake on.
    pub fn renew(&self, certificate: CertificateDer<'static>, now: Timestamp) -> Result<()> {
        self.check(&certificate, now)?;
        self.certified.store(Arc::new(certify(&self.authority, &self.key, certificate)?));
        Ok(())
    }

    fn check(&self, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<()> {
        let facts = self.authority.verify(certificate, now, Usage::Client)?;
        if facts.node != self.node || facts.key != self.key.public().hash() {
            let node = self.node;
            return Err(Error::Invalid(format!(
                "the certificate is not for node {node} and its key"
            )));
        }
        Ok(())
    }
}

/// The chain contains the authority, so that a joining node can find it by its hash.
fn certify(
    authority: &Authority,
    key: &NodeKey,
    certificate: CertificateDer<'static>,
) -> Result<CertifiedKey> {
    let chain = vec![certificate, authority.certificate().clone()];
    let provider = aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key.to_der(), &provider).map_err(invalid("certificate"))
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.load_full())
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
