//! Makes, reads, changes and deletes buckets.

use cairn_auth::{Action, Principal, Resource, Rights, Visibility};
use cairn_base::{BucketId, Error, Ino, Redundancy, UserId, limits};
use serde::{Deserialize, Serialize};

use super::multipart::abort_uploads;
use super::namespace::{
    BucketEntry, add_entry, authorize_in, drop_directory, find_bucket, load, load_inode,
    load_known, new_directory, next_ino, open_bucket, remove_entry, store,
};
use super::public_access::check_visibility;
use super::tags::check_tags;
use super::user_totals::{Change, count_owned, index, reindex, unindex};
use crate::rows::{Bucket, BucketKind, Entry, Inode, Kind, Row, Tally, Usage, decode_number};
use crate::{Context, Stop, Verb, View, keys};

/// Checks a bucket's name by the rules of S3. It has 3 to 63 characters of `a-z 0-9 . -`, with a
/// letter or digit at both ends and no two dots in a row, and it is not an IPv4 address.
pub fn check_bucket_name(name: &str) -> Result<(), Error> {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let good = limits::BUCKET_NAME_BYTES.contains(&name.len())
        && bytes.iter().all(|byte| plain(byte) || matches!(byte, b'.' | b'-'))
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err();
    if good {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "bucket name {name:?}: use 3 to 63 characters of a-z 0-9 . - with a letter or digit \
            at both ends"
    )))
}

/// Checks the name of a new bucket: it passes [`check_bucket_name`], and each label of the host
/// name begins and ends with a letter or digit.
fn check_new_name(name: &str) -> Result<(), Error> {
    check_bucket_name(name)?;
    if name.contains(".-") || name.contains("-.") {
        Err(Error::Invalid(format!("bucket name {name:?}: a dot must not stand beside a hyphen")))
    } else {
        Ok(())
    }
}

/// Makes a bucket, owned by the caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateBucket {
    pub name: String,
    pub kind: BucketKind,
    pub visibility: Visibility,
}

impl Verb for CreateBucket {
    type Reply = BucketId;
    const NAME: &'static str = "create_bucket";

    /// Makes the bucket.
    ///
    /// # Errors
    /// `Exists` if the name is taken, whoever owns that bucket.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<BucketId, Stop> {
        let Principal::User(owner) = context.caller.principal() else {
            return Err(Error::Denied("a bucket belongs to a user: send credentials".into()).into());
        };
        check_new_name(&self.name)?;
        let name = self.name.as_bytes();
        if let Some(entry) = load::<Entry>(view, &keys::directory_entry(Ino::ROOT, name))? {
            let key = keys::bucket(BucketId(entry.ino.0));
            let bucket: Bucket = load_known(view, &key, "bucket")?;
            let whose = if bucket.owner == owner { "yours" } else { "somebody else's" };
            return Err(Error::Exists(format!("bucket {} ({whose})", self.name)).into());
        }
        let ino = next_ino(view)?;
        let id = BucketId(ino.0);
        let inode = Inode { implicit: false, ..new_directory(id, Ino::ROOT, context) };
        store(view, keys::inode(ino), &inode);
        add_entry(view, context, Ino::ROOT, name, &Entry::new(ino, Kind::Directory))?;
        let bucket = Bucket {
            name: self.name.clone(),
            kind: self.kind,
            owner,
            visibility: self.visibility,
            created: context.now,
            ..Bucket::default()
        };
        store(view, keys::bucket(id), &bucket);
        store(view, keys::usage(id), &Usage::default());
        index(view, id, &bucket);
        count_owned(view, owner, Change { buckets: 1, ..Change::default() })?;
        Ok(id)
    }
}

/// Creates a bucket like [`CreateBucket`], with tags.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTaggedBucket {
    pub create: CreateBucket,
    pub tags: Vec<(String, String)>,
}

impl Verb for CreateTaggedBucket {
    type Reply = BucketId;
    const NAME: &'static str = "create_tagged_bucket";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<BucketId, Stop> {
        check_tags(&self.tags, limits::BUCKET_TAGS)?;
        let id = self.create.apply(view, context)?;
        let key = keys::bucket(id);
        let bucket: Bucket = load_known(view, &key, "bucket")?;
        store(view, key, &Bucket { tags: self.tags.clone(), ..bucket });
        Ok(id)
    }
}

