//! How handshakes ask who is there. Each answer says no unless all of it is known to be right.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Clock, ClusterId, Error, KeyHash, NodeId, Result, Roles, Timestamp};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
};

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
    /// Who shows this certificate.
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

    /// The roles of the node, if it is still known by this key.
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

/// Admits whoever has a key, as one that may ask to join and nothing else.
pub(crate) struct Applying;

/// Knows a master by the authority that a join token names.
pub(crate) struct ByToken {
    pub cluster: ClusterId,
    pub authority: KeyHash,
}

impl ByToken {
    /// The authority in the chain that the master showed, if the master is what it says.
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
            Error::Denied("the server is not of the cluster that the token names".to_owned())
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

fn algorithms() -> WebPkiSupportedAlgorithms {
    aws_lc_rs::default_provider().signature_verification_algorithms
}

/// What all verifiers do alike: TLS 1.3 only, and the certificate's key signs the handshake.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(message, certificate, signed, &algorithms())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    };
}

impl ServerCertVerifier for Mutual {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.admit(certificate, timestamp(now), Usage::Server).map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Mutual {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.admit(certificate, timestamp(now), Usage::Client).map_err(refused)?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Applying {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        PublicKey::of(certificate).map_err(refused)?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!();
}

impl ServerCertVerifier for ByToken {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.admit(certificate, others, timestamp(now)).map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl fmt::Debug for Mutual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutual")
    }
}

impl fmt::Debug for Applying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Applying")
    }
}

impl fmt::Debug for ByToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByToken")
    }
}

/// Our clock, for the library of TLS.
pub(crate) struct Clocked(pub Arc<dyn Clock>);

impl fmt::Debug for Clocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clocked")
    }
}

impl TimeProvider for Clocked {
    fn current_time(&self) -> Option<UnixTime> {
        let secs = u64::try_from(self.0.now().secs()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(secs)))
    }
}
