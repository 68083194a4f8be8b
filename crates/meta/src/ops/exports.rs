//! Exports of buckets to clients without credentials. Only root may manage them.

use cairn_auth::Network;
use cairn_base::{BucketId, Error, UserId, limits};
use serde::{Deserialize, Serialize};

use super::credentials::find_user;
use super::namespace::{find_bucket, load, load_counter, load_known, store};
use crate::rows::{Bucket, Export, Row, Squash, User};
use crate::{Context, Stop, Verb, View, keys};

/// Networks of one export, at most.
const CLIENTS: usize = 64;

/// Exports a bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddExport {
    pub bucket: String,
    /// As whom clients act: that user's rights decide.
    pub user: String,
    pub read_only: bool,
    pub squash: Squash,
    /// Whom squashed clients are taken for.
    pub uid: u32,
    pub gid: u32,
    pub clients: Vec<Network>,
    /// Networks with all addresses are meant.
    pub any_client: bool,
}

impl Verb for AddExport {
    type Reply = u64;
    const NAME: &'static str = "add_export";

    /// `Exists` if the bucket is exported.
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u64, Stop> {
        self.check_clients()?;
        let user = find_user(view, &self.user)?;
        let bucket = find_bucket(view, &self.bucket)?.id;
        let key = keys::export(bucket);
        if view.get(&key)?.is_some() {
            let text = format!("export of bucket {}: remove it first", self.bucket);
            return Err(Error::Exists(text).into());
        }
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
            unknown: Vec::new(),
        };
        store(view, key, &export);
        Ok(number)
    }
}

impl AddExport {
    fn check_clients(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
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
    pub bucket: String,
    pub user: String,
    /// Whether it ends at the user, who is disabled.
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
            let (bucket, user, disabled) = (bucket.name, user.name, user.disabled);
            listed.push(ListedExport { id, bucket, user, disabled, export });
        }
        Ok(listed)
    }
}

/// Finds the export of a bucket. Asked by the door before there is a caller, for each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindExport {
    pub bucket: BucketId,
}

impl Verb for FindExport {
    /// None while its user is disabled.
    type Reply = Option<Export>;
    const NAME: &'static str = "find_export";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Self::Reply, Stop> {
        match load::<Export>(view, &keys::export(self.bucket))? {
            Some(export) if is_disabled(view, export.user)? => Ok(None),
            found => Ok(found),
        }
    }
}

/// A user who is not known is as one who is disabled.
fn is_disabled(view: &mut View<'_>, user: UserId) -> Result<bool, Stop> {
    Ok(load::<User>(view, &keys::user(user))?.is_none_or(|user| user.disabled))
}
