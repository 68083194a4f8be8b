//! The HTTP storage API: `/storage/<bucket>/<path>`, health, metrics and administration.
//!
//! ```text
//!   request ──► Caller (admit) ──► Target (path, decoded once) ──► a verb ──► reply
//!      └── GET, HEAD of what is in memory: the same, without waiting for anything
//!
//!   /files/<link>, at a chunkserver ──► files ──► reply
//! ```

mod admin;
mod append;
mod body;
mod buckets;
mod conditions;
mod content_type;
mod date;
mod delete;
mod digest;
mod dump;
mod error;
mod exports;
mod files;
mod get;
mod headers;
mod health;
mod info;
mod link;
mod list;
mod mount;
mod move_object;
mod parameters;
mod put;
mod range;
mod redirect;
mod reply;
mod route;
mod seen;
mod site;
mod target;

pub use body::Body;
pub use files::FilesDoor;
pub use mount::{MountStream, Mounted, Mounts, until_revoked};
pub use redirect::Redirects;
pub use reply::Reply;

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::inflight::{self, About, Request as InFlight};
use cairn_base::{Scope, Shares, Stage, Stages, stage};
use cairn_fs::Fs;
use http::header::{CONNECTION, EXPECT, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};

use crate::admit::Admit;
use crate::host;
use crate::limits;
use crate::metrics::{Metrics, VerbStats};
use crate::serve::{Door, Peer};
use crate::upload::Upload;

use date::rfc3339;
use error::{Failure, RequestIds};
use get::Read;
use reply::{json_of, no_content};
use seen::Seen;
use target::Target;

const OCTET_STREAM: &str = "application/octet-stream";
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The HTTP storage API.
#[derive(Clone)]
pub struct HttpDoor {
    inner: Arc<Inner>,
}

struct Inner {
    admit: Arc<Admit>,
    metrics: Arc<Metrics>,
    stats: [Arc<VerbStats>; Kind::NAMES.len()],
    ids: RequestIds,
    /// Memory for bodies that are read whole: records on their way to the end of an object, and
    /// JSON.
    append_memory: Arc<Shares>,
    /// Where clients may be sent; none where all is here.
    redirects: Option<Redirects>,
    /// Takes mounts; none where they cannot be served.
    mounts: Option<Mounts>,
}

/// What a request counts as in the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Get,
    Head,
    Put,
    Append,
    Move,
    Delete,
    List,
    Bucket,
    Admin,
    Other,
}

impl Kind {
    const NAMES: [&str; 10] =
        ["get", "head", "put", "append", "move", "delete", "list", "bucket", "admin", "other"];

    fn of(parts: &Parts, target: &Target<'_>) -> Kind {
        let moves = parts.uri.query().is_some_and(|query| query.contains(route::MOVE_TO));
        match (target, parts.method.as_str()) {
            (Target::Object { .. }, "GET") => Kind::Get,
            (Target::Object { .. }, "HEAD") => Kind::Head,
            (Target::Object { .. }, "PUT") => Kind::Put,
            (Target::Object { .. }, "POST") if moves => Kind::Move,
            (Target::Object { .. }, "POST") => Kind::Append,
            (Target::Object { .. }, "DELETE") => Kind::Delete,
            (Target::Prefix { .. }, "GET" | "HEAD") => Kind::List,
            (Target::Prefix { .. } | Target::Bucket(_) | Target::Buckets, _) => Kind::Bucket,
            (Target::Admin(_), _) => Kind::Admin,
            _ => Kind::Other,
        }
    }
}

impl HttpDoor {
    /// `redirects` if blocks are on other servers that clients can reach.
    pub fn new(admit: Arc<Admit>, metrics: Arc<Metrics>, redirects: Option<Redirects>) -> HttpDoor {
        let stats = Kind::NAMES.map(|verb| metrics.verb("http", verb));
        let ids = RequestIds::new(admit.rng().next_u64());
        let append_memory = Shares::new(limits::APPEND_BYTES);
        let mounts = None;
        let inner = Inner { admit, metrics, stats, ids, append_memory, redirects, mounts };
        HttpDoor { inner: Arc::new(inner) }
    }

    /// Also takes mounts.
    ///
    /// # Panics
    /// If it is a clone, or was cloned.
    pub fn with_mounts(mut self, mounts: Mounts) -> HttpDoor {
        Arc::get_mut(&mut self.inner).expect("a door that nobody uses yet").mounts = Some(mounts);
        self
    }
}

