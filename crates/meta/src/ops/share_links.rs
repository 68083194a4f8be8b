//! Share links: a user lets anybody with an address read a part of a bucket, or add to it.

use cairn_auth::{Action, Principal, Resource, TokenHash};
use cairn_base::{Error, Timestamp, UserId, limits};
use serde::{Deserialize, Serialize};

use super::credentials::is_disabled;
use super::key_names::check_key;
use super::namespace::{find_bucket, load, no_object, store};
use super::open_object::find;
use crate::rows::{AccessKey, Bucket, Row, ShareLink, Token, UploadLimits, User};
use crate::{Context, Stop, Verb, View, keys};

/// Most bytes of the hash of a password.
const PASSWORD_BYTES: usize = 128;

/// Makes a share link of the caller. It expires no later than the credential that makes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddShareLink {
    pub id: String,
    pub hash: TokenHash,
    pub bucket: String,
    /// Key of one object; or a prefix, which is empty or ends in `/`.
    pub key: String,
    pub expires: Timestamp,
    /// The hash of its password; empty for none.
    pub password: Vec<u8>,
    /// Number of downloads that are allowed; 0 for any number.
    pub downloads: u64,
    /// Limits if objects may be added; then nothing is shown.
    pub uploads: Option<UploadLimits>,
}

impl Verb for AddShareLink {
    /// Time at which the link expires.
    type Reply = Timestamp;
    const NAME: &'static str = "add_share_link";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Timestamp, Stop> {
        let Principal::User(user) = context.caller.principal() else {
            let text = "a share link belongs to a user: send credentials";
            return Err(Error::Denied(text.into()).into());
        };
        let opened = find_bucket(view, &self.bucket)?;
        for action in self.actions() {
            let resource = Resource::Object(opened.bucket.access(), Some(&self.key));
            context.authorize(view, *action, resource)?;
        }
        self.check()?;
        if !self.is_of_prefix() && find(view, opened.id, &self.key)?.is_none() {
            return Err(no_object(&self.bucket, &self.key));
        }
        let credential = context.caller.origin().credential;
        let credential = credential.map_or_else(String::new, |id| id.as_str().to_owned());
        let Some(end) = end_of_credential(view, user, &credential, context.now)? else {
            let text = "a share link is made with an access key or a token";
            return Err(Error::Denied(text.into()).into());
        };
        let expires = if end.0 == 0 { self.expires } else { self.expires.min(end) };
        if expires <= context.now {
            return Err(Error::Invalid("a share link that has expired already".into()).into());
        }
        make_room(view, user, context.now)?;
        let key = keys::share_link(user, &self.id);
        if view.get(&key)?.is_some() {
            return Err(Error::Exists(format!("share link {}", self.id)).into());
        }
        let link = ShareLink {
            hash: self.hash,
            credential,
            bucket: opened.id,
            key: self.key.clone(),
            created: context.now,
            expires,
            password: self.password.clone(),
            downloads: self.downloads,
            uploads: self.uploads,
            ..ShareLink::default()
        };
        store(view, key, &link);
        Ok(expires)
    }
}

