//! Signing keys and signatures.

use aws_lc_rs::{digest, hmac};
use cairn_auth::SecretKey;
use subtle::ConstantTimeEq;

use super::date::SignedAt;

/// A key derived from a secret for one day and region.
#[derive(Clone)]
pub(crate) struct SigningKey {
    key: hmac::Key,
    region: String,
}

impl SigningKey {
    pub(crate) fn derive(secret: &SecretKey, day: &str, region: &str) -> SigningKey {
        let first = cairn_base::Secret::new(["AWS4", secret.expose()].concat());
        let steps = [day, region, "s3", "aws4_request"];
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, first.expose().as_bytes());
        for step in steps {
            let tag = hmac::sign(&key, step.as_bytes());
            key = hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref());
        }
        SigningKey { key, region: region.to_owned() }
    }

    /// Returns the signature of `kind` at a time over further lines, in hex.
    pub(crate) fn sign(&self, kind: &str, at: &SignedAt, lines: &[&str]) -> String {
        let scope = format!("{}/{}/s3/aws4_request", at.day(), self.region);
        let mut text = format!("{kind}\n{}\n{scope}", at.text);
        for line in lines {
            text.push('\n');
            text.push_str(line);
        }
        hex(hmac::sign(&self.key, text.as_bytes()).as_ref())
    }
}

/// Returns lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out
}

/// Returns the SHA-256 in hex.
pub(crate) fn hex_sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Compares signatures in constant time.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Recently derived keys. An entry is valid only for the secret it was derived from, so a secret
/// that was replaced or removed never lives on here.
pub(crate) struct KeyCache {
    keys: quick_cache::sync::Cache<(String, String, String), (SecretKey, SigningKey)>,
}

impl KeyCache {
    pub(crate) fn new(entries: usize) -> KeyCache {
        KeyCache { keys: quick_cache::sync::Cache::new(entries) }
    }

    pub(crate) fn get(&self, id: &str, secret: &SecretKey, day: &str, region: &str) -> SigningKey {
        let name = (id.to_owned(), day.to_owned(), region.to_owned());
        if let Some((made_of, key)) = self.keys.get(&name)
            && same(made_of.expose(), secret.expose())
        {
            return key;
        }
        let key = SigningKey::derive(secret, day, region);
        self.keys.insert(name, (secret.clone(), key.clone()));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Secret;

    /// The example of the S3 documentation: GET Object, "Authenticating Requests".
    #[test]
    fn documented_example() {
        let secret = Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        let key = SigningKey::derive(&secret, "20130524", "us-east-1");
        let at = SignedAt::parse("20130524T000000Z").unwrap();
        let hash = "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972";
        assert_eq!(
            key.sign("AWS4-HMAC-SHA256", &at, &[hash]),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn a_replaced_secret_is_not_served_from_the_cache() {
        let cache = KeyCache::new(10);
        let at = SignedAt::parse("20130524T000000Z").unwrap();
        let sign = |secret: &str| {
            let secret = Secret::new(secret.to_owned());
            cache.get("id", &secret, at.day(), "r").sign("x", &at, &[])
        };
        let (one, other) = (sign("one"), sign("other"));
        assert_ne!(one, other);
        assert_eq!(one, sign("one"));
    }
}
