//! An S3 store as its clients see it. Requests are signed by their URLs: the same for all stores,
//! and no body is hashed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::Full;
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use tokio_rustls::TlsConnector;

use crate::client::{Exchange, Target};
use crate::error::{Error, Result};
use crate::load;

/// Limit of S3 on the number of parts.
pub const PARTS_MAX: u64 = 10_000;
/// Longest body that is sent at once, bytes.
pub const BODY_MAX: u64 = 1 << 30;

/// Validity of a signature.
const SIGNED_FOR: Duration = Duration::from_secs(3600);
/// Longest answer that is read, bytes.
const ANSWER_BYTES: usize = 16 << 20;

/// One endpoint of a store, and a bucket there.
#[derive(Clone)]
pub struct Store {
    pub target: Target,
    pub bucket: Bucket,
    pub credentials: Option<Credentials>,
    host: HeaderValue,
}

impl Store {
    /// Makes a store. Credentials in the URL have priority.
    pub fn new(
        target: Target,
        bucket: &str,
        region: &str,
        default: Option<(String, String)>,
    ) -> Result<Store> {
        if target.path != "/" {
            return Err(Error::usage(format!("{target}: an endpoint has no path: leave it out")));
        }
        let wrong = |why: String| Error::usage(format!("{target}: {why}"));
        let url = target.origin().parse().map_err(|error| wrong(format!("{error}")))?;
        let made = Bucket::new(url, UrlStyle::Path, bucket.to_owned(), region.to_owned());
        let made = made.map_err(|error| wrong(error.to_string()))?;
        let credentials = target.credentials.clone().or(default);
        let credentials = credentials.map(|(key, secret)| Credentials::new(key, secret));
        let host = HeaderValue::from_str(&target.authority());
        let host = host.map_err(|error| wrong(error.to_string()))?;
        Ok(Store { target, bucket: made, credentials, host })
    }

    /// Makes the request of an action; `None` if its URL is malformed.
    pub fn request<'a>(
        &self,
        method: Method,
        action: &impl S3Action<'a>,
        body: Bytes,
    ) -> Option<Request<Full<Bytes>>> {
        let url = action.sign(SIGNED_FOR);
        let path = url.as_str().get(url.origin().ascii_serialization().len()..)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse::<Uri>().ok()?;
        request.headers_mut().insert(HOST, self.host.clone());
        Some(request)
    }

    pub fn keys(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

/// A store outside of loads: it sends one request after another.
pub struct Hand<'a> {
    pub store: &'a Store,
    pub connector: &'a TlsConnector,
    pub timeout: Duration,
}

impl Hand<'_> {
    fn send(
        &self,
        what: &str,
        request: Option<Request<Full<Bytes>>>,
    ) -> Result<(StatusCode, String)> {
        let target = &self.store.target;
        let request = request.ok_or_else(|| {
            Error::failed(format!("{target}: the URL cannot be requested: check the endpoint"))
        })?;
        let timeout = self.timeout.max(Duration::from_secs(30));
        let Exchange { head, body, .. } =
            load::ask(target, self.connector, timeout, request, ANSWER_BYTES)?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if head.status.is_success() {
            return Ok((head.status, text));
        }
        let code = tags(&text, "Code").next().unwrap_or_default();
        let remedy = match head.status.as_u16() {
            401 | 403 if self.store.credentials.is_none() => {
                "give credentials: CAIRN_KEY and CAIRN_SECRET, or http://KEY:SECRET@HOST"
            }
            401 | 403 => "check key, secret, --region and the rights of this user",
            404 => "check the endpoint and --bucket",
            507 => "free some space there, or give smaller --sizes and fewer --objects",
            _ => "is this an S3 endpoint? look at its log",
        };
        Err(Error::failed(format!("{target}: {what}: {} {code}: {remedy}", head.status)))
    }

    pub fn create_bucket(&self) -> Result<()> {
        let store = self.store;
        let Some(keys) = store.keys() else {
            let remedy = "CAIRN_KEY and CAIRN_SECRET, http://KEY:SECRET@HOST, or --bucket";
            return Err(Error::usage(format!("no credentials to make a bucket with: {remedy}")));
        };
        let action = store.bucket.create_bucket(keys);
        let request = store.request(Method::PUT, &action, Bytes::new());
        self.send("making a bucket", request).map(drop)
    }

    pub fn delete_bucket(&self) -> Result<()> {
        let store = self.store;
        let Some(keys) = store.keys() else { return Ok(()) };
        let action = store.bucket.delete_bucket(keys);
        let request = store.request(Method::DELETE, &action, Bytes::new());
        self.send("deleting the bucket", request).map(drop)
    }

    /// Lists up to a thousand keys with a prefix.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let store = self.store;
        let mut action: ListObjectsV2 = store.bucket.list_objects_v2(store.keys());
        action.with_prefix(prefix);
        let request = store.request(Method::GET, &action, Bytes::new());
        let (_, text) = self.send("listing", request)?;
        let listed = ListObjectsV2::parse_response(&text);
        let listed = listed.map_err(|error| {
            Error::failed(format!(
                "{}: the reply to a listing cannot be parsed: {error}",
                store.target
            ))
        })?;
        Ok(listed.contents.into_iter().map(|object| object.key).collect())
    }

    /// Begins a multipart upload.
    pub fn begin_upload(&self, key: &str) -> Result<String> {
        let store = self.store;
        let action = store.bucket.create_multipart_upload(store.keys(), key);
        let request = store.request(Method::POST, &action, Bytes::new());
        let (_, text) = self.send("beginning an upload", request)?;
        let answer = CreateMultipartUpload::parse_response(&text);
        let answer = answer.map_err(|error| {
            Error::failed(format!(
                "{}: the reply to CreateMultipartUpload has no upload id: {error}",
                store.target
            ))
        })?;
        Ok(answer.upload_id().to_owned())
    }

    pub fn complete_upload(&self, key: &str, upload: &str, etags: &[String]) -> Result<()> {
        let (store, tags_of) = (self.store, || etags.iter().map(String::as_str));
        let of = |etags| store.bucket.complete_multipart_upload(store.keys(), key, upload, etags);
        let body = Bytes::from(of(tags_of()).body());
        let request = store.request(Method::POST, &of(tags_of()), body);
        let (_, text) = self.send("completing an upload", request)?;
        match tags(&text, "Code").next() {
            // S3 may have sent status 200 before it knew the error.
            Some(code) => {
                Err(Error::failed(format!("{}: completing an upload: {code}", store.target)))
            }
            None => Ok(()),
        }
    }

    pub fn abort_upload(&self, key: &str, upload: &str) -> Result<()> {
        let store = self.store;
        let action = store.bucket.abort_multipart_upload(store.keys(), key, upload);
        let request = store.request(Method::DELETE, &action, Bytes::new());
        self.send("aborting an upload", request).map(drop)
    }
}

/// Returns the texts between tags of this name, in the errors of S3.
fn tags<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (inside, after) = after.split_once(&close)?;
        rest = after;
        Some(inside)
    })
}

/// Returns the targets of the stores.
pub fn targets(stores: &[Store]) -> Vec<Target> {
    stores.iter().map(|store| store.target.clone()).collect()
}
