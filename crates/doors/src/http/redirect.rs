//! Redirects clients to the data: `?redirect` and `?download-info` of an object.
//!
//! ```text
//!   GET /storage/<bucket>/<path>?redirect ──► 307 Location: <chunkserver>/files/<link>
//! ```

use std::sync::Arc;
use std::time::Duration;

use cairn_auth::LinkKey;
use cairn_base::{Error, GroupId, Result, Rng, Timestamp};
use cairn_fs::rows::Place;
use cairn_fs::{Layout, Object};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, ETAG, LAST_MODIFIED, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::get::{ReadRequest, Reply, disposition};
use super::link::Link;
use super::target::Query;
use super::{Body, conditions, headers};
use crate::limits;

/// The key for links, and the addresses to which they lead.
pub struct Redirects {
    key: LinkKey,
    rng: Arc<dyn Rng>,
    place: Box<dyn Fn(GroupId) -> Option<String> + Send + Sync>,
}

impl Redirects {
    /// Returns the maker of links. `place` returns the URL of a chunkserver that has all blocks of
    /// a group, if there is one with a door for clients.
    pub fn new(
        key: LinkKey,
        rng: Arc<dyn Rng>,
        place: impl Fn(GroupId) -> Option<String> + Send + Sync + 'static,
    ) -> Redirects {
        Redirects { key, rng, place: Box::new(place) }
    }
}

/// The common part of the links of one request.
pub struct Maker<'a> {
    /// `None` if all blocks are here.
    redirects: Option<&'a Redirects>,
    object: &'a Object,
    place: (&'a str, &'a str),
    lifetime: Duration,
    /// Time at which the links expire, in seconds.
    pub expires: i64,
    headers: HeaderMap,
}

impl<'a> Maker<'a> {
    /// Returns the maker of a request's links.
    ///
    /// # Errors
    /// `Invalid` for a lifetime that is not allowed.
    pub fn new(
        redirects: Option<&'a Redirects>,
        object: &'a Object,
        place: (&'a str, &'a str),
        query: &Query,
        now: Timestamp,
    ) -> Result<Maker<'a>> {
        let lifetime = lifetime(query)?;
        let mut own = HeaderMap::new();
        headers::validators(object, "", &mut own);
        headers::describe(object, &mut own);
        disposition(query, place.1, &mut own);
        // These headers are the same for all objects, or have a field of their own.
        for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, X_CONTENT_TYPE_OPTIONS] {
            own.remove(name);
        }
        // The second that has begun does not count.
        let expires = now.secs().saturating_add(1 + lifetime.as_secs().cast_signed());
        Ok(Maker { redirects, object, place, lifetime, expires, headers: own })
    }

    /// Returns a chunkserver for `layout`, and the path there; `None` if the layout must be fetched
    /// here. Keeps the blocks for the default lifetime of links.
    pub fn link(&self, layout: Layout, etag: String) -> Option<(String, String)> {
        let group = layout.extents().iter().find_map(|extent| match extent.place {
            Place::Block { group, .. } => Some(group),
            _ => None,
        });
        let redirects = self.redirects?;
        let url = (redirects.place)(group?)?;
        let (bucket, key) = self.place;
        let link = Link {
            bucket: bucket.into(),
            key: key.into(),
            expires: self.expires,
            etag,
            modified: self.object.inode().mtime,
            headers: self.headers.clone(),
            layout,
        };
        let path = link.to_path(&redirects.key, &*redirects.rng)?;
        self.object.hold(self.lifetime.min(limits::LINK_LIFETIME) + Duration::from_secs(1));
        Some((url.trim_end_matches('/').into(), path))
    }
}

/// Returns the lifetime from the query's `expires`, in seconds.
fn lifetime(query: &Query) -> Result<Duration> {
    let Some(text) = query.get("expires") else { return Ok(limits::LINK_LIFETIME) };
    let seconds = text.parse::<u64>().ok();
    let time = seconds
        .map(Duration::from_secs)
        .filter(|time| (Duration::from_secs(1)..=limits::LINK_LIFETIME_MAX).contains(time));
    let most = limits::LINK_LIFETIME_MAX.as_secs();
    time.ok_or_else(|| Error::Invalid(format!("expires: use 1 to {most} seconds")))
}

/// Returns the target of a GET's redirect. It is `None` for objects that are served here (small
/// objects, those in very many pieces, and all objects if no chunkserver has a door), and if a
/// condition decides.
pub async fn redirect(
    redirects: Option<&Redirects>,
    object: &Object,
    read: &ReadRequest<'_>,
    place: (&str, &str),
    query: &Query,
    now: Timestamp,
) -> Result<Option<Reply>> {
    let maker = Maker::new(redirects, object, place, query, now)?;
    let etag = object.etag();
    let modified = object.inode().mtime;
    if conditions::check_read(read.headers, &etag, modified, object.size()).is_err() {
        return Ok(None);
    }
    let Some(layout) = object.layout(limits::LINK_EXTENTS).await? else { return Ok(None) };
    let Some((url, path)) = maker.link(layout, etag) else { return Ok(None) };
    let Ok(location) = HeaderValue::try_from(format!("{url}{path}")) else { return Ok(None) };
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    reply.headers_mut().insert(LOCATION, location);
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Some(reply))
}
