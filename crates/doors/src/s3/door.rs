//! The way of a request through this door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_fs::Fs;
use futures_util::future::{Either, Ready, ready};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use tokio::sync::Semaphore;

use super::address::{self, Address};
use super::error::{self, Codes, bad_request, internal, refuse};
use super::get_object::{Failure, Reading};
use super::integrity::Integrity;
use super::operation::{self, Input, Operation};
use super::owner;
use super::payload::{Payload, decoded_length};
use super::query::Query;
use super::sigv2;
use super::sigv4::{self, Claim};
use super::store::Store;
use super::verdict::{Verdict, Verifier};
use super::{S3Config, attributes, headers, xml};
use crate::admit::Admit;
use crate::serve::{Door, Peer};
use crate::upload::Upload;

/// How long a client waits for a reply without a sign of life.
const PATIENCE: Duration = Duration::from_secs(5);
/// A body that is XML, bytes; and one of a caller without credentials, who may do nothing with it.
const XML_BYTES: usize = 2 << 20;
const XML_BYTES_ANONYMOUS: usize = 4 << 10;
/// All such bodies that are in memory, KiB.
const XML_MEMORY_KIB: usize = 64 << 10;
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
    library: S3Service,
    xml_memory: Semaphore,
    /// The first half of request ids: random, so that they differ after a restart.
    start: u64,
    count: AtomicU64,
}

/// What was established about a request before the library saw it; given to the verbs.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) caller: Caller,
    /// As the client sent them.
    pub(super) headers: Arc<HeaderMap>,
    pub(super) payload: Arc<Mutex<Option<Payload>>>,
}

/// A request taken apart.
struct Parts {
    method: Method,
    path: String,
    host: Vec<u8>,
    address: Address,
    query: Query,
    headers: HeaderMap,
    request_id: String,
}

impl Parts {
    fn signed(&self) -> S3Result<(String, &Query, &HeaderMap)> {
        Ok((address::decode(&self.path)?, &self.query, &self.headers))
    }
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
        let mut builder = S3ServiceBuilder::new(store.clone());
        builder.set_config(library_config());
        let mut domains = config.domains;
        domains.iter_mut().for_each(|domain| domain.make_ascii_lowercase());
        let inner = Inner {
            store,
            domains,
            verifier: Verifier::new(admit, clock, region),
            library: builder.build(),
            xml_memory: Semaphore::new(XML_MEMORY_KIB),
            start,
            count: AtomicU64::new(0),
        };
        S3Door { inner: Arc::new(inner) }
    }
}

fn library_config() -> Arc<s3s::config::StaticConfigProvider> {
    let mut config = s3s::config::S3Config::default();
    config.xml_max_body_size = XML_BYTES;
    // Forms never come as far as this.
    config.post_object_max_file_size = 0;
    Arc::new(s3s::config::StaticConfigProvider::new(Arc::new(config)))
}

type Slow = futures_util::future::BoxFuture<'static, Response<Body>>;

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
            _ => self.ask_library(parts, operation, verdict, upload).await,
        }
    }

    async fn judge(&self, parts: &Parts) -> S3Result<Verdict> {
        let (decoded_path, query, headers) = parts.signed()?;
        let request = sigv4::Request {
            method: &parts.method,
            path: &parts.path,
            decoded_path: &decoded_path,
            query,
            headers,
            host: &parts.host,
        };
        if let Some(claim) = self.verifier.claim_of_version_2(&request)? {
            return self.verifier.judge_version_2(&request, &parts.address, claim).await;
        }
        let claim: Option<Claim> = self.verifier.claim(&request)?;
        match claim {
            None => Verifier::anonymous(&request),
            Some(claim) => self.verifier.judge(&request, claim).await,
        }
    }

    /// All other operations: the library reads what they ask and writes what they reply.
    async fn ask_library(
        &self,
        parts: &Parts,
        operation: &Operation,
        verdict: Verdict,
        upload: Upload,
    ) -> S3Result<Response<Body>> {
        let decoded = decoded_length(&parts.headers)?;
        check_framing(&parts.headers, operation, &verdict, decoded, &upload)?;
        let mut payload = Payload::new(upload, verdict.mode, decoded);
        let body = match operation.input {
            Input::Bytes => Bytes::new(),
            Input::Xml => self.read_xml(&mut payload, &verdict.caller, &parts.headers).await?,
            Input::None => payload.read_all(0).await?,
        };
        let payload = Arc::new(Mutex::new(Some(payload)));
        let asked = Asked {
            caller: verdict.caller,
            headers: Arc::new(parts.headers.clone()),
            payload: Arc::clone(&payload),
        };
        let response = self.library.call(library_request(parts, asked, body)?).await;
        let left = payload.lock().take();
        if let Some(left) = left
            && !parts.headers.contains_key(http::header::EXPECT)
        {
            left.drain().await;
        }
        match response {
            Ok(response) => Ok(complete(parts, operation, response)),
            Err(error) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error.into();
                Err(internal(&cairn_base::Error::Io(std::io::Error::other(error))))
            }
        }
    }

    async fn read_xml(
        &self,
        payload: &mut Payload,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> S3Result<Bytes> {
        let integrity = Integrity::parse(headers)?;
        let is_anonymous = caller.principal() == Principal::Anonymous;
        let limit = if is_anonymous { XML_BYTES_ANONYMOUS } else { XML_BYTES };
        let kib = payload.announced().map_or(limit, |len| limit.min(len as usize)) >> 10;
        let permit = self.xml_memory.acquire_many(kib as u32).await;
        let _held = permit.map_err(|_| refuse(S3ErrorCode::ServiceUnavailable, "stopping"))?;
        let body = payload.read_all(limit).await?;
        let mut digester = integrity.digester(None);
        digester.update(&body);
        integrity.verify(payload, &digester.finish())?;
        xml::prepare(body)
    }
}

