//! Access keys (an id and a secret, as S3 knows them) and bearer tokens.
//!
//! A request signature can only be checked with the secret itself, so secrets of access keys are
//! kept sealed ([`crate::seal`]). Tokens are compared whole, so only their SHA-256 is kept.

use aws_lc_rs::digest;
use cairn_base::{Error, Result, Rng, Secret};
use subtle::ConstantTimeEq;

/// Public half of an access key: 3 to 64 of `A-Z a-z 0-9 . _ -`.
pub type AccessKeyId = String;
/// Secret half of an access key: 8 to 128 printable ASCII characters.
pub type SecretKey = Secret<String>;
/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Start of every bearer token; an id and a secret follow, separated by `_`.
pub const TOKEN_PREFIX: &str = "cairn_";

/// A credential as it is shown to its owner, once.
#[derive(Debug)]
pub struct NewCredential {
    pub id: AccessKeyId,
    pub secret: SecretKey,
}

const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

pub(crate) fn random_text(rng: &dyn Rng, len: usize) -> String {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 31)])).collect()
}

/// Makes a new access key: the id has 20 characters, the secret 40, of 5 random bits each (200
/// bits).
pub fn generate(rng: &dyn Rng) -> NewCredential {
    NewCredential {
        id: format!("CK{}", random_text(rng, 18)),
        secret: Secret::new(random_text(rng, 40)),
    }
}

/// Refuses ids that S3 clients could not send or logs could not show.
pub fn check_access_key_id(id: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (3..=64).contains(&id.len()) && id.bytes().all(plain) {
        return Ok(());
    }
    Err(Error::Invalid("access key id: use 3 to 64 characters of A-Z a-z 0-9 . _ -".into()))
}

/// Refuses secrets that are too short. The text of the error never contains the secret.
pub fn check_secret_key(secret: &SecretKey) -> Result<()> {
    let text = secret.expose();
    if (8..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(Error::Invalid("secret key: use 8 to 128 printable ASCII characters".into()))
}

/// Compares a presented secret in constant time.
pub fn verify_secret(stored: &SecretKey, presented: &str) -> bool {
    stored.expose().as_bytes().ct_eq(presented.as_bytes()).into()
}

/// Returns the id within a token `cairn_<id>_<secret>`; `None` if the token has another form.
pub fn token_id(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
    (!id.is_empty() && !secret.is_empty()).then_some(id)
}

/// Returns the SHA-256 of a token, as kept by the store.
pub fn hash_token(token: &str) -> TokenHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// Compares a presented token with a stored hash in constant time.
pub fn verify_token(stored: &TokenHash, presented: &str) -> bool {
    hash_token(presented).ct_eq(stored).into()
}

/// Makes a new bearer token and its id. The token is shown once.
pub fn generate_token(rng: &dyn Rng) -> (String, Secret<String>) {
    let id = random_text(rng, 12);
    let token = format!("{TOKEN_PREFIX}{id}_{}", random_text(rng, 40));
    (id, Secret::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::rng::SeededRng;

    #[test]
    fn generated_credentials_are_accepted() {
        let rng = SeededRng::new(1);
        let new = generate(&rng);
        check_access_key_id(&new.id).unwrap();
        check_secret_key(&new.secret).unwrap();
        assert!(verify_secret(&new.secret, new.secret.expose()));
        assert!(!verify_secret(&new.secret, "nonsense"));
        assert!(!format!("{new:?}").contains(new.secret.expose().as_str()));
    }

    #[test]
    fn tokens_are_found_by_id_and_verified_whole() {
        let (id, token) = generate_token(&SeededRng::new(2));
        assert_eq!(token_id(token.expose()), Some(id.as_str()));
        let stored = hash_token(token.expose());
        assert!(verify_token(&stored, token.expose()));
        assert!(!verify_token(&stored, &format!("cairn_{id}_other")));
        for nonsense in ["", "cairn_", "cairn__x", "cairn_x_", "other_x_y"] {
            assert_eq!(token_id(nonsense), None, "{nonsense}");
        }
    }
}
