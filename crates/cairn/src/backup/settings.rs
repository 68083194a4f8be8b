//! Settings of buckets, out of a backup into a server, or compared with it.

use cairn_auth::Rights;
use cairn_base::{BucketId, Error, Timestamp, UserId};
use cairn_fs::ops::buckets::{GetBucket, ListBuckets};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::namespace::BucketEntry;
use cairn_fs::ops::restore::{RestoreBucket, UNFINISHED_MODE};
use cairn_fs::rows::{Bucket, BucketKind, Usage};
use serde_json::json;
use tokio::task::block_in_place;

use super::destination::Destination;
use super::report::{RestoreReport, Trouble};
use super::stored::StoredState;
use super::tree::Task;
use crate::client::address::bucket_path;
use crate::client::api;
use crate::failure::{Failure, Result};

/// Buckets of a page of a listing.
const PAGE: usize = 1000;
const MODE_BITS: u32 = 0o7777;
const ROOT: &str = "root";

/// A bucket of the backup, with the names of users.
pub struct StoredBucket {
    pub id: BucketId,
    pub bucket: Bucket,
    usage: Usage,
    owner: String,
    grants: Vec<(String, Rights)>,
}

/// Reads all buckets of the backup, or the one of this name.
pub async fn list(stored: &StoredState, only: Option<&str>) -> Result<Vec<StoredBucket>> {
    let in_backup = |error: Error| Failure::from(error).of("in the backup");
    let mut found = Vec::new();
    if let Some(name) = only {
        let got = stored.read(GetBucket { name: name.to_owned() }).await.map_err(in_backup)?;
        found.push(got);
    } else {
        let mut after = Some(String::new());
        while let Some(from) = after {
            let verb = ListBuckets { prefix: String::new(), after: from, limit: PAGE };
            let (page, next) = stored.read(verb).await.map_err(in_backup)?;
            found.extend(page);
            after = next;
        }
    }
    let mut buckets = Vec::with_capacity(found.len());
    for (BucketEntry { id, bucket }, usage) in found {
        let owner = user(stored, bucket.owner).await.map_err(in_backup)?;
        let mut grants = Vec::new();
        for (user_id, rights) in &bucket.grants {
            grants.push((user(stored, *user_id).await.map_err(in_backup)?, *rights));
        }
        buckets.push(StoredBucket { id, bucket, usage, owner, grants });
    }
    Ok(buckets)
}

async fn user(stored: &StoredState, user: UserId) -> cairn_base::Result<String> {
    let name = stored.read(UserName { user }).await?;
    Ok(name.unwrap_or_else(|| format!("user {}", user.0)))
}

/// Settings of buckets on a server, which a restore makes, replaces or compares.
pub struct Settings<'a> {
    pub there: &'a Destination,
    pub report: &'a RestoreReport,
    pub task: Task,
    /// Names of the users on the server.
    pub users: &'a [String],
    /// Set if whole buckets are selected. Otherwise settings of buckets that are there stay, and
    /// are not compared.
    pub is_whole: bool,
}

