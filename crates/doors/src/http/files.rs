//! The door of a chunkserver: `GET` and `HEAD` of `/files/<link>`, `/healthz`, `/readyz`, and
//! `/metrics` for clients on this machine. It knows no user, no name and no metadata: the link
//! states what may be fetched.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::LinkKey;
use cairn_base::inflight::{About, Request as InFlight};
use cairn_base::{Clock, Error, Result, Rng, Scope, Timestamp, stage};
use cairn_fs::{BlockReader, ByteStream, Sending};
use http::header::{
    ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, ETAG, HeaderName,
    LAST_MODIFIED, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};

use super::error::{self, Failure, RequestIds};
use super::get::{self, ReadRequest, Source};
use super::health::{self, Readiness};
use super::link::{self, Link};
use super::served_request::{ServedRequest, is_local};
use super::{Body, Reply, cors, headers, no_content};
use crate::cors::is_preflight;
use crate::dates;
use crate::host;
use crate::limits;
use crate::metrics::{DoorMetrics, Metrics, VerbStats};
use crate::serve::{Door, Remote};
use crate::upload::Upload;

const METHODS: &str = "GET, HEAD";
/// Lets any page read the object: the rules of the bucket were checked when the page got the link.
const OPEN: [(HeaderName, HeaderValue); 2] = [
    (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    (ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(cors::POLICY.exposed)),
];

/// Serves the objects in links, out of blocks.
#[derive(Clone)]
pub struct FilesDoor {
    inner: Arc<Inner>,
}

struct Inner {
    key: LinkKey,
    blocks: Arc<dyn BlockReader>,
    sending: Arc<Sending>,
    clock: Arc<dyn Clock>,
    ids: RequestIds,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    get: Arc<VerbStats>,
    head: Arc<VerbStats>,
    other: Arc<VerbStats>,
}

impl FilesDoor {
    pub fn new(
        key: LinkKey,
        blocks: Arc<dyn BlockReader>,
        clock: Arc<dyn Clock>,
        rng: &dyn Rng,
        readiness: Readiness,
        metrics: DoorMetrics,
    ) -> FilesDoor {
        let ids = RequestIds::new(rng.next_u64());
        let [get, head, other] = ["get", "head", "other"].map(|verb| metrics.verb(verb));
        let metrics = Arc::clone(metrics.all());
        let sending = Sending::new(limits::SENDING_BYTES);
        let inner =
            Inner { key, blocks, sending, clock, ids, readiness, metrics, get, head, other };
        FilesDoor { inner: Arc::new(inner) }
    }
}

impl Door for FilesDoor {
    type Body = Body;
    type Reply = Reply;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Reply {
        let stages = self.inner.metrics.observer().begin(request.headers(), peer.address.ip());
        let (inner, method) = (Arc::clone(&self.inner), request.method().clone());
        let about = move || About {
            door: "files",
            operation: method.to_string().into(),
            // The link itself is not shown, as it opens the object to its holder.
            object: link::PATH.to_owned(),
            client: peer.address.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let answer = Box::pin(async move { inner.answer(peer, request).await });
        Reply::Later(Scope::of(stages, in_flight, answer))
    }
}

impl Inner {
    async fn answer(&self, peer: Remote, request: Request<Upload>) -> Response<Body> {
        let named = host::check(&request);
        let (parts, upload) = request.into_parts();
        let (method, path) = (&parts.method, parts.uri.path());
        let is_anonymous = false;
        let outcome = match named {
            Ok(()) => self.route(method, &parts.uri, &parts.headers, peer).await,
            Err(error) => Err(error.into()),
        };
        let mut reply = outcome.unwrap_or_else(|failure| {
            error::failed(failure, &parts, upload, is_anonymous, &self.ids)
        });
        if path.starts_with(link::PATH) {
            reply.headers_mut().extend(OPEN.map(|(name, value)| (Some(name), value)));
        }
        // The link itself is not shown, as it opens the object to its holder.
        let (path, stats) = match (path.starts_with(link::PATH), method) {
            (true, &Method::GET) => (link::PATH, &self.get),
            (true, &Method::HEAD) => (link::PATH, &self.head),
            (true, _) => (link::PATH, &self.other),
            (false, _) => (path, &self.other),
        };
        let stages = stage::snapshot().expect("the reply is a scope");
        ServedRequest { peer, method, path, is_anonymous, stages }.finish(reply, stats)
    }

    async fn route(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Remote,
    ) -> Result<Response<Body>, Failure> {
        let path = uri.path();
        let token = path.strip_prefix(link::PATH);
        if token.is_none() && !["/healthz", "/readyz", "/metrics"].contains(&path) {
            return Err(Error::NotFound(
                "this path: this door serves only links of redirects".into(),
            )
            .into());
        }
        if token.is_some() && is_preflight(method, headers) {
            return Ok(preflight());
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Failure::Method { allow: METHODS });
        }
        match token {
            None if path == "/metrics" => {
                let may_see = is_local(peer, uri, headers);
                Ok(health::metrics(&self.metrics, headers, may_see, false).await?)
            }
            None if path == "/readyz" => Ok(health::readiness("chunkserver", (self.readiness)())),
            None => Ok(health::health()),
            Some(token) => Ok(self.file(token, method, headers, peer).await?),
        }
    }

    async fn file(
        &self,
        token: &str,
        method: &Method,
        headers: &HeaderMap,
        peer: Remote,
    ) -> Result<Response<Body>> {
        let link = Link::open(token, &self.key, self.clock.now())?;
        tracing::debug!(peer = %peer.address, %method, bucket = link.bucket, key = link.key);
        let linked = LinkedObject {
            link: Arc::new(link),
            blocks: Arc::clone(&self.blocks),
            sending: Arc::clone(&self.sending),
        };
        let key = &linked.link.key;
        let read = ReadRequest { method, headers, query: None, key, is_website: false };
        let (head, body) = get::reply(&read, &linked, || self.ids.next())?.into_parts();
        match body.primed().await {
            Ok(body) => Ok(Response::from_parts(head, body)),
            Err(Error::NotFound(_)) => {
                let text = "the object: it was changed or deleted since this link was made";
                Err(Error::NotFound(text.into()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Answers any preflight without looking at the link: a page that follows a redirect may send the
/// headers that were allowed before.
fn preflight() -> Response<Body> {
    let mut reply = no_content();
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    reply
}

/// A link with the blocks that it names.
#[derive(Clone)]
struct LinkedObject {
    link: Arc<Link>,
    blocks: Arc<dyn BlockReader>,
    sending: Arc<Sending>,
}

impl Source for LinkedObject {
    fn etag(&self) -> String {
        self.link.etag.clone()
    }

    fn modified(&self) -> Timestamp {
        self.link.modified
    }

    fn size(&self) -> u64 {
        self.link.layout.size()
    }

    fn validators(&self, etag: &str, headers: &mut HeaderMap) {
        headers.insert(ETAG, headers::quoted(etag));
        headers.insert(LAST_MODIFIED, dates::last_modified(self.link.modified));
        // A site to which a page links must not learn the link by which the page was fetched.
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if let Some(value) = self.link.headers.get(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, value.clone());
        }
    }

    /// True, as the link itself is the right to read.
    fn is_open(&self) -> bool {
        true
    }

    fn differs_by_origin(&self) -> bool {
        false
    }

    fn describe(&self, headers: &mut HeaderMap) {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, value) in &self.link.headers {
            headers.insert(name, value.clone());
        }
    }

    fn read_now(&self, range: std::ops::Range<u64>) -> Option<Bytes> {
        range.is_empty().then(Bytes::new)
    }

    fn send(&self, range: std::ops::Range<u64>) -> ByteStream {
        self.link.layout.send(&self.blocks, range, &self.sending)
    }
}
