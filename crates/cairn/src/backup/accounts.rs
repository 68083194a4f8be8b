//! Users, access keys, tokens, exports and share links, out of a backup into a server. Those that
//! are there stay.

use std::collections::BTreeMap;

use bytes::Bytes;
use cairn_auth::{Network, SealKey};
use cairn_base::{BucketId, Error, Ino, Timestamp, UserId};
use cairn_fs::ops::lookup::Lookup;
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
    /// Bucket, with the path of the directory if one is exported.
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
    pub async fn exports(&self, buckets: &BTreeMap<BucketId, String>) -> Result<()> {
        let users = self.users()?;
        let ListedExports { exports: known } = get(self.there, "/admin/exports")?;
        for (id, export) in self.rows::<Export>(b'e')? {
            let id = id.first_chunk().map(|id| BucketId(u64::from_be_bytes(*id)));
            let found = id.and_then(|id| Some((id, buckets.get(&id)?)));
            let (Some((id, bucket)), Some(user)) = (found, users.get(&export.user)) else {
                continue;
            };
            let name = format!("export of {bucket}");
            let of_bucket =
                |listed: &&ListedExport| listed.bucket.split('/').next() == Some(bucket.as_str());
            if let Some(found) = known.iter().find(of_bucket) {
                if is_same_export(found, &export, bucket, &user.name) {
                    self.report.same()
                } else {
                    self.differs(&name, "it differs")?
                }
            } else if self.compares() {
                self.report.failed(&name, "it is not there")?;
            } else if self.leads_to_top(id, &export).await? {
                self.sent(&name, "/admin/exports", &order_of_export(&export, bucket, &user.name))?;
            } else {
                let path = &export.path;
                let text = format!("its directory is not at {path} in the backup: it was moved");
                self.report.failed(&name, text)?;
            }
        }
        Ok(())
    }

    /// Returns whether the path of an export leads to its directory in the backup: that may have
    /// been moved, and another one may have its path.
    async fn leads_to_top(&self, bucket: BucketId, export: &Export) -> Result<bool> {
        if export.path.is_empty() {
            return Ok(export.top == Ino(0));
        }
        let mut ino = bucket.ino();
        for name in export.path.split('/') {
            let verb = Lookup { parent: ino, name: name.as_bytes().to_vec() };
            match self.stored.read(verb).await {
                Ok((found, _)) => ino = found,
                Err(Error::NotFound(_) | Error::NotDirectory(_)) => return Ok(false),
                Err(error) => return Err(Failure::from(error).of("in the backup")),
            }
        }
        Ok(ino == export.top)
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

fn word_of(squash: Squash) -> &'static str {
    match squash {
        Squash::Root => "root",
        Squash::All => "all",
        Squash::None => "none",
    }
}

fn clients_of(export: &Export) -> Vec<String> {
    export.clients.iter().map(Network::to_string).collect()
}

fn is_same_export(found: &ListedExport, export: &Export, bucket: &str, user: &str) -> bool {
    let path = found.bucket.split_once('/').map_or("", |(_, path)| path);
    let squashes = (found.squash.as_str(), found.uid, found.gid);
    found.bucket.split('/').next() == Some(bucket)
        && path == export.path
        && found.user == user
        && found.clients == clients_of(export)
        && found.read_only == export.read_only
        && squashes == (word_of(export.squash), export.uid, export.gid)
}

/// Makes the request that adds an export.
fn order_of_export(export: &Export, bucket: &str, user: &str) -> serde_json::Value {
    let mut order = json!({
        "bucket": bucket,
        "user": user,
        "clients": clients_of(export),
        "any_client": export.clients.iter().any(|network| network.is_any()),
        "read_only": export.read_only,
        "squash": word_of(export.squash),
        "uid": export.uid,
        "gid": export.gid,
    });
    if !export.path.is_empty() {
        order["path"] = json!(export.path);
    }
    order
}

fn is_in_time(link: &ShareLink, now: Timestamp) -> bool {
    link.is_in_time(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_of_other_directories_differ() {
        let export = Export { path: "a/b".to_owned(), ..Export::default() };
        let found = |bucket: &str| ListedExport {
            bucket: bucket.to_owned(),
            user: "alice".to_owned(),
            clients: Vec::new(),
            read_only: export.read_only,
            squash: word_of(export.squash).to_owned(),
            uid: export.uid,
            gid: export.gid,
        };
        let is_same = |bucket: &str| is_same_export(&found(bucket), &export, "photos", "alice");
        assert!(is_same("photos/a/b"));
        assert!(!is_same("photos") && !is_same("photos/a") && !is_same("other/a/b"));
    }
}
