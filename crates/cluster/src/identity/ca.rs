//! The cluster's authority: the key that signs the certificates of nodes.

use std::time::Duration;

use cairn_base::{ClusterId, Error, NodeId, Result, Rng, Role, Roles, Secret, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use super::authority::Authority;
use super::key::{NodeKey, PublicKey, invalid};
use super::name;
use crate::limits::{AUTHORITY, CERTIFICATE, CLOCK_SKEW};

/// Signs certificates. Kept only on masters, which admit nodes.
#[derive(Debug)]
pub struct Ca {
    key: NodeKey,
    authority: Authority,
}

impl Ca {
    /// Makes a new authority for a new cluster.
    pub fn init(cluster: ClusterId, now: Timestamp, rng: &dyn Rng) -> Result<Ca> {
        let key = NodeKey::generate()?;
        let mut params = params_of_authority(cluster)?;
        set_times(&mut params, now, AUTHORITY)?;
        params.serial_number = Some(serial(rng));
        let made = params.self_signed(key.pair()).map_err(invalid("making the authority"))?;
        Ca::load(cluster, key, made.der().clone())
    }

    /// Loads an authority.
    ///
    /// # Errors
    /// `Invalid` if the key is not that of the certificate.
    pub fn load(
        cluster: ClusterId,
        key: NodeKey,
        certificate: CertificateDer<'static>,
    ) -> Result<Ca> {
        let authority = Authority::new(cluster, certificate)?;
        if authority.key() != key.public().hash() {
            return Err(Error::Invalid(
                "the authority's key does not belong to its certificate: restore both from \
                    one backup"
                    .into(),
            ));
        }
        Ok(Ca { key, authority })
    }

    /// Returns its private key, for another master.
    pub fn to_pem(&self) -> Secret<String> {
        self.key.to_pem()
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn key(&self) -> &NodeKey {
        &self.key
    }

    /// Issues a certificate for `node` with the key `public`, also to renew one. The applicant must
    /// have shown in a handshake that it has the private key, and be pinned with it.
    pub fn issue(
        &self,
        node: NodeId,
        roles: Roles,
        public: &PublicKey,
        now: Timestamp,
        rng: &dyn Rng,
    ) -> Result<CertificateDer<'static>> {
        let cluster = self.authority.cluster();
        let mut params = CertificateParams::default();
        // Hexadecimal, as in certificates that were issued before; elsewhere people read node
        // numbers as decimal ones.
        params.distinguished_name = common_name(&format!("Cairn node {:x}", node.0));
        params.subject_alt_names = vec![dns(name::of_node(cluster, node))?];
        if roles.contains(Role::Master) {
            params.subject_alt_names.push(dns(name::of_masters(cluster))?);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(serial(rng));
        set_times(&mut params, now, CERTIFICATE)?;
        let issuer = Issuer::new(params_of_authority(cluster)?, self.key.pair());
        let made = params.signed_by(public, &issuer).map_err(invalid("signing a certificate"))?;
        Ok(made.der().clone())
    }
}

fn params_of_authority(cluster: ClusterId) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("Cairn cluster {:032x}", cluster.0));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn dns(name: String) -> Result<SanType> {
    Ok(SanType::DnsName(name.try_into().map_err(invalid("a node's name"))?))
}

/// 16 random bytes, positive and never 0, as the standard wants it.
fn serial(rng: &dyn Rng) -> SerialNumber {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn set_times(params: &mut CertificateParams, now: Timestamp, valid: Duration) -> Result<()> {
    let at = |secs| OffsetDateTime::from_unix_timestamp(secs).map_err(invalid("the time"));
    params.not_before = at(now.secs() - CLOCK_SKEW.as_secs() as i64)?;
    params.not_after = at(now.secs() + valid.as_secs() as i64)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::SeededRng;

    use super::super::authority::{Facts, Usage};
    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);
    const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);

    fn after(secs: i64) -> Timestamp {
        Timestamp::from_secs(NOW.secs() + secs)
    }

    fn ca() -> Ca {
        Ca::init(CLUSTER, NOW, &SeededRng::new(1)).unwrap()
    }

    fn issue(ca: &Ca, node: NodeId, roles: Roles) -> (PublicKey, CertificateDer<'static>) {
        let public = NodeKey::generate().unwrap().public();
        let made = ca.issue(node, roles, &public, NOW, &SeededRng::new(2)).unwrap();
        (public, made)
    }

    #[test]
    fn what_it_signs_verifies_while_it_is_valid() {
        let ca = ca();
        let (public, made) = issue(&ca, NodeId(9), Role::Gateway.into());
        let days = |days: i64| after(days * 24 * 3600);
        for usage in [Usage::Server, Usage::Client] {
            for time in [after(-3600), NOW, days(30)] {
                let facts = ca.authority().verify(&made, time, usage).unwrap();
                assert_eq!(facts, Facts { node: NodeId(9), key: public.hash() });
            }
            for time in [after(-3601), days(31), Timestamp(-1), Timestamp(i64::MAX)] {
                let refused = ca.authority().verify(&made, time, usage);
                assert!(matches!(refused, Err(Error::Denied(_))), "{time:?}");
            }
        }
    }

    #[test]
    fn what_another_signed_is_refused() {
        let (ours, theirs) = (ca(), ca());
        let (_, made) = issue(&theirs, NodeId(9), Role::Gateway.into());
        assert!(ours.authority().verify(&made, NOW, Usage::Client).is_err());
        let own = NodeKey::generate().unwrap().self_signed().unwrap();
        assert!(ours.authority().verify(&own, NOW, Usage::Client).is_err());
        let itself = ours.authority().certificate().clone();
        assert!(ours.authority().verify(&itself, NOW, Usage::Client).is_err());
    }

    #[test]
    fn a_certificate_of_another_cluster_is_refused_though_the_key_is_the_same() {
        let ca = ca();
        let (_, made) = issue(&ca, NodeId(9), Role::Gateway.into());
        let other = Authority::new(ClusterId(8), ca.authority().certificate().clone()).unwrap();
        let refused = other.verify(&made, NOW, Usage::Client).unwrap_err().to_string();
        assert!(refused.contains("of cluster 7"), "{refused}");
    }

    #[test]
    fn only_masters_are_named_masters() {
        let ca = ca();
        let (_, gateway) = issue(&ca, NodeId(9), Role::Gateway.into());
        let (_, master) = issue(&ca, NodeId(1), Roles::from(Role::Gateway).with(Role::Master));
        assert!(!ca.authority().names_master(&gateway));
        assert!(ca.authority().names_master(&master));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        let ca = ca();
        let (_, made) = issue(&ca, NodeId(9), Role::Gateway.into());
        for at in 0..made.len() {
            let mut bytes = made.to_vec();
            bytes[at] ^= 1;
            let spoilt = CertificateDer::from(bytes);
            assert!(ca.authority().verify(&spoilt, NOW, Usage::Client).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_key_of_another_authority_is_not_loaded() {
        let certificate = ca().authority().certificate().clone();
        assert!(Ca::load(CLUSTER, NodeKey::generate().unwrap(), certificate).is_err());
    }
}
