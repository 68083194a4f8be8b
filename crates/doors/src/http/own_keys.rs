//! `/keys`: the access keys and tokens of the caller.

use cairn_auth::Caller;
use cairn_base::{Error, Result};
use cairn_fs::ops::credentials::{AddOwnKey, Credential, ListOwnCredentials, RemoveOwnCredential};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Body, json_of, no_content, rfc3339};
use crate::admit::Admit;

#[derive(Serialize)]
struct ShownKey {
    id: String,
    user: String,
    kind: &'static str,
    created: String,
    expires: Option<String>,
}

/// Lists credentials.
pub fn show(credentials: Vec<Credential>) -> Response<Body> {
    let keys: Vec<ShownKey> = credentials
        .into_iter()
        .map(|credential| ShownKey {
            id: credential.id,
            user: credential.user,
            kind: if credential.is_token { "token" } else { "access_key" },
            created: rfc3339(credential.created),
            expires: (credential.expires.0 != 0).then(|| rfc3339(credential.expires)),
        })
        .collect();
    json_of(StatusCode::OK, &serde_json::json!({ "keys": keys }))
}

pub async fn list(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    Ok(show(admit.fs().read(caller, ListOwnCredentials).await?))
}

/// The empty JSON for a new key, which has no settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {}

/// Makes an access key. Its secret is shown now and never again.
pub async fn add(admit: &Admit, caller: &Caller, json: &[u8]) -> Result<Response<Body>> {
    let NewKey {} = serde_json::from_slice(json)
        .map_err(|_| Error::Invalid("JSON of the body: use {}".into()))?;
    let new = cairn_auth::generate(&**admit.rng());
    let verb = AddOwnKey { id: new.id.clone(), sealed: admit.seal(&new) };
    admit.fs().run(caller, verb).await?;
    let shown = serde_json::json!({ "id": new.id, "secret": new.secret.expose() });
    Ok(json_of(StatusCode::CREATED, &shown))
}

pub async fn remove(admit: &Admit, caller: &Caller, id: &str) -> Result<Response<Body>> {
    admit.fs().run(caller, RemoveOwnCredential { id: id.to_owned() }).await?;
    Ok(no_content())
}