/// Reads a bucket's settings and usage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetBucket {
    pub name: String,
}

impl Verb for GetBucket {
    type Reply = (BucketEntry, Usage);
    const NAME: &'static str = "get_bucket";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let opened = open_bucket(view, context, &self.name, Action::GetBucketSettings)?;
        let usage = load(view, &keys::usage(opened.id))?.unwrap_or_default();
        Ok((opened, usage))
    }
}

/// Lists the buckets that the caller may read or owns, by name, starting after `after`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListBuckets {
    pub prefix: String,
    pub after: String,
    pub limit: usize,
}

impl Verb for ListBuckets {
    /// The buckets, and the cursor to go on after if there may be more: a name, or the number of a
    /// bucket that the caller may not see.
    type Reply = (Vec<(BucketEntry, Usage)>, Option<String>);
    const NAME: &'static str = "list_buckets";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let after = named_by(view, &self.after)?;
        if let Principal::User(user) = context.caller.principal()
            && !context.caller.is_root()
        {
            return self.list_of(view, context, user, &after);
        }
        let from = match after.as_str() < self.prefix.as_str() {
            true => self.prefix.as_bytes().to_vec(),
            false if after.is_empty() => Vec::new(),
            false => [after.as_bytes(), b"/\0"].concat(),
        };
        let (start, end) = keys::entries_from(Ino::ROOT, &from);
        let limit = self.limit.min(limits::LIST_KEYS);
        let rows = view.scan(&start, &end, limit)?;
        let mut last = None;
        let mut buckets = Vec::new();
        let full = rows.len() == limit;
        for (_, row) in rows {
            let id = BucketId(Entry::decode(&row)?.ino.0);
            let bucket: Bucket = load_known(view, &keys::bucket(id), "bucket")?;
            if !bucket.name.starts_with(&self.prefix) {
                return Ok((buckets, None));
            }
            last = Some(cursor(context, id, &bucket));
            if context.allows(Action::GetBucketSettings, Resource::Bucket(bucket.access())) {
                let usage = load(view, &keys::usage(id))?.unwrap_or_default();
                buckets.push((BucketEntry { id, bucket }, usage));
            }
        }
        Ok((buckets, last.filter(|_| full)))
    }
}

impl ListBuckets {
    /// Lists the buckets of a user from the index: the cost does not grow with the buckets of
    /// others.
    fn list_of(
        &self,
        view: &mut View<'_>,
        context: &Context,
        user: UserId,
        after: &str,
    ) -> Result<<ListBuckets as Verb>::Reply, Stop> {
        let from = match after < self.prefix.as_str() {
            true => self.prefix.as_bytes().to_vec(),
            false if after.is_empty() => Vec::new(),
            false => [after.as_bytes(), b"\0"].concat(),
        };
        let limit = self.limit.min(limits::LIST_KEYS);
        let found = buckets_of(view, user, &from, limit)?;
        let full = found.len() == limit;
        let (mut buckets, mut last) = (Vec::new(), None);
        for BucketEntry { id, bucket } in found {
            if !bucket.name.starts_with(&self.prefix) {
                return Ok((buckets, None));
            }
            last = Some(cursor(context, id, &bucket));
            if context.allows(Action::GetBucketSettings, Resource::Bucket(bucket.access())) {
                let usage = load(view, &keys::usage(id))?.unwrap_or_default();
                buckets.push((BucketEntry { id, bucket }, usage));
            }
        }
        Ok((buckets, last.filter(|_| full)))
    }
}

