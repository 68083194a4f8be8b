//! The operations that the `s3s` library reads and writes: everything but objects themselves.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::{Caller, Principal};
use cairn_base::Shares;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::put_object::MayWrite;
use cairn_fs::{Digester, party_of};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3ErrorCode, S3Result};

use super::address::Address;
use super::document;
use super::door::Parts;
use super::error::{Codes, bad_request, internal, refuse};
use super::integrity::Integrity;
use super::payload::{Mode, Payload, decoded_length};
use super::store::Store;
use super::table::{Input, Operation};
use super::verdict::Verdict;
use super::{attributes, sigv4, xml};
use crate::limits;
use crate::room::Room;
use crate::upload::Upload;

/// A body that is XML, bytes; and one of a caller who may do nothing with it.
const XML_BYTES: usize = 2 << 20;
const XML_BYTES_REFUSED: usize = 4 << 10;

/// What was established about a request before the library saw it; given to the verbs.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) caller: Caller,
    /// As the client sent them.
    pub(super) headers: Arc<HeaderMap>,
    pub(super) payload: Arc<Mutex<Option<Payload>>>,
    /// The body, where a verb reads more of it than the library does.
    pub(super) body: Bytes,
    /// The URL of the object, where the reply tells it.
    pub(super) url: Option<String>,
}

/// The library, and what it is given.
pub(super) struct Library {
    service: S3Service,
    store: Store,
    xml_memory: Arc<Shares>,
}

impl Library {
    pub(super) fn new(store: Store) -> Library {
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_BYTES;
        // Forms never come as far as this.
        config.post_object_max_file_size = 0;
        let mut builder = S3ServiceBuilder::new(store.clone());
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        Library { service: builder.build(), store, xml_memory: Shares::new(limits::XML_BYTES) }
    }

    /// All other operations: the library reads what they ask and writes what they reply.
    pub(super) async fn ask(
        &self,
        parts: &Parts,
        operation: &Operation,
        verdict: Verdict,
        upload: &mut Option<Upload>,
    ) -> S3Result<Response<Body>> {
        let decoded = decoded_length(&parts.headers)?;
        if let Some(upload) = &*upload {
            check_framing(&parts.headers, operation, &verdict, decoded, upload)?;
        }
        let upload = upload.take().ok_or_else(|| bad_request("the body was read already"))?;
        let mut payload = Payload::new(upload, verdict.mode, decoded);
        let mut room = Room::of(&self.xml_memory, party_of(&verdict.caller));
        let body = match operation.input {
            Input::Bytes => Ok(Bytes::new()),
            Input::Xml => {
                let may = self.may_ask(&verdict.caller, operation, &parts.address).await;
                read_xml(operation, &mut payload, may, &parts.headers, &mut room).await
            }
            Input::None => read_nothing(&mut payload, &parts.headers).await,
        };
        let body = match body {
            Ok(body) => body,
            Err(error) => {
                let mut response = document::response(&error, &parts.told());
                leave(payload, parts, &mut response);
                return Ok(response);
            }
        };
        let payload = Arc::new(Mutex::new(Some(payload)));
        let asked = Asked {
            caller: verdict.caller,
            headers: Arc::new(parts.headers.clone()),
            payload: Arc::clone(&payload),
            body: if operation.name == "CreateBucket" { body.clone() } else { Bytes::new() },
            url: (operation.name == "CompleteMultipartUpload").then(|| parts.url()).flatten(),
        };
        let mut response = self.service.call(library_request(parts, asked, body)?).await;
        let left = payload.lock().take();
        if let (Some(left), Ok(response)) = (left, &mut response) {
            leave(left, parts, response);
        }
        match response {
            Ok(response) => Ok(complete(parts, operation, response)),
            Err(error) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error.into();
                Err(internal(&cairn_base::Error::Io(std::io::Error::other(error))))
            }
        }
    }

    /// Whether a caller may change anything at all in what the request names: who may not gets no
    /// room for what it sends.
    async fn may_ask(
        &self,
        caller: &Caller,
        operation: &Operation,
        address: &Address,
    ) -> S3Result<()> {
        let store = &self.store;
        if caller.principal() == Principal::Anonymous {
            return Err(refuse(S3ErrorCode::AccessDenied, "a change without credentials"));
        }
        let codes = Codes::bucket();
        match (operation.name, address) {
            ("CreateBucket", _) | (_, Address::Root) => Ok(()),
            ("DeleteObjects", Address::Bucket(bucket)) | (_, Address::Object { bucket, .. }) => {
                let may = MayWrite { bucket: bucket.clone() };
                store.read(caller, bucket, codes, may).await.map(drop)
            }
            // The settings of a bucket.
            (_, Address::Bucket(bucket)) => {
                let named = GetBucket { name: bucket.clone() };
                store.read(caller, bucket, codes, named).await.map(drop)
            }
        }
    }
}

