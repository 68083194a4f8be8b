//! `/shares`: a user's share links.

use std::time::Duration;

use cairn_auth::{Caller, ShareLinkId};
use cairn_base::{Error, Result, Secret, Timestamp};
use cairn_fs::ops::share_links::{AddShareLink, ListShareLinks, ListedShareLink, RemoveShareLink};
use cairn_fs::rows::UploadLimits;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::list::limit;
use super::passwords::Passwords;
use super::target::Query;
use super::{Body, json_of, no_content, rfc3339};
use crate::admit::Admit;
use crate::limits;
use crate::records::SHARED;

/// The JSON for a new link. No `Debug`: it may contain a password.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    bucket: String,
    key: Option<String>,
    prefix: Option<String>,
    /// Lifetime, in seconds from now.
    expires_s: Option<u64>,
    password: Option<String>,
    downloads: Option<u64>,
    uploads: Option<NewUploads>,
}

/// Limits of a link by which files may be added, and nothing is shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUploads {
    files: Option<u64>,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct ShownUploads {
    files: u64,
    bytes: u64,
}

impl From<UploadLimits> for ShownUploads {
    fn from(UploadLimits { files, bytes }: UploadLimits) -> ShownUploads {
        ShownUploads { files, bytes }
    }
}

#[derive(Serialize)]
struct ShareLinkReply<'a> {
    id: String,
    /// Path of the address, which follows that of the server.
    path: &'a str,
    expires: String,
}

#[derive(Serialize)]
struct ShownShareLink {
    id: String,
    user: String,
    bucket: String,
    /// The key of one object.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    created: String,
    expires: String,
    password: bool,
    /// Number of downloads; 0 for any number.
    downloads: u64,
    downloaded: u64,
    /// Files and bytes that may be added in all, and those that were added.
    #[serde(skip_serializing_if = "Option::is_none")]
    uploads: Option<ShownUploads>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uploaded: Option<ShownUploads>,
    /// Number of wrong passwords that this process received.
    failed: u64,
    /// True if the link can be used.
    live: bool,
}

impl From<ListedShareLink> for ShownShareLink {
    fn from(listed: ListedShareLink) -> ShownShareLink {
        let ListedShareLink { user, id, user_name, bucket, link, has_password, is_live } = listed;
        let (key, prefix) =
            if link.is_of_prefix() { (None, Some(link.key)) } else { (Some(link.key), None) };
        ShownShareLink {
            id: ShareLinkId { user, id }.to_string(),
            user: user_name,
            bucket,
            key,
            prefix,
            created: rfc3339(link.created),
            expires: rfc3339(link.expires),
            password: has_password,
            downloads: link.downloads,
            downloaded: link.downloaded,
            uploads: link.uploads.map(ShownUploads::from),
            uploaded: link.uploads.map(|_| ShownUploads::from(link.uploaded)),
            failed: 0,
            live: is_live,
        }
    }
}

/// A share link to be made. No `Debug`: it may contain a password.
pub struct NewShareLink {
    pub bucket: String,
    /// Key of one object; or a prefix, which is empty or ends in `/`.
    pub key: String,
    /// Lifetime; `None` for the default.
    pub lifetime: Option<Duration>,
    pub password: Option<Secret<String>>,
    /// Number of downloads; `None` for any number.
    pub downloads: Option<u64>,
    /// Files and bytes that may be added, each with a default. A link with this shows nothing.
    pub uploads: Option<(Option<u64>, Option<u64>)>,
}

/// A share link that was made. No `Debug`: the path is a secret.
pub struct MadeShareLink {
    pub id: ShareLinkId,
    /// Path of the address, which follows that of the HTTP door.
    pub path: Secret<String>,
    pub expires: Timestamp,
}

