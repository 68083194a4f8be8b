//! `/admin/exports`: buckets that NFS clients can mount.

use cairn_auth::{Caller, Network};
use cairn_base::{Error, Result};
use cairn_fs::ops::exports::{AddExport, AddExportAt, ListExports, ListedExport, RemoveExport};
use cairn_fs::rows::Squash;
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
}

const SQUASHES: [(Squash, &str); 3] =
    [(Squash::Root, "root"), (Squash::All, "all"), (Squash::None, "none")];

fn squash(word: &str) -> Result<Squash> {
    let found = SQUASHES.iter().find(|(_, name)| *name == word);
    let bad = || Error::Invalid(format!("squash {word:?}: use root, all or none"));
    found.map(|(squash, _)| *squash).ok_or_else(bad)
}

impl From<ListedExport> for ShownExport {
    fn from(listed: ListedExport) -> ShownExport {
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
        }
    }
}

pub async fn list(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    let exports = admit.fs().read(caller, ListExports).await?;
    let exports: Vec<ShownExport> = exports.into_iter().map(ShownExport::from).collect();
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "exports": exports })))
}

pub async fn add(admit: &Admit, caller: &Caller, new: New) -> Result<Response<Body>> {
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
        Some(path) => admit.fs().run(caller, AddExportAt { export: verb, path }).await?,
        None => admit.fs().run(caller, verb).await?,
    };
    Ok(no_content())
}

pub async fn remove(admit: &Admit, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    admit.fs().run(caller, RemoveExport { bucket: bucket.to_owned() }).await?;
    Ok(no_content())
}
