//! Brings back what a backup has, into a store that runs. Only root may.

use cairn_auth::{Principal, Rights};
use cairn_base::{BucketId, Error, Ino, Redundancy, UserId};
use serde::{Deserialize, Serialize};

use super::buckets::check_bucket_name;
use super::cluster::want_replicas;
use super::credentials::{check_user_name, find_user};
use super::key_names::{check_key, check_names, split_key};
use super::namespace::{
    add_entry, drop_link, find_bucket, load, load_counter, load_inode, load_known, new_directory,
    next_ino, remove_entry, replace_entry, store, walk, walk_or_make,
};
use super::posix::{MODE_BITS, find_inode, no_entry};
use super::setattr::forget_entries_changed;
use super::tags::{drop_tags, store_tags};
use super::user_totals::{Change, count_owned, index, unindex};
use crate::rows::{
    AccessKey, Bucket, BucketKind, Entry, Inode, Kind, ShareLink, Tally, Token, Usage, User,
    UserLimits, UserQuotas, decode_number, encode_number,
};
use crate::{Context, Stop, Verb, View, keys};

/// Mode of a directory that is made to bring its contents back, until all of them are there. So a
/// run that goes on after a break knows which directories it has made, and until then only root
/// looks into them by a mount.
pub const UNFINISHED_MODE: u32 = 0o7000;

/// Furthest that the number of a user may be ahead of the next one.
const USER_AHEAD: u64 = 1 << 20;

/// Checks that the store takes changes, and one of its buckets: who may administer the store may
/// run these operations, and that right alone changes no contents.
///
/// # Errors
/// `ReadOnly` if not.
fn check_writable(
    view: &mut View<'_>,
    context: &Context,
    bucket: Option<&Bucket>,
) -> Result<(), Stop> {
    if context.caller.principal() == Principal::System {
        return Ok(());
    }
    if let Some(bucket) = bucket.filter(|bucket| bucket.read_only) {
        let text = format!("bucket {} takes no changes now", bucket.name);
        return Err(Error::ReadOnly(text).into());
    }
    let row = view.get(&keys::read_only())?;
    if row.as_ref().map(decode_number).transpose()?.is_some_and(|value| value != 0) {
        return Err(Error::ReadOnly("the store takes no changes now".into()).into());
    }
    Ok(())
}

/// Gives an inode the attributes that it had in a backup: mode, owner, times, access control lists,
/// and what S3 and HTTP know beyond POSIX. Extended attributes are set one by one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreAttributes {
    pub ino: Ino,
    /// Inode in the backup. Its place, its content and its links are not used.
    pub from: Inode,
    pub tags: Vec<(String, String)>,
}

impl Verb for RestoreAttributes {
    type Reply = ();
    const NAME: &'static str = "restore_attributes";

    /// Gives the attributes. The directory of a bucket gets them even if the bucket is read-only.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        let ino = self.ino;
        let mut inode = find_inode(view, ino)?;
        if ino == inode.bucket.ino() {
            check_writable(view, context, None)?;
        } else {
            let bucket = load_known(view, &keys::bucket(inode.bucket), "bucket of an inode")?;
            check_writable(view, context, Some(&bucket))?;
        }
        if inode.kind != self.from.kind {
            let text = format!("inode {ino} is a {:?} now", inode.kind);
            return Err(Error::Conflict(text).into());
        }
        drop_tags(view, ino, &inode)?;
        let part_table = inode.object.as_ref().and_then(|object| object.part_table);
        let mut object = self.from.object.clone();
        if !self.tags.is_empty() || part_table.is_some() {
            object.get_or_insert_default();
        }
        if let Some(object) = &mut object {
            object.tag_count = store_tags(view, ino, &self.tags)?;
            object.part_table = part_table;
        }
        inode.object = object;
        inode.mode = self.from.mode & MODE_BITS;
        (inode.uid, inode.gid) = (self.from.uid, self.from.gid);
        (inode.atime, inode.mtime, inode.btime) =
            (self.from.atime, self.from.mtime, self.from.btime);
        inode.acl = self.from.acl.clone();
        if inode.is_directory() {
            inode.default_acl = self.from.default_acl.clone();
            let tally: Tally = load(view, &keys::tally(ino))?.unwrap_or_default();
            inode.implicit = self.from.implicit && tally.entries > 0;
        }
        forget_entries_changed(view, ino, &inode)?;
        inode.touch(context.batch, context.now);
        store(view, keys::inode(ino), &inode);
        Ok(())
    }
}

/// Finds an object by its key, also if POSIX cannot show it: `a//b`, or `a` beside `a/b`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindKey {
    pub bucket: String,
    pub key: String,
}

