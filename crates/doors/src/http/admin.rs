//! `/admin/`: requests of the command line to a running server. Only root may send them.

use std::collections::HashMap;

use cairn_auth::{Caller, NewCredential};
use cairn_base::{Error, Result, Secret, Timestamp};
use cairn_fs::ops::credentials::{
    AddAccessKey, AddToken, DisableUser, ListCredentials, ListUsers, RemoveCredential,
};
use cairn_fs::ops::read_only::{IsReadOnly, SetReadOnly};
use cairn_fs::ops::user_limits::{ListUserLimits, SetUserLimits};
use cairn_fs::ops::user_quotas::{ListUserQuotas, SetUserQuotas, UserUsage};
use cairn_fs::rows::UserLimits;
use cairn_fs::{GcReport, MetaStats};
use http::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::Failure;
use super::target::Query;
use super::{Body, backups, dump, exports, json_of, no_content, own_keys, rfc3339, traffic};
use crate::admit::Admit;
use crate::limits;
use crate::traffic::Traffic;

/// One request to `/admin/`.
pub struct Request<'a> {
    pub method: &'a Method,
    /// The path after `/admin/`.
    pub path: &'a str,
    pub query: &'a Query,
    pub json: &'a [u8],
    pub traffic: &'a Traffic,
}

/// Answers it, for a caller who may administer the store.
pub async fn reply(
    admit: &Admit,
    caller: &Caller,
    request: Request<'_>,
) -> Result<Response<Body>, Failure> {
    let path = request.path;
    let route = (request.method.as_str(), path.split_once('/').unwrap_or((path, "")));
    match route {
        ("GET", ("keys", "")) => Ok(list_keys(admit, caller).await?),
        ("POST", ("keys", "")) => Ok(add_key(admit, caller, parse(request.json)?).await?),
        ("DELETE", ("keys" | "tokens", id)) if !id.is_empty() => {
            let removed = RemoveCredential { id: id.to_owned() };
            admit.fs().run(caller, removed).await?;
            Ok(no_content())
        }
        ("GET", ("users", "")) => Ok(list_users(admit, caller).await?),
        ("PATCH", ("users", name)) if !name.is_empty() => {
            change_user(admit, caller, name, parse(request.json)?).await?;
            Ok(no_content())
        }
        ("GET", ("exports", "")) => Ok(exports::list(admit, caller).await?),
        ("POST", ("exports", "")) => Ok(exports::add(admit, caller, parse(request.json)?).await?),
        ("PATCH", ("exports", bucket)) if !bucket.is_empty() => {
            Ok(exports::change(admit, caller, bucket, parse(request.json)?).await?)
        }
        ("DELETE", ("exports", bucket)) if !bucket.is_empty() => {
            Ok(exports::remove(admit, caller, bucket).await?)
        }
        ("POST", ("tokens", "")) => Ok(add_token(admit, caller, parse(request.json)?).await?),
        ("GET", ("status", "")) => Ok(status(admit).await?),
        ("GET", ("traffic", "")) => Ok(traffic::reply(admit.fs(), request.traffic).await?),
        ("GET", ("read-only", "")) => {
            let read_only = admit.fs().read(caller, IsReadOnly).await?;
            Ok(json_of(StatusCode::OK, &serde_json::json!({ "read_only": read_only })))
        }
        ("PUT", ("read-only", "")) => {
            let ReadOnly { read_only } = parse(request.json)?;
            admit.fs().run(caller, SetReadOnly { bucket: None, read_only }).await?;
            Ok(no_content())
        }
        ("GET", ("meta", "dump")) => Ok(dump::reply(admit.fs(), caller).await?),
        (_, ("holds" | "blocks", _)) => for_backups(admit, caller, route, request.json).await,
        ("POST", ("gc", "")) => {
            let dry_run = request.query.is_set("dry_run");
            let report = admit.fs().collect_garbage(caller, dry_run).await?;
            Ok(json_of(StatusCode::OK, &ShownGc::from(report)))
        }
        (_, ("keys" | "exports", "")) => Err(Failure::Method { allow: "GET, POST" }),
        (_, ("keys" | "tokens" | "exports", id)) if !id.is_empty() => {
            Err(Failure::Method { allow: "DELETE" })
        }
        (_, ("read-only", "")) => Err(Failure::Method { allow: "GET, PUT" }),
        (_, ("users", "")) => Err(Failure::Method { allow: "GET" }),
        (_, ("users", _)) => Err(Failure::Method { allow: "PATCH" }),
        (_, ("tokens" | "gc", "")) => Err(Failure::Method { allow: "POST" }),
        (_, ("status" | "traffic", "") | ("meta", "dump")) => Err(Failure::Method { allow: "GET" }),
        _ => Err(Error::NotFound(format!("/admin/{path}")).into()),
    }
}

/// A method, and the first part and the rest of a path.
type Route<'a> = (&'a str, (&'a str, &'a str));

