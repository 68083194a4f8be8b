//! Checks of the other side's identity in handshakes. Each check refuses unless everything is
//! right.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Clock, ClusterId, Error, KeyHash, NodeId, Result, Roles, Timestamp};
use cairn_tls::{AdmitClient, AdmitServer};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, OtherError};

use super::authority::{Authority, Usage};
use super::key::PublicKey;
use super::pins::Pins;

/// Admits nodes of the cluster: certificate, then pin.
#[derive(Clone)]
pub(crate) struct Mutual {
    pub authority: Authority,
    pub pins: Arc<dyn Pins>,
}

impl Mutual {
    /// Admits the node that shows this certificate.
    ///
    /// # Errors
    /// `Denied`, in each case.
    pub fn admit(
        &self,
        certificate: &CertificateDer<'_>,
        now: Timestamp,
        usage: Usage,
    ) -> Result<(NodeId, Roles)> {
        let facts = self.authority.verify(certificate, now, usage)?;
        Ok((facts.node, self.pinned(facts.node, facts.key)?))
    }

    /// Returns the roles of the node, if it is still pinned with this key.
    pub fn pinned(&self, node: NodeId, key: KeyHash) -> Result<Roles> {
        match self.pins.pin(node) {
            None => Err(Error::Denied(format!("node {node} is not in the cluster map"))),
            Some(pin) if pin.key != key => {
                Err(Error::Denied(format!("the key is not that of node {node} in the cluster map")))
            }
            Some(pin) => Ok(pin.roles),
        }
    }
}

/// Admits any client that has a key. It may ask to join, and nothing else.
pub(crate) struct Applying;

/// Knows a master by the authority that a join token names.
pub(crate) struct ByToken {
    pub cluster: ClusterId,
    pub authority: KeyHash,
}

impl ByToken {
    /// Finds the authority in the chain that the master showed, and checks that the master belongs
    /// to it.
    pub fn admit(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Authority> {
        let is_it = |other: &&CertificateDer<'_>| {
            PublicKey::of(other).is_ok_and(|key| key.hash() == self.authority)
        };
        let found = others.iter().find(is_it).ok_or_else(|| {
            Error::Denied("the server belongs to another cluster than the token".to_owned())
        })?;
        let authority = Authority::new(self.cluster, found.clone().into_owned())?;
        authority.verify(certificate, now, Usage::Server)?;
        if !authority.names_master(certificate) {
            return Err(Error::Denied("the server is no master".into()));
        }
        Ok(authority)
    }
}

fn refused(error: Error) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

fn timestamp(now: UnixTime) -> Timestamp {
    Timestamp::from_secs(i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

impl AdmitServer for Mutual {
    fn admit_server(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.admit(certificate, timestamp(now), Usage::Server).map(|_| ()).map_err(refused)
    }
}

impl AdmitClient for Mutual {
    fn admit_client(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.admit(certificate, timestamp(now), Usage::Client).map(|_| ()).map_err(refused)
    }
}

impl AdmitClient for Applying {
    fn admit_client(
        &self,
        certificate: &CertificateDer<'_>,
        _: UnixTime,
    ) -> Result<(), rustls::Error> {
        PublicKey::of(certificate).map(|_| ()).map_err(refused)
    }
}

impl AdmitServer for ByToken {
    fn admit_server(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.admit(certificate, others, timestamp(now)).map(|_| ()).map_err(refused)
    }
}

/// Our clock in the form that the library of TLS wants.
pub(crate) struct TlsClock(pub Arc<dyn Clock>);

impl fmt::Debug for TlsClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClock")
    }
}

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let secs = u64::try_from(self.0.now().secs()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(secs)))
    }
}
