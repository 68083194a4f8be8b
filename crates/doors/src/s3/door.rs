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
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue, RANGE};
use http::{Method, Request, Response, StatusCode};
use s3s::{Body, S3Error, S3Result};

use super::address::{self, Address};
use super::counted::counted;
use super::document::{self, Told};
use super::error::{Codes, bad_request, invalid, refuse_with};
use super::get_object::{Failure, Reading};
use super::library::Library;
use super::query::Query;
use super::store::Store;
use super::table::{Answer, Operation};
use super::verbs::get_bucket;
use super::verdict::{Verdict, Verifier};
use super::{Classes, S3Config, headers, operation, owner, sigv2, sigv4};
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
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// The S3 door; cheap to clone.
#[derive(Clone)]
pub struct S3Door {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    domains: Vec<String>,
    classes: Classes,
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
    host_id: String,
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
    host_id: String,
    is_tls: bool,
}

impl Parts {
    /// What an error document tells of this request.
    pub(super) fn told(&self) -> Told {
        let (bucket, key) = match &self.address {
            Address::Root => (None, None),
            Address::Bucket(bucket) => (Some(bucket), None),
            Address::Object { bucket, key } => (Some(bucket), Some(key)),
        };
        let mut names = self.headers.keys().map(HeaderName::as_str);
        let of_source = names.any(|name| name.starts_with("x-amz-copy-source-if-"));
        let range = self.headers.get(RANGE).or(self.headers.get("x-amz-copy-source-range"));
        Told {
            resource: self.address.resource(),
            request_id: self.request_id.clone(),
            host_id: self.host_id.clone(),
            bucket: bucket.cloned(),
            key: key.cloned(),
            upload: self.query.get("uploadId").map(str::to_owned),
            range: range.and_then(|range| range.to_str().ok()).map(str::to_owned),
            of_source,
        }
    }

    /// Where clients find an object: as this request went, in full.
    pub(super) fn url(&self) -> Option<String> {
        let Address::Object { bucket, key } = &self.address else { return None };
        let scheme = if self.is_tls { "https" } else { "http" };
        let host = std::str::from_utf8(&self.host).ok().filter(|host| !host.is_empty())?;
        let mut url = format!("{scheme}://{host}/");
        let path = address::decode(&self.path).ok()?;
        if !self.address.is_by_host(&path) {
            url.push_str(bucket);
            url.push('/');
        }
        sigv4::encode_into(&mut url, key.as_bytes(), false);
        Some(url)
    }
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
            classes: config.classes,
            verifier: Verifier::new(admit, clock, region),
            get: Operation::named("GetObject"),
            head: Operation::named("HeadObject"),
            start,
            count: AtomicU64::new(0),
            host_id: format!("H{start:016x}"),
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
        // A letter first: no parser takes it for a number.
        format!("R{:016X}", self.start.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
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
                let (host_id, is_tls) = (self.host_id.clone(), peer.tls);
                let parts = Parts {
                    from: peer.address,
                    method,
                    path,
                    host,
                    address,
                    query,
                    headers,
                    request_id,
                    host_id,
                    is_tls,
                };
                Ok((parts, upload))
            }
            Err(error) => {
                let host_id = self.host_id.clone();
                let id = request_id.clone();
                let told = Told { resource: path, request_id, host_id, ..Told::default() };
                let mut response = document::response(&error, &told);
                leave(Some(upload), &head.headers, &mut response);
                Err(Box::new(self.finish(response, &id)))
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
            Ok(response) => self.finish(response, &parts.request_id),
            Err(Failure::Refused(error)) => self.refused(parts, &error),
            // What is missing takes another look.
            Err(Failure::Store(_)) => return None,
        };
        stages.lap(Stage::Cache);
        let verb = if is_head { self.head } else { self.get };
        Some(self.count(response, Seen { verb, is_anonymous: true }, stages))
    }

    fn refused(&self, parts: &Parts, error: &S3Error) -> Response<Body> {
        self.finish(document::response(error, &parts.told()), &parts.request_id)
    }

    async fn answer(&self, mut parts: Parts, upload: Upload) -> Response<Body> {
        let (mut seen, announced) = (UNSEEN, upload.announced());
        let mut upload = Some(upload);
        let mut response = match self.serve(&mut parts, &mut upload, &mut seen).await {
            Ok(response) => self.finish(response, &parts.request_id),
            Err(error) => self.refused(&parts, &error),
        };
        leave(upload, &parts.headers, &mut response);
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
        upload: &mut Option<Upload>,
        seen: &mut Seen,
    ) -> S3Result<Response<Body>> {
        let verdict = stage::time(Stage::Admit, self.judge(parts)).await?;
        seen.is_anonymous = verdict.caller == Caller::anonymous();
        if verdict.is_presigned {
            sigv4::strip(&mut parts.query);
            sigv2::strip(&mut parts.query);
            headers::unhoist(&mut parts.query, &mut parts.headers)?;
        }
        let copies = parts.headers.contains_key("x-amz-copy-source");
        let operation =
            operation::resolve(&parts.method, &parts.address, &mut parts.query, copies)?;
        seen.verb = operation.index();
        headers::check(operation, &parts.headers, self.classes)?;
        check_source(&parts.headers)?;
        owner::check_expected(&self.store.fs, &verdict.caller, &parts.address, &parts.headers)
            .await?;
        if let Some(answer) = &operation.answer {
            return self.tell(parts, answer, &verdict.caller).await;
        }
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

    /// Answers a question about a feature that is not there, to callers who may know the bucket.
    async fn tell(
        &self,
        parts: &Parts,
        answer: &Answer,
        caller: &Caller,
    ) -> S3Result<Response<Body>> {
        let Some(bucket) = parts.address.bucket() else {
            return Err(invalid("this parameter is of a bucket"));
        };
        get_bucket::inspect(&self.store, caller, bucket).await?;
        let root = match answer {
            Answer::Missing(code, message) => {
                return Err(refuse_with(code, StatusCode::NOT_FOUND, *message));
            }
            Answer::Document(root) => root,
        };
        let inside = match *root {
            "RequestPaymentConfiguration" => "<Payer>BucketOwner</Payer>",
            _ => "",
        };
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</{root}>"
        );
        let mut response = Response::new(Body::from(text));
        let kind = HeaderValue::from_static("application/xml");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    }

    fn finish(&self, mut response: Response<Body>, request_id: &str) -> Response<Body> {
        for (name, id) in [(REQUEST_ID, request_id), (HOST_ID, &self.host_id)] {
            if let Ok(id) = HeaderValue::from_str(id) {
                response.headers_mut().insert(name, id);
            }
        }
        response
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

/// Takes leave of a body that was not asked for. A client that is still sending gets to see the
/// reply, and is told if the connection ends. One that waits for `100 Continue` sends nothing.
fn leave(upload: Option<Upload>, headers: &HeaderMap, response: &mut Response<Body>) {
    if let Some(upload) = upload
        && !headers.contains_key(EXPECT)
        && !upload.linger()
    {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Whether the source of a copy can be decoded: what the library cannot decode it takes as it is.
fn check_source(headers: &HeaderMap) -> S3Result<()> {
    let Some(source) = headers::text(headers, "x-amz-copy-source")? else { return Ok(()) };
    let bad = |_| invalid("Invalid copy source encoding: x-amz-copy-source");
    address::decode(source).map(drop).map_err(bad)
}