impl AddShareLink {
    fn is_of_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// Returns the actions that requests with the link need of its maker.
    fn actions(&self) -> &'static [Action] {
        match self.uploads {
            Some(_) => &[Action::PutObject],
            None if self.is_of_prefix() => &[Action::GetObject, Action::ListBucket],
            None => &[Action::GetObject],
        }
    }

    fn check(&self) -> Result<(), Error> {
        if !self.key.is_empty() {
            check_key(&self.key)?;
        }
        if self.password.len() > PASSWORD_BYTES {
            return Err(Error::Invalid("the hash of a password is too long".into()));
        }
        match self.uploads {
            Some(_) if !self.is_of_prefix() => {
                let text = "objects are added below a prefix, which ends in /";
                Err(Error::Invalid(text.into()))
            }
            Some(_) if self.downloads > 0 => {
                Err(Error::Invalid("a share link for uploads has no downloads".into()))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the time at which a credential of a user expires; 0 for never. `None` if the user does
/// not have it, or if it is younger than `since`: an old id got a new secret.
fn end_of_credential(
    view: &mut View<'_>,
    user: UserId,
    id: &str,
    since: Timestamp,
) -> Result<Option<Timestamp>, Stop> {
    if id.is_empty() {
        return Ok(None);
    }
    if let Some(token) = load::<Token>(view, &keys::token(id))? {
        let is_same = token.user == user && token.created <= since;
        return Ok(is_same.then_some(token.expires));
    }
    let key = load::<AccessKey>(view, &keys::access_key(id))?;
    let same = key.filter(|key| key.user == user && key.created <= since);
    Ok(same.map(|_| Timestamp(0)))
}

/// Removes links of a user that have expired. `TooLarge` if there are too many others.
fn make_room(view: &mut View<'_>, user: UserId, now: Timestamp) -> Result<(), Stop> {
    let (start, end) = keys::share_links(user, None);
    let rows = view.scan(&start, &end, limits::SHARE_LINKS + 1)?;
    let mut left = 0;
    for (key, row) in rows {
        if ShareLink::decode(&row)?.is_in_time(now) { left += 1 } else { view.delete(key) }
    }
    if left >= limits::SHARE_LINKS {
        let most = limits::SHARE_LINKS;
        let text = format!("{left} share links of one user: at most {most}, so remove some first");
        return Err(Error::TooLarge(text).into());
    }
    Ok(())
}

/// Ends a share link of the caller. A caller that administers the store may end any.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveShareLink {
    pub user: UserId,
    pub id: String,
}

impl Verb for RemoveShareLink {
    type Reply = ();
    const NAME: &'static str = "remove_share_link";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        if context.caller.principal() != Principal::User(self.user) {
            context.authorize(view, Action::Administer, Resource::Store)?;
        }
        let key = keys::share_link(self.user, &self.id);
        if view.get(&key)?.is_none() {
            return Err(no_link());
        }
        view.delete(key);
        Ok(())
    }
}

fn no_link() -> Stop {
    Error::NotFound("share link: it never existed, expired or was removed".into()).into()
}

/// A share link as a listing shows it: without the hashes of its token and its password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedShareLink {
    pub user: UserId,
    pub id: String,
    /// Names of its user and, in `bucket`, of its bucket.
    pub user_name: String,
    pub bucket: String,
    pub link: ShareLink,
    pub has_password: bool,
    /// Set if the link can be used: its user, bucket and credential exist.
    pub is_live: bool,
}

/// Lists the share links of the caller, or all to a caller that administers the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListShareLinks {
    pub all: bool,
    /// Last link of the page before.
    pub after: Option<(UserId, String)>,
    pub limit: usize,
}

impl Verb for ListShareLinks {
    /// The links, and whether there may be more.
    type Reply = (Vec<ListedShareLink>, bool);
    const NAME: &'static str = "list_share_links";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        let (mut start, end) = match (self.all, context.caller.principal()) {
            (false, Principal::User(user)) => keys::share_links(user, None),
            (false, _) => {
                let text = "share links belong to users: send credentials";
                return Err(Error::Denied(text.into()).into());
            }
            (true, _) => {
                context.authorize(view, Action::Administer, Resource::Store)?;
                keys::credentials(b'l')
            }
        };
        if let Some((user, id)) = &self.after {
            start = start.max(keys::share_links(*user, Some(id)).0);
        }
        let limit = self.limit.min(limits::LIST_KEYS);
        let rows = view.scan(&start, &end, limit)?;
        let is_more = rows.len() == limit;
        let mut listed = Vec::with_capacity(rows.len());
        for (key, row) in rows {
            let Some((user, id)) = keys::share_link_parts(&key) else {
                return Err(Error::corrupt("key of a share link", "bytes", "text").into());
            };
            listed.push(show(view, context, user, id, ShareLink::decode(&row)?)?);
        }
        Ok((listed, is_more))
    }
}