/// What the library leaves out of its replies.
fn complete(parts: &Parts, operation: &Operation, mut response: Response<Body>) -> Response<Body> {
    let Some(mut body) = response.body().bytes() else {
        let (resource, request_id) = (parts.address.resource(), parts.request_id.clone());
        return response.map(|body| {
            Body::http_body_unsync(body.map_frame(move |frame| {
                frame.map_data(|data| error::late(data, &resource, &request_id))
            }))
        });
    };
    if !response.status().is_success() {
        body = error::extend(&body, &parts.address.resource(), &parts.request_id);
    } else if operation.name == "GetObjectAttributes" {
        // Here alone an ETag has no quotes.
        let text = String::from_utf8_lossy(&body);
        let quotes = [("<ETag>&quot;", "<ETag>"), ("&quot;</ETag>", "</ETag>")];
        let quotes = quotes.into_iter().chain([("<ETag>\"", "<ETag>"), ("\"</ETag>", "</ETag>")]);
        body = quotes.fold(text.into_owned(), |text, (from, to)| text.replace(from, to)).into();
    }
    *response.body_mut() = Body::from(xml::escape_controls(&body).unwrap_or(body));
    response
}

fn finish(mut response: Response<Body>, request_id: &str) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Whether the length of what comes is known, and its framing is what the signature says.
fn check_framing(
    headers: &HeaderMap,
    operation: &Operation,
    verdict: &Verdict,
    decoded: Option<u64>,
    upload: &Upload,
) -> S3Result<()> {
    let is_chunked = matches!(verdict.mode, super::payload::Mode::Chunked(_));
    if is_chunked && decoded.is_none() {
        let what = "missing header: x-amz-decoded-content-length";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    if !is_chunked && attributes::says_chunked(headers) {
        let what = "a body of aws-chunked needs x-amz-content-sha256: STREAMING-…";
        return Err(bad_request(what));
    }
    if !is_chunked && operation.input == Input::Bytes && upload.announced().is_none() {
        let what = "you must provide the Content-Length HTTP header";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    Ok(())
}

/// The request as the library sees it: without credentials, by path, its body in hand. It only
/// gets headers that the verbs do not read themselves.
fn library_request(parts: &Parts, asked: Asked, body: Bytes) -> S3Result<Request<Body>> {
    let mut path = String::from("/");
    match &parts.address {
        Address::Root => {}
        Address::Bucket(bucket) => path.push_str(bucket),
        Address::Object { bucket, key } => {
            path.push_str(bucket);
            path.push('/');
            sigv4::encode_into(&mut path, key.as_bytes(), false);
        }
    }
    if !parts.query.is_empty() {
        path.push('?');
        path.push_str(&parts.query.encode());
    }
    let mut request = Request::builder()
        .method(parts.method.clone())
        .uri(path)
        .body(Body::empty())
        .map_err(|_| refuse(S3ErrorCode::InvalidURI, "the request is too long"))?;
    let headers = request.headers_mut();
    for value in parts.headers.get_all("x-amz-copy-source") {
        headers.append("x-amz-copy-source", value.clone());
    }
    // The library takes one of them a line, clients send them in one.
    for value in parts.headers.get_all("x-amz-object-attributes") {
        for word in value.to_str().unwrap_or_default().split(',') {
            if let Ok(word) = HeaderValue::from_str(word.trim()) {
                headers.append("x-amz-object-attributes", word);
            }
        }
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    *request.body_mut() = Body::from(body);
    request.extensions_mut().insert(asked);
    Ok(request)
}
