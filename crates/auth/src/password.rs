//! Passwords that people choose: kept as a slow hash with a salt of its own.

use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive, verify};
use cairn_base::{Rng, Secret};

const ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).expect("more than 0");
/// Limit of the iterations: no hash that was made here has more.
const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// Returns the iterations (4 bytes, big-endian), the salt (16 bytes), and PBKDF2-HMAC-SHA256 (32
/// bytes).
pub fn hash_password(rng: &dyn Rng, password: &Secret<String>) -> Vec<u8> {
    let (mut salt, mut hash) = ([0; SALT_BYTES], [0; HASH_BYTES]);
    rng.fill(&mut salt);
    derive(PBKDF2_HMAC_SHA256, ITERATIONS, &salt, password.expose().as_bytes(), &mut hash);
    [&ITERATIONS.get().to_be_bytes()[..], &salt, &hash].concat()
}

/// Returns true if a password matches a stored hash. Takes as long as the hash's number of
/// iterations demands: tens of milliseconds of a processor.
pub fn verify_password(stored: &[u8], presented: &str) -> bool {
    let parts = stored.split_first_chunk::<4>().and_then(|(iterations, rest)| {
        let iterations = NonZeroU32::new(u32::from_be_bytes(*iterations))?;
        Some((iterations, rest.split_first_chunk::<SALT_BYTES>()?))
    });
    let Some((iterations, (salt, hash))) = parts else { return false };
    iterations.get() <= ITERATIONS_MAX
        && hash.len() == HASH_BYTES
        && verify(PBKDF2_HMAC_SHA256, iterations, salt, presented.as_bytes(), hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::rng::SeededRng;

    #[test]
    fn a_hash_is_of_one_password() {
        let rng = SeededRng::new(1);
        let stored = hash_password(&rng, &Secret::new("correct horse".into()));
        assert!(verify_password(&stored, "correct horse"));
        assert!(!verify_password(&stored, "correct hors") && !verify_password(&stored, ""));
        assert_ne!(stored, hash_password(&rng, &Secret::new("correct horse".into())));
        for len in 0..stored.len() {
            assert!(!verify_password(&stored[..len], "correct horse"), "{len}");
        }
        let mut endless = stored;
        endless[0] = 0xff;
        assert!(!verify_password(&endless, "correct horse"));
    }
}
