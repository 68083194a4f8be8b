//! The way of a request through this door.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::stage::{self, Scope};
use cairn_base::{Stage, Stages};
use cairn_fs::Fs;
use futures_util::future::{Either, Ready, ready};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use s3s::{Body, S3Error, S3Result};

use super::address::{self, Address};
use super::counted::counted;
use super::error::{self, Codes, bad_request};
use super::get_object::{Failure, Reading};
use super::library::Library;
use super::operation::Operation;
use super::query::Query;
use super::store::Store;
use super::verdict::{Verdict, Verifier};
use super::{S3Config, headers, operation, owner, sigv2, sigv4};
use crate::admit::Admit;
use crate::host;
use crate::metrics::{Metrics, VerbStats};
use crate::observe::Observer;
use crate::serve::{Door, Peer};
use crate::timing;
use crate::upload::Upload;

/// How long a client waits for a reply without a sign of life.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests of which it never became clear what they are.
const OTHER: &str = "Other";
const UNSEEN: Seen = Seen { verb: usize::MAX, is_anonymous: true };
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The S3 door; cheap to clone.
#[derive(Clone)]
pub struct S3Door {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    domains: Vec<String>,
    verifier: Verifier,
    library: Library,
    observer: Arc<Observer>,
    /// One for each operation, and one for what is none.
    stats: Vec<Arc<VerbStats>>,
    /// The indices of two of them.
    get: usize,
    head: usize,
    /// Where request ids begin: random, so that they differ after a restart.
    start: u64,
    count: AtomicU64,
}

/// What became known of a request on its way.
#[derive(Clone, Copy)]
struct Seen {
    /// The index of its operation; that after all others as long as it is not known.
    verb: usize,
    is_anonymous: bool,
}

/// A request taken apart.
pub(super) struct Parts {
    from: SocketAddr,
    pub(super) method: Method,
    path: String,
    host: Vec<u8>,
    pub(super) address: Address,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) request_id: String,
}

impl S3Door {
    pub fn new(fs: Fs, admit: Arc<Admit>, metrics: &Metrics, config: S3Config) -> S3Door {
        S3Door::with_patience(fs, admit, metrics, config, PATIENCE)
    }

    /// As [`S3Door::new`]; the completion of an upload that takes longer than `patience` is
    /// answered piecemeal, so that the client does not give up.
    pub fn with_patience(
        fs: Fs,
        admit: Arc<Admit>,
        metrics: &Metrics,
        config: S3Config,
        patience: Duration,
    ) -> S3Door {
        let clock = Arc::clone(fs.clock());
        let region = config.region.clone();
        let start = admit.rng().next_u64();
        let store = Store { fs, region: config.region, patience };
        let mut domains = config.domains;
        domains.iter_mut().for_each(|domain| domain.make_ascii_lowercase());
        let verbs = Operation::all().iter().map(|operation| operation.name);
        let stats = verbs.chain([OTHER]).map(|verb| metrics.verb("s3", verb)).collect();
        let inner = Inner {
            observer: Arc::clone(metrics.observer()),
            stats,
            library: Library::new(store.clone()),
            store,
            domains,
            verifier: Verifier::new(admit, clock, region),
            get: Operation::named("GetObject"),
            head: Operation::named("HeadObject"),
            start,
            count: AtomicU64::new(0),
        };
        S3Door { inner: Arc::new(inner) }
    }
}

type Slow = Scope<dyn Future<Output = Response<Body>> + Send>;

impl Door for S3Door {
    type Body = Body;
    type Reply = Either<Ready<Response<Body>>, Slow>;

    fn call(&self, peer: Peer, request: Request<Upload>) -> Self::Reply {
        let mut stages = self.inner.observer.begin(request.headers());
        let (parts, upload) = match self.inner.take_apart(peer, request) {
            Ok(taken) => taken,
            Err(response) => {
                stages.settle();
                let counted = self.inner.count(*response, UNSEEN, &stages);
                return Either::Left(ready(counted));
            }
        };
        if let Some(response) = self.inner.answer_now(&parts, &mut stages) {
            return Either::Left(ready(response));
        }
        let inner = Arc::clone(&self.inner);
        let answer = Box::pin(async move { inner.answer(parts, upload).await });
        Either::Right(Scope::new(Some(stages), answer))
    }
}

impl Inner {
    fn next_id(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", self.start.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    fn take_apart(
        &self,
        peer: Peer,
        request: Request<Upload>,
    ) -> Result<(Parts, Upload), Box<Response<Body>>> {
        let request_id = self.next_id();
        let named = host::check(&request).map_err(|error| bad_request(error.to_string()));
        let (head, upload) = request.into_parts();
        let host = address::host(&head.uri, &head.headers).to_vec();
        let path = head.uri.path().to_owned();
        let parsed = named
            .and_then(|()| Address::parse(&path, &host, &self.domains))
            .and_then(|address| Ok((address, Query::parse(head.uri.query())?)));
        match parsed {
            Ok((address, query)) => {
                let (method, headers) = (head.method, head.headers);
                let from = peer.address;
                let parts = Parts { from, method, path, host, address, query, headers, request_id };
                Ok((parts, upload))
            }
            Err(error) => {
                let response = error::response(&error, &path, &request_id);
                Err(Box::new(finish(response, &request_id)))
            }
        }
    }

