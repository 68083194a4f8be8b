//! Authorities that a client trusts.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ClientConfig, Error, RootCertStore};

use crate::authority_file::{self, Authorities};
use crate::verifier::{AdmitServer, Verifier};

/// The certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The authorities that browsers trust.
    Public,
    /// These authorities and certificates, and no others.
    Authorities(Authorities),
    /// Any server: it must only have the key of the certificate that it shows.
    Anyone,
}

/// Reads authorities from PEM. Sections that are no certificates are ignored.
///
/// # Errors
/// A description of the fault: it is no PEM, or has no certificate of an authority.
pub fn authorities(pem: &[u8]) -> Result<Authorities, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(certificates.iter().cloned());
    if roots.is_empty() {
        Err("no certificate in it: give a PEM file".to_owned())
    } else {
        Ok(Authorities { roots, certificates, unusable })
    }
}

/// Configures TLS 1.2 and 1.3 for a client that shows no certificate.
///
/// # Errors
/// Those of the library.
pub fn client_config(trust: Trust) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Public => {
            let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect::<RootCertStore>();
            builder.with_root_certificates(roots)
        }
        Trust::Authorities(authorities) => {
            let verifier = authority_file::verifier(authorities, provider)?;
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Verifier::new(Anyone))
        }
    };
    Ok(builder.with_no_client_auth())
}

struct Anyone;

impl AdmitServer for Anyone {
    fn admit_server(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> String {
        rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn authorities_are_read_and_what_is_none_is_said() {
        let pem =
            made() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + &made();
        let read = authorities(pem.as_bytes()).unwrap();
        assert_eq!((read.roots.len(), read.unusable), (2, 1));
        for bad in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            let said = authorities(bad.as_bytes()).unwrap_err();
            assert!(said.contains("no certificate in it"), "{bad:?}: {said}");
        }
        assert!(authorities(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----").is_err());
    }
}
