//! Sealing of secrets at rest: AES-256-GCM under a key that is kept beside the data, not in it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use cairn_base::{Error, Result, Rng, Secret};

const NONCE_BYTES: usize = 12;

/// A sealed secret: 12 bytes of nonce, ciphertext, 16 bytes of tag.
pub type Sealed = Vec<u8>;

/// The key that seals secrets: 32 random bytes made at the first start.
pub struct SealKey(LessSafeKey);

impl SealKey {
    pub fn new(bytes: &Secret<[u8; 32]>) -> SealKey {
        let key = UnboundKey::new(&AES_256_GCM, bytes.expose());
        SealKey(LessSafeKey::new(key.expect("an AES-256 key has 32 bytes")))
    }

    /// Seals `secret` so that it opens only for the same `name`.
    pub fn seal(&self, rng: &dyn Rng, name: &str, secret: &Secret<String>) -> Sealed {
        let mut nonce = [0; NONCE_BYTES];
        rng.fill(&mut nonce);
        let mut text = secret.expose().as_bytes().to_vec();
        let aad = Aad::from(name.as_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)
            .expect("a short text can be sealed");
        let mut sealed = nonce.to_vec();
        sealed.append(&mut text);
        sealed
    }

    /// Opens what [`SealKey::seal`] made for `name`; `Corrupt` if it is anything else.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Secret<String>> {
        let bad = || {
            Error::corrupt(
                format!("sealed secret of {name}"),
                "bytes that another key sealed, or damaged bytes",
                "bytes sealed with this store's secret.key",
            )
        };
        let (nonce, text) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(bad)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut text = text.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(name.as_bytes()), &mut text);
        let plain = opened.map_err(|_| bad())?.to_vec();
        String::from_utf8(plain).map(Secret::new).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::rng::SeededRng;

    #[test]
    fn opens_only_for_its_name_and_unchanged() {
        let key = SealKey::new(&Secret::new([7; 32]));
        let secret = Secret::new("plaintext-secret".to_string());
        let sealed = key.seal(&SeededRng::new(1), "a", &secret);
        assert_eq!(key.open("a", &sealed).unwrap().expose(), "plaintext-secret");
        assert!(key.open("b", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(key.open("a", &altered).is_err());
            assert!(key.open("a", &sealed[..at]).is_err());
        }
        assert!(!sealed.windows(9).any(|window| window == b"plaintext"));
    }
}