    /// The reply to an anonymous request for an object that is in memory.
    fn answer_now(&self, parts: &Parts, stages: &mut Stages) -> Option<Response<Body>> {
        let is_head = parts.method == Method::HEAD;
        let Address::Object { bucket, key } = &parts.address else { return None };
        let plain = (is_head || parts.method == Method::GET)
            && parts.query.is_empty()
            && !parts.headers.contains_key(http::header::AUTHORIZATION)
            && !parts.headers.keys().any(|name| name.as_str().starts_with("x-amz-"));
        if !plain {
            return None;
        }
        let caller = &Caller::anonymous();
        let (query, headers) = (&parts.query, &parts.headers);
        let reading = Reading { caller, bucket, key, query, headers, is_head };
        let response = match reading.now(&self.store.fs)? {
            Ok(response) => finish(response, &parts.request_id),
            Err(Failure::Refused(error)) => self.refused(parts, &error),
            // What is missing takes another look.
            Err(Failure::Store(_)) => return None,
        };
        stages.lap(Stage::Cache);
        let verb = if is_head { self.head } else { self.get };
        Some(self.count(response, Seen { verb, is_anonymous: true }, stages))
    }

    fn refused(&self, parts: &Parts, error: &S3Error) -> Response<Body> {
        let response = error::response(error, &parts.address.resource(), &parts.request_id);
        finish(response, &parts.request_id)
    }

    async fn answer(&self, mut parts: Parts, upload: Upload) -> Response<Body> {
        let (mut seen, announced) = (UNSEEN, upload.announced());
        let response = match self.serve(&mut parts, upload, &mut seen).await {
            Ok(response) => finish(response, &parts.request_id),
            Err(error) => self.refused(&parts, &error),
        };
        if let Some(stats) = self.stats.get(seen.verb)
            && response.status().is_success()
        {
            stats.received(announced.unwrap_or(0));
        }
        let stages = stage::snapshot().expect("the reply is a scope");
        self.count(response, seen, &stages)
    }

    /// Says how long a reply took, and counts it: now, or when its last byte goes.
    fn count(&self, mut response: Response<Body>, seen: Seen, stages: &Stages) -> Response<Body> {
        timing::say(&mut response, stages, seen.is_anonymous);
        let stats = self.stats.get(seen.verb).or(self.stats.last()).expect("there is one");
        let status = response.status().as_u16();
        tracing::debug!(
            trace = %stages.trace,
            status,
            elapsed_us = stages.total().as_micros() as u64,
        );
        response.map(|body| counted(body, stats, status, stages))
    }

    async fn serve(
        &self,
        parts: &mut Parts,
        upload: Upload,
        seen: &mut Seen,
    ) -> S3Result<Response<Body>> {
        let verdict = stage::time(Stage::Admit, self.judge(parts)).await?;
        seen.is_anonymous = verdict.caller == Caller::anonymous();
        if verdict.is_presigned {
            sigv4::strip(&mut parts.query);
            sigv2::strip(&mut parts.query);
            headers::unhoist(&mut parts.query, &mut parts.headers)?;
        }
        headers::check(&parts.headers)?;
        let copies = parts.headers.contains_key("x-amz-copy-source");
        let operation =
            operation::resolve(&parts.method, &parts.address, &mut parts.query, copies)?;
        seen.verb = operation.index();
        owner::check_expected(&self.store.fs, &parts.address, &parts.headers).await?;
        match (operation.name, &parts.address) {
            ("GetObject" | "HeadObject", Address::Object { bucket, key }) => {
                let is_head = parts.method == Method::HEAD;
                let (query, headers, caller) = (&parts.query, &parts.headers, &verdict.caller);
                let reading = Reading { caller, bucket, key, query, headers, is_head };
                match reading.run(&self.store.fs).await {
                    Ok(response) => Ok(response),
                    Err(Failure::Refused(error)) => Err(error),
                    Err(Failure::Store(error)) => {
                        Err(self.store.refused(caller, &[bucket], error, Codes::object()).await)
                    }
                }
            }
            _ => self.library.ask(parts, operation, verdict, upload).await,
        }
    }

    async fn judge(&self, parts: &Parts) -> S3Result<Verdict> {
        let request = sigv4::Request {
            method: &parts.method,
            path: &parts.path,
            decoded_path: &address::decode(&parts.path)?,
            query: &parts.query,
            headers: &parts.headers,
            host: &parts.host,
        };
        if let Some(claim) = self.verifier.claim_of_version_2(&request)? {
            return self
                .verifier
                .judge_version_2(&request, &parts.address, parts.from, claim)
                .await;
        }
        match self.verifier.claim(&request)? {
            None => Verifier::anonymous(&request),
            Some(claim) => self.verifier.judge(&request, parts.from, claim).await,
        }
    }
}

fn finish(mut response: Response<Body>, request_id: &str) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
