//! Quotas of users over all their buckets, and the room that a quota leaves for further bytes.

use cairn_base::{BucketId, Error, UserId, limits};
use serde::{Deserialize, Serialize};

use super::buckets::buckets_of;
use super::credentials::{find_user, scan_sort};
use super::key_names::split_key;
use super::namespace::{find_bucket, load, load_known, store, walk};
use super::user_totals::used_up;
use crate::rows::{Bucket, Entry, Inode, Row, Usage, User, UserQuotas, UserTotals};
use crate::{Context, Stop, Verb, View, keys};

/// Most buckets of a user whose rows are rewritten when a quota is set, so that no directory in
/// them stays delegated: a session that holds a directory counts nothing.
const RECALLED: usize = 2000;

/// Sets quotas of a user; 0 restores the default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SetUserQuotas {
    pub name: String,
    /// New quota of bytes; `None` keeps it. The same holds for the other fields.
    pub bytes: Option<u64>,
    pub objects: Option<u64>,
    pub buckets: Option<u64>,
    pub uploads: Option<u64>,
}

impl Verb for SetUserQuotas {
    type Reply = ();
    const NAME: &'static str = "set_user_quotas";
    const RUNS_WHEN_FULL: bool = true;

    /// Sets the quotas. The user keeps what it has, even if that is more.
    ///
    /// # Errors
    /// `Conflict` for root.
    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let id = find_user(view, &self.name)?;
        if id == UserId::ROOT {
            return Err(Error::Conflict("root has no quotas".into()).into());
        }
        let key = keys::user(id);
        let user: User = load_known(view, &key, "user by name")?;
        let former = user.quotas;
        let quotas = UserQuotas {
            bytes: self.bytes.unwrap_or(former.bytes),
            objects: self.objects.unwrap_or(former.objects),
            buckets: self.buckets.unwrap_or(former.buckets),
            uploads: self.uploads.unwrap_or(former.uploads),
        };
        store(view, key, &User { quotas, ..user });
        if quotas.bytes > 0 || quotas.objects > 0 {
            for opened in buckets_of(view, id, b"", RECALLED)? {
                if opened.bucket.owner == id {
                    store(view, keys::bucket(opened.id), &opened.bucket);
                }
            }
        }
        Ok(())
    }
}

/// Lists the quotas and the usage of users.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListUserQuotas;

/// Quotas and usage of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserUsage {
    pub name: String,
    pub quotas: UserQuotas,
    pub buckets: u64,
    pub objects: u64,
    pub bytes: u64,
    pub upload_bytes: u64,
    pub uploads: u64,
}

impl Verb for ListUserQuotas {
    /// Users, ordered by number.
    type Reply = Vec<UserUsage>;
    const NAME: &'static str = "list_user_quotas";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let mut users = Vec::new();
        for (key, row) in scan_sort(view, b'u')? {
            let User { name, quotas, .. } = User::decode(&row)?;
            let id = key.get(2..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
            let id = id.ok_or_else(|| Error::corrupt("key of a user", key.len(), 10))?;
            let owned: UserTotals = load(view, &keys::owned(UserId(id)))?.unwrap_or_default();
            let UserTotals { buckets, objects, bytes, upload_bytes, uploads, .. } = owned;
            users.push(UserUsage { name, quotas, buckets, objects, bytes, upload_bytes, uploads });
        }
        Ok(users)
    }
}

/// Bytes that a bucket may still take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRoom {
    pub bucket: BucketId,
    pub owner: UserId,
    /// Room in the bucket's quota; `None` without a quota.
    pub of_bucket: Option<u64>,
    /// Room in the owner's quota for all its buckets together.
    pub of_owner: Option<u64>,
}

impl QuotaRoom {
    /// Checks that there is room for `bytes` more.
    ///
    /// # Errors
    /// `Full` if there is not.
    pub fn check(&self, view: &mut View<'_>, bucket: BucketId, bytes: u64) -> Result<(), Stop> {
        if self.of_bucket.is_some_and(|room| room < bytes) {
            let usage: Usage = load(view, &keys::usage(bucket))?.unwrap_or_default();
            let quota = format!("{} bytes", usage.quota_bytes);
            return Err(used_up(view, bucket, quota)?.into());
        }
        match self.of_owner {
            Some(room) if room < bytes => Err(Error::Full(format!(
                "the quota of the owner for all its buckets leaves room for {room} bytes, and \
                 these are {bytes}: delete something, or have root raise it"
            ))
            .into()),
            _ => Ok(()),
        }
    }
}

/// Returns the room in a bucket.
pub fn find_room(view: &mut View<'_>, bucket: BucketId) -> Result<QuotaRoom, Stop> {
    let usage: Usage = load(view, &keys::usage(bucket))?.unwrap_or_default();
    let Bucket { owner, .. } = load_known(view, &keys::bucket(bucket), "bucket")?;
    let left = |quota: u64, used: u64| (quota > 0).then(|| quota.saturating_sub(used));
    let of_bucket = left(usage.quota_bytes, usage.all_bytes());
    let mut of_owner = None;
    if owner != UserId::ROOT
        && let Some(User { quotas, .. }) = load(view, &keys::user(owner))?
        && quotas.bytes > 0
    {
        let owned: UserTotals = load(view, &keys::owned(owner))?.unwrap_or_default();
        of_owner = left(quotas.bytes, owned.bytes.saturating_add(owned.upload_bytes));
    }
    Ok(QuotaRoom { bucket, owner, of_bucket, of_owner })
}

/// Asks how many bytes a bucket may still take, before the bytes of an object arrive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindRoom {
    pub bucket: String,
    /// Key of an object that may be replaced: the bytes of the former object make room.
    pub key: Option<String>,
}

impl Verb for FindRoom {
    type Reply = QuotaRoom;
    const NAME: &'static str = "find_room";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<QuotaRoom, Stop> {
        let id = find_bucket(view, &self.bucket)?.id;
        let room = find_room(view, id)?;
        let Some(key) = self
            .key
            .as_ref()
            .filter(|_| room != QuotaRoom { of_bucket: None, of_owner: None, ..room })
        else {
            return Ok(room);
        };
        let replaced = replaced_bytes(view, id, key)?;
        let more = |room: u64| room.saturating_add(replaced);
        Ok(QuotaRoom {
            of_bucket: room.of_bucket.map(more),
            of_owner: room.of_owner.map(more),
            ..room
        })
    }
}

/// Returns the bytes of the object of a key, if they are freed when it is replaced.
fn replaced_bytes(view: &mut View<'_>, bucket: BucketId, key: &str) -> Result<u64, Stop> {
    let (directories, name) = split_key(key);
    let Some(steps) = walk(view, bucket, &directories)? else { return Ok(0) };
    let parent = steps.last().map_or(bucket.ino(), |step| step.ino);
    let entry = load::<Entry>(view, &keys::file_entry(parent, name.as_bytes()))?;
    let Some(entry) = entry else { return Ok(0) };
    match load::<Inode>(view, &keys::inode(entry.ino))? {
        Some(inode) if inode.nlink == 1 => Ok(inode.size.min(limits::OBJECT_BYTES)),
        _ => Ok(0),
    }
}
