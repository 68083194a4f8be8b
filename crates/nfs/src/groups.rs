//! The groups of users as this machine knows them, since a call states 16 at most. The program `id`
//! looks them up, in whatever sources this machine has (files, LDAP), and they are cached for a
//! while.
//!
//! A client chooses the uids that it states. So only a few are looked up at the same time, and per
//! second for each address.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cairn_base::shares::Take;
use cairn_base::{Allowance, Party, Shares};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

/// The program that looks up groups.
pub const ID: &str = "id";

/// Time for which the groups of a user are cached.
const KEPT: Duration = Duration::from_secs(300);
/// Time for which an unknown user is cached. It is short: the user may have been created just now.
const UNKNOWN_KEPT: Duration = Duration::from_secs(30);
/// Exit code of the program for an unknown user. Any other code but 0 means that it failed.
const UNKNOWN: i32 = 1;
/// Number of users whose groups are cached.
const USERS: usize = 4096;
/// Largest number of groups of a user.
const GROUPS: usize = 1024;
/// Limits of lookups: how many run at the same time (three quarters of them for one address, or /64
/// of IPv6), how many begin per second for one address, and the time for one lookup, including the
/// wait for its turn.
const AT_ONCE: u64 = 4;
const A_SECOND: u32 = 200;
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest output of the program, bytes.
const ANSWER_BYTES: usize = 16 << 10;

type Known = Arc<OnceCell<Option<Arc<[u32]>>>>;

pub struct Groups {
    program: &'static str,
    users: Mutex<HashMap<u32, (Instant, Known)>>,
    places: Arc<Shares>,
    asked: Allowance,
    began: Instant,
}

impl Groups {
    pub fn new(program: &'static str) -> Groups {
        Groups {
            program,
            users: Mutex::default(),
            places: Shares::new(AT_ONCE),
            asked: Allowance::new(Duration::from_secs(1), A_SECOND),
            began: Instant::now(),
        }
    }

    /// Returns all groups of a user, including the primary one; `None` if this machine does not
    /// know the user.
    ///
    /// # Errors
    /// `NotNow` if they cannot be looked up now.
    pub async fn of(&self, uid: u32, from: Party) -> Result<Option<Arc<[u32]>>, NotNow> {
        let known = self.find(uid, from)?;
        let asked = known.get_or_try_init(|| ask(self.program, uid, self.places.take(from, 1)));
        let found = match timeout(PATIENCE, asked).await {
            Ok(Ok(found)) => Ok(found.clone()),
            Ok(Err(NotNow)) | Err(_) => Err(NotNow),
        };
        if found.is_err() {
            self.forget(uid, &known);
        }
        found
    }

    /// Forgets a user whose lookup failed. The next lookup counts again.
    fn forget(&self, uid: u32, failed: &Known) {
        let mut users = self.users.lock();
        let is_failed = |known: &Known| Arc::ptr_eq(known, failed) && !known.initialized();
        if users.get(&uid).is_some_and(|(_, known)| is_failed(known)) {
            users.remove(&uid);
        }
    }

    fn find(&self, uid: u32, from: Party) -> Result<Known, NotNow> {
        let mut users = self.users.lock();
        if let Some((since, known)) = users.get(&uid)
            && since.elapsed() < kept(known)
        {
            return Ok(Arc::clone(known));
        }
        if !self.asked.take(from, self.began.elapsed()) {
            return Err(NotNow);
        }
        if users.len() >= USERS {
            users.retain(|_, (since, _)| since.elapsed() < KEPT / 2);
        }
        if users.len() >= USERS {
            users.clear();
        }
        let known = Known::default();
        users.insert(uid, (Instant::now(), Arc::clone(&known)));
        Ok(known)
    }
}

fn kept(known: &Known) -> Duration {
    if matches!(known.get(), Some(None)) { UNKNOWN_KEPT } else { KEPT }
}

/// The lookup failed, and may succeed later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotNow;

#[expect(clippy::disallowed_methods, reason = "no simulation asks a machine who its users are")]
async fn ask(program: &'static str, uid: u32, place: Take) -> Result<Option<Arc<[u32]>>, NotNow> {
    let place = place.await;
    let work = move || {
        // The place is held as long as the program runs, not only as long as a call waits for it.
        let _place = place;
        let mut command = Command::new(program);
        command.args(["-G", "--", &uid.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).output()
    };
    let answered = tokio::task::spawn_blocking(work).await.map_err(|_| NotNow)?;
    let answered = answered.map_err(|error| {
        tracing::warn!(uid, %error, "the groups of a user are not known");
        NotNow
    })?;
    match answered.status.code() {
        Some(0) => {}
        Some(UNKNOWN) => return Ok(None),
        code => {
            tracing::warn!(uid, ?code, "the groups of a user are not known");
            return Err(NotNow);
        }
    }
    let text = answered.stdout.get(..ANSWER_BYTES).unwrap_or(&answered.stdout);
    let numbers = text.split(u8::is_ascii_whitespace).filter_map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        word.parse().ok()
    });
    Ok(Some(numbers.take(GROUPS).collect()))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn from(last: u8) -> Party {
        Party::at(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn groups_are_those_of_this_machine_and_are_kept() {
        let groups = Groups::new("id");
        let root = groups.of(0, from(1)).await.unwrap().expect("root is known");
        assert!(root.contains(&0));
        let again = groups.of(0, from(1)).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&root, &again));
        assert_eq!(groups.of(4_294_900_001, from(1)).await, Ok(None));
        let broken = Groups::new("there-is-no-such-program");
        assert_eq!(broken.of(0, from(1)).await, Err(NotNow));
        assert!(broken.users.lock().is_empty(), "it is asked for anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_names_many_users_has_few_asked_for() {
        let groups = Groups::new("id");
        let asked = (0..10_000).filter(|uid| groups.find(*uid, from(1)).is_ok()).count();
        assert_eq!(asked, A_SECOND as usize / 4);
        assert!(groups.find(1 << 20, from(2)).is_ok(), "another client");
        assert!(groups.find(7, from(1)).is_ok(), "it was asked for before");
        for second in 0..200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            for uid in 0..100 {
                let _ = groups.find(second * 1000 + uid, from(1));
            }
        }
        assert!(groups.users.lock().len() <= USERS);
    }
}
