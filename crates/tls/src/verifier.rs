//! Verifies handshakes. The traits here decide on the certificates.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Decides on the certificates of servers.
pub trait AdmitServer: Send + Sync + 'static {
    /// Decides whether a server is admitted. `others` is the rest of the chain that the server
    /// shows.
    ///
    /// # Errors
    /// The reason why the server is not admitted.
    fn admit_server(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// Decides on the certificates of clients.
pub trait AdmitClient: Send + Sync + 'static {
    /// Decides whether a client is admitted.
    ///
    /// # Errors
    /// The reason why the client is not admitted.
    fn admit_client(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error>;
}

/// Verifies that a peer has the key of the certificate that it shows, and asks `A` about that
/// certificate.
pub struct Verifier<A> {
    admits: A,
    algorithms: WebPkiSupportedAlgorithms,
    schemes: Vec<SignatureScheme>,
    speaks_tls12: bool,
}

impl<A> Verifier<A> {
    /// Accepts TLS 1.2 and 1.3, and every signature of the library.
    pub fn new(admits: A) -> Arc<Verifier<A>> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let schemes = algorithms.supported_schemes();
        Arc::new(Verifier { admits, algorithms, schemes, speaks_tls12: true })
    }

    /// Accepts the protocol of cluster nodes: TLS 1.3, and signatures of P-256.
    pub fn of_nodes(admits: A) -> Arc<Verifier<A>> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let schemes = vec![SignatureScheme::ECDSA_NISTP256_SHA256];
        Arc::new(Verifier { admits, algorithms, schemes, speaks_tls12: false })
    }

    fn tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.speaks_tls12 {
            verify_tls12_signature(message, certificate, signed, &self.algorithms)
        } else {
            Err(Error::General("TLS 1.2 is not supported: use TLS 1.3".into()))
        }
    }

    fn tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

impl<A> fmt::Debug for Verifier<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl<A: AdmitServer> ServerCertVerifier for Verifier<A> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.admits.admit_server(certificate, others, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl<A: AdmitClient> ClientCertVerifier for Verifier<A> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.admits.admit_client(certificate, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls12(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.tls13(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
