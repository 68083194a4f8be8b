//! Passwords of share links: checked slowly, a few at a time, and remembered if they were right.

#![expect(clippy::disallowed_methods, reason = "doors are not simulated")]

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use cairn_base::{Error, Party, Result, Secret, Shares};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::limits;

type Digest = [u8; 32];

/// The passwords that were right, as hashes of them and of what the store keeps.
pub struct Passwords {
    right: Mutex<HashSet<Digest>>,
    places: Arc<Shares>,
}

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords { right: Mutex::default(), places: Shares::new(limits::PASSWORDS) }
    }
}

impl Passwords {
    /// Whether a password is the one of `stored`.
    ///
    /// # Errors
    /// `Unavailable` while too many are checked.
    pub async fn check(
        &self,
        stored: &[u8],
        presented: Secret<String>,
        party: Party,
    ) -> Result<bool> {
        let digest = digest(stored, presented.expose());
        if self.right.lock().contains(&digest) {
            return Ok(true);
        }
        let busy = || Error::Unavailable("too many passwords are checked now".into());
        let place = self.places.take_now(party, 1).ok_or_else(busy)?;
        let stored = stored.to_vec();
        let checked = spawn_blocking(move || {
            let is_right = cairn_auth::verify_password(&stored, presented.expose());
            drop(place);
            is_right
        });
        let is_right = checked.await.unwrap_or(false);
        if is_right {
            let mut right = self.right.lock();
            if right.len() >= limits::PASSWORDS_KNOWN {
                right.clear();
            }
            right.insert(digest);
        }
        Ok(is_right)
    }
}

fn digest(stored: &[u8], presented: &str) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(stored);
    context.update(presented.as_bytes());
    let mut digest = [0; 32];
    digest.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    digest
}
