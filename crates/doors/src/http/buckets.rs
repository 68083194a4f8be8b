//! Buckets: lists, makes, shows, changes and deletes them.

use cairn_auth::{Action, Caller, Resource, Rights, Visibility, is_allowed};
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::{CreateBucket, GetBucket, ListBuckets, SetListing, UpdateBucket};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::namespace::BucketEntry;
use cairn_fs::ops::read_only::SetReadOnly;
use cairn_fs::rows::{Bucket, BucketKind, PublicAccessBlock, Usage};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::list::limit;
use super::target::Query;
use super::{Body, json_of, no_content, rfc3339};

#[derive(Serialize)]
struct ShownBucket {
    name: String,
    kind: &'static str,
    owner: String,
    visibility: &'static str,
    /// Flags of the public access block that are on, by the names of S3; absent without a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    public_access_block: Option<Vec<&'static str>>,
    /// Set if the bucket is public once its public access block ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    public_behind_block: bool,
    created: String,
    cache_control: String,
    redirect: &'static str,
    html_listing: &'static str,
    read_only: &'static str,
    objects: u64,
    bytes: u64,
    uploads: u32,
    /// Bytes of the parts of uploads in progress, which count for the quota.
    upload_bytes: u64,
    quota_objects: u64,
    quota_bytes: u64,
    /// The rights of other users: for administrators of the bucket, and only for one bucket at a
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<ShownGrant>>,
}

#[derive(Serialize)]
struct ShownGrant {
    user: String,
    rights: String,
}

#[derive(Serialize)]
struct ShownBuckets {
    buckets: Vec<ShownBucket>,
    /// Name after which the next page begins: send it as `after`. Null at the end.
    next: Option<String>,
}

async fn shown(fs: &Fs, opened: BucketEntry, usage: Usage) -> Result<ShownBucket> {
    let bucket = opened.bucket;
    let owner = fs.read(&Caller::system(), UserName { user: bucket.owner }).await?;
    Ok(ShownBucket {
        name: bucket.name,
        kind: bucket.kind.word(),
        owner: owner.unwrap_or_default(),
        visibility: bucket.visibility.as_str(),
        public_access_block: bucket.public_access_block.map(PublicAccessBlock::names),
        public_behind_block: bucket.is_public_behind,
        created: rfc3339(bucket.created),
        cache_control: bucket.cache_control,
        redirect: on_or_off(bucket.redirect),
        html_listing: on_or_off(bucket.html_listing),
        read_only: on_or_off(bucket.read_only),
        objects: usage.objects,
        bytes: usage.bytes,
        uploads: usage.uploads,
        upload_bytes: usage.upload_bytes,
        quota_objects: usage.quota_objects,
        quota_bytes: usage.quota_bytes,
        grants: None,
    })
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

async fn grants(fs: &Fs, caller: &Caller, bucket: &Bucket) -> Result<Option<Vec<ShownGrant>>> {
    let context = caller.context(fs.clock().now());
    // They are shown to callers that may change them.
    if !is_allowed(caller, Action::PutBucketAcl, Resource::Bucket(bucket.access()), &context) {
        return Ok(None);
    }
    let mut shown = Vec::with_capacity(bucket.grants.len());
    for (user, rights) in &bucket.grants {
        let name = fs.read(&Caller::system(), UserName { user: *user }).await?;
        shown.push(ShownGrant { user: name.unwrap_or_default(), rights: rights.to_string() });
    }
    Ok(Some(shown))
}

/// Lists the buckets that the caller may look into; query: `prefix`, `after`, `limit`.
pub async fn list(fs: &Fs, caller: &Caller, query: &Query) -> Result<Response<Body>> {
    let text = |name| query.get(name).unwrap_or_default().to_owned();
    let verb = ListBuckets { prefix: text("prefix"), after: text("after"), limit: limit(query)? };
    let (found, next) = fs.read(caller, verb).await?;
    let mut buckets = Vec::with_capacity(found.len());
    for (opened, usage) in found {
        buckets.push(shown(fs, opened, usage).await?);
    }
    Ok(json_of(StatusCode::OK, &ShownBuckets { buckets, next }))
}

/// Returns the settings and usage of a bucket.
pub async fn show(fs: &Fs, caller: &Caller, name: &str) -> Result<Response<Body>> {
    let (opened, usage) = fs.read(caller, GetBucket { name: name.to_owned() }).await?;
    let grants = grants(fs, caller, &opened.bucket).await?;
    let shown = ShownBucket { grants, ..shown(fs, opened, usage).await? };
    Ok(json_of(StatusCode::OK, &shown))
}

/// Makes a bucket; query: `visibility`, and `kind`, by default `files`.
pub async fn create(fs: &Fs, caller: &Caller, name: &str, query: &Query) -> Result<Response<Body>> {
    let visibility = query.get("visibility").map(Visibility::parse).transpose()?;
    let visibility = visibility.unwrap_or_default();
    let kind = query.get("kind").map(BucketKind::parse).transpose()?;
    let kind = kind.unwrap_or(BucketKind::Posix);
    fs.check_new_bucket(caller, name)?;
    let verb = CreateBucket { name: name.to_owned(), kind, visibility };
    fs.run(caller, verb).await?;
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::CREATED;
    Ok(reply)
}

/// Actions of which a change of settings needs one or more.
pub const CHANGES: [Action; 4] = [
    Action::PutBucketSettings,
    Action::PutBucketAcl,
    Action::PutBucketTagging,
    Action::PutBucketQuota,
];

/// The settings of a bucket that may be changed.
#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Change {
    visibility: Option<String>,
    cache_control: Option<String>,
    grant: Option<Grant>,
    /// Number of copies of blocks written from now on; 0 for the cluster's default.
    replicas: Option<u8>,
    /// `on`: a GET without `no-redirect` is redirected to a chunkserver that has the data; or
    /// `off`.
    redirect: Option<String>,
    /// `on`: browsers see listings as pages; or `off`.
    html_listing: Option<String>,
    /// `on`: refuses changes of its contents; or `off`. It must be the only change of the request.
    read_only: Option<String>,
    /// Most objects in the bucket; 0 for no quota.
    quota_objects: Option<u64>,
    quota_bytes: Option<u64>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Grant {
    user: String,
    /// Words such as `read,write`; `none` takes all rights away.
    rights: String,
}

impl Change {
    /// Reads the change from JSON, or without JSON from the query, with `grant=<user>:<rights>`.
    fn parse(json: &[u8], query: &Query) -> Result<Change> {
        if !json.is_empty() {
            if !query.is_empty() {
                let what = "changes in the query beside JSON: use one of the two";
                return Err(Error::Invalid(what.into()));
            }
            return serde_json::from_slice(json)
                .map_err(|error| Error::Invalid(format!("JSON of the body: {error}")));
        }
        let text = |name| query.get(name).map(str::to_owned);
        let grant = match query.get("grant").map(|grant| grant.split_once(':')) {
            None => None,
            Some(Some((user, rights))) => {
                Some(Grant { user: user.to_owned(), rights: rights.to_owned() })
            }
            Some(None) => return Err(Error::Invalid("grant: use <user>:<rights>".into())),
        };
        Ok(Change {
            visibility: text("visibility"),
            cache_control: text("cache_control"),
            grant,
            replicas: number(query, "replicas", "1 to 5")?,
            redirect: text("redirect"),
            html_listing: text("html_listing"),
            read_only: text("read_only"),
            quota_objects: number(query, "quota_objects", "a number, 0 for none")?,
            quota_bytes: number(query, "quota_bytes", "a number, 0 for none")?,
        })
    }
}

fn number<T: std::str::FromStr>(query: &Query, name: &str, remedy: &str) -> Result<Option<T>> {
    let wrong = |text: &str| Error::Invalid(format!("{name} {text:?}: use {remedy}"));
    query.get(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}

fn is_on(name: &str, word: &str) -> Result<bool> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::Invalid(format!("{name} {word:?}: use on or off"))),
    }
}

