//! The way of a request through this door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::inflight::{self, About, Request as InFlight};
use cairn_base::waits;
use cairn_base::{Scope, Shares, Stage, Stages, stage};
use cairn_fs::{Account, Fs, party_of};
use futures_util::future::{Either, Ready, ready};
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::address::{self, Address};
use super::body;
use super::call::Call;
use super::document::{self, ErrorContext};
use super::error::{bad_request, reason, refuse, slow_down};
use super::header_rules::{self, Classes};
use super::integrity::Integrity;
use super::operation::{Input, Operation};
use super::parts::Parts;
use super::payload::{Mode, Payload, decoded_length};
use super::pending_body::counted;
use super::preflight::Pages;
use super::query::Query;
use super::rights::authorize;
use super::store::PublicAcl;
use super::store::Store;
use super::table::{TABLE, place_of};
use super::verbs::get_object::{Failure, Reading};
use super::verdict::{Verdict, Verifier};
use super::{aws_query, headers, owner, preflight, route, sigv2, sigv4};
use crate::admit::{Admit, anonymous};
use crate::metrics::{DoorMetrics, VerbStats};
use crate::observe::Observer;
use crate::pacing::{self, PacingAccount};
use crate::places::NoPlace;
use crate::room::Room;
use crate::serve::{Door, Remote};
use crate::upload::Upload;
use crate::witness::Witness;
use crate::{host, limits, timing};

/// Settings of the door.
#[derive(Clone, Debug, Default)]
pub struct S3Config {
    /// Domains of this server, below which buckets are found as `<bucket>.<domain>`.
    pub domains: Vec<String>,
    /// The region in signatures and replies; if empty, signatures may have any, and replies have
    /// `us-east-1`.
    pub region: String,
    /// The treatment of requested storage classes.
    pub classes: Classes,
    /// The treatment of the ACL `public-read` of a bucket.
    pub public_acl: PublicAcl,
    /// Origins of pages that are allowed whatever the rules of a bucket are: those of the console.
    pub pages: Vec<String>,
}

/// Name for requests whose operation never became clear.
const OTHER: &str = "Other";
const UNSEEN: RequestLabels = RequestLabels { verb: usize::MAX, is_anonymous: true };
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
    pages: Pages,
    verifier: Verifier,
    /// Memory for XML bodies.
    xml_memory: Arc<Shares>,
    observer: Arc<Observer>,
    /// Counters of each operation, and of requests without one.
    stats: Vec<Arc<VerbStats>>,
    /// Indices of GetObject and HeadObject.
    get: usize,
    head: usize,
    /// Beginning of request ids: random, so that they differ after a restart.
    start: u64,
    count: AtomicU64,
    host_id: String,
}

/// Labels under which a request is counted, as far as they are known.
#[derive(Clone, Copy)]
struct RequestLabels {
    /// Index of its operation; the index after all others while the operation is unknown.
    verb: usize,
    is_anonymous: bool,
}

/// A request that may go on, with the parts needed for that.
struct AdmittedRequest {
    operation: &'static Operation,
    caller: Caller,
    mode: Mode,
    /// Length of the content within `aws-chunked`.
    decoded: Option<u64>,
}

impl S3Door {
    pub fn new(fs: Fs, admit: Arc<Admit>, metrics: &DoorMetrics, config: S3Config) -> S3Door {
        S3Door::with_patience(fs, admit, metrics, config, waits::S3_SILENCE)
    }

