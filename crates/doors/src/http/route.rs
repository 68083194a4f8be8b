//! Finds the verb of a request.

use bytes::Bytes;
use cairn_auth::{Action, Caller, Principal, Resource, authorize, is_allowed};
use cairn_base::{Error, Party};
use cairn_fs::ops::buckets::FindBucket;
use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, Response};

use super::append::CountedUpload;
use super::append_lines::append_lines;
use super::error::Failure;
use super::get::{self, ReadRequest};
use super::inner::Inner;
use super::log_path::LogPath;
use super::logs::LogRequest;
use super::move_object::move_object;
use super::redirect::{Maker, redirect};
use super::served_request::is_local;
use super::target::{Query, Target};
use super::{
    Body, admin, append, archive, buckets, clear, cors, delete, follow, health, info, list,
    log_replies, logs, no_content, own_keys, parameters, put, share_links as links, share_target,
    share_uploads, site, tus, website_api,
};
use crate::limits;
use crate::metrics::VerbStats;
use crate::room::Room;
use crate::serve::Remote;
use crate::upload::Upload;
use crate::witness::Witness;

const OBJECT: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";
const PREFIX: &str = "GET, HEAD, DELETE, OPTIONS";
const BUCKET: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";
const SHARED: &str = "GET, HEAD, PUT, POST, OPTIONS";
const READ_ONLY: &str = "GET, HEAD, OPTIONS";

/// A request whose caller is known.
pub struct Request<'a> {
    pub peer: Remote,
    pub parts: &'a Parts,
    pub caller: &'a Caller,
    pub stats: &'a VerbStats,
    /// True if a rule of the bucket lets a page of another site make this request.
    pub by_rule: bool,
}

type Outcome = Result<Response<Body>, Failure>;

impl Inner {
    /// Returns room for the body of a request that is read whole.
    fn room(&self, request: &Request<'_>) -> Room {
        Room::of(&self.append_memory, party(request))
    }
}

/// Reads the body of a request as JSON. Also returns its room in memory.
async fn json_of(
    door: &Inner,
    request: &Request<'_>,
    upload: &mut Upload,
) -> Result<(Bytes, Room), Failure> {
    let mut room = door.room(request);
    let json = append::collect(upload, limits::JSON_BYTES, &mut room).await?;
    Ok((json, room))
}

/// Checks whether a caller may do one of these actions to a bucket, before reading the body that
/// says which one. The operation decides.
async fn may_change(
    door: &Inner,
    caller: &Caller,
    bucket: &str,
    actions: &[Action],
) -> Result<(), Failure> {
    let fs = door.fs();
    let found = fs.read(&Caller::system(), FindBucket { name: bucket.to_owned() }).await?;
    let opened = found.ok_or_else(|| Error::NotFound(format!("bucket {bucket}")))?;
    let context = caller.context(fs.clock().now());
    let may = |action: Action| {
        authorize(caller, action, Resource::Bucket(opened.bucket.access()), &context)
    };
    let mut refused = Ok(());
    for action in actions {
        match may(*action) {
            Ok(()) => return Ok(()),
            Err(error) => refused = refused.and(Err(error)),
        }
    }
    Ok(refused?)
}

/// Checks that a caller is a user, before reading a body that only users may send.
fn needs_user(caller: &Caller, what: &str) -> Result<(), Failure> {
    match caller.principal() {
        Principal::User(_) => Ok(()),
        _ => Err(Error::Denied(format!("{what} need credentials")).into()),
    }
}

fn party(request: &Request<'_>) -> Party {
    match request.caller.principal() {
        Principal::User(user) => Party::User(user),
        _ => Party::at(request.peer.address.ip()),
    }
}

