//! From a request to a reply.

use std::sync::Arc;

use cairn_auth::Caller;
use cairn_base::inflight::{self, About, Request as InFlight};
use cairn_base::{Scope, Shares, Stage, Stages, stage};
use cairn_logs::Intake;
use cairn_logs::follow::Tails;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Method, Request, Response, Version};

use super::body::Body;
use super::error::{self, Failure, RequestIds};
use super::followers::Followers;
use super::get::{self, Read};
use super::inner::Inner;
use super::kind::Kind;
use super::mount::{self, Mounts};
use super::redirect::Redirects;
use super::reply::Reply;
use super::route;
use super::seen::Seen;
use super::target::Target;
use crate::admit::Admit;
use crate::host;
use crate::limits;
use crate::metrics::DoorMetrics;
use crate::serve::{Door, Remote};
use crate::upload::Upload;

/// The HTTP storage API.
#[derive(Clone)]
pub struct HttpDoor {
    inner: Arc<Inner>,
}

impl HttpDoor {
    /// `redirects` if blocks are on other servers that clients can reach.
    pub fn new(admit: Arc<Admit>, metrics: DoorMetrics, redirects: Option<Redirects>) -> HttpDoor {
        let stats = Kind::NAMES.map(|verb| metrics.verb(verb));
        let ids = RequestIds::new(admit.rng().next_u64());
        let append_memory = Shares::new(limits::APPEND_BYTES);
        let log_memory = Shares::new(limits::LOGS_BYTES);
        let intake = Intake::new(admit.fs().clone());
        let (metrics, mounts) = (Arc::clone(metrics.all()), None);
        metrics.count_logs(Arc::clone(intake.counts()));
        let tails = Tails::new(admit.fs().clone());
        metrics.count_followers(Arc::clone(tails.counts()));
        let inner = Inner {
            admit,
            metrics,
            stats,
            ids,
            append_memory,
            intake,
            log_memory,
            tails,
            followers: Followers::default(),
            redirects,
            mounts,
        };
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

    fn call(&self, peer: Remote, request: Request<Upload>) -> Reply {
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
    /// The reply to a GET or HEAD of an object where that needs nothing but memory.
    fn answer_now(
        &self,
        peer: Remote,
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

    async fn answer(&self, peer: Remote, mut request: Request<Upload>) -> Response<Body> {
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