impl Verb for FindKey {
    type Reply = Option<(Ino, Inode)>;
    const NAME: &'static str = "find_key";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        check_key(&self.key)?;
        let opened = find_bucket(view, &self.bucket)?;
        let (directories, name) = split_key(&self.key);
        let Some(steps) = walk(view, opened.id, &directories)? else { return Ok(None) };
        let parent = steps.last().map_or(opened.id.ino(), |step| step.ino);
        let entry = load::<Entry>(view, &keys::file_entry(parent, name.as_bytes()))?;
        entry.map(|entry| Ok((entry.ino, load_inode(view, entry.ino)?))).transpose()
    }
}

/// Moves a file that a restore has made to a key that POSIX cannot show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreKey {
    /// Directory and name of the file.
    pub parent: Ino,
    pub name: Vec<u8>,
    pub bucket: String,
    pub key: String,
    /// Replaces an object that has the key.
    pub replace: bool,
}

impl Verb for RestoreKey {
    type Reply = ();
    const NAME: &'static str = "restore_key";

    /// Moves the file; makes missing directories.
    ///
    /// # Errors
    /// `Exists` if there is an object with the key, unless it is to be replaced; `IsDirectory` if a
    /// directory has the name in a bucket of kind `posix`.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        check_key(&self.key)?;
        let opened = find_bucket(view, &self.bucket)?;
        check_names(&opened.bucket, &self.key)?;
        check_writable(view, context, Some(&opened.bucket))?;
        let entry = load::<Entry>(view, &keys::file_entry(self.parent, &self.name))?;
        let entry = entry.ok_or_else(|| no_entry(&self.name))?;
        if load_inode(view, entry.ino)?.bucket != opened.id {
            return Err(Error::CrossBucket("restore_key: the file is elsewhere".into()).into());
        }
        remove_entry(view, context, self.parent, &self.name, entry.kind)?;
        let (directories, name) = split_key(&self.key);
        let parent = walk_or_make(view, context, &opened, &directories)?;
        let beside = keys::directory_entry(parent, name.as_bytes());
        if opened.bucket.kind == BucketKind::Posix && view.get(&beside)?.is_some() {
            return Err(Error::IsDirectory(self.key.clone()).into());
        }
        let former = load::<Entry>(view, &keys::file_entry(parent, name.as_bytes()))?;
        match former {
            None => add_entry(view, context, parent, name.as_bytes(), &entry),
            Some(_) if !self.replace => {
                Err(Error::Exists(format!("object {} in bucket {}", self.key, self.bucket)).into())
            }
            Some(former) => {
                let inode = load_inode(view, former.ino)?;
                drop_link(view, context, former.ino, inode)?;
                replace_entry(view, parent, name.as_bytes(), &entry)
            }
        }
    }
}

/// Makes a user of a backup, with its number if that was never given here: addresses of share links
/// contain it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreUser {
    pub number: UserId,
    pub name: String,
    pub disabled: bool,
    pub limits: UserLimits,
    pub quotas: UserQuotas,
}

impl Verb for RestoreUser {
    type Reply = UserId;
    const NAME: &'static str = "restore_user";

    /// Makes the user.
    ///
    /// # Errors
    /// `Exists` if there is a user of that name.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<UserId, Stop> {
        check_user_name(&self.name)?;
        let by_name = keys::user_name(&self.name);
        if view.get(&by_name)?.is_some() {
            return Err(Error::Exists(format!("user {}", self.name)).into());
        }
        let counter = keys::config("next_user");
        let mut users = load_counter(view, &counter, 1)?;
        let (next, wanted) = (users.value, self.number.0);
        let is_free = (next..next.saturating_add(USER_AHEAD)).contains(&wanted);
        let number = if is_free { wanted } else { next };
        users.value = number + 1;
        store(view, counter, &users);
        view.put(by_name, encode_number(number));
        let user = User {
            name: self.name.clone(),
            created: context.now,
            disabled: self.disabled,
            limits: self.limits,
            quotas: self.quotas,
            unknown: Vec::new(),
        };
        store(view, keys::user(UserId(number)), &user);
        Ok(UserId(number))
    }
}

/// Adds a token of a backup to a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreToken {
    pub id: String,
    pub user: String,
    /// Row in the backup. The number of its user is not used.
    pub token: Token,
}

impl Verb for RestoreToken {
    type Reply = ();
    const NAME: &'static str = "restore_token";

    /// Adds the token.
    ///
    /// # Errors
    /// `Exists` if there is a token of that id.
    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let user = find_user(view, &self.user)?;
        let key = keys::token(&self.id);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(format!("token {}", self.id)).into());
        }
        store(view, key, &Token { user, ..self.token.clone() });
        Ok(())
    }
}