impl Door for HttpDoor {
    type Body = Body;
    type Reply = Reply;

    fn call(&self, peer: Peer, request: Request<Upload>) -> Reply {
        let mut stages = self.inner.metrics.observer().begin(request.headers());
        if let Some(response) = self.inner.answer_now(peer, &request, &mut stages) {
            return Reply::Now(Some(response));
        }
        let (inner, method) = (Arc::clone(&self.inner), request.method().clone());
        let uri = request.uri().clone();
        let about = move || About {
            door: "http",
            operation: method.to_string().into(),
            object: uri.path().to_owned(),
            client: peer.address.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let answer = Box::pin(async move { inner.answer(peer, request).await });
        Reply::Later(Scope::of(stages, in_flight, answer))
    }
}

/// Says of the request in flight who asks.
fn known(caller: &Caller) {
    if !caller.is_anonymous() {
        inflight::by(caller.user());
    }
}

impl Inner {
    fn fs(&self) -> &Fs {
        self.admit.fs()
    }

    /// The reply to a GET or HEAD of an object where that needs nothing but memory.
    fn answer_now(
        &self,
        peer: Peer,
        request: &Request<Upload>,
        stages: &mut Stages,
    ) -> Option<Response<Body>> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        if !matches!(*method, Method::GET | Method::HEAD) || uri.query().is_some() {
            return None;
        }
        host::check(request).ok()?;
        let caller = self.admit.caller_now(headers, peer)?;
        let Ok(Target::Object { bucket, key }) = Target::parse(uri.path()) else { return None };
        let opened = self.fs().open_now(&caller, &bucket, &key)?;
        if self.redirects.is_some() && opened.as_ref().is_ok_and(|object| object.bucket().redirect)
        {
            return None;
        }
        stages.lap(Stage::Meta);
        let read = Read { method, headers, query: None, key: &key };
        let reply = opened.and_then(|object| get::reply(&read, &object, || self.ids.next()));
        let is_anonymous = caller.is_anonymous();
        let reply = reply
            .unwrap_or_else(|error| error::reply(error.into(), is_anonymous, &self.ids.next()));
        let kind = if *method == Method::HEAD { Kind::Head } else { Kind::Get };
        stages.lap(Stage::Cache);
        let (path, stages) = (uri.path(), *stages);
        let seen = Seen { peer, method, path, is_anonymous, stages };
        Some(seen.finish(reply, &self.stats[kind as usize]))
    }

    async fn answer(&self, peer: Peer, mut request: Request<Upload>) -> Response<Body> {
        let named = host::check(&request);
        let upgrade = mount::wanted(&mut request);
        let (parts, mut upload) = request.into_parts();
        let parsed = Target::parse(parts.uri.path());
        let kind = parsed.as_ref().map_or(Kind::Other, |target| Kind::of(&parts, target));
        let stats = &self.stats[kind as usize];
        // Until it is known better: so a refusal says nothing of its time.
        let mut is_anonymous = true;
        let admitted = self.admit.caller(&parts.headers, peer);
        let admitted = stage::time(Stage::Admit, admitted).await;
        let outcome = match admitted {
            Err(refused) => Err(Failure::from(refused)),
            Ok(caller) => {
                is_anonymous = caller.is_anonymous();
                known(&caller);
                match named.and(parsed) {
                    Err(error) => Err(error.into()),
                    Ok(Target::Mount) if upgrade.is_some() => {
                        let asked = (&parts, &caller);
                        mount::take(&self.admit, self.mounts.as_ref(), peer, asked, upgrade)
                            .map_err(Failure::from)
                    }
                    Ok(target) => {
                        let request =
                            route::Request { peer, parts: &parts, caller: &caller, stats };
                        route::route(self, &request, target, &mut upload).await
                    }
                }
            }
        };
        let reply = outcome.unwrap_or_else(|failure| {
            let goes_on = parts.headers.contains_key(EXPECT) || upload.linger();
            let mut reply = error::reply(failure, is_anonymous, &self.ids.next());
            if !goes_on && parts.version < Version::HTTP_2 {
                reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            reply
        });
        let stages = stage::snapshot().expect("the reply is a scope");
        let (method, path) = (&parts.method, parts.uri.path());
        Seen { peer, method, path, is_anonymous, stages }.finish(reply, stats)
    }
}