    /// Returns a door like [`S3Door::new`]. A completion of an upload that takes longer than
    /// `patience` is answered piecemeal, so that the client does not give up.
    pub fn with_patience(
        fs: Fs,
        admit: Arc<Admit>,
        metrics: &DoorMetrics,
        config: S3Config,
        patience: Duration,
    ) -> S3Door {
        let clock = Arc::clone(fs.clock());
        let region = config.region.clone();
        let start = admit.rng().next_u64();
        let store = Store { fs, region: config.region, patience, public_acl: config.public_acl };
        let mut domains = config.domains;
        domains.iter_mut().for_each(|domain| domain.make_ascii_lowercase());
        let verbs = TABLE.iter().map(|operation| operation.name);
        let stats = verbs.chain([OTHER]).map(|verb| metrics.verb(verb)).collect();
        let inner = Inner {
            observer: Arc::clone(metrics.all().observer()),
            stats,
            xml_memory: Shares::new(limits::XML_BYTES),
            store,
            domains,
            classes: config.classes,
            pages: Pages::new(config.pages),
            verifier: Verifier::new(admit, clock, region),
            get: place_of("GetObject"),
            head: place_of("HeadObject"),
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

    fn call(&self, peer: Remote, request: Request<Upload>) -> Self::Reply {
        let mut stages = self.inner.observer.begin(request.headers(), peer.address.ip());
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
        let (inner, from) = (Arc::clone(&self.inner), peer.address);
        let (method, path) = (parts.method.clone(), parts.path.clone());
        let about = move || About {
            door: "s3",
            operation: method.to_string().into(),
            object: path.clone(),
            client: from.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let answer = Box::pin(async move { inner.answer(parts, upload).await });
        Either::Right(Scope::of(stages, in_flight, answer))
    }
}

/// Refuses service workers: they would see and answer all later requests of the browser to their
/// bucket.
fn check_worker(headers: &HeaderMap) -> S3Result<()> {
    match headers.get("service-worker") {
        None => Ok(()),
        Some(_) => {
            let text = "objects are no service workers: serve such pages as a website";
            Err(refuse(S3ErrorCode::AccessDenied, text))
        }
    }
}

impl Inner {
    fn next_id(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // A letter first, so that no parser takes the id for a number.
        format!("R{:016X}", self.start.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    fn take_apart(
        &self,
        peer: Remote,
        request: Request<Upload>,
    ) -> Result<(Parts, Upload), Box<Response<Body>>> {
        let request_id = self.next_id();
        let named = host::check(&request).map_err(|error| bad_request(error.to_string()));
        let named = named.and_then(|()| check_worker(request.headers()));
        let (head, upload) = request.into_parts();
        let host = address::host(&head.uri, &head.headers).to_vec();
        let path = head.uri.path().to_owned();
        let parsed = named
            .and_then(|()| Address::parse(&path, &host, &self.domains))
            .and_then(|address| Ok((address, Query::parse(head.uri.query())?)));
        match parsed {
            Ok((address, query)) => {
                let (method, headers) = (head.method, head.headers);
                let host_id = self.host_id.clone();
                let witness = Witness::of(&head.extensions);
                witness.note(|facts| {
                    facts.bucket = address.bucket().map(str::to_owned);
                    facts.key = address.key().map(str::to_owned);
                });
                let parts = Parts {
                    from: peer,
                    method,
                    path,
                    host,
                    address,
                    query,
                    headers,
                    request_id,
                    host_id,
                    witness,
                };
                Ok((parts, upload))
            }
            Err(error) => {
                let host_id = self.host_id.clone();
                let id = request_id.clone();
                let told =
                    ErrorContext { resource: path, request_id, host_id, ..ErrorContext::default() };
                let mut response = document::response(&error, &told);
                let is_waiting = head.headers.contains_key(EXPECT);
                leave(|| upload.linger(), is_waiting, &mut response);
                Err(Box::new(self.finish(response, &id)))
            }
        }
    }

    /// Returns the reply to an anonymous request for an object that is in memory.
    fn answer_now(&self, parts: &Parts, stages: &mut Stages) -> Option<Response<Body>> {
        let is_head = parts.method == Method::HEAD;
        let Address::Object { bucket, key } = &parts.address else { return None };
        let plain = (is_head || parts.method == Method::GET)
            && parts.query.is_empty()
            && !parts.headers.contains_key(http::header::AUTHORIZATION)
            && !parts.headers.contains_key(http::header::ORIGIN)
            && !parts.headers.keys().any(|name| name.as_str().starts_with("x-amz-"));
        if !plain {
            return None;
        }
        let caller = &anonymous(parts.from);
        let (query, headers) = (&parts.query, &parts.headers);
        let reading = Reading { caller, bucket, key, query, headers, is_head };
        let response = match reading.now(&self.store.fs)? {
            Ok(response) => self.finish(response, &parts.request_id),
            Err(Failure::Refused(error)) => self.finish(refused(parts, &error), &parts.request_id),
            // A missing object needs a further look.
            Err(Failure::Store(_)) => return None,
        };
        stages.lap(Stage::Cache);
        let verb = if is_head { self.head } else { self.get };
        Some(self.count(response, RequestLabels { verb, is_anonymous: true }, stages))
    }

    async fn answer(&self, mut parts: Parts, upload: Upload) -> Response<Body> {
        let (mut seen, announced) = (UNSEEN, upload.announced());
        let mut response = if parts.method == Method::OPTIONS {
            parts.witness.note(|facts| facts.is_preflight = true);
            let asked = preflight::answer(&self.store.fs, &self.pages, &parts);
            let outcome = Box::pin(asked).await;
            let mut response = outcome.unwrap_or_else(|error| refused(&parts, &error));
            leave(|| upload.linger(), parts.is_waiting(), &mut response);
            response
        } else if let Some(api) = aws_query::api_of(&parts) {
            parts.witness.note(|facts| facts.reason = Some("NotImplemented".to_owned()));
            let mut response = aws_query::refused(api, &parts.request_id);
            leave(|| upload.linger(), parts.is_waiting(), &mut response);
            response
        } else {
            Box::pin(self.answer_admitted(&mut parts, upload, &mut seen)).await
        };
        Box::pin(preflight::say(&self.store.fs, &self.pages, &parts, &mut response)).await;
        let response = self.finish(response, &parts.request_id);
        if let Some(stats) = self.stats.get(seen.verb)
            && response.status().is_success()
        {
            stats.received(announced.unwrap_or(0));
        }
        let stages = stage::snapshot().expect("the reply is a scope");
        self.count(response, seen, &stages)
    }

    async fn answer_admitted(
        &self,
        parts: &mut Parts,
        mut upload: Upload,
        seen: &mut RequestLabels,
    ) -> Response<Body> {
        let admitted = match Box::pin(self.admit(parts, seen)).await {
            Ok(admitted) => match Box::pin(self.account(&admitted.caller, &upload)).await {
                Ok(account) => Ok((admitted, account)),
                Err(wait) => Err(slow_down(wait)),
            },
            Err(error) => Err(error),
        };
        match admitted {
            Ok((AdmittedRequest { operation, caller, mode, decoded }, account)) => {
                if let Some(account) = &account {
                    upload.counts_for(Arc::clone(account));
                }
                let mut payload = Payload::new(upload, mode, decoded);
                let serving = self.serve(operation, &caller, parts, &mut payload);
                let outcome = Box::pin(serving).await;
                let mut response = outcome.unwrap_or_else(|error| refused(parts, &error));
                leave(|| payload.linger(), parts.is_waiting(), &mut response);
                if let Some(account) = account {
                    response.extensions_mut().insert(PacingAccount::new(account));
                }
                response
            }
            Err(error) => {
                let mut response = refused(parts, &error);
                leave(|| upload.linger(), parts.is_waiting(), &mut response);
                response
            }
        }
    }

    /// Returns the account of a caller with limits.
    ///
    /// # Errors
    /// The time until the caller may send a request again.
    async fn account(
        &self,
        caller: &Caller,
        upload: &Upload,
    ) -> Result<Option<Arc<Account>>, Duration> {
        match upload.admit(caller) {
            Ok(()) => pacing::account_of(&self.store.fs, caller).await,
            Err(NoPlace) => Err(Duration::from_secs(limits::NO_PLACE_SECS)),
        }
    }

    /// Adds the time taken to a reply, and counts it: now, or when its last byte is sent.
    fn count(
        &self,
        mut response: Response<Body>,
        seen: RequestLabels,
        stages: &Stages,
    ) -> Response<Body> {
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

    /// Finds out the caller and the operation. The request gets its final form.
    async fn admit(
        &self,
        parts: &mut Parts,
        seen: &mut RequestLabels,
    ) -> S3Result<AdmittedRequest> {
        let verdict = stage::time(Stage::Admit, self.judge(parts)).await;
        let verdict = verdict.inspect_err(|error| not_admitted(&parts.witness, error))?;
        let Verdict { caller, mode, is_presigned } = verdict;
        parts.witness.by(&caller);
        seen.is_anonymous = caller.is_anonymous();
        if is_presigned {
            sigv4::strip(&mut parts.query);
            sigv2::strip(&mut parts.query);
            headers::unhoist(&mut parts.query, &mut parts.headers)?;
        }
        let copies = parts.headers.contains_key("x-amz-copy-source");
        let (place, operation) =
            route::resolve(&parts.method, &parts.address, &mut parts.query, copies)?;
        seen.verb = place;
        inflight::is(operation.name);
        parts.witness.note(|facts| facts.operation = Some(operation.name));
        if !caller.is_anonymous() {
            inflight::by(caller.user());
        }
        header_rules::check(operation, &parts.headers, self.classes)?;
        owner::check_expected(&self.store.fs, &caller, &parts.address, &parts.headers).await?;
        let decoded = match operation.input {
            Input::Unread => None,
            _ => decoded_length(&parts.headers)?,
        };
        Ok(AdmittedRequest { operation, caller, mode, decoded })
    }

    /// Takes the body as the operation wants it, and runs its verb.
    async fn serve(
        &self,
        operation: &Operation,
        caller: &Caller,
        parts: &Parts,
        payload: &mut Payload,
    ) -> S3Result<Response<Body>> {
        let (store, input, headers) = (&self.store, operation.input, &parts.headers);
        let mut room = Room::of(&self.xml_memory, party_of(caller));
        let (action, is_known) = (operation.action, !caller.is_anonymous());
        let mut call = Call { store, caller, action, parts, payload, xml: Bytes::new() };
        if input != Input::Unread {
            body::check_framing(input, call.payload, headers)?;
        }
        match input {
            Input::Unread | Input::Bytes => {}
            Input::None => {
                let is_read = matches!(parts.method, Method::GET | Method::HEAD);
                let is_awaited = !is_read && is_known;
                body::read_nothing(call.payload, headers, is_awaited).await?;
            }
            Input::Xml { elements, is_of_object } => {
                let integrity = if is_of_object {
                    Integrity::only_md5(headers)?
                } else {
                    Integrity::parse(headers)?
                };
                let may = Box::pin(authorize(store, caller, action, &parts.address)).await;
                let may = body::Standing { may, is_known };
                let read = body::read_xml(call.payload, integrity, elements, may, &mut room);
                call.xml = read.await?;
            }
        }
        (operation.verb)(call).await
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
            None => Verifier::anonymous(&request, parts.from),
            Some(claim) => self.verifier.judge(&request, parts.from, claim).await,
        }
    }
}

/// Notes the request as refused, whatever the status is, unless the server failed.
fn not_admitted(witness: &Witness, error: &S3Error) {
    let is_ours = error.status_code().is_some_and(|status| status.is_server_error());
    witness.note(|facts| facts.is_refused = !is_ours);
}

fn refused(parts: &Parts, error: &S3Error) -> Response<Body> {
    parts.witness.note(|facts| facts.reason = Some(reason(error)));
    document::response(error, &parts.told())
}

/// Drains or abandons the rest of the request body. A client that is still sending gets to see the
/// reply, and learns from it if the connection ends. A client that waits for `100 Continue` sends
/// nothing.
fn leave(linger: impl FnOnce() -> bool, is_waiting: bool, response: &mut Response<Body>) {
    if !is_waiting && !linger() {
        // Over HTTP/2, where the header means nothing, it is not sent.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
