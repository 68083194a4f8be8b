//! `/admin/exports`: buckets that NFS clients can mount.

use cairn_auth::{Caller, Network, Rights};
use cairn_base::{Error, Ino, Result, UserId};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::exports::{AddExport, AddExportAt, ListExports, ListedExport, RemoveExport};
use cairn_fs::ops::getattr::Getattr;
use cairn_fs::ops::setattr::Setattr;
use cairn_fs::rows::{Inode, Squash};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Body, json_of, no_content, rfc3339};
use crate::admit::Admit;

/// Default uid and gid of squashed clients: nobody.
const NOBODY: u32 = 65_534;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    bucket: String,
    /// Path of a directory in the bucket.
    #[serde(default)]
    path: Option<String>,
    user: String,
    clients: Vec<String>,
    #[serde(default)]
    any_client: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    squash: Option<String>,
    uid: Option<u32>,
    gid: Option<u32>,
    /// Owner of the directory, if it still belongs to root.
    #[serde(default)]
    owner: Option<Owner>,
}

/// Owner of the directory that is exported.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// A change of an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    owner: Owner,
}

impl Owner {
    /// Checks that Linux can show the ids: the greatest number means that an id stays.
    fn check(self) -> Result<Owner> {
        if self.uid == u32::MAX || self.gid == u32::MAX {
            return Err(Error::Invalid("owner: ids are 0 to 4294967294".into()));
        }
        Ok(self)
    }
}

#[derive(Serialize)]
struct ShownExport {
    bucket: String,
    user: String,
    /// True if clients are refused because the user is disabled.
    disabled: bool,
    clients: Vec<String>,
    read_only: bool,
    squash: &'static str,
    uid: u32,
    gid: u32,
    created: String,
    /// Owner and mode of the directory that is exported.
    owner_uid: u32,
    owner_gid: u32,
    mode: String,
    /// Set if the user's rights let clients change something.
    user_may_write: bool,
}

const SQUASHES: [(Squash, &str); 3] =
    [(Squash::Root, "root"), (Squash::All, "all"), (Squash::None, "none")];

fn squash(word: &str) -> Result<Squash> {
    let found = SQUASHES.iter().find(|(_, name)| *name == word);
    let bad = || Error::Invalid(format!("squash {word:?}: use root, all or none"));
    found.map(|(squash, _)| *squash).ok_or_else(bad)
}

impl ShownExport {
    fn new(listed: ListedExport, top: &Inode, user_may_write: bool) -> ShownExport {
        let ListedExport { bucket, user, disabled, export, .. } = listed;
        let word = SQUASHES.iter().find(|(squash, _)| *squash == export.squash);
        ShownExport {
            bucket,
            user,
            disabled,
            clients: export.clients.iter().map(Network::to_string).collect(),
            read_only: export.read_only,
            squash: word.map_or("", |(_, word)| word),
            uid: export.uid,
            gid: export.gid,
            created: rfc3339(export.created),
            owner_uid: top.uid,
            owner_gid: top.gid,
            mode: format!("{:04o}", top.mode),
            user_may_write,
        }
    }
}

pub async fn list(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    let fs = admit.fs();
    let mut exports = Vec::new();
    for listed in fs.read(caller, ListExports).await? {
        // A directory that is gone meanwhile has no owner.
        let top = top_of(fs, &listed).await.map(|(_, top)| top).unwrap_or_default();
        let may_write = may_write(fs, &listed).await?;
        exports.push(ShownExport::new(listed, &top, may_write));
    }
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "exports": exports })))
}

/// Returns the directory that is exported.
async fn top_of(fs: &Fs, listed: &ListedExport) -> Result<(Ino, Inode)> {
    let ino = if listed.export.top == Ino(0) { listed.id.ino() } else { listed.export.top };
    let (inode, _) = fs.read(&Caller::system(), Getattr { ino }).await?;
    Ok((ino, inode))
}

/// Returns whether the user of an export may write in its bucket.
async fn may_write(fs: &Fs, listed: &ListedExport) -> Result<bool> {
    let name = bucket_of(&listed.bucket).to_owned();
    let (opened, _) = match fs.read(&Caller::system(), GetBucket { name }).await {
        // It was deleted meanwhile.
        Err(Error::NotFound(_)) => return Ok(false),
        found => found?,
    };
    let (user, bucket) = (listed.export.user, opened.bucket);
    let has = |(of, rights): &(UserId, Rights)| *of == user && rights.contains(Rights::WRITE);
    Ok(user == UserId::ROOT || user == bucket.owner || bucket.grants.iter().any(has))
}

/// Returns the bucket of an export as it is listed.
fn bucket_of(listed: &str) -> &str {
    listed.split('/').next().unwrap_or_default()
}

async fn find(fs: &Fs, caller: &Caller, bucket: &str) -> Result<ListedExport> {
    let exports = fs.read(caller, ListExports).await?;
    let found = exports.into_iter().find(|listed| bucket_of(&listed.bucket) == bucket);
    found.ok_or_else(|| Error::NotFound(format!("export of bucket {bucket}")))
}

/// Gives the directory of an export to an owner.
pub async fn change(
    admit: &Admit,
    caller: &Caller,
    bucket: &str,
    change: Change,
) -> Result<Response<Body>> {
    let (fs, owner) = (admit.fs(), change.owner.check()?);
    let (ino, _) = top_of(fs, &find(fs, caller, bucket).await?).await?;
    give(fs, caller, ino, owner).await?;
    Ok(no_content())
}

async fn give(fs: &Fs, caller: &Caller, ino: Ino, Owner { uid, gid }: Owner) -> Result<()> {
    let (uid, gid) = (Some(uid), Some(gid));
    fs.run(caller, Setattr { ino, uid, gid, ..Setattr::default() }).await.map(|_| ())
}

/// Gives the directory of a new export to an owner, if it still belongs to root.
async fn give_new(fs: &Fs, caller: &Caller, bucket: &str, owner: Owner) -> Result<()> {
    let (ino, top) = top_of(fs, &find(fs, caller, bucket).await?).await?;
    if (top.uid, top.gid) != (0, 0) {
        return Ok(());
    }
    match give(fs, caller, ino, owner).await {
        // Nobody can write there now. The list shows whose it is.
        Err(Error::ReadOnly(_)) => Ok(()),
        given => given,
    }
}

pub async fn add(admit: &Admit, caller: &Caller, new: New) -> Result<Response<Body>> {
    let (fs, bucket) = (admit.fs(), new.bucket.clone());
    let owner = new.owner.map(Owner::check).transpose()?;
    let clients: Result<Vec<Network>> =
        new.clients.iter().map(|text| Network::parse(text)).collect();
    let verb = AddExport {
        bucket: new.bucket,
        user: new.user,
        read_only: new.read_only,
        squash: new.squash.map_or(Ok(Squash::default()), |word| squash(&word))?,
        uid: new.uid.unwrap_or(NOBODY),
        gid: new.gid.unwrap_or(NOBODY),
        clients: clients?,
        any_client: new.any_client,
    };
    match new.path {
        Some(path) => fs.run(caller, AddExportAt { export: verb, path }).await?,
        None => fs.run(caller, verb).await?,
    };
    if let Some(owner) = owner
        && let Err(error) = give_new(fs, caller, &bucket, owner).await
    {
        // A request that fails changes nothing.
        fs.run(caller, RemoveExport { bucket }).await?;
        return Err(error);
    }
    Ok(no_content())
}

pub async fn remove(admit: &Admit, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    admit.fs().run(caller, RemoveExport { bucket: bucket.to_owned() }).await?;
    Ok(no_content())
}
