//! Exports of buckets to clients without credentials. Only root may manage them.

use cairn_auth::Network;
use cairn_base::{BucketId, Error, Ino, UserId, limits};
use serde::{Deserialize, Serialize};

use super::credentials::find_user;
use super::namespace::{find_bucket, load, load_counter, load_known, store, walk};
use crate::rows::{Bucket, Export, Inode, Row, Squash, User};
use crate::{Context, Stop, Verb, View, keys};

/// Most networks of one export.
const CLIENTS: usize = 64;

/// Exports a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddExport {
    pub bucket: String,
    /// User that clients act as: that user's rights decide.
    pub user: String,
    pub read_only: bool,
    pub squash: Squash,
    /// User id that squashed clients act with.
    pub uid: u32,
    pub gid: u32,
    pub clients: Vec<Network>,
    /// Confirms networks that contain all addresses.
    pub any_client: bool,
}

impl Verb for AddExport {
    type Reply = u64;
    const NAME: &'static str = "add_export";

    /// Exports the bucket.
    ///
    /// # Errors
    /// `Exists` if it is exported already.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u64, Stop> {
        self.add(view, context, "")
    }
}

impl AddExport {
    fn add(&self, view: &mut View<'_>, context: &Context, path: &str) -> Result<u64, Stop> {
        self.check_clients()?;
        let user = find_user(view, &self.user)?;
        let bucket = find_bucket(view, &self.bucket)?.id;
        let key = keys::export(bucket);
        if view.get(&key)?.is_some() {
            let text = format!("export of bucket {}: remove it first", self.bucket);
            return Err(Error::Exists(text).into());
        }
        let top = top(view, bucket, path)?;
        let counter = keys::config("next_export");
        let mut exports = load_counter(view, &counter, 1)?;
        let number = exports.value;
        exports.value += 1;
        store(view, counter, &exports);
        let export = Export {
            number,
            user,
            read_only: self.read_only,
            squash: self.squash,
            uid: self.uid,
            gid: self.gid,
            clients: self.clients.clone(),
            created: context.now,
            top,
            path: path.to_owned(),
            unknown: Vec::new(),
        };
        store(view, key, &export);
        Ok(number)
    }

    fn check_clients(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if [self.uid, self.gid].contains(&u32::MAX) {
            return invalid(format!(
                "{} is no uid and no gid: choose another one for squashed clients, such as 65534",
                u32::MAX
            ));
        }
        if self.clients.is_empty() {
            return invalid("an export without clients: name their networks".into());
        }
        if self.clients.len() > CLIENTS {
            return invalid(format!("{} networks: use at most {CLIENTS}", self.clients.len()));
        }
        match self.clients.iter().find(|network| network.is_any() && !self.any_client) {
            Some(any) => invalid(format!(
                "{any} is every machine that reaches the server: say --any-client if that is meant"
            )),
            None => Ok(()),
        }
    }
}

/// Exports a directory in a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddExportAt {
    /// Export of the bucket that the directory is in.
    pub export: AddExport,
    /// Path of the directory: names with a slash between them.
    pub path: String,
}

impl Verb for AddExportAt {
    type Reply = u64;
    const NAME: &'static str = "add_export_at";

    /// Exports the directory.
    ///
    /// # Errors
    /// `Exists` if the bucket or a directory in it is exported; `NotFound` if there is no such
    /// directory.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u64, Stop> {
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        if !self.path.split('/').all(is_name) {
            let text = format!("path {:?}: use names of directories", self.path);
            return Err(Error::Invalid(text).into());
        }
        self.export.add(view, context, &self.path)
    }
}

/// Returns the directory at a path, or 0 for the whole bucket.
fn top(view: &mut View<'_>, bucket: BucketId, path: &str) -> Result<Ino, Stop> {
    if path.is_empty() {
        return Ok(Ino(0));
    }
    let names: Vec<&str> = path.split('/').collect();
    match walk(view, bucket, &names)?.and_then(|steps| steps.last().map(|step| step.ino)) {
        Some(top) => Ok(top),
        None => Err(Error::NotFound(format!("directory {path}")).into()),
    }
}

