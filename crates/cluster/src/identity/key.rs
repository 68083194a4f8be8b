//! Keys of nodes and of the authority: ECDSA on P-256.

use std::fmt;

use aws_lc_rs::digest;
use cairn_base::{Error, KeyHash, Result, Secret};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use webpki::EndEntityCert;

/// A private key. It is made here, and leaves this type only into its file.
pub struct NodeKey(Secret<KeyPair>);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({:?})", self.public().hash())
    }
}

impl NodeKey {
    /// Makes a new key, from the randomness of the operating system.
    pub fn generate() -> Result<NodeKey> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        Ok(NodeKey(Secret::new(pair.map_err(invalid("making a key"))?)))
    }

    /// Reads a PKCS #8 key in PEM.
    pub fn from_pem(pem: &Secret<String>) -> Result<NodeKey> {
        let pair = KeyPair::from_pkcs8_pem_and_sign_algo(pem.expose(), &PKCS_ECDSA_P256_SHA256);
        Ok(NodeKey(Secret::new(pair.map_err(invalid("a private key"))?)))
    }

    pub fn to_pem(&self) -> Secret<String> {
        Secret::new(self.pair().serialize_pem())
    }

    pub fn public(&self) -> PublicKey {
        let info = self.pair().subject_public_key_info();
        PublicKey::from_info(&info).expect("the key is on P-256")
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        self.0.expose()
    }

    pub(crate) fn to_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.pair().serialize_der()).into()
    }

    /// Makes a self-signed certificate, to show in a handshake that the key is here.
    pub(crate) fn self_signed(&self) -> Result<CertificateDer<'static>> {
        let made = CertificateParams::default().self_signed(self.pair());
        Ok(made.map_err(invalid("a certificate"))?.der().clone())
    }
}

pub(crate) fn invalid<E: fmt::Display>(what: &str) -> impl Fn(E) -> Error {
    move |error| Error::Invalid(format!("{what}: {error}"))
}

/// The bytes before the point in the SubjectPublicKeyInfo of every uncompressed key on P-256.
const INFO_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT_BYTES: usize = 65;

/// A public key on P-256.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    point: [u8; POINT_BYTES],
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?})", self.hash())
    }
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo, DER.
    ///
    /// # Errors
    /// `Denied` if it is of another kind than Cairn's keys.
    pub fn from_info(info: &[u8]) -> Result<PublicKey> {
        let point = info.strip_prefix(&INFO_HEAD).and_then(|point| point.try_into().ok());
        let point: Option<[u8; POINT_BYTES]> = point;
        match point.filter(|point| point.starts_with(&[4])) {
            Some(point) => Ok(PublicKey { point }),
            None => Err(Error::Denied("a key that is not on the curve P-256".into())),
        }
    }

    /// Returns the key of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<PublicKey> {
        let parsed = EndEntityCert::try_from(certificate).map_err(|error| {
            Error::Denied(format!("a certificate that does not parse: {error}"))
        })?;
        PublicKey::from_info(&parsed.subject_public_key_info())
    }

    /// Returns the hash that the cluster map pins.
    pub fn hash(&self) -> KeyHash {
        hash_info(&[&INFO_HEAD, &self.point[..]].concat())
    }
}

fn hash_info(info: &[u8]) -> KeyHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, info).as_ref());
    KeyHash(hash)
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_has_one_hash() {
        let key = NodeKey::generate().unwrap();
        let again = NodeKey::from_pem(&key.to_pem()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(PublicKey::of(&key.self_signed().unwrap()).unwrap(), key.public());
        let info = key.public().subject_public_key_info();
        assert_eq!(hash_info(&info), key.public().hash());
        assert_ne!(NodeKey::generate().unwrap().public().hash(), key.public().hash());
    }

    #[test]
    fn other_kinds_of_keys_are_refused() {
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let info = other.subject_public_key_info();
        assert!(matches!(PublicKey::from_info(&info), Err(Error::Denied(_))));
        assert!(NodeKey::from_pem(&Secret::new(other.serialize_pem())).is_err());
        assert!(PublicKey::from_info(&[]).is_err());
        assert!(PublicKey::of(&CertificateDer::from(vec![0x30, 0x82])).is_err());
    }

    #[test]
    fn nothing_printed_holds_the_key() {
        let key = NodeKey::generate().unwrap();
        let shown = format!("{key:?}");
        assert_eq!(shown, format!("NodeKey(KeyHash({}))", key.public().hash()));
    }
}
