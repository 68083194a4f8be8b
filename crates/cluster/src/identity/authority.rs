//! The public half of the cluster's authority: checks what it has signed.

use std::time::Duration;

use cairn_base::{ClusterId, Error, KeyHash, NodeId, Result, Timestamp};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::key::PublicKey;
use super::name;

/// The purpose of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    Server,
    Client,
}

/// The contents of a certificate, once it was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    pub node: NodeId,
    pub key: KeyHash,
}

/// The certificate of a cluster's authority.
#[derive(Clone, Debug)]
pub struct Authority {
    cluster: ClusterId,
    certificate: CertificateDer<'static>,
    anchor: TrustAnchor<'static>,
    key: KeyHash,
}

impl Authority {
    pub fn new(cluster: ClusterId, certificate: CertificateDer<'static>) -> Result<Authority> {
        let anchor = anchor_from_trusted_cert(&certificate);
        let anchor = anchor.map_err(super::key::invalid("the authority's certificate"))?.to_owned();
        let key = PublicKey::of(&certificate)?.hash();
        Ok(Authority { cluster, certificate, anchor, key })
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the hash by which join tokens know it.
    pub fn key(&self) -> KeyHash {
        self.key
    }

    /// Checks that this authority signed `certificate` for a node of its cluster, and that it is
    /// valid at `now`.
    ///
    /// # Errors
    /// `Denied`, in each case, with the reason.
    pub fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        now: Timestamp,
        usage: Usage,
    ) -> Result<Facts> {
        let denied = |error| Error::Denied(format!("the certificate: {error}"));
        let parsed = EndEntityCert::try_from(certificate).map_err(denied)?;
        let usage = match usage {
            Usage::Server => KeyUsage::server_auth(),
            Usage::Client => KeyUsage::client_auth(),
        };
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let anchors = std::slice::from_ref(&self.anchor);
        parsed
            .verify_for_usage(algorithms.all, anchors, &[], unix(now), usage, None, None)
            .map_err(denied)?;
        let mut nodes = parsed.valid_dns_names().filter_map(name::parse);
        let (cluster, node) = match (nodes.next(), nodes.next()) {
            (Some(name), None) => name,
            _ => {
                return Err(Error::Denied("the certificate does not name exactly one node".into()));
            }
        };
        if cluster != self.cluster {
            return Err(Error::Denied(format!("the certificate is of cluster {cluster}")));
        }
        let key = PublicKey::from_info(&parsed.subject_public_key_info())?.hash();
        Ok(Facts { node, key })
    }

    /// Returns true if a certificate, verified before, was issued to a master.
    pub(crate) fn names_master(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok(parsed) = EndEntityCert::try_from(certificate) else { return false };
        let name = ServerName::try_from(name::of_masters(self.cluster));
        name.is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }
}

fn unix(time: Timestamp) -> UnixTime {
    let nanos = u64::try_from(time.0).unwrap_or(0);
    UnixTime::since_unix_epoch(Duration::from_nanos(nanos))
}
