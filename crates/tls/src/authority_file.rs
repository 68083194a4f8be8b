//! Certificates that a client was given in a file.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::certificate::facts;

/// Authorities that a file names.
#[derive(Clone, Debug)]
pub struct Authorities {
    pub roots: RootCertStore,
    /// All certificates of the file. A server may itself have one of them.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Certificates that cannot be those of an authority.
    pub unusable: usize,
}

/// Admits servers whose certificate one of the authorities has signed, and servers that show one of
/// the certificates itself. `openssl req -x509` marks the certificate that it makes for a server as
/// an authority, in which a chain may not end.
pub fn verifier(
    authorities: Authorities,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let roots = Arc::new(authorities.roots);
    let chains = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
    let chains = chains.map_err(|error| Error::General(error.to_string()))?;
    Ok(Arc::new(AuthorityVerifier { chains, certificates: authorities.certificates }))
}

/// Verifies servers by the authorities and certificates of a file.
struct AuthorityVerifier {
    chains: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for AuthorityVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthorityVerifier")
    }
}

/// Checks that a certificate from the file itself may be used now, by a server of this name.
fn check_given(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    let bad = |error| Err(Error::InvalidCertificate(error));
    let Some(facts) = facts(certificate) else { return bad(CertificateError::BadEncoding) };
    if now < facts.not_before {
        return bad(CertificateError::NotValidYet);
    }
    if now > facts.not_after {
        return bad(CertificateError::Expired);
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains.verify_server_cert(certificate, others, name, stapled, now);
        let is_given = self.certificates.iter().any(|given| given.as_ref() == certificate.as_ref());
        if verified.is_err() && is_given {
            check_given(certificate, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
    use rustls::crypto::aws_lc_rs;

    use super::*;
    use crate::trust::authorities;

    /// A time in 2026.
    const NOW: u64 = 1_795_737_600;

    fn self_signed(is_ca: bool) -> rcgen::Certificate {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn ask(given: &str, shown: &CertificateDer<'_>, name: &str, secs: u64) -> Result<(), String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = verifier(authorities(given.as_bytes()).unwrap(), provider).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let verified = verifier.verify_server_cert(shown, &[], &name, &[], now);
        verified.map(|_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_self_signed_certificate_that_was_given_is_accepted_for_its_name_while_it_is_valid() {
        for is_ca in [true, false] {
            let made = self_signed(is_ca);
            let ask = |name, secs| ask(&made.pem(), made.der(), name, secs);
            assert_eq!(ask("a.example", NOW), Ok(()), "{is_ca}");
            assert!(ask("b.example", NOW).unwrap_err().contains("not valid for name"));
            let year = 366 * 24 * 3600;
            assert!(ask("a.example", NOW + year).unwrap_err().contains("xpired"));
            let early = ask("a.example", NOW - year).unwrap_err().to_lowercase();
            assert!(early.contains("valid") && early.contains("yet"), "{early}");
        }
    }

    #[test]
    fn a_certificate_that_was_not_given_is_refused() {
        let (given, other) = (self_signed(true), self_signed(true));
        assert!(ask(&given.pem(), other.der(), "a.example", NOW).is_err());
    }
}