/// Answers a request by its verb. Each verb's future is boxed: a waiting request takes no more
/// memory than its own verb needs.
pub async fn route(
    door: &Inner,
    request: &Request<'_>,
    target: Target<'_>,
    upload: &mut Upload,
) -> Outcome {
    site::refuse_other_sites(request.parts, request.peer.tls, request.by_rule)?;
    let query = Query::parse(request.parts.uri.query())?;
    if !matches!(target, Target::Admin(_)) {
        parameters::check(&target, &request.parts.method, &query)?;
    }
    match target {
        Target::Object { bucket, key } | Target::Prefix { bucket, prefix: key }
            if is_read(request) && query.is_set(parameters::FOLLOW) && !key.is_empty() =>
        {
            let Request { peer, parts, caller, .. } = *request;
            Box::pin(follow::follow(door, peer, parts, caller, &bucket, &key, &query)).await
        }
        Target::Object { bucket, key } | Target::Prefix { bucket, prefix: key }
            if is_read(request)
                && let Some(lines) = query.get(parameters::LINES)
                && !key.is_empty() =>
        {
            let Request { parts, caller, .. } = *request;
            Ok(Box::pin(follow::last_lines(door, parts, caller, &bucket, &key, lines)).await?)
        }
        Target::Object { bucket, key } if is_read(request) && query.is_set("list") => {
            let prefix = format!("{key}/");
            let listed = list::list(door.fs(), request.caller, &bucket, &prefix, &query);
            Ok(Box::pin(listed).await?)
        }
        Target::Object { bucket, key } => {
            Box::pin(object(door, request, &bucket, &key, &query, upload)).await
        }
        Target::Prefix { bucket, prefix } if is_read(request) && query.is_set("zip") => {
            let party = party(request);
            Box::pin(archive::reply(door, request.caller, party, &bucket, &prefix)).await
        }
        Target::Prefix { bucket, prefix } if !prefix.is_empty() => {
            Box::pin(below(door, request, &bucket, &prefix, &query)).await
        }
        Target::Prefix { bucket, .. } => {
            let is_listing = true;
            Box::pin(whole_bucket(door, request, &bucket, is_listing, &query, upload)).await
        }
        Target::Bucket(bucket) => {
            let is_listing = query.is_set("list");
            Box::pin(whole_bucket(door, request, &bucket, is_listing, &query, upload)).await
        }
        Target::Buckets if is_read(request) => {
            Ok(Box::pin(buckets::list(door.fs(), request.caller, &query)).await?)
        }
        Target::Admin(_) => Box::pin(administer(door, request, &target, &query, upload)).await,
        Target::Health | Target::Ready | Target::Metrics if is_read(request) => {
            Box::pin(observe(door, request, &target)).await
        }
        // Other requests for this path; those of mounts never reach this.
        Target::Mount => Err(Error::Invalid(
            "this path is for `cairn mount` of the server's version, which sends an Upgrade".into(),
        )
        .into()),
        Target::Buckets | Target::Health | Target::Ready | Target::Metrics => {
            other(request, READ_ONLY)
        }
        Target::Logs(path) => Box::pin(ship(door, request, path, upload)).await,
        target => Box::pin(further(door, request, target, &query, upload)).await,
    }
}

/// Answers requests for resumable uploads, share links and own keys.
async fn further(
    door: &Inner,
    request: &Request<'_>,
    target: Target<'_>,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    match target {
        Target::ShareLinks | Target::ShareLink(_) => {
            Box::pin(share_links(door, request, &target, query, upload)).await
        }
        Target::OwnKeys | Target::OwnKey(_) => {
            Box::pin(own_keys(door, request, &target, upload)).await
        }
        Target::Tus { bucket, key } => {
            let Request { parts, caller, stats, .. } = *request;
            let place = (&*bucket, &*key);
            let asked = tus::TusRequest { caller, parts, stats, place, query };
            Box::pin(tus::reply(door, &asked, upload)).await
        }
        Target::Shared { token, path } => {
            let path = path.as_deref();
            Box::pin(shared_link(door, request, &token, path, query, upload)).await
        }
        _ => Err(Error::NotFound("this path: objects are below /storage/".into()).into()),
    }
}

/// Answers the requests of shippers of logs: records, and the questions before them.
async fn ship(
    door: &Inner,
    request: &Request<'_>,
    path: LogPath<'_>,
    upload: &mut Upload,
) -> Outcome {
    match path {
        // Only clients of Elasticsearch have credentials for it.
        LogPath::Probe(_) if request.caller.is_anonymous() => {
            Err(Error::NotFound("this path; try /storage/".into()).into())
        }
        LogPath::Probe(probe) if is_read(request) => Ok(log_replies::probe(probe)),
        LogPath::Probe(_) => other(request, log_replies::PROBE),
        path if path.is_push(&request.parts.method) => {
            let room = Room::of(&door.log_memory, party(request));
            let Request { parts, caller, stats, .. } = *request;
            logs::push(door, &LogRequest { parts, caller, stats }, path, room, upload).await
        }
        LogPath::Bulk(_) => other(request, log_replies::BULK),
        _ => other(request, log_replies::PUSH),
    }
}

