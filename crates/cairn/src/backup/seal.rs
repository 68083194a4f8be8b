//! The keys of a backup.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{digest, hkdf, hmac, rand};
use cairn_base::Secret;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Bytes by which encryption makes a frame longer.
pub const TAG_BYTES: usize = 16;
/// Memory for one guess of a passphrase, KiB, and passes over it.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;
/// Most work that a head may demand: it comes from elsewhere.
const MOST_MEMORY_KIB: u32 = 1 << 20;
const MOST_PASSES: u32 = 64;
const SHORTEST_PASSPHRASE: usize = 8;

/// Parameters by which the key is made of a passphrase, as the head has them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Argon2id {
    pub memory_kib: u32,
    pub passes: u32,
    /// 16 bytes, hexadecimal.
    pub salt: String,
    /// Check value, which shows whether a passphrase is right; hexadecimal.
    pub check: String,
}

/// Seals and opens the contents of a backup. It has no `Debug`: it holds a key.
pub struct Keys {
    main: Option<Secret<Vec<u8>>>,
}

pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Failure::new("no random numbers from the system"))?;
    Ok(bytes)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(pair).collect()
}

impl Keys {
    /// Returns the keys of a backup that is not encrypted.
    pub fn none() -> Keys {
        Keys { main: None }
    }

    /// Makes new keys, and the parameters by which they are found again.
    pub fn new(passphrase: &Secret<String>) -> Result<(Keys, Argon2id)> {
        if passphrase.expose().len() < SHORTEST_PASSPHRASE {
            let text = format!("the passphrase: use at least {SHORTEST_PASSPHRASE} bytes");
            return Err(Failure::usage(text));
        }
        let salt: [u8; 16] = random()?;
        let main = stretch(passphrase, &salt, MEMORY_KIB, PASSES)?;
        let keys = Keys { main: Some(main) };
        let (salt, check) = (hex(&salt), hex(&keys.named(b"cairn backup check")));
        Ok((keys, Argon2id { memory_kib: MEMORY_KIB, passes: PASSES, salt, check }))
    }

    /// Returns the keys of an existing backup.
    pub fn find(passphrase: &Secret<String>, how: &Argon2id) -> Result<Keys> {
        let bad = || Failure::new("the head of the backup: values that no cairn wrote");
        let salt = unhex(&how.salt).filter(|salt| salt.len() == 16).ok_or_else(bad)?;
        if how.memory_kib > MOST_MEMORY_KIB || how.passes > MOST_PASSES {
            return Err(bad());
        }
        let main = stretch(passphrase, &salt, how.memory_kib, how.passes)?;
        let keys = Keys { main: Some(main) };
        if hex(&keys.named(b"cairn backup check")) == how.check {
            Ok(keys)
        } else {
            Err(Failure::new("the passphrase is not that of this backup"))
        }
    }

    pub fn is_encrypting(&self) -> bool {
        self.main.is_some()
    }

    /// Returns a name of these bytes, which reveals nothing about them if the backup is encrypted.
    pub fn named(&self, bytes: &[u8]) -> [u8; 32] {
        let mut name = [0; 32];
        match &self.main {
            Some(main) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, main.expose());
                name.copy_from_slice(hmac::sign(&key, bytes).as_ref());
            }
            None => name.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref()),
        }
        name
    }

    /// Returns the key of one object, which has a salt of its own.
    pub fn of_object(&self, salt: &[u8; 32]) -> Result<Option<ObjectKey>> {
        let Some(main) = &self.main else { return Ok(None) };
        let failed = |_| Failure::new("the key of an object could not be made");
        let main = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(main.expose());
        let info = [&b"cairn backup object"[..]];
        let key = main.expand(&info, &AES_256_GCM).map_err(failed)?;
        Ok(Some(ObjectKey(LessSafeKey::new(UnboundKey::from(key)))))
    }
}

fn stretch(
    passphrase: &Secret<String>,
    salt: &[u8],
    memory_kib: u32,
    passes: u32,
) -> Result<Secret<Vec<u8>>> {
    let failed = |error: argon2::Error| Failure::new(format!("the passphrase: {error}"));
    let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(failed)?;
    let mut key = vec![0; 32];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let made = argon2.hash_password_into(passphrase.expose().as_bytes(), salt, &mut key);
    let key = Secret::new(key);
    made.map_err(failed)?;
    Ok(key)
}

/// Encrypts the frames of one object. Each number is used once.
pub struct ObjectKey(LessSafeKey);

impl ObjectKey {
    fn nonce(number: u32) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `bytes` and adds a tag, which covers `beside` too.
    pub fn seal(&self, number: u32, beside: &[u8], bytes: &mut Vec<u8>) -> Result<()> {
        let sealed = self.0.seal_in_place_append_tag(Self::nonce(number), Aad::from(beside), bytes);
        sealed.map_err(|_| Failure::new("a frame could not be encrypted"))
    }

    /// Decrypts what [`ObjectKey::seal`] made; `None` for other bytes.
    pub fn open(&self, number: u32, beside: &[u8], mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let opened = self.0.open_in_place(Self::nonce(number), Aad::from(beside), &mut bytes);
        let length = opened.ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_passphrase_that_made_them_finds_the_keys_again() {
        let passphrase = Secret::new("correct horse".to_owned());
        let (keys, how) = Keys::new(&passphrase).unwrap();
        let again = Keys::find(&passphrase, &how).unwrap();
        assert_eq!(keys.named(b"x"), again.named(b"x"));
        assert_ne!(keys.named(b"x"), Keys::none().named(b"x"));
        let other = Keys::find(&Secret::new("correct horsf".to_owned()), &how);
        assert!(other.err().unwrap().to_string().contains("not that of this backup"));
        assert!(Keys::new(&Secret::new("short".to_owned())).is_err());
        let greedy = Argon2id { memory_kib: u32::MAX, ..how };
        assert!(Keys::find(&passphrase, &greedy).is_err());
    }
}
