//! Keys and signed certificates.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_base::Secret;
use cairn_tls::certificate::{Facts, facts};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;

use crate::failure::{Failure, Result};

const DAY: u64 = 24 * 3600;
/// Time by which the validity of a certificate begins earlier, seconds: clocks differ.
const CLOCK_SKEW: u64 = 3600;

/// A certificate and its key, as PEM.
pub struct CertificatePair {
    pub certificate: String,
    pub key: Secret<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Server,
    Client,
}

impl Purpose {
    pub fn word(self) -> &'static str {
        match self {
            Purpose::Server => "server",
            Purpose::Client => "client",
        }
    }
}

/// An authority that signs.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    facts: Facts,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

fn at(secs: u64) -> Result<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(secs).map_err(failed)?).map_err(failed)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Makes a new authority.
pub fn authority(name: &str, days: u32) -> Result<CertificatePair> {
    if name.trim().is_empty() || name.chars().any(char::is_control) || name.chars().count() > 64 {
        return Err(Failure::usage("--name: use 1 to 64 characters"));
    }
    let (key, now) = (KeyPair::generate().map_err(failed)?, now());
    let mut params = authority_params(name);
    params.not_before = at(now - CLOCK_SKEW)?;
    params.not_after = at(now + u64::from(days) * DAY)?;
    let made = params.self_signed(&key).map_err(failed)?;
    Ok(CertificatePair { certificate: made.pem(), key: Secret::new(key.serialize_pem()) })
}

impl Ca {
    /// Loads an authority.
    ///
    /// # Errors
    /// The reason why it cannot sign: it has expired, is no authority, or does not belong to this
    /// key.
    pub fn load(made: &CertificatePair) -> Result<Ca> {
        let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes());
        let certificate = certificate.map_err(|_| Failure::new("no certificate in it"))?;
        let facts = facts(&certificate).ok_or_else(|| Failure::new("not a certificate"))?;
        let now = now();
        if facts.not_after.as_secs() < now {
            let text = "the authority has expired: make another (cairn cert ca), and give its \
                        ca.pem to all clients";
            return Err(Failure::new(text));
        }
        if facts.not_before.as_secs() > now {
            let text = "the authority is not valid yet: set the clock of this machine";
            return Err(Failure::new(text));
        }
        let name = facts.common_name.clone();
        let name =
            name.ok_or_else(|| Failure::new("not made by cairn cert: sign with its tool"))?;
        // Without the library's words: they could repeat the key.
        let key = KeyPair::from_pem(made.key.expose());
        let key = key.map_err(|_| Failure::new("ca.key beside it is not a private key"))?;
        let of_key = key.subject_public_key_info();
        if !certificate.windows(of_key.len()).any(|part| part == of_key) {
            return Err(Failure::new("ca.key beside it is the key of another certificate"));
        }
        Ok(Ca { issuer: Issuer::new(authority_params(&name), key), facts })
    }

    /// Issues a certificate. Also returns the number of days for which it is valid.
    pub fn issue(
        &self,
        names: &[String],
        purpose: Purpose,
        days: u32,
    ) -> Result<(CertificatePair, u32)> {
        let mut params = CertificateParams::default();
        let first = names.first().map(String::as_str).unwrap_or_default();
        // A common name has 64 characters at most, and is no longer compared.
        params.distinguished_name = common_name(&first.chars().take(64).collect::<String>());
        params.subject_alt_names =
            names.iter().map(|name| alt_name(name)).collect::<Result<_>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let now = now();
        let end = (now + u64::from(days) * DAY).min(self.facts.not_after.as_secs());
        params.not_before = at((now - CLOCK_SKEW).max(self.facts.not_before.as_secs()))?;
        params.not_after = at(end)?;
        let key = KeyPair::generate().map_err(failed)?;
        let made = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let made =
            CertificatePair { certificate: made.pem(), key: Secret::new(key.serialize_pem()) };
        Ok((made, u32::try_from((end - now) / DAY).unwrap_or(days)))
    }
}

/// Parses a host name or an address.
fn alt_name(name: &str) -> Result<SanType> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let host = name.strip_prefix("*.").unwrap_or(name);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if host.len() > 253 || !host.split('.').all(is_label) {
        let text = format!("{name:?}: not a host name or an address, as it is in a URL");
        return Err(Failure::usage(text));
    }
    Ok(SanType::DnsName(name.to_ascii_lowercase().try_into().map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_are_hosts_and_addresses() {
        for good in ["a.example", "localhost", "*.a.example", "10.0.0.1", "::1", "[::1]", "a_b"] {
            assert!(alt_name(good).is_ok(), "{good}");
        }
        for bad in ["", "http://a", "a:8080", "a b", "a..b", "*", "ü.example", "a/b"] {
            assert!(alt_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_authority_that_has_expired_or_has_another_key_signs_nothing() {
        let good = authority("A", 1).unwrap();
        assert!(Ca::load(&good).is_ok());
        let other = authority("A", 1).unwrap();
        let mixed = CertificatePair { certificate: good.certificate, key: other.key };
        let said = |made: &CertificatePair| Ca::load(made).err().unwrap().to_string();
        assert!(said(&mixed).contains("key of another"), "{}", said(&mixed));
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params("A");
        params.not_before = at(0).unwrap();
        params.not_after = at(now() - 1).unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let expired = CertificatePair { certificate, key: Secret::new(key.serialize_pem()) };
        assert!(said(&expired).contains("expired"), "{}", said(&expired));
    }

    #[test]
    fn a_certificate_does_not_outlive_its_authority() {
        let ca = Ca::load(&authority("A", 10).unwrap()).unwrap();
        let (made, days) = ca.issue(&["a.example".to_owned()], Purpose::Server, 397).unwrap();
        let der = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
        assert!((9..=10).contains(&days), "{days}");
        assert_eq!(facts(&der).unwrap().not_after, ca.facts.not_after);
    }
}