/// Holds and blocks.
async fn for_backups(
    admit: &Admit,
    caller: &Caller,
    (method, path): Route<'_>,
    json: &[u8],
) -> Result<Response<Body>, Failure> {
    match (method, path) {
        ("GET", ("holds", "")) => Ok(backups::list(admit, caller).await?),
        ("POST", ("holds", "")) => Ok(backups::add(admit, caller, parse(json)?).await?),
        ("PATCH", ("holds", id)) if !id.is_empty() => {
            Ok(backups::renew(admit, caller, id, parse(json)?).await?)
        }
        ("DELETE", ("holds", id)) if !id.is_empty() => {
            Ok(backups::remove(admit, caller, id).await?)
        }
        ("GET", ("blocks", block)) => Ok(backups::block(admit, caller, block).await?),
        (_, ("holds", "")) => Err(Failure::Method { allow: "GET, POST" }),
        (_, ("holds", _)) => Err(Failure::Method { allow: "DELETE, PATCH" }),
        _ => Err(Failure::Method { allow: "GET" }),
    }
}

/// Returns the subject of a change, for its record: its path, and members of its body that are no
/// secrets.
pub fn subject(path: &str, json: &[u8]) -> Option<String> {
    const SHOWN: [&str; 19] = [
        "user",
        "id",
        "disabled",
        "bucket",
        "path",
        "clients",
        "any_client",
        "read_only",
        "squash",
        "key",
        "prefix",
        "owner",
        "seconds",
        "requests_per_second",
        "bytes_per_second",
        "quota_bytes",
        "quota_objects",
        "quota_buckets",
        "quota_uploads",
    ];
    let body: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).ok()?;
    let shown = body.iter().filter(|(name, _)| SHOWN.contains(&name.as_str()));
    let shown: Vec<String> = shown.map(|(name, value)| format!(" {name}={value}")).collect();
    Some(format!("{path}{}", shown.concat()))
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    // Without the parser's own words, which could repeat a secret.
    serde_json::from_slice(json)
        .map_err(|error| Error::Invalid(format!("JSON of the body, at column {}", error.column())))
}

async fn list_keys(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    Ok(own_keys::show(admit.fs().read(caller, ListCredentials).await?))
}

#[derive(Serialize)]
struct ShownUser {
    name: String,
    created: String,
    disabled: bool,
    access_keys: u64,
    tokens: u64,
    /// 0: no limit.
    requests_per_second: u64,
    bytes_per_second: u64,
    /// 0: none is set.
    quota_bytes: u64,
    quota_objects: u64,
    quota_buckets: u64,
    quota_uploads: u64,
    buckets: u64,
    objects: u64,
    bytes: u64,
    uploads: u64,
    upload_bytes: u64,
}

/// The settings of a user that may be changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    disabled: Option<bool>,
    requests_per_second: Option<u64>,
    bytes_per_second: Option<u64>,
    quota_bytes: Option<u64>,
    quota_objects: Option<u64>,
    quota_buckets: Option<u64>,
    quota_uploads: Option<u64>,
}

async fn change_user(admit: &Admit, caller: &Caller, name: &str, change: Change) -> Result<()> {
    let Change { disabled, requests_per_second: requests, bytes_per_second: bytes, .. } = change;
    let quotas = SetUserQuotas {
        name: name.to_owned(),
        bytes: change.quota_bytes,
        objects: change.quota_objects,
        buckets: change.quota_buckets,
        uploads: change.quota_uploads,
    };
    let all = [quotas.bytes, quotas.objects, quotas.buckets, quotas.uploads];
    let has_quotas = all.iter().any(Option::is_some);
    if has_quotas {
        admit.fs().run(caller, quotas).await?;
    }
    if requests.is_some() || bytes.is_some() {
        let verb = SetUserLimits { name: name.to_owned(), requests, bytes };
        admit.fs().run(caller, verb).await?;
    } else if disabled.is_none() && !has_quotas {
        let text = "say disabled, requests_per_second, bytes_per_second, quota_bytes, \
                    quota_objects, quota_buckets or quota_uploads";
        return Err(Error::Invalid(text.into()));
    }
    if let Some(disabled) = disabled {
        admit.fs().run(caller, DisableUser { name: name.to_owned(), disabled }).await?;
    }
    Ok(())
}

/// The setting whether the store refuses changes of its contents.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadOnly {
    read_only: bool,
}