/// Returns up to `limit` buckets that a user owns or has rights in, by name, from `from`
/// (inclusive) on.
pub fn buckets_of(
    view: &mut View<'_>,
    user: UserId,
    from: &[u8],
    limit: usize,
) -> Result<Vec<BucketEntry>, Stop> {
    let (start, end) = keys::buckets_of(user, from);
    let ids: Vec<BucketId> = view
        .scan(&start, &end, limit)?
        .iter()
        .map(|(_, row)| decode_number(row).map(BucketId))
        .collect::<Result<_, _>>()?;
    let rows = view.get_all(&ids.iter().map(|id| keys::bucket(*id)).collect::<Vec<_>>())?;
    let mut found = Vec::with_capacity(ids.len());
    for (id, row) in ids.into_iter().zip(rows) {
        let row = row.ok_or_else(|| Error::corrupt("bucket of the index", "no row", id))?;
        found.push(BucketEntry { id, bucket: Bucket::decode(&row)? });
    }
    Ok(found)
}

/// Asks whether the caller may do something in a bucket.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Decide {
    pub bucket: BucketId,
    pub action: Action,
}

impl Verb for Decide {
    type Reply = ();
    const NAME: &'static str = "decide";

    /// Decides.
    ///
    /// # Errors
    /// `Denied` if the caller may not, or if the bucket is gone.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        authorize_in(view, context, self.bucket, self.action)
    }
}

/// Looks for a bucket in which the caller may write, among the next buckets after `after`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FindWritable {
    pub after: BucketId,
    pub limit: usize,
}

impl Verb for FindWritable {
    /// The bucket that was found (`true`), or the last bucket examined (`false`); `None` at the
    /// end.
    type Reply = Option<(BucketId, bool)>;
    const NAME: &'static str = "find_writable";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        if let Principal::User(user) = context.caller.principal()
            && !context.caller.is_root()
        {
            return self.find_of(view, context, user);
        }
        let (start, end) = keys::buckets_after(self.after);
        let mut last = None;
        for (key, row) in view.scan(&start, &end, self.limit.min(limits::LIST_KEYS))? {
            let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
            let id = id.ok_or_else(|| Error::corrupt("key of a bucket", key.len(), 9))?;
            let bucket = Bucket::decode(&row)?;
            if context.allows(Action::PutObject, Resource::Object(bucket.access(), None)) {
                return Ok(Some((BucketId(id), true)));
            }
            last = Some((BucketId(id), false));
        }
        Ok(last)
    }
}

impl FindWritable {
    /// Finds a bucket for a user by the index, which is ordered by name.
    fn find_of(
        &self,
        view: &mut View<'_>,
        context: &Context,
        user: UserId,
    ) -> Result<<FindWritable as Verb>::Reply, Stop> {
        let after = load::<Bucket>(view, &keys::bucket(self.after))?;
        let from = after.map(|bucket| [bucket.name.as_bytes(), b"\0"].concat());
        let from = from.unwrap_or_default();
        let mut last = None;
        for BucketEntry { id, bucket } in
            buckets_of(view, user, &from, self.limit.min(limits::LIST_KEYS))?
        {
            if context.allows(Action::PutObject, Resource::Object(bucket.access(), None)) {
                return Ok(Some((id, true)));
            }
            last = Some((id, false));
        }
        Ok(last)
    }
}

/// Prefix of a bucket's number in a cursor. No name contains it.
const NUMBERED: char = '#';

/// Returns the cursor with which a listing goes on after a bucket. It has the bucket's name only if
/// the caller may see the bucket.
pub fn cursor(context: &Context, id: BucketId, bucket: &Bucket) -> String {
    let may = |action| context.allows(action, Resource::Bucket(bucket.access()));
    if may(Action::ListBucket) || may(Action::GetBucketSettings) {
        bucket.name.clone()
    } else {
        format!("{NUMBERED}{:x}", id.0)
    }
}

/// Returns the name that a [`cursor`] stands for.
pub fn named_by(view: &mut View<'_>, cursor: &str) -> Result<String, Stop> {
    let Some(number) = cursor.strip_prefix(NUMBERED) else { return Ok(cursor.to_owned()) };
    let invalid = |_| {
        Error::Invalid(
            "the place to continue the listing from is not one that a listing \
            gave: list from the start"
                .into(),
        )
    };
    let id = BucketId(u64::from_str_radix(number, 16).map_err(invalid)?);
    match load::<Bucket>(view, &keys::bucket(id))? {
        Some(bucket) => Ok(bucket.name),
        None => Err(Error::Conflict(
            "the bucket to continue the listing from was deleted meanwhile: list again".into(),
        )
        .into()),
    }
}

