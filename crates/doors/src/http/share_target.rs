//! `/s/<token>`: the target of a share link. Each request acts as the user that made the link, so
//! the link ends with that user's rights.

use cairn_auth::{Caller, ShareLinkId};
use cairn_base::{Error, Party, Result};
use cairn_fs::ops::list_objects::Page;
use cairn_fs::ops::share_links::{FindShareLink, UseShareLink};
use cairn_fs::rows::{ShareLink, UploadLimits};
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, IF_RANGE, LOCATION, RANGE, REFERRER_POLICY, RETRY_AFTER,
    VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use maud::html;

use super::error::{self, Failure};
use super::get::{self, ReadRequest};
use super::inner::Inner;
use super::listing_page::ListingPage;
use super::target::Query;
use super::{Body, archive, list, page};
use crate::admit::{basic_password, verified};
use crate::content_type::last_component;
use crate::serve::Remote;
use crate::witness::Witness;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// A request with a share link.
pub struct ShareRequest<'a> {
    pub peer: Remote,
    pub parts: &'a http::request::Parts,
    pub token: &'a str,
    /// The part of the path after the token and a slash.
    pub path: Option<&'a str>,
    pub query: &'a Query,
}

/// A share link that may be used, and its user.
pub struct ShareAccess {
    pub id: ShareLinkId,
    pub link: ShareLink,
    pub bucket: String,
    pub caller: Caller,
}

/// Answers a GET or HEAD of a link that shows something.
pub async fn read(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
) -> Result<Response<Body>, Failure> {
    let key = |path: &str| format!("{}{path}", opened.link.key);
    let replied = match (opened.link.is_of_prefix(), asked.path) {
        (false, None) if asked.query.get("zip").is_none() => {
            object(door, asked, opened, &opened.link.key).await
        }
        (false, _) => Err(gone()),
        (true, None) => Ok(to_directory(asked.token)),
        (true, Some(path)) if !path.is_empty() && !path.ends_with('/') => {
            object(door, asked, opened, &key(path)).await
        }
        (true, Some(path)) if asked.query.is_set("zip") => {
            return zip(door, asked, opened, &key(path)).await;
        }
        (true, Some(path)) => listing(door, asked, opened, &key(path)).await,
    };
    Ok(replied.map_err(hide)?)
}