/// Ends the export of a bucket: handles that clients have of it open nothing from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveExport {
    pub bucket: String,
}

impl Verb for RemoveExport {
    type Reply = ();
    const NAME: &'static str = "remove_export";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let bucket = find_bucket(view, &self.bucket)?.id;
        let key = keys::export(bucket);
        if view.get(&key)?.is_none() {
            return Err(Error::NotFound(format!("export of bucket {}", self.bucket)).into());
        }
        view.delete(key);
        Ok(())
    }
}

/// An export as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedExport {
    pub id: BucketId,
    /// Name of the bucket, with the path of the directory if one is exported.
    pub bucket: String,
    pub user: String,
    /// Set if the export is refused because its user is disabled.
    pub disabled: bool,
    pub export: Export,
}

/// Lists all exports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListExports;

impl Verb for ListExports {
    type Reply = Vec<ListedExport>;
    const NAME: &'static str = "list_exports";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let (start, end) = keys::credentials(b'e');
        let mut listed = Vec::new();
        for (key, row) in view.scan(&start, &end, limits::OP_ROWS)? {
            let export = Export::decode(&row)?;
            let number = key.get(2..).and_then(|number| number.try_into().ok());
            let id = BucketId(number.map_or(0, u64::from_be_bytes));
            let bucket: Bucket = load_known(view, &keys::bucket(id), "bucket of an export")?;
            let user: User = load_known(view, &keys::user(export.user), "user of an export")?;
            let bucket = if export.path.is_empty() {
                bucket.name
            } else {
                format!("{}/{}", bucket.name, export.path)
            };
            let (user, disabled) = (user.name, user.disabled);
            listed.push(ListedExport { id, bucket, user, disabled, export });
        }
        Ok(listed)
    }
}

/// Finds the export of a bucket, if all of the bucket is exported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindExport {
    pub bucket: BucketId,
}

impl Verb for FindExport {
    /// The export; `None` while its user is disabled.
    type Reply = Option<Export>;
    const NAME: &'static str = "find_export";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        match load::<Export>(view, &keys::export(self.bucket))? {
            Some(export) if export.top != Ino(0) || is_disabled(view, export.user)? => Ok(None),
            found => Ok(found),
        }
    }
}

/// Finds the export by which an inode of a bucket is reached. The door asks before there is a
/// caller, for each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindExportAt {
    pub bucket: BucketId,
    /// Inode; `None` to find out where the export begins.
    pub ino: Option<Ino>,
}

impl Verb for FindExportAt {
    /// The export, and the directory where it begins. `None` while its user is disabled, and for a
    /// directory that is not below that one. The directory of a file is unknown: a client with a
    /// handle of the file got it for the export.
    type Reply = Option<(Export, Ino)>;
    const NAME: &'static str = "find_export_at";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        let Some(export) = load::<Export>(view, &keys::export(self.bucket))? else {
            return Ok(None);
        };
        let whole = self.bucket.ino();
        let top = if export.top == Ino(0) { whole } else { export.top };
        if is_disabled(view, export.user)? {
            return Ok(None);
        }
        match self.ino {
            Some(ino) if top != whole && !is_below(view, ino, top)? => Ok(None),
            _ => Ok(Some((export, top))),
        }
    }
}

/// Returns whether a directory is `top` or below it; `true` for an inode that is not a directory.
fn is_below(view: &mut View<'_>, ino: Ino, top: Ino) -> Result<bool, Stop> {
    let mut at = ino;
    for _ in 0..limits::OP_ROWS {
        if at == top {
            return Ok(true);
        }
        match load::<Inode>(view, &keys::inode(at))? {
            Some(inode) if !inode.is_directory() => return Ok(true),
            Some(inode) if inode.parent != Ino(0) => at = inode.parent,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Returns whether a user is disabled. An unknown user counts as disabled.
fn is_disabled(view: &mut View<'_>, user: UserId) -> Result<bool, Stop> {
    Ok(load::<User>(view, &keys::user(user))?.is_none_or(|user| user.disabled))
}