/// Actions that [`UpdateBucket`] may need.
pub const UPDATES: &[Action] = &[
    Action::PutBucketAcl,
    Action::PutBucketTagging,
    Action::PutBucketSettings,
    Action::PutBucketQuota,
];

/// Changes settings of a bucket; settings that are `None` stay.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UpdateBucket {
    pub name: String,
    pub visibility: Option<Visibility>,
    pub cache_control: Option<String>,
    /// Name of a user, and the user's rights from now on.
    pub grant: Option<(String, Rights)>,
    pub tags: Option<Vec<(String, String)>>,
    /// Replicas of blocks written from now on; 0 for the default of the cluster.
    pub replicas: Option<u8>,
    /// Redirects clients of the HTTP door to the data.
    pub redirect: Option<bool>,
    /// Quota of objects; 0 for none. Only root may set it.
    pub quota_objects: Option<u64>,
    /// Quota of bytes; 0 for none. Only root may set it.
    pub quota_bytes: Option<u64>,
}

impl Verb for UpdateBucket {
    type Reply = BucketEntry;
    const NAME: &'static str = "update_bucket";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<BucketEntry, Stop> {
        let mut opened = find_bucket(view, &self.name)?;
        for action in self.actions() {
            context.authorize(view, action, Resource::Bucket(opened.bucket.access()))?;
        }
        let bucket = &mut opened.bucket;
        if let Some(visibility) = self.visibility {
            check_visibility(bucket, visibility)?;
            bucket.choose_visibility(visibility);
        }
        if let Some(cache_control) = &self.cache_control {
            check_header(cache_control)?;
            bucket.cache_control = cache_control.clone();
        }
        if let Some((name, rights)) = &self.grant {
            let user = super::credentials::find_user(view, name)?;
            set_grant(&mut bucket.grants, user, *rights);
            reindex(view, opened.id, bucket, user);
        }
        if let Some(tags) = &self.tags {
            check_tags(tags, limits::BUCKET_TAGS)?;
            bucket.tags = tags.clone();
        }
        if let Some(replicas) = self.replicas {
            super::cluster::want_replicas(view, replicas)?;
            opened.bucket.redundancy = Redundancy::from_number(replicas);
        }
        if let Some(redirect) = self.redirect {
            opened.bucket.redirect = redirect;
        }
        store(view, keys::bucket(opened.id), &opened.bucket);
        if self.quota_objects.or(self.quota_bytes).is_some() {
            self.set_quotas(view, opened.id)?;
        }
        Ok(opened)
    }
}

impl UpdateBucket {
    /// Returns the actions that these changes need.
    fn actions(&self) -> impl Iterator<Item = Action> {
        let changes_rights = self.visibility.is_some() || self.grant.is_some();
        let is_set = [self.quota_objects, self.quota_bytes].iter().any(Option::is_some);
        let changes_others =
            self.cache_control.is_some() || self.replicas.is_some() || self.redirect.is_some();
        let changes_nothing = !(changes_rights || self.tags.is_some() || changes_others || is_set);
        let all = [
            (Action::PutBucketAcl, changes_rights),
            (Action::PutBucketTagging, self.tags.is_some()),
            (Action::PutBucketSettings, changes_others || changes_nothing),
            (Action::PutBucketQuota, is_set),
        ];
        all.into_iter().filter_map(|(action, changes)| changes.then_some(action))
    }

    /// Sets the quotas. Contents beyond them stay.
    fn set_quotas(&self, view: &mut View<'_>, bucket: BucketId) -> Result<(), Stop> {
        let key = keys::usage(bucket);
        let mut usage: Usage = load(view, &key)?.unwrap_or_default();
        usage.quota_objects = self.quota_objects.unwrap_or(usage.quota_objects);
        usage.quota_bytes = self.quota_bytes.unwrap_or(usage.quota_bytes);
        store(view, key, &usage);
        Ok(())
    }
}

/// Updates a bucket like [`UpdateBucket`], and sets whether browsers get listings as pages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetListing {
    pub update: UpdateBucket,
    pub html_listing: bool,
}

