//! Logins of browsers to the console. The console asks as the store itself, after it has verified
//! an access key or the secret of a browser.

use bytes::Bytes;
use cairn_auth::TokenHash;
use cairn_base::{Error, Timestamp, UserId};
use serde::{Deserialize, Serialize};

use super::namespace::{load, store};
use crate::rows::{AccessKey, Login, Row, User};
use crate::{Context, Stop, Verb, View, keys};

/// Most simultaneous logins of one user. A further login ends the least recently used one.
pub const LOGINS: usize = 32;

/// Adds a login of a user, for an access key that was verified.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddLogin {
    pub user: UserId,
    pub hash: TokenHash,
    /// The access key.
    pub credential: String,
    /// End of the login in any case.
    pub expires: Timestamp,
    /// Logins of the user that have not been used since this time are over.
    pub unused_since: Timestamp,
}

impl Verb for AddLogin {
    type Reply = ();
    const NAME: &'static str = "add_login";
    const RUNS_WHEN_FULL: bool = true;

    /// Adds the login.
    ///
    /// # Errors
    /// `Denied` if the access key is no longer the user's.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let login = Login {
            credential: self.credential.clone(),
            created: context.now,
            seen: context.now,
            expires: self.expires,
            unknown: Vec::new(),
        };
        if !holds(view, self.user, &login)? {
            return Err(Error::Denied("the access key was removed".into()).into());
        }
        let mut others = Vec::new();
        for (key, row) in all(view, self.user)? {
            let other = Login::decode(&row)?;
            if other.expires <= context.now || other.seen < self.unused_since {
                view.delete(key)
            } else {
                others.push((other.seen, key))
            }
        }
        others.sort_unstable();
        let over = (others.len() + 1).saturating_sub(LOGINS);
        for (_, key) in others.into_iter().take(over) {
            view.delete(key);
        }
        store(view, keys::login(self.user, &self.hash), &login);
        Ok(())
    }
}

/// A login that has not ended, though it may have expired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundLogin {
    /// Name of the user.
    pub name: String,
    pub credential: String,
    pub seen: Timestamp,
    pub expires: Timestamp,
}

/// Finds a login. Returns `None` once its access key was removed or has another secret, and while
/// its user is disabled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindLogin {
    pub user: UserId,
    pub hash: TokenHash,
}

impl Verb for FindLogin {
    type Reply = Option<FoundLogin>;
    const NAME: &'static str = "find_login";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let Some(login) = load::<Login>(view, &keys::login(self.user, &self.hash))? else {
            return Ok(None);
        };
        if !holds(view, self.user, &login)? {
            return Ok(None);
        }
        let Some(user) = load::<User>(view, &keys::user(self.user))? else { return Ok(None) };
        let Login { credential, seen, expires, .. } = login;
        Ok(Some(FoundLogin { name: user.name, credential, seen, expires }))
    }
}

/// Returns whether the access key of a login is unchanged and its user is enabled.
fn holds(view: &mut View<'_>, user: UserId, login: &Login) -> Result<bool, Stop> {
    let key = load::<AccessKey>(view, &keys::access_key(&login.credential))?;
    if !key.is_some_and(|key| key.user == user && key.created <= login.created) {
        return Ok(false);
    }
    Ok(load::<User>(view, &keys::user(user))?.is_some_and(|user| !user.disabled))
}

/// Notes that a login is in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TouchLogin {
    pub user: UserId,
    pub hash: TokenHash,
}

impl Verb for TouchLogin {
    type Reply = ();
    const NAME: &'static str = "touch_login";
    const RUNS_WHEN_FULL: bool = true;

    /// Notes the use. Does nothing for a login that has ended.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let key = keys::login(self.user, &self.hash);
        if let Some(login) = load::<Login>(view, &key)? {
            store(view, key, &Login { seen: context.now, ..login });
        }
        Ok(())
    }
}

/// Ends a login of a user, or all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndLogins {
    pub user: UserId,
    pub hash: Option<TokenHash>,
}

impl Verb for EndLogins {
    type Reply = ();
    const NAME: &'static str = "end_logins";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        match &self.hash {
            Some(hash) => {
                let key = keys::login(self.user, hash);
                if view.get(&key)?.is_some() {
                    view.delete(key);
                }
                Ok(())
            }
            None => end_all(view, self.user),
        }
    }
}

/// Ends all logins of a user.
pub fn end_all(view: &mut View<'_>, user: UserId) -> Result<(), Stop> {
    for (key, _) in all(view, user)? {
        view.delete(key);
    }
    Ok(())
}

fn all(view: &mut View<'_>, user: UserId) -> Result<Vec<(Bytes, Bytes)>, Stop> {
    let (start, end) = keys::logins(user);
    view.scan(&start, &end, LOGINS + 1)
}
