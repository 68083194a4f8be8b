//! Users, access keys, tokens, exports and share links, out of a backup into a server. Those that
//! are there stay.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Network, SealKey};
use cairn_base::{BucketId, Error, Timestamp, UserId};
use cairn_fs::ops::restore::{RestoreShareLink, RestoreToken, RestoreUser};
use cairn_fs::rows::{AccessKey, Export, Row, ShareLink, Squash, Token, User};
use cairn_meta::keys;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::task::block_in_place;

use super::destination::Destination;
use super::report::{RestoreReport, Trouble};
use super::stored::StoredState;
use super::tree::Task;
use crate::failure::{Failure, Result};

#[derive(Deserialize)]
struct ListedUsers {
    users: Vec<ListedUser>,
}

#[derive(Deserialize)]
struct ListedUser {
    name: String,
    disabled: bool,
    #[serde(default)]
    requests_per_second: u64,
    #[serde(default)]
    bytes_per_second: u64,
    #[serde(default)]
    quota_bytes: u64,
    #[serde(default)]
    quota_objects: u64,
    #[serde(default)]
    quota_buckets: u64,
    #[serde(default)]
    quota_uploads: u64,
}

#[derive(Deserialize)]
struct ListedKeys {
    keys: Vec<ListedKey>,
}

#[derive(Deserialize)]
struct ListedKey {
    id: String,
    user: String,
}

#[derive(Deserialize)]
struct ListedExports {
    exports: Vec<ListedExport>,
}

#[derive(Deserialize)]
struct ListedExport {
    bucket: String,
    user: String,
    clients: Vec<String>,
    read_only: bool,
    squash: String,
    uid: u32,
    gid: u32,
}

#[derive(Deserialize)]
struct ListedLinks {
    shares: Vec<ListedLink>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct ListedLink {
    id: String,
}

/// Accounts of a backup on their way to a server.
pub struct Accounts<'a> {
    pub stored: &'a StoredState,
    pub there: &'a Destination,
    pub report: &'a RestoreReport,
    pub task: Task,
    /// Key of the secrets in the backup.
    pub seal: Option<&'a SealKey>,
}

/// Returns the names of the users on a server.
pub fn users_of(there: &Destination) -> Result<Vec<String>> {
    let listed: ListedUsers = get(there, "/admin/users")?;
    Ok(listed.users.into_iter().map(|user| user.name).collect())
}

fn get<T: DeserializeOwned>(there: &Destination, path: &str) -> Result<T> {
    block_in_place(|| there.server.send("GET", path)?.json())
}