/// Makes a bucket with the settings that it had in a backup, or gives these to a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreBucket {
    /// Row in the backup. The numbers of its users are not used.
    pub bucket: Bucket,
    pub owner: String,
    /// Rights of users, by their names.
    pub grants: Vec<(String, Rights)>,
    pub quota_objects: u64,
    pub quota_bytes: u64,
    /// Gives the settings to a bucket that is there, which keeps its owner and its kind.
    pub replace: bool,
}

impl Verb for RestoreBucket {
    type Reply = BucketId;
    const NAME: &'static str = "restore_bucket";

    /// Makes or changes the bucket. A new one has a directory with [`UNFINISHED_MODE`].
    ///
    /// # Errors
    /// `Exists` if the name is taken, unless the settings are to be replaced.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<BucketId, Stop> {
        let owner = find_user(view, &self.owner)?;
        let mut grants = Vec::with_capacity(self.grants.len());
        for (name, rights) in &self.grants {
            grants.push((find_user(view, name)?, *rights));
        }
        let mut bucket = Bucket { owner, grants, ..self.bucket.clone() };
        if !can_keep(view, bucket.redundancy)? {
            bucket.redundancy = None;
        }
        let entry = keys::directory_entry(Ino::ROOT, bucket.name.as_bytes());
        let id = match load::<Entry>(view, &entry)? {
            None => make_bucket(view, context, &bucket)?,
            Some(_) if !self.replace => {
                return Err(Error::Exists(format!("bucket {}", bucket.name)).into());
            }
            Some(entry) => {
                let id = BucketId(entry.ino.0);
                let former: Bucket = load_known(view, &keys::bucket(id), "bucket")?;
                unindex(view, &former);
                let Bucket { owner, kind, created, .. } = former;
                bucket = Bucket { owner, kind, created, ..bucket };
                id
            }
        };
        let key = keys::usage(id);
        let usage: Usage = load(view, &key)?.unwrap_or_default();
        let (quota_objects, quota_bytes) = (self.quota_objects, self.quota_bytes);
        store(view, key, &Usage { quota_objects, quota_bytes, ..usage });
        store(view, keys::bucket(id), &bucket);
        index(view, id, &bucket);
        Ok(id)
    }
}

/// Makes the directory of a new bucket, and counts the bucket.
fn make_bucket(view: &mut View<'_>, context: &Context, bucket: &Bucket) -> Result<BucketId, Stop> {
    check_bucket_name(&bucket.name)?;
    check_writable(view, context, None)?;
    let ino = next_ino(view)?;
    let id = BucketId(ino.0);
    let inode = Inode { mode: UNFINISHED_MODE, ..new_directory(id, Ino::ROOT, context) };
    store(view, keys::inode(ino), &inode);
    let entry = Entry::new(ino, Kind::Directory);
    add_entry(view, context, Ino::ROOT, bucket.name.as_bytes(), &entry)?;
    count_owned(view, bucket.owner, Change { buckets: 1, ..Change::default() })?;
    Ok(id)
}

/// Returns whether this store can keep as many replicas as a bucket had: one machine keeps one.
fn can_keep(view: &mut View<'_>, redundancy: Option<Redundancy>) -> Result<bool, Stop> {
    let Some(redundancy) = redundancy else { return Ok(true) };
    match want_replicas(view, redundancy.number()) {
        Ok(()) => Ok(true),
        Err(Stop::Miss) => Err(Stop::Miss),
        Err(Stop::Fail(_)) => Ok(false),
    }
}

/// Adds a share link of a backup. Its address stays valid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreShareLink {
    pub user: String,
    /// Number of the user in the backup: it is in the address.
    pub number: UserId,
    pub id: String,
    pub bucket: String,
    /// Row in the backup. The number of its bucket is not used.
    pub link: ShareLink,
}

impl Verb for RestoreShareLink {
    type Reply = ();
    const NAME: &'static str = "restore_share_link";

    /// Adds the link.
    ///
    /// # Errors
    /// `Exists` if there is a link of that id; `Conflict` if the user has another number;
    /// `NotFound` if the credential that made the link is not there.
    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let user = find_user(view, &self.user)?;
        if user != self.number {
            let text = "its address has the number of its user, who has another one here";
            return Err(Error::Conflict(text.into()).into());
        }
        let key = keys::share_link(user, &self.id);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(format!("share link {}", self.id)).into());
        }
        let bucket = find_bucket(view, &self.bucket)?.id;
        let id = &self.link.credential;
        let token = load::<Token>(view, &keys::token(id))?.map(|token| token.created);
        let made = match token {
            Some(made) => Some(made),
            None => load::<AccessKey>(view, &keys::access_key(id))?.map(|key| key.created),
        };
        let Some(made) = made else {
            return Err(Error::NotFound(format!("access key or token {id}, which made it")).into());
        };
        // A link that is older than its credential counts as one of another credential.
        let created = self.link.created.max(made);
        store(view, key, &ShareLink { bucket, created, ..self.link.clone() });
        Ok(())
    }
}