impl Settings<'_> {
    /// Makes a bucket with the settings that it had, or compares these. Returns its number and
    /// its kind; `None` if it is not there.
    pub async fn apply(
        &self,
        stored: &StoredBucket,
        name: &str,
    ) -> Result<Option<(BucketId, BucketKind)>> {
        match self.settle(stored, name).await {
            Ok(found) => Ok(found),
            Err(Trouble::Single(why)) => self.report.failed(name, why).map(|()| None),
            Err(Trouble::Final(failure)) => Err(failure.of(name)),
        }
    }

    async fn settle(
        &self,
        stored: &StoredBucket,
        name: &str,
    ) -> Result<Option<(BucketId, BucketKind)>, Trouble> {
        let found = match self.there.read(GetBucket { name: name.to_owned() }).await {
            Err(Error::NotFound(_)) => None,
            found => Some(found?),
        };
        let Some((BucketEntry { id, bucket }, usage)) = found else {
            if matches!(self.task, Task::Compare { .. }) {
                self.report.failed(name, "the bucket is not there")?;
                return Ok(None);
            }
            let id = self.there.run(self.order(stored, name, false)?).await?;
            self.report.other();
            return Ok(Some((id, stored.bucket.kind)));
        };
        let there = Some((id, bucket.kind));
        if !self.is_whole {
            return Ok(there);
        }
        let is_own = self.is_unfinished(id).await?;
        let Some(why) = self.difference(stored, name, &bucket, &usage, is_own)? else {
            self.report.same();
            return Ok(there);
        };
        match self.task {
            Task::Restore { replace: true } => {
                self.there.run(self.order(stored, name, true)?).await?;
                self.report.other();
            }
            Task::Restore { replace: false } => {
                self.report.left(name, format!("the settings of the bucket: {why}"))?;
            }
            Task::Compare { .. } => {
                self.report.failed(name, format!("the settings of the bucket: {why}"))?;
            }
        }
        Ok(there)
    }

    /// Returns whether a restore has made the bucket and has not ended. It becomes read-only and
    /// gets its quota in the end.
    async fn is_unfinished(&self, id: BucketId) -> cairn_base::Result<bool> {
        let (inode, _) = self.there.read(Getattr { ino: id.ino() }).await?;
        Ok(inode.mode & MODE_BITS == UNFINISHED_MODE)
    }

    /// Makes the operation. A new bucket has no quota until its contents are there. Users that are
    /// not there own nothing and get no rights.
    fn order(&self, stored: &StoredBucket, name: &str, replace: bool) -> Result<RestoreBucket> {
        let is_there = |user: &str| self.users.iter().any(|known| known == user);
        let mut owner = stored.owner.clone();
        if !is_there(&owner) {
            self.report.failed(&format!("owner of {name}"), format!("no user {owner}: root is"))?;
            owner = ROOT.to_owned();
        }
        let mut grants = Vec::new();
        for (user, rights) in &stored.grants {
            if is_there(user) {
                grants.push((user.clone(), *rights));
            } else {
                self.report.failed(&format!("right of {user} in {name}"), "no such user")?;
            }
        }
        let bucket = Bucket { name: name.to_owned(), read_only: false, ..stored.bucket.clone() };
        let Usage { quota_objects, quota_bytes, .. } = stored.usage;
        let [quota_objects, quota_bytes] =
            [quota_objects, quota_bytes].map(|quota| if replace { quota } else { 0 });
        Ok(RestoreBucket { bucket, owner, grants, quota_objects, quota_bytes, replace })
    }

    fn difference(
        &self,
        stored: &StoredBucket,
        name: &str,
        found: &Bucket,
        usage: &Usage,
        is_own: bool,
    ) -> Result<Option<&'static str>> {
        let shown: api::Bucket =
            block_in_place(|| self.there.server.send("GET", &bucket_path(name))?.json())?;
        let text = |(user, rights): &(String, Rights)| (user.clone(), rights.to_string());
        let mut rights: Vec<(String, String)> = stored.grants.iter().map(text).collect();
        let granted = shown.grants.into_iter().flatten();
        let mut known: Vec<(String, String)> = granted.map(|g| (g.user, g.rights)).collect();
        rights.sort_unstable();
        known.sort_unstable();
        if stored.bucket.kind != found.kind {
            return Ok(Some("its kind differs"));
        }
        if stored.owner != shown.owner {
            return Ok(Some("its owner differs"));
        }
        if rights != known {
            return Ok(Some("rights differ"));
        }
        let quotas = |usage: &Usage| (usage.quota_objects, usage.quota_bytes);
        if quotas(&stored.usage) != quotas(usage) && !is_own {
            return Ok(Some("its quota differs"));
        }
        let plain = |bucket: &Bucket| Bucket {
            name: String::new(),
            owner: UserId::ROOT,
            grants: Vec::new(),
            redundancy: None,
            // One that is there keeps it.
            created: Timestamp(0),
            read_only: bucket.read_only && !is_own,
            ..bucket.clone()
        };
        Ok((plain(&stored.bucket) != plain(found)).then_some("others differ"))
    }

    /// Gives a bucket its quota, and makes it read-only if it was so, once its contents are there.
    pub async fn close(&self, stored: &StoredBucket, name: &str, id: BucketId) -> Result<()> {
        if matches!(self.task, Task::Compare { .. }) {
            return Ok(());
        }
        let is_own = self.is_unfinished(id).await?;
        let change = |change: serde_json::Value| {
            let server = &self.there.server;
            block_in_place(|| server.send_json("PATCH", &bucket_path(name), &change)).map(drop)
        };
        let Usage { quota_objects, quota_bytes, .. } = stored.usage;
        if is_own && (quota_objects, quota_bytes) != (0, 0) {
            change(json!({ "quota_objects": quota_objects, "quota_bytes": quota_bytes }))?;
        }
        let replaces = self.is_whole && self.task == (Task::Restore { replace: true });
        if stored.bucket.read_only && (is_own || replaces) {
            // No other change may go with it.
            change(json!({ "read_only": "on" }))?;
        }
        Ok(())
    }
}
