//! Usage of a user over all buckets. It is counted with each change, and limited by the user's
//! quotas. An index lists the buckets that a user owns or has rights in.

use cairn_auth::Rights;
use cairn_base::{BucketId, Error, UserId, limits};

use super::typed_rows::{load, load_known, store};
use crate::rows::{Bucket, Usage, User, UserQuotas, UserTotals, encode_number};
use crate::{Stop, View, keys};

/// A change of a user's usage.
#[derive(Clone, Copy, Default)]
pub struct Change {
    pub buckets: i64,
    pub objects: i64,
    pub bytes: i64,
    pub upload_bytes: i64,
    pub uploads: i64,
}

impl Change {
    /// Returns whether the change adds a bucket or an upload: a user's counts start with the first
    /// of them.
    fn begins(&self) -> bool {
        self.buckets > 0 || self.uploads > 0
    }

    fn grows(&self) -> bool {
        let all = [self.buckets, self.objects, self.bytes, self.upload_bytes, self.uploads];
        all.iter().any(|delta| *delta > 0)
    }
}

impl UserTotals {
    fn with(self, change: &Change) -> UserTotals {
        UserTotals {
            buckets: self.buckets.saturating_add_signed(change.buckets),
            objects: self.objects.saturating_add_signed(change.objects),
            bytes: self.bytes.saturating_add_signed(change.bytes),
            upload_bytes: self.upload_bytes.saturating_add_signed(change.upload_bytes),
            uploads: self.uploads.saturating_add_signed(change.uploads),
            unknown: self.unknown,
        }
    }
}

/// Counts a change of a user's usage. A mount that runs an operation on its own does not have the
/// row, and leaves the counting to the master.
///
/// # Errors
/// `Full` if it grows beyond a quota.
pub fn count_owned(view: &mut View<'_>, user: UserId, change: Change) -> Result<(), Stop> {
    let key = keys::owned(user);
    let owned = match load::<UserTotals>(view, &key)? {
        Some(owned) => owned,
        None if change.begins() => UserTotals::default(),
        None => return Ok(()),
    };
    let owned = owned.with(&change);
    if change.grows() && user != UserId::ROOT && user != UserId::NOBODY {
        check(view, user, &change, &owned)?;
    }
    store(view, key, &owned);
    Ok(())
}

/// Counts a change for the owner of a bucket.
pub fn count_owner(view: &mut View<'_>, bucket: BucketId, change: Change) -> Result<(), Stop> {
    match load::<Bucket>(view, &keys::bucket(bucket))? {
        Some(bucket) => count_owned(view, bucket.owner, change),
        None => Ok(()),
    }
}

/// Counts bytes of parts of unfinished uploads, in their bucket and for its owner.
///
/// # Errors
/// `Full` if they grow beyond a quota.
pub fn count_parts(view: &mut View<'_>, bucket: BucketId, bytes: i64) -> Result<(), Stop> {
    if bytes == 0 {
        return Ok(());
    }
    let key = keys::usage(bucket);
    let mut usage: Usage = load(view, &key)?.unwrap_or_default();
    usage.upload_bytes = usage.upload_bytes.saturating_add_signed(bytes);
    if bytes > 0 && usage.quota_bytes > 0 && usage.all_bytes() > usage.quota_bytes {
        let quota = format!("{} bytes", usage.quota_bytes);
        return Err(used_up(view, bucket, quota)?.into());
    }
    store(view, key, &usage);
    count_owner(view, bucket, Change { upload_bytes: bytes, ..Change::default() })
}

/// Makes the error for a bucket whose quota is used up.
pub fn used_up(view: &mut View<'_>, bucket: BucketId, quota: String) -> Result<Error, Stop> {
    let Bucket { name, .. } = load_known(view, &keys::bucket(bucket), "bucket")?;
    let remedy = "delete something, or have root raise it";
    Ok(Error::Full(format!("the quota of bucket {name}, {quota}, is used up: {remedy}")))
}

fn check(
    view: &mut View<'_>,
    user: UserId,
    change: &Change,
    owned: &UserTotals,
) -> Result<(), Stop> {
    let Some(User { name, quotas, .. }) = load(view, &keys::user(user))? else { return Ok(()) };
    let UserQuotas { bytes, objects, .. } = quotas;
    let all_bytes = owned.bytes.saturating_add(owned.upload_bytes);
    let exceeds = |delta: i64, used: u64, most: u64| delta > 0 && most > 0 && used > most;
    let what = if exceeds(change.bytes.max(change.upload_bytes), all_bytes, bytes) {
        format!("the quota of user {name} for all its buckets, {bytes} bytes, is used up")
    } else if exceeds(change.objects, owned.objects, objects) {
        format!("the quota of user {name} for all its buckets, {objects} objects, is used up")
    } else if exceeds(change.buckets, owned.buckets, most_buckets(&quotas)) {
        format!("user {name} has {} buckets, and may have no more", owned.buckets - 1)
    } else if exceeds(change.uploads, owned.uploads, most_uploads(&quotas)) {
        let uploads = owned.uploads - 1;
        format!("user {name} has {uploads} unfinished uploads, and may have no more")
    } else {
        return Ok(());
    };
    Err(Error::Full(format!("{what}: delete something, or have root raise it")).into())
}

/// Returns the number of buckets that a user may have.
pub fn most_buckets(quotas: &UserQuotas) -> u64 {
    if quotas.buckets == 0 { limits::USER_BUCKETS } else { quotas.buckets }
}

/// Returns the number of unfinished uploads that a user may have begun.
pub fn most_uploads(quotas: &UserQuotas) -> u64 {
    if quotas.uploads == 0 { limits::USER_UPLOADS } else { quotas.uploads }
}

/// Adds a bucket to the index, for its owner and for all users with rights in it.
pub fn index(view: &mut View<'_>, id: BucketId, bucket: &Bucket) {
    for user in users_of(bucket) {
        view.put(keys::bucket_of(user, bucket.name.as_bytes()), encode_number(id.0));
    }
}

/// Removes a bucket from the index.
pub fn unindex(view: &mut View<'_>, bucket: &Bucket) {
    for user in users_of(bucket) {
        view.delete(keys::bucket_of(user, bucket.name.as_bytes()));
    }
}

/// Updates the index after a user's rights in a bucket have changed.
pub fn reindex(view: &mut View<'_>, id: BucketId, bucket: &Bucket, user: UserId) {
    let key = keys::bucket_of(user, bucket.name.as_bytes());
    if users_of(bucket).any(|has| has == user) {
        view.put(key, encode_number(id.0))
    } else {
        view.delete(key)
    }
}

/// Returns the owner of a bucket, and the users that have rights in it.
pub fn users_of(bucket: &Bucket) -> impl Iterator<Item = UserId> {
    let granted = bucket
        .grants
        .iter()
        .filter(|(user, rights)| *user != bucket.owner && *rights != Rights::NONE);
    std::iter::once(bucket.owner).chain(granted.map(|(user, _)| *user))
}