fn is_read(request: &Request<'_>) -> bool {
    matches!(request.parts.method, Method::GET | Method::HEAD)
}

/// Answers OPTIONS, and methods that a path does not take.
fn other(request: &Request<'_>, allow: &'static str) -> Outcome {
    if request.parts.method != Method::OPTIONS {
        return Err(Failure::Method { allow });
    }
    let mut reply = no_content();
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    Ok(reply)
}

async fn object(
    door: &Inner,
    request: &Request<'_>,
    bucket: &str,
    key: &str,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    let (fs, caller, parts) = (door.fs(), request.caller, request.parts);
    let (headers, stats) = (&parts.headers, request.stats);
    Ok(match parts.method.as_str() {
        "GET" | "HEAD" => Box::pin(read(door, request, (bucket, key), query)).await?,
        "PUT" => Box::pin(put::put(fs, caller, bucket, key, headers, upload, stats)).await?,
        "POST" if query.is_set(parameters::APPEND) && query.get(parameters::MOVE_TO).is_some() => {
            let what = "append and move-to: use one of them";
            return Err(Error::Invalid(what.into()).into());
        }
        "POST" if let Some(target) = query.get(parameters::MOVE_TO) => {
            Box::pin(move_object(fs, caller, bucket, key, target, headers)).await?
        }
        "POST" if query.is_set(parameters::APPEND) => {
            let (room, upload) = (door.room(request), CountedUpload { upload, stats });
            let added = append_lines(&door.intake, room, caller, bucket, key, headers, upload);
            Box::pin(added).await?
        }
        "POST" => {
            let (room, upload) = (door.room(request), CountedUpload { upload, stats });
            let added = append::append(fs, room, caller, bucket, key, headers, upload);
            Box::pin(added).await?
        }
        "DELETE" => Box::pin(delete::delete(fs, caller, bucket, key, headers)).await?,
        _ => other(request, OBJECT)?,
    })
}

/// Answers a GET or HEAD: with the object, its address, or the addresses of its parts.
async fn read(door: &Inner, request: &Request<'_>, place: (&str, &str), query: &Query) -> Outcome {
    let (key, parts) = (place.1, request.parts);
    let (headers, now) = (&parts.headers, door.fs().clock().now());
    let redirects = door.redirects.as_ref();
    let (method, query_text) = (&parts.method, parts.uri.query());
    let read = ReadRequest { method, headers, query: query_text, key, is_website: false };
    let object = door
        .fs()
        .open_for(request.caller, place.0, place.1, |object| get::sent(&read, object))
        .await?;
    if query.is_set("download-info") {
        let maker = Maker::new(redirects, &object, place, query, now)?;
        return Ok(info::info(&maker, &object, query, headers).await?);
    }
    let by_setting = object.bucket().redirect && redirects.is_some();
    let is_sent = !query.is_set("no-redirect") && (query.is_set("redirect") || by_setting);
    if is_sent
        && parts.method == Method::GET
        && let Some(sent) = redirect(redirects, &object, &read, place, query, now).await?
    {
        return Ok(sent);
    }
    Ok(get::reply(&read, &object, || door.ids.next())?)
}

async fn below(
    door: &Inner,
    request: &Request<'_>,
    bucket: &str,
    prefix: &str,
    query: &Query,
) -> Outcome {
    let (fs, caller) = (door.fs(), request.caller);
    Ok(match request.parts.method.as_str() {
        "GET" | "HEAD" => {
            let headers = &request.parts.headers;
            list::show(fs, caller, headers, bucket, prefix, query).await?
        }
        "DELETE" => delete::delete(fs, caller, bucket, prefix, &request.parts.headers).await?,
        "PUT" | "POST" => {
            let what = "a path that ends in / is a listing; objects have names";
            return Err(Error::Invalid(what.into()).into());
        }
        _ => other(request, PREFIX)?,
    })
}

