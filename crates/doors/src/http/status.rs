//! The status door of a process without other doors: `/healthz`, `/readyz` and `/metrics`. It
//! answers any client: its replies have no names of users, buckets or objects.

use std::sync::Arc;

use cairn_base::inflight::{About, Request as InFlight};
use cairn_base::{Error, Rng, Scope, stage};
use http::{HeaderMap, Method, Request, Response};

use super::error::{self, Failure, RequestIds};
use super::health::{self, Readiness};
use super::served_request::ServedRequest;
use super::{Body, Reply};
use crate::host;
use crate::metrics::{DoorMetrics, Metrics, VerbStats};
use crate::serve::{Door, Remote};
use crate::upload::Upload;

const METHODS: &str = "GET, HEAD";

/// Answers with the status of a process of one role.
#[derive(Clone)]
pub struct StatusDoor {
    inner: Arc<Inner>,
}

struct Inner {
    role: &'static str,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    stats: Arc<VerbStats>,
    ids: RequestIds,
}

impl StatusDoor {
    pub fn new(
        role: &'static str,
        readiness: Readiness,
        rng: &dyn Rng,
        metrics: DoorMetrics,
    ) -> StatusDoor {
        let (stats, metrics) = (metrics.verb("get"), Arc::clone(metrics.all()));
        let ids = RequestIds::new(rng.next_u64());
        StatusDoor { inner: Arc::new(Inner { role, readiness, metrics, stats, ids }) }
    }
}

impl Door for StatusDoor {
    type Body = Body;
    type Reply = Reply;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Reply {
        let stages = self.inner.metrics.observer().begin(request.headers(), peer.address.ip());
        let (inner, method) = (Arc::clone(&self.inner), request.method().clone());
        let about = move || About {
            door: "status",
            operation: method.to_string().into(),
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
        let outcome = match named {
            Ok(()) => self.route(method, path, &parts.headers).await,
            Err(error) => Err(error.into()),
        };
        let reply = outcome
            .unwrap_or_else(|failure| error::failed(failure, &parts, upload, false, &self.ids));
        let stages = stage::snapshot().expect("the reply is a scope");
        ServedRequest { peer, method, path, is_anonymous: false, stages }.finish(reply, &self.stats)
    }

    async fn route(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        if !["/healthz", "/readyz", "/metrics"].contains(&path) {
            let what = "this path: this door has /healthz, /readyz and /metrics only";
            return Err(Error::NotFound(what.into()).into());
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Failure::Method { allow: METHODS });
        }
        Ok(match path {
            "/healthz" => health::health(),
            "/readyz" => health::readiness(self.role, (self.readiness)()),
            _ => health::metrics(&self.metrics, headers, true, false).await?,
        })
    }
}