fn show(
    view: &mut View<'_>,
    context: &Context,
    user: UserId,
    id: String,
    link: ShareLink,
) -> Result<ListedShareLink, Stop> {
    let bucket = load::<Bucket>(view, &keys::bucket(link.bucket))?;
    let owner = load::<User>(view, &keys::user(user))?.unwrap_or_default();
    let is_live = bucket.is_some()
        && !owner.disabled
        && link.is_in_time(context.now)
        && end_of_credential(view, user, &link.credential, link.created)?.is_some();
    let has_password = !link.password.is_empty();
    let link = ShareLink { hash: [0; 32], password: Vec::new(), ..link };
    let bucket = bucket.map(|bucket| bucket.name).unwrap_or_default();
    Ok(ListedShareLink { user, id, user_name: owner.name, bucket, link, has_password, is_live })
}

/// Finds a share link and the name of its bucket. The door asks before there is a caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindShareLink {
    pub user: UserId,
    pub id: String,
}

impl Verb for FindShareLink {
    /// The link; `None` if its user is disabled, its bucket is gone, or the credential that made it
    /// is gone or has another secret.
    type Reply = Option<(ShareLink, String)>;
    const NAME: &'static str = "find_share_link";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let Some(link) = load::<ShareLink>(view, &keys::share_link(self.user, &self.id))? else {
            return Ok(None);
        };
        let is_ended = is_disabled(view, self.user)?
            || end_of_credential(view, self.user, &link.credential, link.created)?.is_none();
        let bucket = load::<Bucket>(view, &keys::bucket(link.bucket))?;
        Ok(bucket.filter(|_| !is_ended).map(|bucket| (link, bucket.name)))
    }
}

/// Counts a use of a share link, before it takes place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UseShareLink {
    pub user: UserId,
    pub id: String,
    pub downloads: u64,
    pub uploads: UploadLimits,
}

impl Verb for UseShareLink {
    type Reply = ();
    const NAME: &'static str = "use_share_link";

    /// Counts the use.
    ///
    /// # Errors
    /// `NotFound` if nothing more may be downloaded, `TooLarge` if nothing more may be added.
    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::share_link(self.user, &self.id);
        let Some(mut link) = load::<ShareLink>(view, &key)? else { return Err(no_link()) };
        let add = |count: &mut u64, more: u64, most: u64| {
            *count = count.saturating_add(more);
            *count <= most
        };
        let most = if link.downloads == 0 { u64::MAX } else { link.downloads };
        if !add(&mut link.downloaded, self.downloads, most) {
            return Err(no_link());
        }
        let most = link.uploads.unwrap_or_default();
        let has_room = add(&mut link.uploaded.files, self.uploads.files, most.files)
            && add(&mut link.uploaded.bytes, self.uploads.bytes, most.bytes);
        if !has_room {
            let text = "the share link takes no more files, or none of this size";
            return Err(Error::TooLarge(text.into()).into());
        }
        store(view, key, &link);
        Ok(())
    }
}

/// Takes back the count of a share link for a file that was not stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReturnShareLink {
    pub user: UserId,
    pub id: String,
    pub uploads: UploadLimits,
}

impl Verb for ReturnShareLink {
    type Reply = ();
    const NAME: &'static str = "return_share_link";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::share_link(self.user, &self.id);
        let Some(mut link) = load::<ShareLink>(view, &key)? else { return Err(no_link()) };
        let UploadLimits { files, bytes } = &mut link.uploaded;
        *files = files.saturating_sub(self.uploads.files);
        *bytes = bytes.saturating_sub(self.uploads.bytes);
        store(view, key, &link);
        Ok(())
    }
}