/// Keeps the address secret: it must reach no other site, no index and no shared cache.
pub fn keep_secret(opened: &ShareAccess, reply: &mut Response<Body>) {
    let headers = reply.headers_mut();
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    if headers.get(CACHE_CONTROL).is_none_or(|value| value != "no-store") {
        let value = if opened.link.downloads > 0 { "no-store" } else { "private, no-cache" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
    }
}

/// Replaces the error in a reply by a page, if a person asks.
pub fn show_error(asked: &HeaderMap, reply: &mut Response<Body>) {
    let title = match reply.status() {
        StatusCode::UNAUTHORIZED => "This link has a password",
        StatusCode::NOT_FOUND => "This link leads to nothing",
        StatusCode::PAYLOAD_TOO_LARGE => "This is more than the link takes",
        StatusCode::SERVICE_UNAVAILABLE => "Please try again in a moment",
        status if status.is_client_error() || status.is_server_error() => "This did not work",
        _ => return,
    };
    if !page::is_wanted(asked) {
        return;
    }
    let text = match reply.status() {
        StatusCode::NOT_FOUND => "It may have expired or been ended, or its address is incomplete.",
        _ => "",
    };
    let contents = html! { h1 { (title) } p class="faint" { (text) } };
    let mut shown = page::reply(reply.status(), title, &contents);
    for name in [WWW_AUTHENTICATE, RETRY_AFTER, ALLOW, CONNECTION, X_REQUEST_ID] {
        if let Some(value) = reply.headers().get(&name) {
            shown.headers_mut().insert(name, value.clone());
        }
    }
    *reply = shown;
}

/// Returns the error for an address that never existed, and for a link that is gone: it is the same
/// for both.
pub fn gone() -> Error {
    let text = "this share link: it expired, was removed, or its address is incomplete";
    Error::NotFound(text.into())
}

/// Hides from the user of a share link which right its maker lacks.
pub fn hide(error: Error) -> Error {
    match error {
        Error::Denied(_) => gone(),
        // The names of the bucket and the prefix must stay private to the maker.
        Error::ReadOnly(_) => Error::ReadOnly("no file is taken here now".into()),
        Error::NotFound(_) => Error::NotFound("this file of the share link".into()),
        other => other,
    }
}

/// Finds the link and checks the password. The inner `Err` is the reply that asks for the password.
pub async fn open(
    door: &Inner,
    asked: &ShareRequest<'_>,
) -> Result<Result<ShareAccess, Response<Body>>, Failure> {
    let Some(id) = cairn_auth::share_link_of(asked.token) else { return Err(gone().into()) };
    let verb = FindShareLink { user: id.user, id: id.id.clone() };
    let found = door.fs().read(&Caller::system(), verb).await?;
    let Some((link, bucket)) = found else { return Err(gone().into()) };
    let is_good = cairn_auth::verify_token(&link.hash, asked.token);
    if !is_good || !link.is_in_time(door.fs().clock().now()) {
        return Err(gone().into());
    }
    let witness = Witness::of(&asked.parts.extensions);
    witness.note(|facts| {
        facts.resource = Some(format!("share link {id}"));
        facts.bucket = Some(bucket.clone());
    });
    if !link.password.is_empty() && !knows_password(door, asked, &id, &link).await? {
        witness.note(|facts| facts.reason = Some("bad_credentials".to_owned()));
        return Ok(Err(challenge(door, &id)));
    }
    let caller = verified(id.user, &format!("share-{id}"), asked.peer);
    witness.by(&caller);
    Ok(Ok(ShareAccess { id, link, bucket, caller }))
}

async fn knows_password(
    door: &Inner,
    asked: &ShareRequest<'_>,
    id: &ShareLinkId,
    link: &ShareLink,
) -> Result<bool> {
    let Some(presented) = basic_password(&asked.parts.headers) else { return Ok(false) };
    let party = Party::at(asked.peer.address.ip());
    let is_right = door.passwords.check(&link.password, presented, party).await?;
    if !is_right {
        door.passwords.count_failed(&id.to_string());
        door.admit.failed(asked.peer.address, &id.to_string()).await;
    }
    Ok(is_right)
}

/// Returns the reply with which a browser asks its user for the password, apart from credentials
/// for the rest of this door.
fn challenge(door: &Inner, id: &ShareLinkId) -> Response<Body> {
    let failure = Failure::Store(Error::Denied(
        "this share link has a password: send it as the password of basic auth, with any name"
            .into(),
    ));
    let mut reply = error::reply(failure, true, &door.ids.next());
    let basic = format!("Basic realm=\"share link {id}\", charset=\"UTF-8\"");
    let basic = HeaderValue::try_from(basic);
    reply.headers_mut().insert(
        WWW_AUTHENTICATE,
        basic.unwrap_or(HeaderValue::from_static("Basic realm=\"share link\"")),
    );
    reply
}

/// Redirects to the address of the directory, whose links are relative.
pub fn to_directory(token: &str) -> Response<Body> {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // A valid token has letters, digits and hyphens only.
    if let Ok(location) = HeaderValue::try_from(format!("{token}/")) {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply
}

async fn object(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
    key: &str,
) -> Result<Response<Body>> {
    let (parts, is_counted) = (asked.parts, opened.link.downloads > 0);
    let mut headers = parts.headers.clone();
    if is_counted {
        // Otherwise each part would count as a download, or none would.
        headers.remove(RANGE);
        headers.remove(IF_RANGE);
    }
    let query = parts.uri.query();
    let (method, headers) = (&parts.method, &headers);
    let read = ReadRequest { method, headers, query, key, is_website: false };
    let place = (&*opened.bucket, key);
    let object = door
        .fs()
        .open_for(&opened.caller, place.0, place.1, |object| get::sent(&read, object))
        .await?;
    let mut reply = get::reply(&read, &object, || door.ids.next())?;
    if is_counted {
        reply.headers_mut().remove(http::header::ACCEPT_RANGES);
        if reply.status() == StatusCode::OK {
            count(door, asked, opened).await?;
        }
    }
    Ok(reply)
}

/// Counts a download before its first byte is sent.
async fn count(door: &Inner, asked: &ShareRequest<'_>, opened: &ShareAccess) -> Result<()> {
    if opened.link.downloads == 0 || asked.parts.method != Method::GET {
        return Ok(());
    }
    let ShareLinkId { user, id } = opened.id.clone();
    let verb = UseShareLink { user, id, downloads: 1, uploads: UploadLimits::default() };
    door.fs().run(&Caller::system(), verb).await.map_err(|error| match error {
        Error::NotFound(_) => Error::Denied("downloads".into()),
        other => other,
    })?;
    Witness::of(&asked.parts.extensions).note(|facts| facts.has_changed = true);
    Ok(())
}

async fn zip(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
    prefix: &str,
) -> Result<Response<Body>, Failure> {
    let party = Party::at(asked.peer.address.ip());
    let replied = archive::reply(door, &opened.caller, party, &opened.bucket, prefix).await;
    let reply = replied.map_err(|failure| match failure {
        Failure::Store(error) => Failure::Store(hide(error)),
        other => other,
    })?;
    count(door, asked, opened).await.map_err(hide)?;
    Ok(reply)
}

async fn listing(
    door: &Inner,
    asked: &ShareRequest<'_>,
    opened: &ShareAccess,
    prefix: &str,
) -> Result<Response<Body>> {
    let root = &*opened.link.key;
    let mut verb = list::level(&opened.bucket, prefix, asked.query)?;
    if !verb.after.is_empty() {
        verb.after = format!("{root}{}", verb.after);
    }
    let mut page = door.fs().read(&opened.caller, verb).await?;
    if !list::is_for_people(&asked.parts.headers, asked.query) {
        without_root(&mut page, root);
        return Ok(list::json(page));
    }
    let named = last_component(root.trim_end_matches('/'));
    let shown = ListingPage {
        root_name: if named.is_empty() { &opened.bucket } else { named },
        root,
        prefix,
        limit: asked.query.get("limit"),
        is_first: asked.query.get("after").is_none(),
    };
    let mut reply = shown.reply(&page);
    reply.headers_mut().append(VARY, HeaderValue::from_static("Authorization"));
    Ok(reply)
}

/// Makes keys relative to the prefix of the link, as its holders see them.
fn without_root(page: &mut Page, root: &str) {
    let cut = |key: &mut String| {
        if key.starts_with(root) {
            key.drain(..root.len());
        }
    };
    page.objects.iter_mut().for_each(|listed| cut(&mut listed.key));
    page.prefixes.iter_mut().for_each(cut);
    page.next.iter_mut().for_each(cut);
}
