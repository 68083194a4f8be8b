//! Waiting until one of several rows changes.

use cairn_auth::TokenHash;
use cairn_base::UserId;
use cairn_meta::{RowWatch, keys};
use futures_util::future::{pending, select_all};

use crate::Fs;

/// Hears of the changes of any of several rows since it was made. It may hear of changes that are
/// none.
pub struct Watching {
    rows: Vec<RowWatch>,
}

impl Watching {
    /// Waits for a change since the last call returned, or since this was made. Giving up loses
    /// none.
    pub async fn changed(&mut self) {
        match self.rows.is_empty() {
            true => pending().await,
            false => {
                select_all(self.rows.iter_mut().map(|row| Box::pin(row.changed()))).await;
            }
        }
    }
}

impl Fs {
    /// Hears of changes of a login that was found here, of its access key and of its user.
    pub fn watch_login(&self, user: UserId, hash: &TokenHash, access_key: &str) -> Watching {
        let keys = [keys::login(user, hash), keys::access_key(access_key), keys::user(user)];
        Watching { rows: keys.map(|key| self.meta().watch(key)).into() }
    }
}
