//! Creation of a folder: a directory, or, in a bucket of S3, the object that stands for one.

use cairn_base::{BucketId, Error, Ino, Result};
use cairn_fs::PutRequest;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::ops::mkdir::Mkdir;
use cairn_fs::rows::BucketKind;

use super::At;
use crate::failure::Failure;
use crate::reply::{self, Reply};

pub async fn make(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let name = form.get("name").trim().trim_end_matches('/');
    if matches!(name, "" | "." | "..") || name.contains('/') {
        let text = format!("the name {name:?} of a folder: use one without a slash, not . or ..");
        return Err(Error::Invalid(text).into());
    }
    let prefix = form.get("in");
    let key = format!("{prefix}{name}/");
    at.asked.witness.note(|facts| facts.key = Some(key.clone()));
    let place = place(at, at.bucket).await?;
    if place.has_directories() {
        directory(at, place.bucket, prefix, name).await?
    } else {
        object(at, &key, name).await?
    }
    Ok(reply::see_other(&at.folder(&key)))
}

/// A bucket in which folders are made.
pub struct Place {
    bucket: BucketId,
    kind: BucketKind,
}

impl Place {
    /// Returns true if folders are directories there, and not objects.
    pub fn has_directories(&self) -> bool {
        self.kind == BucketKind::Posix
    }
}

pub async fn place(at: &At<'_>, bucket: &str) -> Result<Place> {
    let verb = GetBucket { name: bucket.to_owned() };
    let (opened, _) = at.inner.fs().read(&at.login.caller, verb).await?;
    Ok(Place { bucket: opened.id, kind: opened.bucket.kind })
}

async fn directory(at: &At<'_>, bucket: BucketId, prefix: &str, name: &str) -> Result<()> {
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let mut parent = bucket.ino();
    for step in prefix.split_terminator('/') {
        (parent, _) = fs.read(caller, Lookup { parent, name: step.into() }).await?;
    }
    fs.run(caller, mkdir(parent, name)).await?;
    Ok(())
}

fn mkdir(parent: Ino, name: &str) -> Mkdir {
    Mkdir { parent, name: name.into(), mode: 0o755, umask: 0 }
}

/// Makes the directories of a path that are not there.
pub async fn ensure(at: &At<'_>, place: &Place, path: &str) -> Result<()> {
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let mut parent = place.bucket.ino();
    for step in path.split_terminator('/') {
        let lookup = || Lookup { parent, name: step.into() };
        let found = match fs.read(caller, lookup()).await {
            Err(Error::NotFound(_)) => match fs.run(caller, mkdir(parent, step)).await {
                Ok(_) | Err(Error::Exists(_)) => fs.read(caller, lookup()).await,
                Err(error) => Err(error),
            },
            other => other,
        };
        (parent, _) = found?;
    }
    Ok(())
}

async fn object(at: &At<'_>, key: &str, name: &str) -> Result<()> {
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let written = fs.begin(caller, at.bucket).await?.finish().await?;
    let request = PutRequest {
        bucket: at.bucket.to_owned(),
        key: key.to_owned(),
        conditions: Conditions { if_none_match: Some(EtagMatch::Any), ..Conditions::default() },
        ..PutRequest::default()
    };
    match fs.put_object(caller, request, written).await {
        Err(Error::PreconditionFailed(_)) => Err(Error::Exists(format!("folder {name}"))),
        other => other.map(drop),
    }
}