async fn whole_bucket(
    door: &Inner,
    request: &Request<'_>,
    bucket: &str,
    is_listing: bool,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    let (fs, caller) = (door.fs(), request.caller);
    if query.is_set(parameters::CORS) {
        return Box::pin(rules(door, request, bucket, upload)).await;
    }
    if query.is_set(parameters::WEBSITE) {
        return Box::pin(website(door, request, bucket, upload)).await;
    }
    Ok(match request.parts.method.as_str() {
        "GET" | "HEAD" if is_listing => {
            let shown = list::show(fs, caller, &request.parts.headers, bucket, "", query);
            Box::pin(shown).await?
        }
        "GET" | "HEAD" => Box::pin(buckets::show(fs, caller, bucket)).await?,
        "PUT" => Box::pin(buckets::create(fs, caller, bucket, query)).await?,
        "PATCH" => {
            may_change(door, caller, bucket, &buckets::CHANGES).await?;
            let (json, _room) = json_of(door, request, upload).await?;
            Box::pin(buckets::update(fs, caller, bucket, query, &json)).await?
        }
        "DELETE" if query.is_set(parameters::CONTENT) => {
            Box::pin(clear::clear(fs, caller, bucket)).await?
        }
        "DELETE" => Box::pin(buckets::delete(fs, caller, bucket)).await?,
        _ => other(request, BUCKET)?,
    })
}

/// Answers requests for the rules of a bucket for pages of other sites.
async fn rules(door: &Inner, request: &Request<'_>, bucket: &str, upload: &mut Upload) -> Outcome {
    let (fs, caller) = (door.fs(), request.caller);
    Ok(match request.parts.method.as_str() {
        "PUT" => {
            may_change(door, caller, bucket, &[Action::PutBucketCors]).await?;
            let (json, _room) = json_of(door, request, upload).await?;
            cors::put(fs, caller, bucket, &json).await?
        }
        "DELETE" => cors::delete(fs, caller, bucket).await?,
        _ => cors::show(fs, caller, bucket).await?,
    })
}

/// Answers requests for the website of a bucket.
async fn website(
    door: &Inner,
    request: &Request<'_>,
    bucket: &str,
    upload: &mut Upload,
) -> Outcome {
    let (fs, caller) = (door.fs(), request.caller);
    Ok(match request.parts.method.as_str() {
        "PUT" => {
            may_change(door, caller, bucket, &[Action::PutBucketWebsite]).await?;
            let (json, _room) = json_of(door, request, upload).await?;
            website_api::put(fs, caller, bucket, &json).await?
        }
        "DELETE" => website_api::delete(fs, caller, bucket).await?,
        _ => website_api::show(fs, caller, bucket).await?,
    })
}

async fn administer(
    door: &Inner,
    request: &Request<'_>,
    target: &Target<'_>,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    let context = request.caller.context(door.fs().clock().now());
    authorize(request.caller, Action::Administer, Resource::Store, &context)?;
    site::refuse_pages(request.parts)?;
    parameters::check(target, &request.parts.method, query)?;
    let Target::Admin(path) = target else {
        return Err(Error::NotFound("this path: administration is below /admin/".into()).into());
    };
    let (json, _room) = if is_read(request) {
        (Bytes::new(), door.room(request))
    } else {
        json_of(door, request, upload).await?
    };
    Witness::of(&request.parts.extensions).note(|facts| {
        facts.resource = admin::subject(path, &json).or(facts.resource.take());
    });
    let (method, traffic) = (&request.parts.method, door.metrics.traffic());
    let asked = admin::Request { method, path, query, json: &json, traffic };
    admin::reply(&door.admit, request.caller, asked).await
}