/// A body of XML, in room that is taken for it if its sender may ask for something with it.
async fn read_xml(
    operation: &Operation,
    payload: &mut Payload,
    may: S3Result<()>,
    headers: &HeaderMap,
    room: &mut Room,
) -> S3Result<Bytes> {
    // The checksum of a completion is of the object, not of the list of its parts.
    let integrity = match operation.name {
        "CompleteMultipartUpload" => Integrity::only_md5(headers)?,
        _ => Integrity::parse(headers)?,
    };
    let is_short = |length| length <= XML_BYTES_REFUSED as u64;
    let body = match may {
        Ok(()) => payload.read_all(XML_BYTES, Some(room)).await?,
        // It is the verb that refuses, where there is no need for room.
        Err(_) if payload.announced().is_some_and(is_short) => {
            payload.read_all(XML_BYTES_REFUSED, None).await?
        }
        Err(refused) => return Err(refused),
    };
    let mut digester = integrity.digester(None);
    digester.update(&body);
    integrity.verify(payload, &digester.finish())?;
    let body = xml::prepare(body)?;
    xml::check_elements(&body, operation.elements())?;
    Ok(body)
}

async fn read_nothing(payload: &mut Payload, headers: &HeaderMap) -> S3Result<Bytes> {
    let integrity = Integrity::only_md5(headers)?;
    let body = payload.read_all(0, None).await?;
    integrity.verify(payload, &Digester::new(true, &[]).finish())?;
    Ok(body)
}

/// What the verb did not read of a body.
fn leave(left: Payload, parts: &Parts, response: &mut Response<Body>) {
    if !parts.headers.contains_key(http::header::EXPECT) && !left.linger() {
        // Over HTTP/2, where it says nothing, it is not sent.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// What the library leaves out of its replies.
fn complete(parts: &Parts, operation: &Operation, mut response: Response<Body>) -> Response<Body> {
    let Some(mut body) = response.body().bytes() else {
        let told = parts.told();
        return response.map(|body| {
            Body::http_body_unsync(
                body.map_frame(move |frame| frame.map_data(|data| document::late(data, &told))),
            )
        });
    };
    if !response.status().is_success() {
        body = document::rewrite(&body, &parts.told());
    } else if operation.name == "PutBucketTagging" {
        *response.status_mut() = StatusCode::NO_CONTENT;
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

/// Whether the length of what comes is known, and its framing is what the signature says.
fn check_framing(
    headers: &HeaderMap,
    operation: &Operation,
    verdict: &Verdict,
    decoded: Option<u64>,
    upload: &Upload,
) -> S3Result<()> {
    let is_chunked = matches!(verdict.mode, Mode::Chunked(_));
    if is_chunked && decoded.is_none() {
        let what = "missing header: x-amz-decoded-content-length";
        return Err(refuse(S3ErrorCode::MissingContentLength, what));
    }
    // As at S3, a body that has the hash of the signature is what the client meant to send.
    let is_known = matches!(verdict.mode, Mode::Hashed(_)) && decoded.is_none();
    if !is_chunked && !is_known && attributes::says_chunked(headers) {
        let what =
            "Content-Encoding: a body of aws-chunked needs x-amz-content-sha256: STREAMING-…";
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
