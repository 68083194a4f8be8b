//! Passwords of share links: checked slowly, a few at a time, and remembered if they were right.
//!
//! Places are given in turn, address by address. A link that received many wrong passwords has only
//! a few checks at a time, and each of them is delayed: so guessing takes long, whatever the number
//! of connections that guess and whether or not they wait for the answers.

#![expect(clippy::disallowed_methods, reason = "doors are not simulated")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use cairn_base::shares::Take;
use cairn_base::{Error, Party, Result, Secret, Share, Shares};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::limits;

type Digest = [u8; 32];

/// The passwords that were right, as hashes over each password and the stored hash.
pub struct Passwords {
    right: Mutex<HashSet<Digest>>,
    places: Arc<Shares>,
    /// Links that received wrong passwords.
    guessed: Mutex<HashMap<Digest, GuessedLink>>,
    /// Number of wrong passwords for each link, by its id, since this process started.
    failed: Mutex<HashMap<String, u64>>,
}

/// A link that received wrong passwords.
struct GuessedLink {
    wrong: u32,
    last: Instant,
    /// Places for checks of its passwords.
    turns: Arc<Shares>,
}

impl GuessedLink {
    fn new() -> GuessedLink {
        let turns = Shares::new(limits::LINK_PASSWORDS);
        GuessedLink { wrong: 0, last: Instant::now(), turns }
    }

    fn is_over(&self) -> bool {
        self.last.elapsed() >= limits::LINK_FAILURES_WINDOW
    }
}

impl Default for Passwords {
    fn default() -> Passwords {
        let places = Shares::new(limits::PASSWORDS);
        let (right, guessed, failed) = Default::default();
        Passwords { right, places, guessed, failed }
    }
}

impl Passwords {
    /// Returns whether a password is that of `stored`.
    ///
    /// # Errors
    /// `Unavailable` if no place was free in time.
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
        let link = self::digest(stored, "");
        let turn = match self.turns(&link) {
            None => None,
            Some((turns, delay)) => {
                let turn = in_time(turns.take(party, 1)).await?;
                sleep(delay).await;
                Some(turn)
            }
        };
        let place = in_time(self.places.take(party, 1)).await?;
        let stored = stored.to_vec();
        let checked = spawn_blocking(move || {
            let is_right = cairn_auth::verify_password(&stored, presented.expose());
            drop((place, turn));
            is_right
        });
        let is_right = checked.await.unwrap_or(false);
        self.note(link, is_right);
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

impl Passwords {
    /// Counts a wrong password for the link with an id. If there are too many links, the counts of
    /// all others are dropped.
    pub fn count_failed(&self, id: &str) {
        let mut failed = self.failed.lock();
        if failed.len() >= limits::FAILURE_SOURCES && !failed.contains_key(id) {
            failed.clear();
        }
        *failed.entry(id.to_owned()).or_default() += 1;
    }

    /// Returns the number of wrong passwords for the link with an id.
    pub fn failed(&self, id: &str) -> u64 {
        self.failed.lock().get(id).copied().unwrap_or_default()
    }
}

impl Passwords {
    /// Returns the places for checks of a link that received too many wrong passwords, and the
    /// delay of each check.
    fn turns(&self, link: &Digest) -> Option<(Arc<Shares>, Duration)> {
        let guessed = self.guessed.lock();
        let known = guessed.get(link).filter(|known| !known.is_over())?;
        let times = known.wrong.checked_div(limits::LINK_FAILURES)?.min(limits::LINK_DELAYS);
        (times > 0).then(|| (Arc::clone(&known.turns), limits::LINK_PASSWORD_DELAY * times))
    }

    fn note(&self, link: Digest, is_right: bool) {
        if is_right {
            return;
        }
        let mut guessed = self.guessed.lock();
        if guessed.len() >= limits::FAILURE_SOURCES {
            guessed.retain(|_, known| !known.is_over());
        }
        if guessed.len() >= limits::FAILURE_SOURCES {
            guessed.clear();
        }
        let known = guessed.entry(link).or_insert_with(GuessedLink::new);
        if known.is_over() {
            known.wrong = 0;
        }
        (known.wrong, known.last) = (known.wrong.saturating_add(1), Instant::now());
    }
}

/// Waits for a place, but not indefinitely.
async fn in_time(take: Take) -> Result<Share> {
    let busy = |_| Error::Unavailable("too many passwords are checked now".into());
    timeout(limits::PASSWORDS_PATIENCE, take).await.map_err(busy)
}

fn digest(stored: &[u8], presented: &str) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(stored);
    context.update(presented.as_bytes());
    let mut digest = [0; 32];
    digest.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    digest
}

#[cfg(test)]
mod tests {
    use cairn_base::rng::RealRng;

    use super::*;

    fn party(last: u8) -> Party {
        Party::at(std::net::IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn right_passwords_are_found_among_guesses() {
        let passwords = Arc::new(Passwords::default());
        let secret = |text: &str| Secret::new(text.to_owned());
        let stored = cairn_auth::hash_password(&RealRng, &secret("right"));
        let guesses = (0..8).map(|number| {
            let (passwords, stored) = (Arc::clone(&passwords), stored.clone());
            let guess = secret(&format!("wrong-{number}"));
            tokio::spawn(async move { passwords.check(&stored, guess, party(1)).await })
        });
        let guesses: Vec<_> = guesses.collect();
        for source in [party(1), party(2)] {
            assert!(passwords.check(&stored, secret("right"), source).await.unwrap());
        }
        for guess in guesses {
            assert!(!guess.await.unwrap().unwrap());
        }
    }

    #[test]
    fn a_link_that_is_guessed_takes_few_at_a_time() {
        let passwords = Passwords::default();
        let link = digest(b"stored", "");
        for _ in 0..limits::LINK_FAILURES {
            assert!(passwords.turns(&link).is_none());
            passwords.note(link, true);
            passwords.note(link, false);
        }
        assert!(passwords.turns(&link).is_some());
        assert!(passwords.turns(&digest(b"other", "")).is_none());
    }
}