/// Makes a share link of a caller.
///
/// # Errors
/// `Invalid` if the link is malformed; and the errors of the operation.
pub async fn make_share_link(
    admit: &Admit,
    caller: &Caller,
    new: NewShareLink,
) -> Result<MadeShareLink> {
    let lifetime = new.lifetime.unwrap_or(limits::SHARE_LINK_LIFETIME);
    if lifetime.is_zero() || lifetime > limits::SHARE_LINK_LIFETIME_MAX {
        let most = limits::SHARE_LINK_LIFETIME_MAX.as_secs();
        return Err(Error::Invalid(format!("expires_s: use 1 to {most}")));
    }
    let now = admit.fs().clock().now();
    let lifetime = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX);
    let expires = Timestamp(now.0.saturating_add(lifetime));
    let password = match new.password {
        None => Vec::new(),
        Some(password) if (1..=limits::PASSWORD_BYTES).contains(&password.expose().len()) => {
            cairn_auth::hash_password(&**admit.rng(), &password)
        }
        Some(_) => {
            let most = limits::PASSWORD_BYTES;
            return Err(Error::Invalid(format!("password: use 1 to {most} bytes")));
        }
    };
    let (id, token) = cairn_auth::generate_share_token(&**admit.rng(), caller.user());
    let verb = AddShareLink {
        id: id.id.clone(),
        hash: cairn_auth::hash_token(token.expose()),
        bucket: new.bucket,
        key: new.key,
        expires,
        password,
        downloads: new.downloads.unwrap_or(0),
        uploads: new.uploads.map(|(files, bytes)| UploadLimits {
            files: files.unwrap_or(limits::SHARED_FILES),
            bytes: bytes.unwrap_or(limits::SHARED_BYTES),
        }),
    };
    let slash = if verb.key.is_empty() || verb.key.ends_with('/') { "/" } else { "" };
    let expires = admit.fs().run(caller, verb).await?;
    let path = Secret::new(format!("{SHARED}{}{slash}", token.expose()));
    Ok(MadeShareLink { id, path, expires })
}

/// Makes a share link. Its token is shown now and never again.
pub async fn add(admit: &Admit, caller: &Caller, json: &[u8]) -> Result<Response<Body>> {
    // Without the parser's own words, which could repeat a password.
    let new: New = serde_json::from_slice(json).map_err(|error| {
        Error::Invalid(format!("JSON of the body, at column {}", error.column()))
    })?;
    let key = match (new.key, new.prefix) {
        (Some(key), None) if !key.is_empty() && !key.ends_with('/') => key,
        (None, Some(prefix)) if prefix.is_empty() || prefix.ends_with('/') => prefix,
        _ => {
            let text = "a share link has a key, or a prefix that ends in / or is empty";
            return Err(Error::Invalid(text.into()));
        }
    };
    let wanted = NewShareLink {
        bucket: new.bucket,
        key,
        lifetime: new.expires_s.map(Duration::from_secs),
        password: new.password.map(Secret::new),
        downloads: new.downloads,
        uploads: new.uploads.map(|uploads| (uploads.files, uploads.bytes)),
    };
    let MadeShareLink { id, path, expires } = make_share_link(admit, caller, wanted).await?;
    let made =
        ShareLinkReply { id: id.to_string(), path: path.expose(), expires: rfc3339(expires) };
    Ok(json_of(StatusCode::CREATED, &made))
}

/// Lists the caller's share links, or all; query: `all`, `after`, `limit`.
pub async fn list(
    admit: &Admit,
    passwords: &Passwords,
    caller: &Caller,
    query: &Query,
) -> Result<Response<Body>> {
    let after = match query.get("after").filter(|after| !after.is_empty()) {
        None => None,
        Some(after) => {
            let id = ShareLinkId::parse(after);
            let bad = || Error::Invalid("after: use the `next` of a page".into());
            Some(id.map(|id| (id.user, id.id)).ok_or_else(bad)?)
        }
    };
    let verb = ListShareLinks { all: query.is_set("all"), after, limit: limit(query)? };
    let (listed, is_more) = admit.fs().read(caller, verb).await?;
    let mut shown: Vec<ShownShareLink> = listed.into_iter().map(ShownShareLink::from).collect();
    shown.iter_mut().for_each(|link| link.failed = passwords.failed(&link.id));
    let next = shown.last().filter(|_| is_more).map(|last| last.id.clone());
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "shares": shown, "next": next })))
}

/// Ends a share link at once.
pub async fn remove(admit: &Admit, caller: &Caller, id: &str) -> Result<Response<Body>> {
    let Some(ShareLinkId { user, id }) = ShareLinkId::parse(id) else {
        return Err(Error::NotFound(format!("share link {id}")));
    };
    admit.fs().run(caller, RemoveShareLink { user, id }).await?;
    Ok(no_content())
}
