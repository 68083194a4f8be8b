//! Limits of users' requests and bytes per second. The doors enforce them; here they are stored.

use cairn_base::{Error, UserId};
use serde::{Deserialize, Serialize};

use super::credentials::{find_user, scan_sort};
use super::namespace::{load, load_known, store};
use crate::rows::{Row, User, UserLimits};
use crate::{Context, Stop, Verb, View, keys};

/// Lowest limit of bytes per second: less would not move the pieces in which bodies come.
pub const LEAST_BYTES: u64 = 64 << 10;

/// Sets the limits of a user; 0 removes a limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetUserLimits {
    pub name: String,
    /// New limit of requests; `None` keeps it.
    pub requests: Option<u64>,
    /// New limit of bytes; `None` keeps it.
    pub bytes: Option<u64>,
}

impl Verb for SetUserLimits {
    type Reply = ();
    const NAME: &'static str = "set_user_limits";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        if self.bytes.is_some_and(|bytes| (1..LEAST_BYTES).contains(&bytes)) {
            let text =
                format!("a limit of bytes is at least {LEAST_BYTES} a second, or 0 for none");
            return Err(Error::Invalid(text).into());
        }
        let id = find_user(view, &self.name)?;
        if id == UserId::ROOT {
            return Err(Error::Conflict("root cannot be limited".into()).into());
        }
        let key = keys::user(id);
        let user: User = load_known(view, &key, "user by name")?;
        let UserLimits { requests, bytes } = user.limits;
        let limits = UserLimits {
            requests: self.requests.unwrap_or(requests),
            bytes: self.bytes.unwrap_or(bytes),
        };
        store(view, key, &User { limits, ..user });
        Ok(())
    }
}

/// Finds the limits of a user, for doors. A removed user has none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindUserLimits {
    pub user: UserId,
}

impl Verb for FindUserLimits {
    type Reply = UserLimits;
    const NAME: &'static str = "find_user_limits";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<UserLimits, Stop> {
        Ok(load::<User>(view, &keys::user(self.user))?.map(|user| user.limits).unwrap_or_default())
    }
}

/// Lists users that have limits, by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListUserLimits;

impl Verb for ListUserLimits {
    type Reply = Vec<(String, UserLimits)>;
    const NAME: &'static str = "list_user_limits";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let mut limited = Vec::new();
        for (_, row) in scan_sort(view, b'u')? {
            let User { name, limits, .. } = User::decode(&row)?;
            if limits != UserLimits::default() {
                limited.push((name, limits));
            }
        }
        Ok(limited)
    }
}