/// Answers requests for a user's share links.
async fn share_links(
    door: &Inner,
    request: &Request<'_>,
    target: &Target<'_>,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    let (admit, caller) = (&door.admit, request.caller);
    let method = request.parts.method.as_str();
    if matches!(method, "POST" | "DELETE") {
        site::refuse_pages(request.parts)?;
    }
    match (target, method) {
        (Target::ShareLinks, "GET" | "HEAD") => {
            Ok(links::list(admit, &door.passwords, caller, query).await?)
        }
        (Target::ShareLinks, "POST") => {
            needs_user(caller, "share links")?;
            let (json, _room) = json_of(door, request, upload).await?;
            Witness::of(&request.parts.extensions).note(|facts| {
                facts.resource = admin::subject("share link of", &json);
            });
            Ok(links::add(admit, caller, &json).await?)
        }
        (Target::ShareLink(id), "DELETE") => Ok(links::remove(admit, caller, id).await?),
        (Target::ShareLink(_), _) => other(request, "DELETE, OPTIONS"),
        _ => other(request, "GET, HEAD, POST, OPTIONS"),
    }
}

/// Answers requests for a user's own access keys.
async fn own_keys(
    door: &Inner,
    request: &Request<'_>,
    target: &Target<'_>,
    upload: &mut Upload,
) -> Outcome {
    let (admit, caller) = (&door.admit, request.caller);
    let method = request.parts.method.as_str();
    if matches!(method, "POST" | "DELETE") {
        site::refuse_pages(request.parts)?;
    }
    match (target, method) {
        (Target::OwnKeys, "GET" | "HEAD") => Ok(own_keys::list(admit, caller).await?),
        (Target::OwnKeys, "POST") => {
            needs_user(caller, "access keys of one's own")?;
            let (json, _room) = json_of(door, request, upload).await?;
            Ok(own_keys::add(admit, caller, &json).await?)
        }
        (Target::OwnKey(id), "DELETE") => Ok(own_keys::remove(admit, caller, id).await?),
        (Target::OwnKey(_), _) => other(request, "DELETE, OPTIONS"),
        _ => other(request, "GET, HEAD, POST, OPTIONS"),
    }
}

/// Answers a request with a share link.
async fn shared_link(
    door: &Inner,
    request: &Request<'_>,
    token: &str,
    path: Option<&str>,
    query: &Query,
    upload: &mut Upload,
) -> Outcome {
    let (peer, parts) = (request.peer, request.parts);
    let asked = share_target::ShareRequest { peer, parts, token, path, query };
    if parts.method == Method::OPTIONS {
        return other(request, SHARED);
    }
    let opened = match share_target::open(door, &asked).await? {
        Ok(opened) => opened,
        Err(challenge) => return Ok(challenge),
    };
    let takes_files = opened.link.uploads.is_some();
    let mut reply = match parts.method.as_str() {
        "GET" | "HEAD" if takes_files && path.is_none() => share_target::to_directory(token),
        "GET" | "HEAD" if takes_files => share_uploads::show(door, &asked, &opened)?,
        "GET" | "HEAD" => share_target::read(door, &asked, &opened).await?,
        "PUT" if takes_files => share_uploads::put(door, &asked, &opened, upload).await?,
        "POST" if takes_files => share_uploads::form(door, &asked, &opened, upload).await?,
        _ if takes_files => return other(request, SHARED),
        _ => return other(request, READ_ONLY),
    };
    share_target::keep_secret(&opened, &mut reply);
    Ok(reply)
}

async fn observe(door: &Inner, request: &Request<'_>, target: &Target<'_>) -> Outcome {
    Ok(match target {
        Target::Health => health::health(),
        Target::Ready => health::ready(door.fs()).await,
        _ => {
            let (may_see, may_see_names) = may_see_metrics(door, request);
            let headers = &request.parts.headers;
            health::metrics(&door.metrics, headers, may_see, may_see_names).await?
        }
    })
}

/// Returns whether the caller may see metrics, and whether it may see names of buckets and sources
/// in them. Callers with the right may see both, and anonymous callers on this machine the metrics
/// only.
fn may_see_metrics(door: &Inner, request: &Request<'_>) -> (bool, bool) {
    let is_local = is_local(request.peer, &request.parts.uri, &request.parts.headers);
    let caller = request.caller;
    let context = caller.context(door.fs().clock().now());
    let has_right = is_allowed(caller, Action::ReadMetrics, Resource::Store, &context);
    (has_right || (is_local && caller.is_anonymous()), has_right)
}
