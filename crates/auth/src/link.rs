//! Links to objects: gateways write them, chunkservers read them, and nobody else can.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use cairn_base::{Error, Result, Rng, Secret};

const NONCE_BYTES: usize = 12;
const KEY_BYTES: usize = 32;
/// The purpose of the derived key: another purpose gets another key.
const PURPOSE: &[u8] = b"cairn links 1";

/// Key of links, derived from that of sealed secrets: nothing more has to be kept, and the owner of
/// this key cannot open sealed secrets.
pub struct LinkKey(LessSafeKey);

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl LinkKey {
    /// Derives the bytes of the key that belongs to a [`crate::SealKey`].
    pub fn derive(seal: &Secret<[u8; KEY_BYTES]>) -> Secret<[u8; KEY_BYTES]> {
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(seal.expose());
        let mut bytes = [0; KEY_BYTES];
        let expanded = extracted.expand(&[PURPOSE], Length);
        expanded.and_then(|okm| okm.fill(&mut bytes)).expect("HKDF-SHA256 gives 32 bytes");
        Secret::new(bytes)
    }

    /// Makes a key of AES-256-GCM-SIV, not AES-256-GCM: a key makes such a number of links that two
    /// of them with the same random nonce must do no harm.
    pub fn new(bytes: &Secret<[u8; KEY_BYTES]>) -> LinkKey {
        let key = UnboundKey::new(&AES_256_GCM_SIV, bytes.expose());
        LinkKey(LessSafeKey::new(key.expect("an AES-256 key has 32 bytes")))
    }

    /// Seals `content`: a nonce of 12 bytes, ciphertext, 16 bytes of tag.
    pub fn seal(&self, rng: &dyn Rng, mut content: Vec<u8>) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        rng.fill(&mut nonce);
        let aad = Aad::from(PURPOSE);
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut content)
            .expect("a short text can be sealed");
        let mut sealed = nonce.to_vec();
        sealed.append(&mut content);
        sealed
    }

    /// Opens what [`LinkKey::seal`] made; `Denied` if it is anything else.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>> {
        let bad = || {
            Error::Denied(
                "the link is incomplete, or was made by another cluster: ask the \
                gateway for a new one"
                    .into(),
            )
        };
        let (nonce, content) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(bad)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut content = content.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(PURPOSE), &mut content);
        let len = opened.map_err(|_| bad())?.len();
        content.truncate(len);
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::rng::SeededRng;

    #[test]
    fn opens_only_unchanged_and_with_its_key() {
        let key = LinkKey::new(&LinkKey::derive(&Secret::new([7; 32])));
        let other = LinkKey::new(&LinkKey::derive(&Secret::new([8; 32])));
        let sealed = key.seal(&SeededRng::new(1), b"content".to_vec());
        assert_eq!(key.open(&sealed).unwrap(), b"content");
        assert!(other.open(&sealed).is_err());
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(key.open(&altered).is_err());
            assert!(key.open(&sealed[..at]).is_err());
        }
    }

    #[test]
    fn the_derived_key_stays_the_same_and_is_another_one() {
        let seal = Secret::new([7; 32]);
        let derived = LinkKey::derive(&seal);
        assert_eq!(derived.expose(), LinkKey::derive(&seal).expose());
        assert_ne!(derived.expose(), seal.expose());
        let direct = LinkKey::new(&seal);
        let sealed = direct.seal(&SeededRng::new(1), b"content".to_vec());
        assert!(LinkKey::new(&derived).open(&sealed).is_err());
    }
}
