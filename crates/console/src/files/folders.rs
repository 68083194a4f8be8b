//! Making a folder: a directory, or in a bucket of S3 the object that stands for one.

use cairn_base::{BucketId, Error, Result};
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
    let verb = GetBucket { name: at.bucket.to_owned() };
    let (opened, _) = at.inner.fs().read(&at.login.caller, verb).await?;
    match opened.bucket.kind {
        BucketKind::Posix => directory(at, opened.id, prefix, name).await?,
        BucketKind::S3 => object(at, &key, name).await?,
    }
    Ok(reply::see_other(&at.folder(&key)))
}

async fn directory(at: &At<'_>, bucket: BucketId, prefix: &str, name: &str) -> Result<()> {
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let mut parent = bucket.ino();
    for step in prefix.split_terminator('/') {
        (parent, _) = fs.read(caller, Lookup { parent, name: step.into() }).await?;
    }
    let verb = Mkdir { parent, name: name.into(), mode: 0o755, umask: 0 };
    fs.run(caller, verb).await?;
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
