//! The way of a request through this door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::Caller;
use cairn_fs::Fs;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use s3s::{Body, S3Error, S3Result};

use super::address::{self, Address};
use super::error::{self, Codes};
use super::get_object::{Failure, Reading};
use super::library::Library;
use super::query::Query;
use super::store::Store;
use super::verdict::{Verdict, Verifier};
use super::{S3Config, headers, operation, owner, sigv2, sigv4};
use crate::admit::Admit;
use crate::serve::{Door, Peer};
use crate::upload::Upload;

/// How long a client waits for a reply without a sign of life.
const PATIENCE: Duration = Duration::from_secs(5);
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
    /// Where request ids begin: random, so that they differ after a restart.
    start: u64,
    count: AtomicU64,
}

/// A request taken apart.
pub(super) struct Parts {
    pub(super) method: Method,
    path: String,
    host: Vec<u8>,
    pub(super) address: Address,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) request_id: String,
}

impl S3Door {
    pub fn new(fs: Fs, admit: Arc<Admit>, config: S3Config) -> S3Door {
        S3Door::with_patience(fs, admit, config, PATIENCE)
    }

    /// As [`S3Door::new`]; the completion of an upload that takes longer than `patience` is
    /// answered piecemeal, so that the client does not give up.
    pub fn with_patience(
        fs: Fs,
        admit: Arc<Admit>,
        config: S3Config,
        patience: Duration,
    ) -> S3Door {
        let clock = Arc::clone(fs.clock());
        let region = config.region.clone();
        let start = admit.rng().next_u64();
        let store = Store { fs, region: config.region, patience };
        let mut domains = config.domains;
        domains.iter_mut().for_each(|domain| domain.make_ascii_lowercase());
        let inner = Inner {
            library: Library::new(store.clone()),
            store,
            domains,
            verifier: Verifier::new(admit, clock, region),
            start,
            count: AtomicU64::new(0),
        };
        S3Door { inner: Arc::new(inner) }
    }
}

type Slow = BoxFuture<'static, Response<Body>>;

impl Door for S3Door {
    type Body = Body;
    type Reply = Either<Ready<Response<Body>>, Slow>;

    fn call(&self, _peer: Peer, request: Request<Upload>) -> Self::Reply {
        let (parts, upload) = match self.inner.take_apart(request) {
            Ok(taken) => taken,
            Err(response) => return Either::Left(ready(*response)),
        };
        if let Some(response) = self.inner.answer_now(&parts) {
            return Either::Left(ready(response));
        }
        let inner = Arc::clone(&self.inner);
        Either::Right(Box::pin(async move { inner.answer(parts, upload).await }))
    }
}

impl Inner {
    fn next_id(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", self.start.wrapping_add(count.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    fn take_apart(&self, request: Request<Upload>) -> Result<(Parts, Upload), Box<Response<Body>>> {
        let request_id = self.next_id();
        let (head, upload) = request.into_parts();
        let host = address::host(&head.uri, &head.headers).to_vec();
        let path = head.uri.path().to_owned();
        let parsed = Address::parse(&path, &host, &self.domains)
            .and_then(|address| Ok((address, Query::parse(head.uri.query())?)));
        match parsed {
            Ok((address, query)) => {
                let (method, headers) = (head.method, head.headers);
                let parts = Parts { method, path, host, address, query, headers, request_id };
                Ok((parts, upload))
            }
            Err(error) => {
                let response = error::response(&error, &path, &request_id);
                Err(Box::new(finish(response, &request_id)))
            }
        }
    }

    /// The reply to an anonymous request for an object that is in memory.
    fn answer_now(&self, parts: &Parts) -> Option<Response<Body>> {
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
        match reading.now(&self.store.fs)? {
            Ok(response) => Some(finish(response, &parts.request_id)),
            Err(Failure::Refused(error)) => Some(self.refused(parts, &error)),
            // What is missing takes another look.
            Err(Failure::Store(_)) => None,
        }
    }

    fn refused(&self, parts: &Parts, error: &S3Error) -> Response<Body> {
        let response = error::response(error, &parts.address.resource(), &parts.request_id);
        finish(response, &parts.request_id)
    }

    async fn answer(&self, mut parts: Parts, upload: Upload) -> Response<Body> {
        match self.serve(&mut parts, upload).await {
            Ok(response) => finish(response, &parts.request_id),
            Err(error) => self.refused(&parts, &error),
        }
    }

    async fn serve(&self, parts: &mut Parts, upload: Upload) -> S3Result<Response<Body>> {
        let verdict = self.judge(parts).await?;
        if verdict.is_presigned {
            sigv4::strip(&mut parts.query);
            sigv2::strip(&mut parts.query);
            headers::unhoist(&mut parts.query, &mut parts.headers)?;
        }
        headers::check(&parts.headers)?;
        let copies = parts.headers.contains_key("x-amz-copy-source");
        let operation =
            operation::resolve(&parts.method, &parts.address, &mut parts.query, copies)?;
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
            return self.verifier.judge_version_2(&request, &parts.address, claim).await;
        }
        match self.verifier.claim(&request)? {
            None => Verifier::anonymous(&request),
            Some(claim) => self.verifier.judge(&request, claim).await,
        }
    }
}

fn finish(mut response: Response<Body>, request_id: &str) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