/// Changes settings of a bucket.
pub async fn update(
    fs: &Fs,
    caller: &Caller,
    name: &str,
    query: &Query,
    json: &[u8],
) -> Result<Response<Body>> {
    let mut change = Change::parse(json, query)?;
    if let Some(word) = change.read_only.take() {
        if change != Change::default() {
            let what = "read_only: send other changes in a request of their own";
            return Err(Error::Invalid(what.into()));
        }
        let (bucket, read_only) = (Some(name.to_owned()), is_on("read_only", &word)?);
        fs.run(caller, SetReadOnly { bucket, read_only }).await?;
        return Ok(no_content());
    }
    let grant = match change.grant {
        Some(Grant { user, rights }) => Some((user, Rights::parse(&rights)?)),
        None => None,
    };
    let visibility = change.visibility.as_deref().map(Visibility::parse).transpose()?;
    if visibility == Some(Visibility::Public) {
        fs.check_is_shown(caller, name).await?;
    }
    let verb = UpdateBucket {
        name: name.to_owned(),
        visibility,
        cache_control: change.cache_control,
        grant,
        replicas: change.replicas,
        redirect: change.redirect.as_deref().map(|word| is_on("redirect", word)).transpose()?,
        tags: None,
        quota_objects: change.quota_objects,
        quota_bytes: change.quota_bytes,
    };
    match change.html_listing.as_deref() {
        None => drop(fs.run(caller, verb).await?),
        Some(word) => {
            let html_listing = is_on("html_listing", word)?;
            fs.run(caller, SetListing { update: verb, html_listing }).await?;
        }
    }
    Ok(no_content())
}

/// Deletes an empty bucket.
pub async fn delete(fs: &Fs, caller: &Caller, name: &str) -> Result<Response<Body>> {
    fs.delete_bucket(caller, name).await?;
    Ok(no_content())
}