async fn list_users(admit: &Admit, caller: &Caller) -> Result<Response<Body>> {
    let users = admit.fs().read(caller, ListUsers).await?.into_iter();
    let limits = match admit.fs().read(caller, ListUserLimits).await {
        // The master is of an earlier version.
        Err(Error::NotImplemented(_)) => Vec::new(),
        listed => listed?,
    };
    let limits: HashMap<String, UserLimits> = limits.into_iter().collect();
    let usages = match admit.fs().read(caller, ListUserQuotas).await {
        Err(Error::NotImplemented(_)) => Vec::new(),
        listed => listed?,
    };
    let usages: HashMap<String, UserUsage> =
        usages.into_iter().map(|usage| (usage.name.clone(), usage)).collect();
    let none = UserUsage::default();
    let users: Vec<ShownUser> = users
        .map(|user| (usages.get(&user.name).unwrap_or(&none), user))
        .map(|(usage, user)| ShownUser {
            quota_bytes: usage.quotas.bytes,
            quota_objects: usage.quotas.objects,
            quota_buckets: usage.quotas.buckets,
            quota_uploads: usage.quotas.uploads,
            buckets: usage.buckets,
            objects: usage.objects,
            bytes: usage.bytes,
            uploads: usage.uploads,
            upload_bytes: usage.upload_bytes,
            requests_per_second: limits.get(&user.name).map_or(0, |limits| limits.requests),
            bytes_per_second: limits.get(&user.name).map_or(0, |limits| limits.bytes),
            name: user.name,
            created: rfc3339(user.created),
            disabled: user.disabled,
            access_keys: user.access_keys,
            tokens: user.tokens,
        })
        .collect();
    Ok(json_of(StatusCode::OK, &serde_json::json!({ "users": users })))
}

/// No `Debug`: it contains a secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    user: String,
    id: Option<String>,
    secret: Option<String>,
}

async fn add_key(admit: &Admit, caller: &Caller, new: NewKey) -> Result<Response<Body>> {
    let mut credential = cairn_auth::generate(&**admit.rng());
    if let Some(id) = new.id {
        credential.id = id;
    }
    if let Some(secret) = new.secret {
        credential.secret = Secret::new(secret);
    }
    cairn_auth::check_access_key_id(&credential.id)?;
    cairn_auth::check_secret_key(&credential.secret)?;
    if credential.secret.expose().len() < limits::NEW_SECRET_BYTES {
        let least = limits::NEW_SECRET_BYTES;
        return Err(Error::Invalid(format!("secret key: use at least {least} characters")));
    }
    let NewCredential { id, .. } = &credential;
    let sealed = admit.seal(&credential);
    let verb = AddAccessKey { id: id.clone(), sealed, user: new.user, replace: false };
    admit.fs().run(caller, verb).await?;
    let shown = serde_json::json!({ "id": id, "secret": credential.secret.expose() });
    Ok(json_of(StatusCode::CREATED, &shown))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    user: String,
    /// Seconds from now; `None` for no expiry.
    expires_s: Option<u32>,
}

async fn add_token(admit: &Admit, caller: &Caller, new: NewToken) -> Result<Response<Body>> {
    let now = admit.fs().clock().now();
    let expires = match new.expires_s {
        Some(0) => return Err(Error::Invalid("expires_s: use at least 1".into())),
        Some(secs) => Timestamp(now.0.saturating_add(i64::from(secs) * 1_000_000_000)),
        None => Timestamp(0),
    };
    let (id, token) = cairn_auth::generate_token(&**admit.rng());
    let hash = cairn_auth::hash_token(token.expose());
    let verb = AddToken { id: id.clone(), hash, user: new.user, expires };
    admit.fs().run(caller, verb).await?;
    let shown = serde_json::json!({ "id": id, "token": token.expose() });
    Ok(json_of(StatusCode::CREATED, &shown))
}

async fn status(admit: &Admit) -> Result<Response<Body>> {
    let fs = admit.fs();
    let cache = fs.stats();
    let meta = match fs.meta().stats() {
        MetaStats::Local(master) => serde_json::json!({
            "ops": master.ops,
            "batches": master.batches,
            "in_flight": master.in_flight,
            "cache_rows": master.cache_rows,
            "cache_bytes": master.cache_bytes,
        }),
        MetaStats::Remote(session) => serde_json::json!({
            "reads_leased": session.reads_leased,
            "calls": session.calls,
            "recalls": session.recalls,
            "cache_rows": session.rows,
            "cache_bytes": session.bytes,
        }),
    };
    let blocks = fs.blocks().usage().await?;
    let shown = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "durable_batch": fs.meta().settled_batch(),
        "failed": fs.meta().failed(),
        "meta": meta,
        "cache": {
            "hits": cache.cache_hits,
            "misses": cache.cache_misses,
            "bytes": cache.cache_bytes,
        },
        "blocks": {
            "blocks": blocks.blocks,
            "live_bytes": blocks.live_bytes,
            "dead_bytes": blocks.dead_bytes,
            "free_bytes": blocks.free_bytes,
            "segments": blocks.segments,
            "poisoned_segments": blocks.poisoned_segments,
            "damaged_segments": blocks.damaged_segments,
            "corrupt_reads": blocks.corrupt_reads,
        },
    });
    Ok(json_of(StatusCode::OK, &shown))
}

#[derive(Serialize)]
struct ShownGc {
    drained: u64,
    orphans: u64,
    blocks_deleted: u64,
    blocks_waiting: u64,
    blocks_unknown: u64,
}

impl From<GcReport> for ShownGc {
    fn from(report: GcReport) -> ShownGc {
        ShownGc {
            drained: report.drained,
            orphans: report.orphans,
            blocks_deleted: report.blocks_deleted,
            blocks_waiting: report.blocks_waiting,
            blocks_unknown: report.blocks_unknown,
        }
    }
}