impl Verb for SetListing {
    type Reply = ();
    const NAME: &'static str = "set_listing";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let mut opened = self.update.apply(view, context)?;
        let resource = Resource::Bucket(opened.bucket.access());
        context.authorize(view, Action::PutBucketSettings, resource)?;
        opened.bucket.html_listing = self.html_listing;
        store(view, keys::bucket(opened.id), &opened.bucket);
        Ok(())
    }
}

/// Finds a bucket, for a door that checks the caller's rights before or afterwards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindBucket {
    pub name: String,
}

impl Verb for FindBucket {
    type Reply = Option<BucketEntry>;
    const NAME: &'static str = "find_bucket";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Option<BucketEntry>, Stop> {
        match find_bucket(view, &self.name) {
            Ok(opened) => Ok(Some(opened)),
            Err(Stop::Fail(Error::NotFound(_))) => Ok(None),
            Err(stop) => Err(stop),
        }
    }
}

fn set_grant(grants: &mut Vec<(UserId, Rights)>, user: UserId, rights: Rights) {
    grants.retain(|(other, _)| *other != user);
    if rights != Rights::NONE {
        grants.push((user, rights));
    }
}

fn check_header(value: &str) -> Result<(), Error> {
    let plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if plain && value.len() <= limits::HEADER_VALUE_BYTES {
        return Ok(());
    }
    Err(Error::Invalid("Cache-Control: use up to 1,024 printable ASCII characters".into()))
}

/// Most uploads of a bucket that are aborted in one operation.
pub const UPLOADS: usize = 1000;

/// Aborts uploads of a bucket that is about to be deleted, if it has no object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropUploads {
    pub name: String,
}

impl Verb for DropUploads {
    /// `true` if there are more.
    type Reply = bool;
    const NAME: &'static str = "drop_uploads";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        let opened = open_bucket(view, context, &self.name, Action::DeleteBucket)?;
        check_empty(view, &opened)?;
        abort_uploads(view, opened.id, UPLOADS)
    }
}

/// Checks that the bucket is empty.
///
/// # Errors
/// `NotEmpty` if a listing would show anything.
fn check_empty(view: &mut View<'_>, opened: &BucketEntry) -> Result<(), Stop> {
    let tally: Tally = load(view, &keys::tally(opened.id.ino()))?.unwrap_or_default();
    match tally.entries {
        0 => Ok(()),
        _ => Err(Error::NotEmpty(format!("bucket {}", opened.bucket.name)).into()),
    }
}

/// Stops counting the remains of a deleted bucket, such as open files, for its owner.
fn drop_owned(view: &mut View<'_>, opened: &BucketEntry) -> Result<(), Stop> {
    let usage: Usage = load(view, &keys::usage(opened.id))?.unwrap_or_default();
    let change = Change {
        buckets: -1,
        objects: -(usage.objects as i64),
        bytes: -(usage.bytes as i64),
        upload_bytes: -(usage.upload_bytes as i64),
        uploads: 0,
    };
    count_owned(view, opened.bucket.owner, change)
}

/// Deletes an empty bucket; uploads in progress do not prevent that. `Conflict` if there are more
/// of them than one operation may abort: then [`DropUploads`] goes first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeleteBucket {
    pub name: String,
}

impl Verb for DeleteBucket {
    type Reply = ();
    const NAME: &'static str = "delete_bucket";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let opened = open_bucket(view, context, &self.name, Action::DeleteBucket)?;
        let ino = opened.id.ino();
        check_empty(view, &opened)?;
        if abort_uploads(view, opened.id, UPLOADS)? {
            let what = format!(
                "bucket {} has many uploads in progress: delete it when nobody begins more of them",
                self.name
            );
            return Err(Error::Conflict(what).into());
        }
        let inode = load_inode(view, ino)?;
        drop_directory(view, ino, &inode)?;
        remove_entry(view, context, Ino::ROOT, self.name.as_bytes(), Kind::Directory)?;
        unindex(view, &opened.bucket);
        drop_owned(view, &opened)?;
        view.delete(keys::bucket(opened.id));
        view.delete(keys::usage(opened.id));
        view.delete(keys::export(opened.id));
        Ok(())
    }
}