impl Accounts<'_> {
    fn compares(&self) -> bool {
        matches!(self.task, Task::Compare { .. })
    }

    /// Returns the rows of one sort, with what their keys have after it.
    fn rows<R: Row>(&self, sort: u8) -> Result<Vec<(Bytes, R)>> {
        let of_sort = self.stored.accounts.iter().filter(|(key, _)| key.get(1) == Some(&sort));
        let decode = |(key, row): &(Bytes, Bytes)| {
            let row = R::decode(row).map_err(|error| Failure::from(error).of("in the backup"))?;
            Ok((key.slice(2..), row))
        };
        of_sort.map(decode).collect()
    }

    /// Returns the users of the backup by their numbers.
    fn users(&self) -> Result<BTreeMap<UserId, User>> {
        let number = |key: &Bytes| key.first_chunk().map(|n| UserId(u64::from_be_bytes(*n)));
        let rows = self.rows::<User>(b'u')?.into_iter();
        Ok(rows.filter_map(|(key, user)| Some((number(&key)?, user))).collect())
    }

    /// Brings back users with their limits and quotas, and their credentials.
    pub async fn credentials(&self) -> Result<()> {
        let users = self.users()?;
        let listed: ListedUsers = get(self.there, "/admin/users")?;
        for (number, user) in &users {
            let found = listed.users.iter().find(|listed| listed.name == user.name);
            let done = self.user(*number, user, found).await;
            self.report.settle(&format!("user {}", user.name), done)?;
        }
        let ListedKeys { keys } = get(self.there, "/admin/keys")?;
        self.access_keys(&users, &keys)?;
        for (id, token) in self.rows::<Token>(b't')? {
            let id = String::from_utf8_lossy(&id).into_owned();
            let Some(user) = users.get(&token.user) else { continue };
            let name = format!("token {id} of {}", user.name);
            let found = keys.iter().find(|key| key.id == id);
            if self.is_settled(&name, found, &user.name)? {
                continue;
            }
            let verb = RestoreToken { id, user: user.name.clone(), token };
            let done = self.there.run(verb).await.map_err(Trouble::from);
            if done.is_ok() {
                self.report.other();
            }
            self.report.settle(&name, done)?;
        }
        Ok(())
    }

    async fn user(
        &self,
        number: UserId,
        user: &User,
        found: Option<&ListedUser>,
    ) -> Result<(), Trouble> {
        let name = format!("user {}", user.name);
        if let Some(found) = found {
            let limits = (found.requests_per_second, found.bytes_per_second);
            let quotas = [found.quota_bytes, found.quota_objects];
            let counts = [found.quota_buckets, found.quota_uploads];
            let is_same = found.disabled == user.disabled
                && limits == (user.limits.requests, user.limits.bytes)
                && quotas == [user.quotas.bytes, user.quotas.objects]
                && counts == [user.quotas.buckets, user.quotas.uploads];
            if is_same {
                self.report.same();
                return Ok(());
            }
            return Ok(self.differs(&name, "its limits or quotas differ, or it is disabled")?);
        }
        if self.compares() {
            return Ok(self.report.failed(&name, "there is no such user")?);
        }
        let verb = RestoreUser {
            number,
            name: user.name.clone(),
            disabled: user.disabled,
            limits: user.limits,
            quotas: user.quotas,
        };
        self.there.run(verb).await?;
        self.report.other();
        Ok(())
    }

    fn differs(&self, name: &str, why: &str) -> Result<()> {
        if self.compares() { self.report.failed(name, why) } else { self.report.left(name, why) }
    }

    /// Reports a credential that is there, or that only a restore would make.
    fn is_settled(&self, name: &str, found: Option<&ListedKey>, user: &str) -> Result<bool> {
        match found {
            Some(found) if found.user == user => self.report.same(),
            Some(found) => {
                self.differs(name, &format!("user {} has it", found.user))?;
            }
            None if self.compares() => self.report.failed(name, "it is not there")?,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn access_keys(&self, users: &BTreeMap<UserId, User>, known: &[ListedKey]) -> Result<()> {
        for (id, key) in self.rows::<AccessKey>(b'a')? {
            let id = String::from_utf8_lossy(&id).into_owned();
            let Some(User { name: user, .. }) = users.get(&key.user) else { continue };
            let name = format!("access key {id} of {user}");
            let found = known.iter().find(|known| known.id == id);
            if self.is_settled(&name, found, user)? {
                continue;
            }
            let Some(seal) = self.seal else {
                let text = "secret.key is not in the backup: name the file by --secret-key";
                self.report.failed(&name, text)?;
                continue;
            };
            let secret = match seal.open(&id, &key.sealed) {
                Ok(secret) => secret,
                Err(error) => {
                    self.report.failed(&name, error)?;
                    continue;
                }
            };
            let order = json!({ "user": user, "id": id, "secret": secret.expose() });
            let server = &self.there.server;
            match block_in_place(|| server.send_json("POST", "/admin/keys", &order)) {
                Ok(_) => self.report.other(),
                Err(failure) if failure.is_passing() => return Err(failure.of(name)),
                Err(failure) => self.report.failed(&name, failure)?,
            }
        }
        Ok(())
    }

    /// Brings back exports of these buckets, by their numbers in the backup.
    pub fn exports(&self, buckets: &BTreeMap<BucketId, String>) -> Result<()> {
        let users = self.users()?;
        let ListedExports { exports: known } = get(self.there, "/admin/exports")?;
        for (id, export) in self.rows::<Export>(b'e')? {
            let id = id.first_chunk().map(|id| BucketId(u64::from_be_bytes(*id)));
            let bucket = id.and_then(|id| buckets.get(&id));
            let (Some(bucket), Some(user)) = (bucket, users.get(&export.user)) else { continue };
            let name = format!("export of {bucket}");
            let of_bucket =
                |listed: &&ListedExport| listed.bucket.split('/').next() == Some(bucket.as_str());
            let clients: Vec<String> = export.clients.iter().map(Network::to_string).collect();
            let squash = match export.squash {
                Squash::Root => "root",
                Squash::All => "all",
                Squash::None => "none",
            };
            if let Some(found) = known.iter().find(of_bucket) {
                let is_same = found.user == user.name
                    && found.clients == clients
                    && found.read_only == export.read_only
                    && (found.squash.as_str(), found.uid, found.gid)
                        == (squash, export.uid, export.gid);
                if is_same {
                    self.report.same()
                } else {
                    self.differs(&name, "it differs")?
                }
                continue;
            }
            if self.compares() {
                self.report.failed(&name, "it is not there")?;
                continue;
            }
            let mut order = json!({
                "bucket": bucket,
                "user": user.name,
                "clients": clients,
                "any_client": export.clients.iter().any(|network| network.is_any()),
                "read_only": export.read_only,
                "squash": squash,
                "uid": export.uid,
                "gid": export.gid,
            });
            if !export.path.is_empty() {
                order["path"] = json!(export.path);
            }
            self.sent(&name, "/admin/exports", &order)?;
        }
        Ok(())
    }

    fn sent(&self, name: &str, path: &str, order: &serde_json::Value) -> Result<()> {
        let server = &self.there.server;
        match block_in_place(|| server.send_json("POST", path, order)) {
            Ok(_) => {
                self.report.other();
                Ok(())
            }
            Err(failure) if failure.is_passing() => Err(failure.of(name)),
            Err(failure) => self.report.failed(name, failure),
        }
    }

    /// Brings back share links into these buckets that have not expired.
    pub async fn share_links(&self, buckets: &BTreeMap<BucketId, String>) -> Result<()> {
        let users = self.users()?;
        let now = self.there.fs.clock().now();
        let known = if self.compares() { self.known_links()? } else { Vec::new() };
        for (key, link) in self.rows::<ShareLink>(b'l')? {
            let key = [&b"kl"[..], &key[..]].concat();
            let Some((number, id)) = keys::share_link_parts(&key) else { continue };
            let (bucket, user) = (buckets.get(&link.bucket), users.get(&number));
            let (Some(bucket), Some(user)) = (bucket, user) else { continue };
            if !is_in_time(&link, now) {
                continue;
            }
            let name = format!("share link {id} of {}", user.name);
            if self.compares() {
                if known.iter().any(|known| known.ends_with(&id)) {
                    self.report.same();
                } else {
                    self.report.failed(&name, "it is not there")?;
                }
                continue;
            }
            let (user, bucket) = (user.name.clone(), bucket.clone());
            let done =
                match self.there.run(RestoreShareLink { user, number, id, bucket, link }).await {
                    Ok(()) => {
                        self.report.other();
                        Ok(())
                    }
                    Err(Error::Exists(_)) => {
                        self.report.same();
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                };
            self.report.settle(&name, done)?;
        }
        Ok(())
    }

    /// Returns the ids of the share links on the server.
    fn known_links(&self) -> Result<Vec<String>> {
        let (mut found, mut query) = (Vec::new(), String::new());
        loop {
            let page: ListedLinks = get(self.there, &format!("/shares?all{query}"))?;
            found.extend(page.shares.into_iter().map(|link| link.id));
            let Some(next) = page.next else { return Ok(found) };
            query = format!("&after={}", crate::client::address::escape(&next));
        }
    }
}

fn is_in_time(link: &ShareLink, now: Timestamp) -> bool {
    link.is_in_time(now)
}
